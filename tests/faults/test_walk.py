"""A storage or catalog that fails at any one call: the table is as before or as after, and the report is true."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.bench import CTAS, EXPIRE, LARGE_INSERT, STATEMENTS, table_kinds
from tests.faults.injection import Action
from tests.faults.walk import Case, Tally, hit, walk

pytestmark = pytest.mark.spark

SHOWN = 20
CASES = [
    Case(statement="merge", version=3, mode="merge-on-read"),
    Case(statement="update", version=2, mode="copy-on-write"),
    Case(statement="delete", version=2, mode="merge-on-read"),
    Case(statement="insert", version=2, mode="copy-on-write"),
    Case(statement="rewrite", version=3, mode="merge-on-read"),
    Case(statement=EXPIRE, version=2, mode="copy-on-write"),
]
ALL_CASES = [
    Case(statement=name, version=version, mode=mode)
    for name in STATEMENTS
    if name != LARGE_INSERT
    for version, mode in (table_kinds() if name != CTAS else table_kinds()[:1])
]
ACTIONS = ((Action.FAIL, Action.LOSE), (Action.CUT,), (Action.DELAY,))


def nothing_wrong(tally: Tally, count: list[str]) -> None:
    count.append(str(tally))
    assert not tally.problems, "\n".join([f"{len(tally.problems)} problems", *tally.problems[:SHOWN]])


@pytest.mark.proves("A1", "A4", "A5", "A6")
def test_one_call_fails(faulty_spark: SparkSession, tmp_path: Path, count: list[str]) -> None:
    """Each kind of call on each kind of file, for each kind of statement and both forms of deletes.

    Every single call, the other versions and modes, and calls that are late or cut short, are left to the soak.
    """
    nothing_wrong(walk(faulty_spark, tmp_path, CASES, (Action.FAIL, Action.LOSE), every_call=False), count)


def test_of_each_kind_of_file_the_first_and_the_last_call_are_hit() -> None:
    names = ["0.metadata.json", "snap-1.avro", "m0.avro", "a.parquet", "m1.avro", "b.parquet", "c-deletes.parquet"]
    locations = [f"file:///t/{name}" for name in names]
    assert hit(locations, every_call=False) == [1, 2, 3, 4, 5, 6, 7]
    run = [*locations, "file:///t/x.puffin", "db.t", *locations]
    assert hit(run, every_call=False) == [1, 2, 3, 4, 7, 8, 9, 10, 11, 14, 15, 16]
    assert hit(locations * 2, every_call=True) == list(range(1, 15))


@pytest.mark.soak
@pytest.mark.parametrize("action", ACTIONS, ids=lambda actions: str(actions[0]))
@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_every_call_of_every_statement(
    faulty_spark: SparkSession, tmp_path: Path, count: list[str], case: Case, action: tuple[Action, ...]
) -> None:
    """The whole product: it fails, it is late, it is cut short, and a commit loses its race."""
    nothing_wrong(walk(faulty_spark, tmp_path, [case], action, every_call=True), count)
