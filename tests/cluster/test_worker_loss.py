"""Executors killed while they write, machines lost during a MERGE: each row is there exactly once.

These tests come last in the folder, because Spark decides where executors run afterwards.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from dml.options import Command
from dml.session import Session
from tests.cluster.standalone import Standalone
from tests.faults.injection import FOLDER, Action, Call, Fault, Faults, FaultyCatalog, FaultyFileIO
from tests.marks import by_night
from tests.services.lakes import S3Files, leftovers
from tests.services.seaweedfs import SeaweedFs

pytestmark = pytest.mark.spark

ROWS = 100_000
MODES = ("copy-on-write", "merge-on-read")
ALWAYS = {
    ("insert", Action.KILL_EXECUTOR, 2, "copy-on-write"),
    ("merge", Action.KILL_MACHINE, 3, "merge-on-read"),
}


@pytest.fixture
def faulty(spark: SparkSession, storage: SeaweedFs, tmp_path: Path) -> Iterator[Session]:
    """A lake in object storage whose storage calls are counted and can fail."""
    properties = {
        **storage.file_io(),
        "py-catalog-impl": f"{FaultyCatalog.__module__}.{FaultyCatalog.__name__}",
        "py-io-impl": f"{FaultyFileIO.__module__}.{FaultyFileIO.__name__}",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://plain/{tmp_path.name}",
        FOLDER: str(tmp_path / "none"),
    }
    lake = dml.connect(catalog="faulty", spark=spark, progress=False, **properties)
    lake.sql("CREATE NAMESPACE db")
    yield lake
    lake.close()


@pytest.mark.parametrize(
    ("statement", "action", "version", "mode"),
    by_night(
        list(product(("insert", "merge"), (Action.KILL_EXECUTOR, Action.KILL_MACHINE), (2, 3), MODES)),
        lambda case: case in ALWAYS,
    ),
)
def test_each_row_is_there_once(
    faulty: Session,
    cluster: Standalone,
    storage: SeaweedFs,
    tmp_path: Path,
    statement: str,
    action: Action,
    version: int,
    mode: str,
) -> None:
    modes = {"format-version": str(version), **{f"write.{command}.mode": mode for command in Command}}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in modes.items())
    faulty.sql(f"CREATE TABLE db.t (id BIGINT, part INT, s STRING) PARTITIONED BY (part) TBLPROPERTIES ({listed})")
    insert = f"INSERT INTO db.t SELECT id, CAST(id % 4 AS INT), 'a' FROM range(0, {ROWS}, 1, 4)"
    merge = f"""MERGE INTO db.t t
        USING (SELECT id FROM range({ROWS // 2}, {ROWS + ROWS // 2}, 1, 4) WHERE id % 3 < 2) s ON t.id = s.id
        WHEN MATCHED AND t.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm'
        WHEN NOT MATCHED THEN INSERT (id, part, s) VALUES (s.id, CAST(s.id % 4 AS INT), 'n')"""
    expected = [("a", ROWS, sum(range(ROWS)))]
    if statement == "merge":
        faulty.sql(insert)
        ids = {
            "a": [one for one in range(ROWS) if one < ROWS // 2 or one % 3 == 2],
            "m": [one for one in range(ROWS // 2, ROWS) if one % 3 == 1],
            "n": [one for one in range(ROWS, ROWS + ROWS // 2) if one % 3 < 2],
        }
        expected = [(name, len(found), sum(found)) for name, found in ids.items()]
    faults = Faults(tmp_path / "faults")
    faults.inject(Fault(call=Call.WRITE, first=2, last=2, action=action))
    catalog = faulty.registry.catalogs["faulty"]
    catalog.properties[FOLDER] = faults.folder

    faulty.sql(insert if statement == "insert" else merge)

    assert len(faults.injected()) == 1
    catalog.properties[FOLDER] = str(tmp_path / "none")
    cluster.restart_lost_workers()
    found = faulty.sql("SELECT s, count(*), sum(id) FROM db.t GROUP BY s ORDER BY s").collect()
    assert [tuple(row) for row in found] == expected
    faulty.verify("db.t").raise_for_problems()
    # An unfinished multipart upload of a killed process is not a file; a lifecycle rule of the bucket removes it.
    left = leftovers(catalog.load_table(("db", "t")), S3Files(server=storage, buckets=()))
    assert not left
