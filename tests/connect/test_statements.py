"""Statements on Spark Connect change, read and describe tables as on classic Spark."""

import datetime
import json
import logging
import re
from dataclasses import replace
from typing import Any
from unittest import mock

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, lit, spark_partition_id, upper

from dml import limits
from dml.errors import DataError, DmlError, ErrorKind
from dml.result import Result
from dml.spark.runtime import RUNTIMES, Runtime
from dml.spark.task_frames import repartition_by_id
from dml.spark.versions import features_of
from tests.conftest import session_settings

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, s STRING, at TIMESTAMP, part STRUCT<a: INT, b: STRING>"
TWENTY_ROWS = (
    "SELECT id, concat('s', id), timestamp_millis(id), named_struct('a', CAST(id AS INT), 'b', 'x') FROM range(20)"
)


@pytest.fixture
def table(lake):
    """A merge-on-read table of version 3 with 20 rows. The golden scripts cover copy-on-write on version 2."""
    name = lake.create(COLUMNS, version=3, mode="merge-on-read")
    lake.session.sql(f"INSERT INTO {name} {TWENTY_ROWS}")
    return name


def row_counts(result):
    """Return the numbers of rows updated, deleted and inserted."""
    assert isinstance(result, Result), result
    return result.rows_updated, result.rows_deleted, result.rows_inserted


def plan_text(frame: Any, mode: str = "simple") -> str:
    """Return the plan as text."""
    return str(frame._explain_string(mode=mode))


def test_sql_methods_and_merge_builder_change_rows(lake, spark, table):
    sql = lake.session.sql
    assert row_counts(sql(f"DELETE FROM {table} WHERE id = :id", {"id": 1})) == (0, 1, 0)
    assert row_counts(spark.sql(f"DELETE FROM lake.{table} WHERE id IN (?, ?)", [5, 6])) == (0, 2, 0)
    assert row_counts(lake.session.update(table, {"s": upper("s"), "part.a": lit(7)}, col("id") == 3)) == (1, 0, 0)
    before = lit(datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC))
    assert row_counts(lake.session.delete(table, col("at") < before)) == (0, 0, 0)
    merge = (
        f"MERGE INTO {table} t USING (SELECT id, 'm' AS s FROM range(18, 23)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 18 THEN DELETE WHEN MATCHED THEN UPDATE SET s = s.s "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s) WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE"
    )
    assert row_counts(sql(merge)) == (1, 2, 3)
    source = spark.createDataFrame([(2, "py"), (50, "new")], "id BIGINT, s STRING")
    built = lake.session.merge_into(source, f"{table} AS t", col("t.id") == col("source.id"))
    built = built.whenMatched().update({"s": col("source.s")}).whenNotMatched().insert({"id": "source.id"})
    assert row_counts(built.merge(idempotency_key="k")) == (1, 0, 1)
    again = built.merge(idempotency_key="k")
    assert (again.replayed, row_counts(again)) == (True, (1, 0, 1))
    text = f"MERGE INTO lake.{table} t USING {{rows}} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'frame'"
    assert row_counts(spark.sql(text, rows=source)) == (2, 0, 0)
    found = {row.id: (row.s, row.part and row.part.a) for row in lake.session.table(table).collect()}
    expected: dict[int, tuple[str, int | None]] = {i: (f"s{i}", i) for i in range(20) if i not in {0, 1, 5, 6, 18}}
    expected.update({2: ("frame", 2), 3: ("S3", 7), 19: ("m", 19), 50: ("frame", None)})
    expected.update(dict.fromkeys((20, 21, 22), ("m", None)))
    assert found == expected


def test_adaptive_delete_selects_a_strategy_per_file(lake, spark):
    """One file gets row-level deletes, one is rewritten, and one is removed because all its rows are deleted."""
    name = lake.create("id BIGINT, s STRING", **{"write.auto.enabled": "true"})
    for first in (0, 20, 40):
        lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 's' FROM range({first}, {first + 20})")
    made = lake.session.sql(f"DELETE FROM {name} WHERE id = 3 OR id BETWEEN 30 AND 60")
    assert (made.mode, row_counts(made)) == ("auto", (0, 31, 0))
    assert (made.data_files_marked, made.data_files_rewritten, made.data_files_removed) == (1, 1, 2)
    assert spark.table(f"lake.{name}").selectExpr("sum(id)").collect()[0][0] == sum(range(30)) - 3


def test_a_frame_and_a_view_keep_their_snapshot(lake, spark, table):
    sql = lake.session.sql
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW late AS SELECT * FROM lake.{table} WHERE id > 10")
    frame = sql(f"SELECT * FROM {table} WHERE id > 10")
    assert row_counts(lake.session.delete(table, "id = 11")) == (0, 1, 0)
    assert [frame.count(), spark.sql("SELECT * FROM late").count()] == [9, 9]
    assert lake.session.table(table).where("id > 10").count() == 8
    merge = f"MERGE INTO {table} t USING late ON t.id = late.id WHEN MATCHED THEN UPDATE SET s = late.s"
    assert "merge" in sql(f"EXPLAIN {merge}").collect()[0][0].lower()
    assert row_counts(sql(merge)) == (8, 0, 0)
    frame.createOrReplaceTempView("given")
    assert spark.sql(f"SELECT * FROM given JOIN lake.{table} USING (id)").count() == 8


def test_iceberg_functions_in_statements(lake, spark, table):
    assert spark.sql("SELECT system.bucket(16, 34), system.truncate(3, 'abcd')").collect() == [(3, "abc")]
    counted = f"SELECT system.bucket(4, system.truncate(2, s)) AS b, count(*) AS c FROM lake.{table} GROUP BY ALL"
    assert sum(row.c for row in spark.sql(counted).collect()) == 20
    update = f"UPDATE {table} SET s = 'x' WHERE system.days(at) < DATE '1960-01-01'"
    assert row_counts(lake.session.sql(update)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("in_spark", "marked"),
    [
        (False, "DELETE FROM {}\nWHERE ^nope = 1"),
        (False, "DELETE FROM {} WHERE ^uper(s) = 'A'"),
        (False, "SELECT * FROM {} WHERE id = ^= 1"),
        (False, "UPDATE {}\nSET part.a = ^id / 0"),
        (False, "MERGE INTO {} t USING range(3) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET ^zzz = 1"),
        (True, "SELECT ^nope FROM lake.{}"),
        (True, "DELETE FROM ^lake.db.nothing"),
        (True, "SELECT id,\n ^system.hours(s) FROM lake.{}"),
    ],
)
def test_errors_have_a_position(lake, spark, table, in_spark, marked):
    marked = marked.format(table)
    text, position = marked.replace("^", ""), marked.index("^")
    with pytest.raises(DmlError) as caught:
        (spark if in_spark else lake.session).sql(text)
    error, line_start = caught.value, text.rfind("\n", 0, position) + 1
    place = (position, text.count("\n", 0, position) + 1, position - line_start + 1)
    assert (error.position, error.line, error.column) == place


def test_merge_rejects_a_row_with_two_matches(lake, table):
    twice = "(SELECT 2L AS id UNION ALL SELECT 2L)"
    with pytest.raises(DataError) as caught:
        lake.session.sql(f"MERGE INTO {table} t USING {twice} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'x'")
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION


@pytest.fixture
def one_row(lake, table):
    """The table with a single row, and another column."""
    assert row_counts(lake.session.sql(f"INSERT OVERWRITE {table} SELECT 1, 'one', NULL, NULL")) == (0, 0, 1)
    lake.session.sql(f"ALTER TABLE {table} ADD COLUMN extra INT")
    assert row_counts(lake.session.update(table, {"extra": 5})) == (1, 0, 0)
    assert lake.session.sql(f"SELECT extra, _pos FROM {table}").collect() == [(5, 0)]
    return table


@pytest.mark.parametrize("in_spark", [False, True])
def test_table_statements(lake, spark, one_row, in_spark):
    run, name = (spark.sql, f"lake.{one_row}") if in_spark else (lake.session.sql, one_row)
    assert run(f"SHOW TABLES IN {name.rpartition('.')[0]}").count() >= 1
    assert run(f"SHOW COLUMNS IN {name}").collect()[-1] == ("extra",)
    run(f"COMMENT ON TABLE {name} IS 'of {name}'")
    assert ("Comment", f"of {name}", "") in run(f"DESCRIBE EXTENDED {name}").collect()
    run(f"COMMENT ON COLUMN {name}.extra IS 'of {name}'")
    assert ("extra", "int", f"of {name}") in run(f"DESCRIBE TABLE {name}").collect()
    run(f"CREATE TABLE {name}_like LIKE {name}")
    run(f"REFRESH TABLE {name}_like")
    run(f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR ALL COLUMNS")
    run(f"ALTER TABLE {name}_like CREATE BRANCH first RETAIN 1 DAYS")  # of a table without a snapshot
    run(f"ALTER TABLE {name} CREATE TAG v1")
    assert run(f"SELECT name, type FROM {name}_like.refs").collect() == [("first", "BRANCH")]
    assert run(f"SELECT extra FROM {name}.tag_v1").collect() == [(5,)]
    run(f"ALTER TABLE {name} DROP TAG v1")
    run(f"DROP TABLE {name}_like")


def test_metadata_tables_and_branches(lake, spark, one_row):
    sql, files_query = lake.session.sql, f"SELECT file_path, readable_metrics FROM {one_row}.files"
    assert sql(f"SELECT * FROM {one_row}.snapshots").count() == 3
    files = sql(files_query).collect()
    assert sql(f"SELECT count(*) FROM {one_row}.files").collect() == [(len(files),)]
    with mock.patch.object(limits, "MAX_DRIVER_MANIFEST_BYTES", -1):
        assert sorted(sql(files_query).collect()) == sorted(files)
    sql(f"ALTER TABLE {one_row} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    with session_settings(spark, {"spark.wap.branch": "audit"}):
        sql(f"TRUNCATE TABLE {one_row}")
        assert lake.session.table(one_row).count() == 0
    assert lake.session.table(one_row).count() == 1


def test_ctas_with_a_python_udf(lake, spark, one_row):
    spark.udf.register("initial", lambda text: text[:1], "string")
    copy = lake.new_name()
    lake.session.sql(f"CREATE TABLE {copy} AS SELECT initial(s) AS s FROM {one_row}")
    assert lake.session.table(copy).collect() == [("o",)]
    lake.session.sql(f"DROP TABLE {one_row} PURGE")


def test_size_estimates_select_the_join(lake, spark):
    """Spark broadcasts the small table and sort-merge joins two large ones."""
    large, few = lake.create("id BIGINT, v STRING"), lake.create("id BIGINT, w STRING")
    lake.session.sql(f"INSERT INTO {large} SELECT id, 'v' FROM range(20000)")
    lake.session.sql(f"INSERT INTO {few} SELECT id, 'w' FROM range(10)")
    frames = [lake.session.sql(f"SELECT * FROM {large}"), lake.session.table(large), spark.table(f"lake.{large}")]
    small, other = spark.table(f"lake.{few}"), lake.session.sql(f"SELECT id, v AS u FROM {large}")
    for frame in frames:
        (size,) = re.findall(r"MapInArrow.* Statistics\(sizeInBytes=([\d.]+) KiB", plan_text(frame, "cost"))
        assert 1024 * float(size) == pytest.approx(20000 * (8 + 20), rel=0.01)
    with session_settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "100000"}):
        for frame in frames:
            assert "SortMergeJoin" in plan_text(frame.join(other, "id"))
            assert re.search("BroadcastHashJoin.*BuildRight", plan_text(frame.join(small, "id")))
            assert re.search("BroadcastHashJoin.*BuildLeft", plan_text(small.join(frame, "id")))
        assert frames[-1].join(small, "id").count() == 10
        joined = lake.session.sql(f"SELECT u FROM {large} JOIN (SELECT id, v AS u FROM {large}) USING (id)")
        assert "SortMergeJoin" in plan_text(joined)


class JsonLogHandler(logging.Handler):
    """Append each logged JSON line to a list."""

    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def emit(self, record):
        self.lines.append(json.loads(record.getMessage()))


def test_rows_are_distributed_by_an_older_server(spark, monkeypatch):
    """It does not know `repartitionById`."""
    older = replace(Runtime.of(spark), features=features_of("4.0.1"))
    monkeypatch.setitem(RUNTIMES, spark, older)
    monkeypatch.setattr("pyspark.sql.connect.dataframe.DataFrame.repartitionById", None, raising=False)
    frame = spark.range(0, 40, 1, 3).selectExpr("CAST(id % 5 AS INT) AS number")
    placed = repartition_by_id(frame, 5, col("number")).withColumn("place", spark_partition_id()).collect()
    assert len(placed) == 40
    assert all(row.number == row.place for row in placed)


def test_hooks_run_after_statements_and_writers(lake, spark):
    """Commit tags, `after_commit` functions and JSON metrics lines."""
    seen: list[Any] = []
    lines: list[Any] = []
    metrics, handler = logging.getLogger("dml.metrics"), JsonLogHandler(lines)
    name = lake.create("id BIGINT", **{"commit.tag.creation": "commit"})
    metrics.addHandler(handler)
    metrics.setLevel(logging.INFO)
    stop = lake.session.after_commit(lambda result: seen.append((result, lake.session.table(name).count())))
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    spark.range(2, 4).writeTo(f"lake.{name}").append()
    stop()
    with session_settings(spark, {"spark.sql.iceberg.commit.tag.creation": "none"}):
        lake.session.delete(name, "id = 2")
    metrics.removeHandler(handler)
    assert [(result.command, count) for result, count in seen] == [("INSERT", 1), ("INSERT", 3)]
    assert [line["command"] for line in lines] == ["INSERT", "INSERT", "DELETE"]
    tags = lake.session.sql(f"SELECT snapshot_id FROM {name}.refs WHERE type = 'TAG'").collect()
    assert {row.snapshot_id for row in tags} == {result.snapshot_id for result, _ in seen}


def test_polars_pandas_and_arrow_inputs(lake):
    """The temporary views behind a query outlive its first `collect()`."""
    name = lake.create("id BIGINT, s STRING, at TIMESTAMP_NTZ")
    day = datetime.datetime(2020, 1, 1)  # noqa: DTZ001  without a zone
    rows = pl.DataFrame({"id": [1, 2], "s": ["a", None], "at": [day, None]})
    assert row_counts(lake.session.upsert(name, rows, on="id")) == (0, 0, 2)
    assert row_counts(lake.session.upsert(name, rows.with_columns(s=pl.lit("b")), on=["id"])) == (2, 0, 0)
    third = pd.DataFrame({"id": [3]})
    assert lake.session.insert(name, third, idempotency_key="k").rows_inserted == 1
    assert lake.session.insert(name, third, idempotency_key="k").replayed
    query = f"SELECT * FROM {name} WHERE id IN (SELECT id FROM {{ids}}) AND s = {{s}}"
    found = lake.session.sql(query, ids=pa.table({"id": [1, 3]}), s="b")
    for _ in range(2):
        assert [tuple(row) for row in found.collect()] == [(1, "b", day)]


def test_unqualified_names_resolve_in_the_current_catalog(lake, spark):
    """Temporary views shadow its tables."""
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
    lake.session.sql("DROP TABLE lake.db.short PURGE")
