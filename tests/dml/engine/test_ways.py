"""The way of each statement, as EXPLAIN says it: whose rows tasks change themselves, and what goes through Spark.

`ways.txt` lists statements, and under each the ways that it takes, in which modes, with the files that it opens of a
table of three files and of a partitioned one of nine. The code that selects a way and this list change together.
"""

import re
from pathlib import Path

import pytest

from dml.errors import DmlError
from tests.lake import Lake

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, k INT, s STRING, d DOUBLE, at TIMESTAMP, day DATE, price DECIMAL(10, 2), "
    "st STRUCT<a: INT, b: STRING>, tags ARRAY<STRING>"
)
ROWS = (
    "SELECT id, CAST(id % 3 AS INT) AS k, concat('s', id) AS s, id / 4 AS d, timestamp_seconds(id * 3600) AS at, "
    "date_add(DATE '2024-01-01', CAST(id AS INT)) AS day, CAST(id AS DECIMAL(10, 2)) AS price, "
    "named_struct('a', CAST(id AS INT), 'b', 'x') AS st, array('t') AS tags"
)
MODES = {
    "copy-on-write": ("2", "copy-on-write", "false"),
    "position deletes": ("2", "merge-on-read", "false"),
    "deletion vectors": ("3", "merge-on-read", "false"),
    "by file": ("3", "copy-on-write", "true"),
}
LISTED = [block.splitlines() for block in Path(__file__).with_name("ways.txt").read_text().strip().split("\n\n")]


@pytest.fixture(scope="module")
def targets(engine_lake: Lake) -> dict[str, list[str]]:
    """Two tables for each mode, of three files and of three partitions of three files; and a view for sources."""
    engine_lake.session.enable()
    names: dict[str, list[str]] = {}
    for mode, (version, of_rows, by_file) in MODES.items():
        properties = {f"write.{command}.mode": of_rows for command in ("delete", "update", "merge")}
        properties |= {"write.auto.enabled": by_file, "write.splice.min-file-size-bytes": "1"}
        names[mode] = [
            engine_lake.create(COLUMNS, clause, **{"format-version": version, **properties})
            for clause in ("", "PARTITIONED BY (k)")
        ]
        for name in names[mode]:
            for start in (0, 30, 60):
                rows = f"SELECT /*+ COALESCE(1) */ * FROM range({start}, {start + 30})"
                engine_lake.session.sql(f"INSERT INTO {name} {ROWS} FROM ({rows})")
    engine_lake.session.spark.sql(f"{ROWS} FROM range(20, 40)").createOrReplaceTempView("ways_source")
    engine_lake.session.disable()
    return names


def explained(lake: Lake, statement: str, name: str) -> tuple[str, str]:
    """Return the way that EXPLAIN tells of, and the files that are opened."""
    try:
        ((plan,),) = lake.session.sql("EXPLAIN " + statement.replace("{t}", name)).collect()
    except DmlError as error:
        return f"refused ({type(error).__name__})", ""
    rows, scan = re.search(r"rows: (.*)", plan), re.search(r"scan: (\d+ of \d+) data files", plan)
    assert rows, plan
    way, _, reason = rows[1].partition(", because ")
    if "with their data files" in way:
        way = "by metadata"
    elif "by the driver" in way:
        way = "written in the driver"
    elif " by the " in way:
        way = f"{way.split()[0]} in tasks"
    if reason:
        way += f" ({reason})"
    if "source: read by RowDelta's own scan" in plan:
        way += ", source scanned"
    if "shuffle: rows by data file" in plan:
        way += ", shuffled"
    if "splicing: " in plan:
        way += ", spliced"
    return way, scan[1] if scan else ""


def way_of(lake: Lake, statement: str, names: list[str]) -> str:
    """Return the way of a statement, and the files that it opens, of the two tables."""
    (plain, files), (partitioned, of_partitions) = (explained(lake, statement, name) for name in names)
    if plain == partitioned:
        return f"{plain}, {files} and {of_partitions} files" if files else plain
    return f"{with_files(plain, files)}, partitioned {with_files(partitioned, of_partitions)}"


def with_files(way: str, files: str) -> str:
    return f"{way}, {files} files" if files else way


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode == "copy-on-write" else pytest.mark.nightly) for mode in MODES]
)
def test_statements_take_the_ways_that_are_listed(lake: Lake, targets: dict[str, list[str]], mode: str) -> None:
    expected = {
        statement: way.strip()
        for statement, *lines in LISTED
        for way, _, modes in (line.rpartition(": ") for line in lines)
        if mode in modes.split("; ") or modes == "all"
    }
    assert {statement: way_of(lake, statement, targets[mode]) for statement, *_ in LISTED} == expected
