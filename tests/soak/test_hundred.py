"""Many statements at once, each on its own rows of the same two files: nearly all succeed, and none is lost."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from tests.interop.readers import read_duckdb, read_pyiceberg
from tests.services.lakes import LocalFiles, leftovers
from tests.soak.history import ancestry, said

pytestmark = pytest.mark.spark

NEW_KEYS = 100_000
LEAST_SHARE = 0.95
DELETE = "DELETE FROM {t} WHERE id IN ({id}, {other})"
UPDATE = "UPDATE {t} SET v = {id} WHERE id IN ({id}, {other})"
MERGE = """
MERGE INTO {t} t USING (SELECT * FROM VALUES ({id}L), ({other}L), ({new}L) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET v = {id} WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, {id})
"""
COMMANDS = (DELETE, UPDATE, MERGE)
LEVELS = ("serializable", "snapshot")


def run_at_once(lake: Session, table: str, count: int) -> dict[int, dml.DmlError | None]:
    """What became of each statement: statement `i` is about the rows `i` of either half, and no other is."""
    start = Barrier(count)

    def run(number: int) -> dml.DmlError | None:
        text = COMMANDS[number % 3].format(t=table, id=number, other=number + 2 * count, new=number + NEW_KEYS)
        start.wait()
        try:
            lake.sql(text, idempotency_key=str(number))
        except dml.DmlError as error:
            return error
        return None

    with ThreadPoolExecutor(count) as pool:
        return dict(enumerate(pool.map(run, range(count))))


def expected_rows(count: int, done: set[int]) -> dict[int, int]:
    """The rows after these statements, in whatever order."""
    rows = dict.fromkeys(range(4 * count), -1)
    for number in done:
        changed = (number, number + 2 * count)
        if number % 3 == 0:
            for row in changed:
                del rows[row]
        else:
            rows |= dict.fromkeys(changed, number)
        if number % 3 == 2:
            rows[number + NEW_KEYS] = number
    return rows


@pytest.mark.parametrize(
    ("count", "version", "level"),
    [
        (24, 3, "serializable"),
        pytest.param(16, 2, "snapshot", marks=pytest.mark.soak),
        *(pytest.param(100, version, level, marks=pytest.mark.soak) for version in (3, 2) for level in LEVELS),
    ],
)
def test_statements_at_once_on_rows_of_two_files(
    count: int, version: int, level: str, spark: SparkSession, tmp_path: Path
) -> None:
    properties = {"format-version": str(version), "write.distribution-mode": "none"}
    for command in ("delete", "update", "merge"):
        properties |= {f"write.{command}.mode": "merge-on-read", f"write.{command}.isolation-level": level}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.sql("CREATE NAMESPACE db")
        lake.sql(f"CREATE TABLE db.t (id BIGINT, v BIGINT) TBLPROPERTIES ({listed})")
        for half in (0, 2 * count):
            lake.sql(f"INSERT INTO db.t SELECT /*+ COALESCE(1) */ id, -1L FROM range({half}, {half + 2 * count})")
        outcomes = run_at_once(lake, "db.t", count)
        table = lake.registry.catalogs["lake"].load_table(("db", "t"))
        seen = {row.id: row.v for row in lake.table("db.t").collect()}
    failed = {number: error for number, error in outcomes.items() if error is not None}
    done = outcomes.keys() - failed.keys()
    print(f"version {version}, {level}: {count} statements at once, {len(failed)} failed")
    assert len(done) >= LEAST_SHARE * count, failed
    history = Counter(key for snapshot in ancestry(table) if (key := said(snapshot)) is not None)
    assert history == Counter(map(str, done)), "each that succeeded is there once, and no other"
    rows = expected_rows(count, done)
    assert seen == rows
    shown = sorted(map(repr, rows.items()))
    assert read_pyiceberg(table.metadata_location) == shown
    assert read_duckdb(table.metadata_location) == shown
    assert leftovers(table, LocalFiles(folder=tmp_path)) == set()
