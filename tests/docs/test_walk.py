"""A MERGE and a SELECT pass through the code as the page about the engine describes."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from pyspark.sql import SparkSession

import dml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture" / "10-engine.md"
STEP = re.compile(r"^\| (?P<number>\d+) \| `(?P<path>[\w/.]+)` \| `(?P<function>\w+)`", re.MULTILINE)
# The folder `sqlparse` is `dml/sqlparse` when it is installed, and `deletes` likewise.
PACKAGE = str(Path(dml.__file__).parent)


@contextmanager
def first_calls() -> Iterator[list[tuple[str, str]]]:
    """The functions of the package that are called inside, in the order of their first calls: module and name."""
    calls: dict[tuple[str, str], None] = {}

    def called(frame: FrameType, event: str, _: object) -> None:
        place = frame.f_code.co_filename
        if event == "call" and place.startswith(PACKAGE):
            calls.setdefault((f"dml{place.removeprefix(PACKAGE)}", frame.f_code.co_name))

    found: list[tuple[str, str]] = []
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found.extend(calls)


MERGE = (
    "MERGE INTO db.flights t USING (SELECT * FROM VALUES (2, 5.0), (3, 1.0) AS v (id, delay)) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET delay = s.delay + abs(t.delay) WHEN NOT MATCHED THEN INSERT *"
)
SELECT = "SELECT id, delay FROM db.flights WHERE id > 1"


@pytest.mark.spark
@pytest.mark.parametrize(("title", "statement"), [("One MERGE", MERGE), ("One SELECT", SELECT)])
def test_a_statement_passes_through_the_files_in_the_order_of_the_page(
    spark: SparkSession, tmp_path: Path, title: str, statement: str
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition(f"## {title} through the code")[2].partition("\n## ")[0]
    steps = [(step["path"], step["function"]) for step in STEP.finditer(section)]
    assert len(steps) >= 10
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.sql("CREATE NAMESPACE db")
        lake.sql("CREATE TABLE db.flights (id BIGINT, delay DOUBLE)")
        lake.sql("INSERT INTO db.flights VALUES (1, 1.0), (2, 2.0)")
        with first_calls() as calls:
            lake.sql(statement)
        lake.disable()
    missing = [step for step in steps if step not in calls]
    assert not missing
    assert sorted(steps, key=calls.index) == steps
