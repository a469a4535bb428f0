"""Run as a program: all that is tested on a Spark Connect session, where one process cannot hold a classic one too."""

import datetime
import json
import logging
import re
import tempfile
from typing import Any
from unittest import mock

import call_cases
import connect_statements
import pytest
from connect_port import another_session, connect_session
from pyspark.errors import PySparkException
from pyspark.sql.connect.readwriter import DataFrameReader
from pyspark.sql.functions import col, lit, upper

import dml
from dml import limits
from dml.errors import DataError, DmlError, ErrorKind
from dml.result import Result
from dml.spark.launch import WORKER_SETTINGS
from tests.conftest import part_settings
from tests.golden import connect_scripts

# Workers as docs/deploy.md sets them for a server; the programs that run by night have PySpark's own.
spark = connect_session({**WORKER_SETTINGS, **part_settings()})

import connect_columns  # noqa: E402 - its Columns are of the session's kind

MODES = "'write.delete.mode' = '{0}', 'write.update.mode' = '{0}', 'write.merge.mode' = '{0}'"
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
COLUMNS = "id BIGINT, s STRING, at TIMESTAMP, part STRUCT<a: INT, b: STRING>"


def affected(result):
    """Rows updated, deleted and inserted."""
    assert isinstance(result, Result), result
    return result.rows_updated, result.rows_deleted, result.rows_inserted


def raised(marked, run):
    """Run a statement that fails at the place of ^."""
    text, position = marked.replace("^", ""), marked.index("^")
    with pytest.raises(DmlError) as caught:
        run(text)
    error = caught.value
    line_start = text.rfind("\n", 0, position) + 1
    place = (position, text.count("\n", 0, position) + 1, position - line_start + 1)
    assert (error.position, error.line, error.column) == place, (marked, str(error))


def explained(frame: Any, mode: str = "simple") -> str:
    """The plan as text."""
    return str(frame._explain_string(mode=mode))


def sizes_of_tables(lake):
    """The server takes tables for about as large as they are: it sends a small one to every task, and no large one."""
    lake.sql("CREATE TABLE db.large (id BIGINT, v STRING)")
    lake.sql("INSERT INTO db.large SELECT id, 'v' FROM range(20000)")
    lake.sql("CREATE TABLE db.few (id BIGINT, w STRING)")
    lake.sql("INSERT INTO db.few SELECT id, 'w' FROM range(10)")
    frames = [lake.sql("SELECT * FROM db.large"), lake.table("db.large"), spark.table("lake.db.large")]
    few, other = spark.table("lake.db.few"), lake.sql("SELECT id, v AS u FROM db.large")
    for frame in frames:
        (size,) = re.findall(r"MapInArrow.* Statistics\(sizeInBytes=([\d.]+) KiB", explained(frame, "cost"))
        assert 1024 * float(size) == pytest.approx(20000 * (8 + 20), rel=0.01)
    spark.conf.set(THRESHOLD, "100000")
    for frame in frames:
        assert "SortMergeJoin" in explained(frame.join(other, "id"))
        assert re.search("BroadcastHashJoin.*BuildRight", explained(frame.join(few, "id")))
        assert re.search("BroadcastHashJoin.*BuildLeft", explained(few.join(frame, "id")))
    assert frames[-1].join(few, "id").count() == 10
    joined = lake.sql("SELECT u FROM db.large JOIN (SELECT id, v AS u FROM db.large) USING (id)")
    assert "SortMergeJoin" in explained(joined)
    spark.conf.unset(THRESHOLD)


def each_file_its_way(lake):
    """One file is marked, another one written anew, and a third one leaves."""
    lake.sql("CREATE TABLE db.auto (id BIGINT, s STRING) TBLPROPERTIES ('write.auto.enabled' = 'true')")
    for first in (0, 20, 40):
        lake.sql(f"INSERT INTO db.auto SELECT /*+ COALESCE(1) */ id, 's' FROM range({first}, {first + 20})")
    made = lake.sql("DELETE FROM db.auto WHERE id = 3 OR id BETWEEN 30 AND 60")
    assert (made.mode, affected(made)) == ("auto", (0, 31, 0))
    assert (made.data_files_marked, made.data_files_rewritten, made.data_files_removed) == (1, 1, 2)
    assert spark.table("lake.db.auto").selectExpr("sum(id)").collect()[0][0] == sum(range(30)) - 3
    lake.sql("DROP TABLE db.auto PURGE")


def row_level_statements(lake, name):
    """All ways to change rows, and what is there then."""
    lake.sql(
        f"INSERT INTO {name} SELECT id, concat('s', id), timestamp_millis(id), "
        "named_struct('a', CAST(id AS INT), 'b', 'x') FROM range(20)"
    )
    assert affected(lake.sql(f"DELETE FROM {name} WHERE id = :id", {"id": 1})) == (0, 1, 0)
    assert affected(spark.sql(f"DELETE FROM lake.{name} WHERE id IN (?, ?)", [5, 6])) == (0, 2, 0)
    assert affected(lake.update(name, {"s": upper("s"), "part.a": lit(7)}, col("id") == 3)) == (1, 0, 0)
    assert affected(lake.delete(name, col("at") < lit(datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)))) == (0, 0, 0)
    merge = (
        f"MERGE INTO {name} t USING (SELECT id, 'm' AS s FROM range(18, 23)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 18 THEN DELETE WHEN MATCHED THEN UPDATE SET s = s.s "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s) WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE"
    )
    assert affected(lake.sql(merge)) == (1, 2, 3)
    source = spark.createDataFrame([(2, "py"), (50, "new")], "id BIGINT, s STRING")
    built = lake.merge_into(source, f"{name} AS t", col("t.id") == col("source.id"))
    built = built.whenMatched().update({"s": col("source.s")}).whenNotMatched().insert({"id": "source.id"})
    assert affected(built.merge(idempotency_key="k")) == (1, 0, 1)
    again = built.merge(idempotency_key="k")
    assert (again.replayed, affected(again)) == (True, (1, 0, 1))
    text = f"MERGE INTO lake.{name} t USING {{rows}} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'frame'"
    assert affected(spark.sql(text, rows=source)) == (2, 0, 0)
    found = {row.id: (row.s, row.part and row.part.a) for row in lake.table(name).collect()}
    expected: dict[int, tuple[str, int | None]] = {i: (f"s{i}", i) for i in range(20) if i not in {0, 1, 5, 6, 18}}
    expected.update({2: ("frame", 2), 3: ("S3", 7), 19: ("m", 19), 50: ("frame", None)})
    expected.update(dict.fromkeys((20, 21, 22), ("m", None)))
    assert found == expected, found


def queries_and_views(lake, name):
    """A DataFrame and a view keep their snapshot, EXPLAIN changes nothing."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW late AS SELECT * FROM lake.{name} WHERE id > 10")
    frame = lake.sql(f"SELECT * FROM {name} WHERE id > 10")
    assert affected(lake.delete(name, "id = 11")) == (0, 1, 0)
    assert [frame.count(), spark.sql("SELECT * FROM late").count()] == [12, 12]
    assert lake.table(name).where("id > 10").count() == 11
    merge = f"MERGE INTO {name} t USING late ON t.id = late.id WHEN MATCHED THEN UPDATE SET s = late.s"
    assert "merge" in lake.sql(f"EXPLAIN {merge}").collect()[0][0].lower()
    assert affected(lake.sql(merge)) == (11, 0, 0)
    frame.createOrReplaceTempView("given")
    assert spark.sql(f"SELECT * FROM given JOIN lake.{name} USING (id)").count() == 11


def functions(lake, name):
    """Iceberg's functions, of which Spark is asked for the types of the arguments."""
    assert spark.sql("SELECT system.bucket(16, 34), system.truncate(3, 'abcd')").collect() == [(3, "abc")]
    counted = f"SELECT system.bucket(4, system.truncate(2, s)) AS b, count(*) AS c FROM lake.{name} GROUP BY ALL"
    assert sum(row.c for row in spark.sql(counted).collect()) == lake.table(name).count()
    assert affected(lake.sql(f"UPDATE {name} SET s = 'x' WHERE system.days(at) < DATE '1960-01-01'")) == (0, 0, 0)


def errors(lake, name):
    """Each at its place: of names, of values, of rows, through both ways in."""
    raised(f"DELETE FROM {name}\nWHERE ^nope = 1", lake.sql)
    raised(f"SELECT ^nope FROM lake.{name}", spark.sql)
    raised("DELETE FROM ^lake.db.nothing", spark.sql)
    raised(f"UPDATE {name}\nSET part.a = ^id / 0", lake.sql)
    raised(f"SELECT id,\n ^system.hours(s) FROM lake.{name}", spark.sql)
    raised(f"MERGE INTO {name} t USING late ON t.id = late.id WHEN MATCHED THEN UPDATE SET ^zzz = 1", lake.sql)
    twice = "(SELECT 2L AS id UNION ALL SELECT 2L)"
    with pytest.raises(DataError) as caught:
        lake.sql(f"MERGE INTO {name} t USING {twice} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'twice'")
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION


def table_statements(lake, name):
    """Columns, whole tables, metadata, a branch."""
    assert affected(lake.sql(f"INSERT OVERWRITE {name} SELECT 1, 'one', NULL, NULL")) == (0, 0, 1)
    lake.sql(f"ALTER TABLE {name} ADD COLUMN extra INT")
    assert affected(lake.update(name, {"extra": 5})) == (1, 0, 0)
    assert lake.sql(f"SELECT extra, _pos FROM {name}").collect() == [(5, 0)]
    assert lake.sql("SHOW TABLES IN db").count() == 1
    for run, full in ((lake.sql, name), (spark.sql, f"lake.{name}")):
        assert run(f"SHOW COLUMNS IN {full}").collect()[-1] == ("extra",)
        run(f"COMMENT ON TABLE {full} IS 'of {full}'")
        assert ("Comment", f"of {full}", "") in run(f"DESCRIBE EXTENDED {full}").collect()
        run(f"COMMENT ON COLUMN {full}.extra IS 'of {full}'")
        assert ("extra", "int", f"of {full}") in run(f"DESCRIBE TABLE {full}").collect()
        run(f"CREATE TABLE {full}_like LIKE {full}")
        run(f"REFRESH TABLE {full}_like")
        run(f"ANALYZE TABLE {full} COMPUTE STATISTICS FOR ALL COLUMNS")
        run(f"ALTER TABLE {full}_like CREATE BRANCH first RETAIN 1 DAYS")  # of a table without a snapshot
        run(f"ALTER TABLE {full} CREATE TAG v1")
        assert run(f"SELECT name, type FROM {full}_like.refs").collect() == [("first", "BRANCH")]
        assert run(f"SELECT extra FROM {full}.tag_v1").collect() == [(5,)]
        run(f"ALTER TABLE {full} DROP TAG v1")
        run(f"DROP TABLE {full}_like")
    assert lake.sql(f"SELECT * FROM {name}.snapshots").count() > 5
    files = lake.sql(f"SELECT file_path, readable_metrics FROM {name}.files").collect()
    assert lake.sql(f"SELECT count(*) FROM {name}.files").collect() == [(len(files),)]
    with mock.patch.object(limits, "MAX_DRIVER_MANIFEST_BYTES", -1):
        assert sorted(lake.sql(f"SELECT file_path, readable_metrics FROM {name}.files").collect()) == sorted(files)
    lake.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    spark.conf.set("spark.wap.branch", "audit")
    lake.sql(f"TRUNCATE TABLE {name}")
    assert lake.table(name).count() == 0
    spark.conf.unset("spark.wap.branch")
    assert lake.table(name).count() == 1
    spark.udf.register("initial", lambda text: text[:1], "string")
    lake.sql(f"CREATE TABLE db.copy AS SELECT initial(s) AS s FROM {name}")
    assert lake.table("db.copy").collect() == [("o",)]
    lake.sql(f"DROP TABLE {name} PURGE")
    lake.sql("DROP TABLE db.copy")


class Lines(logging.Handler):
    """Keeps the lines of JSON that are logged."""

    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def emit(self, record):
        self.lines.append(json.loads(record.getMessage()))


def hooks(lake):
    """Tags, calls and lines of metrics of statements and writers, as on classic Spark."""
    seen = []
    lines: list[Any] = []
    metrics, handler = logging.getLogger("dml.metrics"), Lines(lines)
    metrics.addHandler(handler)
    metrics.setLevel(logging.INFO)
    lake.sql("CREATE TABLE db.hooks (id BIGINT) TBLPROPERTIES ('commit.tag.creation' = 'commit')")
    stop = lake.after_commit(lambda result: seen.append((result, lake.table("db.hooks").count())))
    lake.sql("INSERT INTO db.hooks VALUES (1)")
    spark.range(2, 4).writeTo("lake.db.hooks").append()
    stop()
    spark.conf.set("spark.sql.iceberg.commit.tag.creation", "none")
    lake.delete("db.hooks", "id = 2")
    spark.conf.unset("spark.sql.iceberg.commit.tag.creation")
    metrics.removeHandler(handler)
    assert [(result.command, count) for result, count in seen] == [("INSERT", 1), ("INSERT", 3)]
    assert [line["command"] for line in lines] == ["INSERT", "INSERT", "DELETE"]
    tags = lake.sql("SELECT snapshot_id FROM db.hooks.refs WHERE type = 'TAG'").collect()
    assert {row.snapshot_id for row in tags} == {result.snapshot_id for result, _ in seen}


def ways_in(lake):
    """`spark.sql` and PySpark's calls are taken and given back, also those of a second session."""
    lake.sql("CREATE TABLE db.t AS SELECT 1 AS id")
    taken = DataFrameReader.table
    lake.disable()
    assert DataFrameReader.table is not taken
    assert not hasattr(DataFrameReader.table, "__wrapped__")
    for call in (lambda: spark.sql("SELECT * FROM lake.db.t"), lambda: spark.table("lake.db.t")):
        with pytest.raises(PySparkException):
            call().collect()
    dml.enable(spark)
    assert spark.sql("SELECT * FROM lake.db.t").count() == spark.table("lake.db.t").count() == 1
    for read in (spark.readStream.table, spark.readStream.format("iceberg").load):
        with pytest.raises(dml.NotSupportedError, match="cannot be read as a stream through Spark Connect"):
            read("lake.db.t")
    second = another_session()
    assert second.table("lake.db.t").count() == 1
    dml.enable(second)
    assert affected(second.sql("UPDATE lake.db.t SET id = 2")) == (1, 0, 0)
    assert second.sql("SELECT * FROM lake.db.t").collect() == [(2,)]
    dml.disable(second)
    with pytest.raises(PySparkException):
        second.table("lake.db.t").collect()
    assert spark.table("lake.db.t").collect() == [(2,)]
    dml.disable(spark)
    assert not hasattr(DataFrameReader.table, "__wrapped__")


def current_catalog(lake):
    """While one of ours was entered, names without a catalog are its, behind temporary views."""
    catalog, first = spark.catalog, spark.catalog.currentCatalog()
    assert {first, "lake"} <= {found.name for found in catalog.listCatalogs()}
    assert [found.name for found in catalog.listCatalogs("la*")] == ["lake"]
    catalog.setCurrentCatalog("lake")
    assert (catalog.currentCatalog(), catalog.currentDatabase()) == ("lake", "default")
    assert [found.name for found in catalog.listDatabases()] == ["db"]
    with pytest.raises(PySparkException) as missing:
        catalog.setCurrentDatabase("nowhere")
    assert missing.value.getCondition() == "SCHEMA_NOT_FOUND"
    catalog.setCurrentDatabase("db")
    spark.range(2).writeTo("short").create()
    spark.range(2, 3).write.insertInto("db.short")
    spark.sql("DELETE FROM short WHERE id = 0")
    assert spark.table("short").count() == spark.sql("SELECT * FROM db.short").count() == 2
    assert "short" in {found.name for found in catalog.listTables()}
    spark.range(7).createOrReplaceTempView("short")
    spark.range(8).createOrReplaceGlobalTempView("seen_by_all")
    assert spark.table("short").count() == spark.sql("SELECT * FROM short").count() == 7
    assert spark.table("db.short").count() == 2
    assert spark.table("global_temp.seen_by_all").count() == 8
    catalog.dropTempView("short")
    catalog.dropGlobalTempView("seen_by_all")
    spark.sql(f"USE {first}.default")
    assert (catalog.currentCatalog(), catalog.currentDatabase()) == (first, "default")
    with pytest.raises(PySparkException):
        spark.table("db.short").collect()
    spark.sql("USE lake.db")
    assert catalog.tableExists("short")
    catalog.setCurrentCatalog(first)
    assert not catalog.tableExists("short")
    lake.sql("DROP TABLE lake.db.short PURGE")


def data_of_other_libraries(lake):
    """Data of Polars, pandas and Arrow reaches the server; its views last as long as a query needs them."""
    # Late, so that the program's other tests run without these libraries.
    import pandas  # noqa: PLC0415
    import polars  # noqa: PLC0415
    import pyarrow  # noqa: PLC0415

    lake.sql("CREATE TABLE db.foreign (id BIGINT, s STRING, at TIMESTAMP_NTZ)")
    day = datetime.datetime(2020, 1, 1)  # noqa: DTZ001  without a zone
    rows = polars.DataFrame({"id": [1, 2], "s": ["a", None], "at": [day, None]})
    assert affected(lake.upsert("db.foreign", rows, on="id")) == (0, 0, 2)
    assert affected(lake.upsert("db.foreign", rows.with_columns(s=polars.lit("b")), on=["id"])) == (2, 0, 0)
    assert lake.insert("db.foreign", pandas.DataFrame({"id": [3]}), idempotency_key="k").rows_inserted == 1
    assert lake.insert("db.foreign", pandas.DataFrame({"id": [3]}), idempotency_key="k").replayed
    found = lake.sql(
        "SELECT * FROM db.foreign WHERE id IN (SELECT id FROM {ids}) AND s = {s}",
        ids=pyarrow.table({"id": [1, 3]}),
        s="b",
    )
    assert [tuple(row) for row in found.collect()] == [(1, "b", day)]
    assert [tuple(row) for row in found.collect()] == [(1, "b", day)]


connect_statements.run(spark)
connect_columns.run(spark)
with tempfile.TemporaryDirectory() as warehouse, dml.connect(warehouse, spark=spark) as lake:
    lake.sql("CREATE NAMESPACE db")
    name = "db.changed"  # golden scripts have copy-on-write tables of version 2
    lake.sql(f"CREATE TABLE {name} ({COLUMNS}) TBLPROPERTIES ('format-version' = '3', {MODES.format('merge-on-read')})")
    row_level_statements(lake, name)
    each_file_its_way(lake)
    queries_and_views(lake, name)
    functions(lake, name)
    errors(lake, name)
    table_statements(lake, name)
    sizes_of_tables(lake)
    for case in call_cases.CASES.values():
        case(spark, lake)
    hooks(lake)
    current_catalog(lake)
    ways_in(lake)
    data_of_other_libraries(lake)
with tempfile.TemporaryDirectory() as warehouse, dml.connect(warehouse, spark=spark) as lake:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    connect_scripts.run(lake)
spark.stop()
print("all statements ran")
