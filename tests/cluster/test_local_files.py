"""Local files on a cluster: allowed if the machines share them, otherwise refused before anything is written."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import dml
from dml.errors import SetupError
from dml.files.scratch import look_for
from dml.session import Session
from dml.spark import workers

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def workers_run_tasks() -> None:
    """Override: small statements run in the driver, whose files workers must be able to access, too."""


WRITES: dict[str, Callable[[Session], object]] = {
    "insert values": lambda lake: lake.sql("INSERT INTO db.t VALUES (1, 'x')"),
    "insert": lambda lake: lake.sql("INSERT INTO db.t SELECT id, 'x' FROM range(1000)"),
    "insert into partitions": lambda lake: lake.sql("INSERT INTO db.parts SELECT id, 'x' FROM range(1000)"),
    "create as select": lambda lake: lake.sql("CREATE TABLE db.made AS SELECT id, 'x' AS s FROM range(1000)"),
    "update": lambda lake: lake.sql("UPDATE db.t SET s = 'u' WHERE id = 2"),
    "update through spark": lambda lake: lake.sql("UPDATE db.t SET s = md5(s) WHERE id = 2"),
    "delete": lambda lake: lake.sql("DELETE FROM db.t WHERE id = 2"),
    "merge": lambda lake: lake.sql(
        "MERGE INTO db.t t USING (SELECT id FROM range(5)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'n')"
    ),
    "writeTo": lambda lake: lake.spark.range(1000).selectExpr("id", "'x' AS s").writeTo("local.db.t").append(),
}
READS: dict[str, Callable[[Session], object]] = {
    "sql": lambda lake: lake.sql("SELECT max(s) FROM db.t WHERE s <> 'z'").collect(),
    "table": lambda lake: lake.table("db.t").collect(),
    "spark.table": lambda lake: lake.spark.table("local.db.t").collect(),
}


def local_lake(spark: SparkSession, folder: Path) -> Session:
    """Open a lake in a folder, with a table of a few rows that the driver itself wrote."""
    lake = dml.connect(str(folder / "warehouse"), catalog="local", spark=spark, progress=False)
    lake.sql("CREATE NAMESPACE IF NOT EXISTS db")
    lake.sql("CREATE TABLE IF NOT EXISTS db.t (id BIGINT, s STRING)")
    lake.sql("CREATE TABLE IF NOT EXISTS db.parts (id BIGINT, s STRING) PARTITIONED BY (bucket(4, id))")
    table = lake.registry.catalogs["local"].load_table(("db", "t"))
    if table.current_snapshot() is None:
        table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", "b", "c"]}))
    return lake


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.suffix not in {".db", ".db-wal", ".db-shm"}}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_other_machines_would_not_see_is_refused_before_it_begins(
    spark: SparkSession, private: Path, name: str
) -> None:
    lake = local_lake(spark, private)
    before = files_of(private)
    with pytest.raises(Exception, match="is not shared by all machines of the cluster") as caught:
        WRITES[name](lake)
    assert isinstance(caught.value, SetupError) or name == "writeTo"
    assert "object storage" in str(caught.value)
    assert files_of(private) == before
    assert lake.registry.catalogs["local"].load_table(("db", "t")).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("name", READS)
def test_a_read_of_files_that_workers_do_not_see_is_refused(spark: SparkSession, private: Path, name: str) -> None:
    lake = local_lake(spark, private)
    with pytest.raises(Exception, match="does not see the table's metadata file"):
        READS[name](lake)


def test_one_worker_that_does_not_share_the_folder_is_enough(spark: SparkSession, half_private: Path) -> None:
    lake = local_lake(spark, half_private)
    with pytest.raises(SetupError, match="is not shared by all machines"):
        WRITES["insert"](lake)
    with pytest.raises(SetupError, match="does not see the table's metadata file"):
        READS["table"](lake)


def test_a_shared_folder_is_used_and_asked_about_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    sightings = workers.sightings

    def counted(*arguments):
        asked.append(arguments)
        return sightings(*arguments)

    monkeypatch.setattr(workers, "sightings", counted)
    lake = local_lake(spark, tmp_path)
    for write in WRITES.values():
        write(lake)
    writes = len(asked)
    for read in READS.values():
        read(lake)
    assert (writes, len(asked)) == (3, 3)  # two jobs before the first write, one before the first read
    assert lake.table("db.t").filter("s = 'x'").count() > 0
    assert not [path for path in tmp_path.rglob("*") if "probe" in path.name]


def test_a_driver_that_cannot_write_to_the_location_is_told(spark: SparkSession, tmp_path: Path) -> None:
    lake = local_lake(spark, tmp_path)
    location = lake.registry.catalogs["local"].load_table(("db", "parts")).location()
    data = Path(location.removeprefix("file://")) / "data"
    data.write_text("a file in place of the folder")
    with pytest.raises(SetupError, match=r"The driver cannot write to '.*/data': (File exists|Not a directory)"):
        WRITES["insert into partitions"](lake)


def test_a_worker_that_cannot_write_says_why(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.touch()
    assert look_for([str(seen)], str(tmp_path / "none" / "mark")).error == "No such file or directory"
    assert look_for([str(seen)], str(tmp_path / "mark")).mark == str(tmp_path / "mark")
    assert look_for([str(seen), str(tmp_path / "none")], str(tmp_path / "other")).missing == str(tmp_path / "none")
    assert not (tmp_path / "other").exists()


def test_files_of_an_executor_that_joined_after_the_check_are_not_committed(
    spark: SparkSession, private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "check_once", lambda *_, **__: None)
    lake = local_lake(spark, private)
    with pytest.raises(SetupError, match="the driver does not see the file; nothing was committed"):
        lake.sql("INSERT INTO db.t SELECT id, repeat(md5(CAST(id AS STRING)), 8) FROM range(0, 50000, 1, 2)")
    assert lake.registry.catalogs["local"].load_table(("db", "t")).scan().to_arrow().num_rows == 3


def test_executors_on_new_hosts_are_asked_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = local_lake(spark, tmp_path)
    hosts = {"first"}
    checked: list[int] = []
    monkeypatch.setattr(workers, "executor_hosts", lambda _: frozenset(hosts))
    monkeypatch.setattr(workers, "check_shared", lambda _, __, tasks: checked.append(tasks))
    for host, asked in (("first", 1), ("second", 2), ("second", 2), ("third", 3)):
        hosts.add(host)
        WRITES["insert"](lake)
        assert len(checked) == asked
    assert checked == [2, 4, 6]
