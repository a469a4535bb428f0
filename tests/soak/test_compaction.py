"""Writers beside a compaction that never stops: no statement fails, compactions end, sums agree in each snapshot."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from tests.interop.readers import read_duckdb, read_pyiceberg
from tests.services.lakes import LocalFiles, leftovers
from tests.soak.history import ancestry

pytestmark = pytest.mark.spark

ROWS, EMPTY = 40, 30
AMOUNT = 1000
STATEMENTS = int(os.environ.get("SOAK_STATEMENTS", "504"))
WRITERS = 8
FEW = {"min-input-files": "2", "delete-file-threshold": "3"}
TRANSFER = "UPDATE {t} SET v = v + CASE id WHEN {here} THEN -{sum} ELSE {sum} END WHERE id IN ({here}, {there})"
SPLIT = """
MERGE INTO {t} t USING (SELECT * FROM VALUES ({here}L, {p}, -{sum}L), ({new}L, {p}, {sum}L) AS v(id, p, v)) s
ON t.id = s.id AND t.p = {p} WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT *
"""
CLOSE = "DELETE FROM {t} WHERE id = {empty}"
COMMANDS = (TRANSFER, SPLIT, CLOSE)


def write(lake: Session, table: str, writer: int, statements: int) -> list[Any]:
    """Statements of one writer on its rows: their sum stays as it is."""
    first = writer * 1000
    return [
        lake.sql(
            COMMANDS[number % 3].format(
                t=table,
                p=writer,
                here=first + number % ROWS,
                there=first + (number + 7) % ROWS,
                new=first + 500 + number,
                empty=first + ROWS + number // 3,
                sum=number + 1,
            )
        )
        for number in range(statements)
    ]


@pytest.mark.parametrize(
    ("writers", "statements", "version", "mode"),
    [
        (3, 6, 3, "merge-on-read"),
        *(
            pytest.param(WRITERS, STATEMENTS // WRITERS, version, mode, marks=pytest.mark.soak)
            for version in (2, 3)
            for mode in ("merge-on-read", "copy-on-write")
        ),
    ],
)
def test_writers_beside_a_compaction(
    writers: int, statements: int, version: int, mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Each writer has a partition of its own, so that copy-on-write meets nobody else but the compaction."""
    properties = {"format-version": str(version), "write.distribution-mode": "none"}
    properties |= {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    # On few cores, writers that never rest lose many races for the catalog.
    properties |= {"commit.retry.num-retries": "60", "commit.retry.max-wait-ms": "1000"}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.sql("CREATE NAMESPACE db")
        lake.sql(f"CREATE TABLE db.t (id BIGINT, p INT, v BIGINT) PARTITIONED BY (p) TBLPROPERTIES ({listed})")
        for step in range(3):
            lake.sql(
                f"INSERT INTO db.t SELECT w.id * 1000 + r.id, CAST(w.id AS INT), IF(r.id < {ROWS}, {AMOUNT}L, 0L) "
                f"FROM range({step}, {ROWS + EMPTY}, 3) r, range({writers}) w"
            )
        table = lake.registry.catalogs["lake"].load_table(("db", "t"))
        loading = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        done = Event()

        def compact() -> list[Any]:
            found: list[Any] = []
            while not done.is_set() or not found:
                order = "v DESC, id" if len(found) % 2 else None
                found.append(lake.rewrite_data_files("db.t", sort_order=order, options=FEW))
            return found

        with ThreadPoolExecutor(writers + 1) as pool:
            compacting = pool.submit(compact)
            try:
                writing = [pool.submit(write, lake, "db.t", writer, statements) for writer in range(writers)]
                results = [result for one in writing for result in one.result()]
            finally:
                done.set()
            compactions = compacting.result()
        table.refresh()
        again = sum(bool(result.reruns) for result in results)
        print(f"{version}, {mode}: {len(results)} statements, {again} of them again; {len(compactions)} compactions")
        # In copy-on-write, writers that never rest may replace the files of every group in time.
        assert mode == "copy-on-write" or sum(one.rewritten_data_files_count for one in compactions), (
            "nothing compacted"
        )
        for snapshot in {one.snapshot_id for one in ancestry(table)} - loading:
            (row,) = lake.sql(f"SELECT sum(v) FROM db.t VERSION AS OF {snapshot}").collect()
            assert row[0] == writers * ROWS * AMOUNT, snapshot
        assert lake.verify("db.t", every_file=True).ok
        shown = sorted(repr(tuple(row)) for row in lake.table("db.t").collect())
    assert read_pyiceberg(table.metadata_location) == shown
    assert read_duckdb(table.metadata_location) == shown
    assert leftovers(table, LocalFiles(folder=tmp_path)) == set()
