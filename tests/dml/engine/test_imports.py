"""Files of other programs in tables of a session: SQL, Python, tables of Spark as sources, and failures."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import dml
from dml import ddl, limits
from dml.result import AddedFiles, ImportedFiles
from tests.lake import Lake

pytestmark = pytest.mark.spark


def write(path: Path, *ids: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "s": [f"s{one}" for one in ids]}), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of three partitions, and a hidden one."""
    for k in range(3):
        write(tmp_path / "f" / f"k={k}" / "a.parquet", *range(4 * k, 4 * k + 4))
    write(tmp_path / "f" / "k=1" / "_b.parquet", 99)
    return tmp_path / "f"


NAN_CONDITIONS = (
    *("x > 5", "x >= 5", "NOT (x <= 5)", "x <> 1", "isnan(x)", "NOT isnan(x)", "x = double('NaN')", "x < 5"),
    *("x <= double('NaN')", "x > 100", "x BETWEEN 5 AND double('NaN')", "x IN (1, double('NaN'))", "NOT (x IN (1, 4))"),
)


def test_a_file_with_nan_beyond_its_bounds_is_not_skipped(lake: Lake, tmp_path: Path) -> None:
    """Parquet's bounds ignore NaN, which is the greatest number in Spark, and footers do not count NaN."""
    files = {"a": {1: 1.0, 2: float("nan"), 3: 4.0}, "b": {4: 7.0, 5: 9.0}, "c": {6: float("nan")}, "d": {7: None}}
    for file, rows in files.items():
        table = {"id": pa.array(rows.keys(), pa.int64()), "x": pa.array(rows.values(), pa.float64())}
        pq.write_table(pa.table(table), tmp_path / f"{file}.parquet")
    name = lake.create("id BIGINT, x DOUBLE")
    lake.session.add_files(name, f"parquet.`{tmp_path}`")
    assert [row[0] for row in lake.rows(f"SELECT nan_value_counts FROM {name}.files")] == [None] * 4
    values = "VALUES (1, 1D), (2, double('NaN')), (3, 4D), (4, 7D), (5, 9D), (6, double('NaN')), (7, NULL)"
    columns = ", ".join(f"coalesce({one}, false)" for one in NAN_CONDITIONS)
    expected = lake.session.spark.sql(f"SELECT id, {columns} FROM {values} AS v (id, x)").collect()
    for place, condition in enumerate(NAN_CONDITIONS, 1):
        ids = sorted(row[0] for row in expected if row[place])
        assert [row[0] for row in lake.rows(f"SELECT id FROM {name} WHERE {condition}")] == ids, condition
        assert lake.session.table(name).where(condition).count() == len(ids), condition
    assert lake.session.delete(name, "x <= 4").rows_deleted == 2
    assert lake.session.delete(name, "x > 100").rows_deleted == 2
    assert [row[0] for row in lake.rows(name)] == [4, 5, 7]


def test_imported_files_are_files_of_the_table(lake: Lake, folder: Path) -> None:
    """Spark sees them at once; statements change their rows; row ids count up; the files stay as they are."""
    session = lake.session
    properties = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    name = lake.create("id BIGINT, s STRING, k INT", "PARTITIONED BY (k)", **properties)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    cached = session.spark.table(f"lake.{name}").cache()
    assert cached.count() == 0
    source = f"parquet.`{folder}`"
    shown = lake.rows(f"CALL system.add_files('{name}', '{source}', dry_run => true)")
    assert lake.table(name).current_snapshot() is None
    assert shown[0] == (3, 3, None, None, None)
    assert [(*row[:3], row[3].removeprefix(f"{folder}/"), row[4]) for row in shown[1:]] == [
        (None, None, "add", "k=0/a.parquet", "k=0"),
        (None, None, "add", "k=1/a.parquet", "k=1"),
        (None, None, "add", "k=2/a.parquet", "k=2"),
        (None, None, "skip", "k=1/_b.parquet", "its name, or that of a folder, starts with _ or ."),
    ]
    assert session.add_files(name, source, {"k": "00"}) == AddedFiles(added_files_count=1, changed_partition_count=1)
    assert session.spark.table(f"lake.{name}").count() == 4
    rest = "partition_filter => map('k', '1'), check_duplicate_files => true, parallelism => 2"
    assert lake.rows(f"CALL lake.system.add_files(table => '{name}', source_table => '{source}', {rest})") == [(1, 1)]
    with pytest.raises(dml.ValidationFailedError, match="already exist within the target table"):
        session.add_files(name, source)
    session.add_files(name, source, {"k": "2"})
    assert lake.rows(f"SELECT k, count(*), min(id) FROM {name} GROUP BY k") == [(0, 4, 0), (1, 4, 4), (2, 4, 8)]
    assert lake.rows(f"SELECT min(_row_id), max(_row_id), count(DISTINCT _row_id) FROM {name}") == [(0, 11, 12)]
    assert session.sql(f"DELETE FROM {name} WHERE id IN (1, 5)").rows_deleted == 2
    assert session.sql(f"UPDATE {name} SET s = 'new', k = 7 WHERE id = 9").rows_updated == 1
    assert lake.rows(f"SELECT id, k FROM {name} WHERE s = 'new' OR k = 1") == [(4, 1), (6, 1), (7, 1), (9, 7)]
    assert session.verify(name, every_file=True).ok
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_all_formats(lake: Lake, tmp_path: Path) -> None:
    """With the timestamps that Spark writes to Parquet (INT96), and those of Avro."""
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    table = pa.table({"id": pa.array([1], pa.int64()), "t": pa.array([moment], pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    orc.write_table(table, tmp_path / "a.orc")
    fields = [
        {"name": "id", "type": "long"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    with (tmp_path / "a.avro").open("wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "r", "fields": fields}, [{"id": 1, "t": moment}])
    name = lake.create("id BIGINT, t TIMESTAMP")
    for suffix in ("parquet", "orc", "avro"):
        lake.session.add_files(name, f"{suffix.upper()}.`{tmp_path}/a.{suffix}`")
    assert lake.rows(name) == [(1, moment.replace(tzinfo=None))] * 3
    assert lake.rows(f"SELECT count(*) FROM {name} WHERE t = TIMESTAMP '2024-01-02 03:04:05'") == [(3,)]
    assert lake.session.verify(name, every_file=True).ok


def test_many_files_are_examined_by_tasks(lake: Lake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same result, errors included."""
    name = lake.create("id BIGINT, s STRING, k INT", "PARTITIONED BY (k)")
    (folder / "k=0" / "c.parquet").write_text("no Parquet")
    call = f"CALL system.add_files('{name}', 'parquet.`{folder}`', dry_run => true)"
    by_driver = lake.rows(call)
    monkeypatch.setattr(limits, "MAX_DRIVER_IMPORT_FILES", 1)
    monkeypatch.setattr(limits, "IMPORT_TASK_FILES", 2)
    assert lake.rows(call) == by_driver
    assert [row[2] for row in by_driver] == [None, "add", "add", "add", "reject", "skip"]
    with pytest.raises(dml.CorruptFileError, match="is not a readable parquet file"):
        lake.session.add_files(name, f"parquet.`{folder}`")
    (folder / "k=0" / "c.parquet").unlink()
    assert lake.session.add_files(name, f"parquet.`{folder}`").added_files_count == 3


def test_branches_and_staged_imports(lake: Lake, folder: Path) -> None:
    """A branch in the name gets the files; audit settings apply as to every write."""
    name = lake.create("id BIGINT, s STRING, k INT", "PARTITIONED BY (k)", **{"write.wap.enabled": "true"})
    source = f"parquet.`{folder}`"
    lake.session.sql(f"INSERT INTO {name} VALUES (100, 'x', 0)")
    lake.session.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    assert lake.session.add_files(f"{name}.branch_audit", source).added_files_count == 3
    assert lake.rows(f"SELECT count(*) FROM {name}") == [(1,)]
    assert lake.rows(f"SELECT count(*) FROM {name}.branch_audit") == [(13,)]
    lake.session.spark.conf.set("spark.wap.id", "load")
    try:
        lake.session.add_files(name, source)
    finally:
        lake.session.spark.conf.unset("spark.wap.id")
    assert lake.rows(f"SELECT count(*) FROM {name}") == [(1,)]
    lake.session.publish_changes(name, "load")
    assert lake.rows(f"SELECT count(*) FROM {name}") == [(13,)]
    with pytest.raises(dml.NotSupportedError, match="metadata table"):
        lake.session.add_files(f"{name}.files", source)


@pytest.fixture
def source(lake: Lake) -> Iterator[str]:
    """A partitioned table of Spark, with a partition somewhere else."""
    spark = lake.session.spark
    spark.sql("CREATE DATABASE IF NOT EXISTS spark_catalog.d1")
    name = f"spark_catalog.d1.s{next(lake.numbers)}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT COMMENT 'key', t TIMESTAMP, a INT, b STRING) USING parquet "
        "PARTITIONED BY (a, b) "
        "TBLPROPERTIES ('owner.team' = 'x, y=z', 'write.metadata.path' = '/elsewhere')"
    )
    spark.sql(
        f"INSERT INTO {name} VALUES (1, TIMESTAMP '2024-01-02 03:04:05', 1, 'p/q'), "
        "(2, NULL, 2, NULL), (3, NULL, 2, 'é%')"
    )
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


ROWS = [(1, dt.datetime.fromisoformat("2024-01-02 03:04:05"), 1, "p/q"), (2, None, 2, None), (3, None, 2, "é%")]


def files_of(lake: Lake, source: str) -> set[str]:
    return {row[0] for row in lake.session.spark.sql(f"SELECT input_file_name() FROM {source}").collect()}


def test_a_snapshot_reads_the_files_of_its_source(lake: Lake, source: str, tmp_path: Path) -> None:
    """Its changes do not touch them, and nothing deletes them."""
    session, name = lake.session, lake.new_name()
    files = files_of(lake, source)
    tried = session.snapshot(source, name, dry_run=True)
    assert (tried.imported_files_count, [one.decision for one in tried.decisions].count("add")) == (3, 3)
    assert lake.rows(f"SHOW TABLES IN db LIKE '{name.partition('.')[2]}'") == []
    found = session.snapshot(source, name, properties={"write.delete.mode": "merge-on-read", "gc.enabled": "true"})
    assert found == ImportedFiles(imported_files_count=3)
    assert lake.rows(name) == ROWS
    metadata = lake.table(name).metadata
    kept = {
        key: metadata.properties.get(key) for key in ("gc.enabled", "snapshot", "owner.team", "write.metadata.path")
    }
    assert kept == {"gc.enabled": "false", "snapshot": "true", "owner.team": "x, y=z", "write.metadata.path": None}
    assert metadata.properties["write.delete.mode"] == "merge-on-read"
    assert metadata.schema().find_field("id").doc == "key"
    assert [field.name for field in metadata.spec().fields] == ["a", "b"]
    session.sql(f"DELETE FROM {name} WHERE a = 2")
    assert lake.rows(source) == ROWS
    with pytest.raises(dml.NotSupportedError, match=r"gc\.enabled"):
        session.sql(f"DROP TABLE {name} PURGE")
    session.sql(f"DROP TABLE {name}")
    assert files_of(lake, source) == files
    location = str(tmp_path / "own")
    session.snapshot(source, name, location)
    assert lake.table(name).metadata.location.removeprefix("file://") == location


@pytest.mark.parametrize("staged", [True, False])
def test_a_snapshot_that_fails_leaves_nothing(
    lake: Lake, source: str, staged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a table nor one file less, also where the catalog cannot create a table with its files."""
    if not staged:
        monkeypatch.setattr(ddl, "stage_table", lambda *_, **__: None)
    name, files = lake.new_name(), files_of(lake, source)
    (one,) = (path for path in files if "a=1" in path)
    broken = Path(one.removeprefix("file://").replace("%252F", "%2F")).with_name("broken.parquet")
    broken.write_text("no Parquet")
    with pytest.raises(dml.CorruptFileError, match=r"broken.parquet' is not a readable parquet file"):
        lake.session.snapshot(source, name)
    broken.unlink()
    assert lake.rows(f"SHOW TABLES IN db LIKE '{name.partition('.')[2]}'") == []
    assert files_of(lake, source) == files
    assert lake.session.snapshot(source, name).imported_files_count == 3
    assert lake.rows(name) == lake.rows(source) == ROWS


def test_partitions_of_a_table_are_where_its_catalog_says(lake: Lake, source: str, tmp_path: Path) -> None:
    """And only those of the filter are imported."""
    spark = lake.session.spark
    spark.sql(f"ALTER TABLE {source} ADD PARTITION (a = 7, b = 'far') LOCATION '{tmp_path}/far'")
    spark.sql(f"INSERT INTO {source} PARTITION (a = 7, b = 'far') VALUES (9, NULL)")
    name = lake.create("id BIGINT, t TIMESTAMP, a INT, b STRING", "PARTITIONED BY (a, b)")
    plain = source.removeprefix("spark_catalog.")
    assert lake.session.add_files(name, plain, {"a": "7"}).added_files_count == 1
    assert lake.session.add_files(name, plain, {"a": "2", "b": "é%"}).added_files_count == 1
    assert lake.rows(name) == [(3, None, 2, "é%"), (9, None, 7, "far")]
    assert lake.session.add_files(name, plain, {"a": "5"}) == AddedFiles(added_files_count=0, changed_partition_count=0)
    for path in (tmp_path / "far").iterdir():
        path.unlink()
    (tmp_path / "far").rmdir()
    copy = lake.new_name()
    with pytest.raises(dml.NotFoundError, match="far' of a partition of the source does not exist"):
        lake.session.snapshot(source, copy)
    assert lake.session.snapshot(source, copy, ignore_missing_files=True).imported_files_count == 3


def test_partitions_that_spark_does_not_manage(lake: Lake, source: str) -> None:
    """The reference imports no file of them, without a word; the folder is a source."""
    name = lake.create("id BIGINT, t TIMESTAMP, a INT, b STRING", "PARTITIONED BY (a, b)")
    location = table_location(lake, source)
    lake.session.spark.sql(f"DROP TABLE {source}")  # its folder goes with it
    lake.session.spark.conf.set("spark.sql.hive.manageFilesourcePartitions", "false")
    try:
        lake.session.spark.sql(
            f"CREATE TABLE {source} (id BIGINT, a INT, b STRING) USING parquet PARTITIONED BY (a, b)"
        )
        lake.session.spark.sql(f"INSERT INTO {source} VALUES (1, 1, 'x')")
        with pytest.raises(dml.NotSupportedError, match="are not known: Spark finds them by listing the folder"):
            lake.session.add_files(name, source)
    finally:
        lake.session.spark.conf.unset("spark.sql.hive.manageFilesourcePartitions")
    assert lake.session.add_files(name, f"parquet.`{location}`").added_files_count == 1


def table_location(lake: Lake, source: str) -> str:
    rows = lake.session.spark.sql(f"DESCRIBE TABLE EXTENDED {source}").where("col_name = 'Location'").collect()
    return str(rows[0][1])


def test_sources_that_cannot_be_imported(lake: Lake, source: str) -> None:
    """Nothing is created, and the message is that of the reference or says what to do."""
    session, spark, name = lake.session, lake.session.spark, lake.new_name()
    table = lake.create("id BIGINT, s STRING")
    spark.sql(
        "CREATE TABLE IF NOT EXISTS spark_catalog.d1.buckets (id BIGINT) USING orc CLUSTERED BY (id) INTO 4 BUCKETS"
    )
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.d1.texts (id BIGINT) USING csv")
    spark.sql("CREATE OR REPLACE VIEW spark_catalog.d1.v AS SELECT 1 AS id")
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.d1.empty (id BIGINT, s STRING) USING parquet")
    location = table_location(lake, source)
    refusals: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (dml.AnalysisError, "bucketed source table", {"source_table": "d1.buckets"}),
        (dml.AnalysisError, "from source provider: 'csv'", {"source_table": "d1.texts"}),
        (dml.AnalysisError, "Cannot use non-v1 table", {"source_table": "d1.v"}),
        (dml.NotFoundError, "has no table spark_catalog.d1.none", {"source_table": "d1.none"}),
        (dml.AnalysisError, "isn't in the session catalog", {"source_table": f"lake.{table}"}),
        (dml.AnalysisError, "Cannot handle an empty identifier", {"source_table": " "}),
        (dml.AnalysisError, "cannot be same as the source", {"source_table": source, "location": location}),
        (dml.AnalysisError, "would overlap with source", {"source_table": source, "location": f"{location}/in"}),
        (dml.AnalysisError, "Parallelism should be larger than 0", {"source_table": source, "parallelism": 0}),
    ]
    for error, message, arguments in refusals:
        with pytest.raises(error, match=message):
            session.call("snapshot", table=name, **arguments)
    with pytest.raises(dml.AlreadyExistsError, match="already exists"):
        session.snapshot(source, table)
    with pytest.raises(dml.NotFoundError, match="no namespace"):
        session.snapshot(source, "nowhere.t")
    with pytest.raises(dml.AnalysisError, match="same name as the source"):
        session.snapshot("d1.empty", "d1.empty")
    with pytest.raises(dml.NotSupportedError, match="Cannot import files of the provider 'csv'"):
        session.add_files(table, "d1.texts")
    with pytest.raises(dml.NotFoundError, match="There is no table"):
        session.add_files("db.nothing", "d1.empty")
    assert lake.rows(f"SHOW TABLES IN db LIKE '{name.partition('.')[2]}'") == []
    assert session.snapshot("d1.empty", name).imported_files_count == 0
    assert lake.rows(name) == []


def test_migrate_says_what_to_do(lake: Lake, source: str) -> None:
    """A table of Spark's own catalog cannot become a table of a RowDelta catalog under the same name."""
    with pytest.raises(
        dml.NotSupportedError, match=r"Cannot migrate d1.t: it would be replaced in spark_catalog"
    ) as caught:
        lake.session.call("migrate", table="d1.t", properties={"a": "b"}, drop_backup=True)
    assert "snapshot" in str(caught.value)
    assert lake.rows(source) == ROWS
