"""A DataFrame's writer on tables that are there: rows, files, summaries and errors as those of an INSERT."""

from operator import attrgetter
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import col, expr, length, lit

from dml.errors import (
    AnalysisError,
    CommitConflictError,
    DataError,
    ErrorKind,
    NotFoundError,
    NotSupportedError,
    ValidationFailedError,
)

pytestmark = pytest.mark.spark

BY_SPARK = "_jwriter.overwritePartitions"
"""The same without PySpark: Spark's own job writes."""

COLUMNS = "id bigint, k string, v int"


def frame(spark, ids, k="a", v=1):
    return spark.range(ids.start, ids.stop, 1, 2).select("id", lit(k).alias("k"), lit(v).alias("v"))


def filled(lake, spark, clauses="PARTITIONED BY (k)", **properties):
    """A table of a and b, two rows each, whose files other tables read too."""

    def new_table():
        name = lake.create(COLUMNS, clauses)
        for number, k in enumerate("ab"):
            frame(spark, range(2 * number, 2 * number + 2), k).coalesce(1).writeTo(f"lake.{name}").append()
        return name

    return lake.copy_of((filled, clauses), new_table, **properties)


def summary(lake, name):
    return lake.table(name).current_snapshot().summary


def test_append_adds_rows_by_name(lake, spark):
    """In any order of columns, and with the summary of an INSERT."""
    name = lake.create(COLUMNS)
    frame(spark, range(3)).select("v", "id", "k").writeTo(f"lake.{name}").append()
    assert lake.rows(name) == [(0, "a", 1), (1, "a", 1), (2, "a", 1)]
    assert summary(lake, name).operation is Operation.APPEND
    mine = set(summary(lake, name).additional_properties)
    lake.session.sql(f"INSERT INTO {name} VALUES (9, 'z', 9)")
    assert set(summary(lake, name).additional_properties) == mine


def test_a_cached_table_is_read_anew_after_each_change(lake, spark):
    """By a writer, by PySpark's MERGE, by a statement, and by rows that replace the table."""
    name = filled(lake, spark)
    table = f"lake.{name}"
    cached = spark.table(table).cache()
    try:
        assert cached.count() == 4
        changes = frame(spark, range(10, 13))
        changes.writeTo(table).append()
        assert spark.table(table).count() == 7
        changes.writeTo(table).overwritePartitions()
        assert spark.table(table).count() == 5
        lake.session.sql(f"INSERT INTO {name} VALUES (20, 'a', 1)")
        assert spark.table(table).count() == 6
        spark.sql(f"DELETE FROM {table} WHERE id = 20")
        assert spark.table(table).count() == 5
        changes.alias("c").mergeInto(table, col(f"{name[3:]}.id") == col("c.id")).whenMatched().delete().merge()
        assert spark.table(table).count() == 2
        lake.session.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT 1 AS id")
        assert spark.table(table).count() == 1
        changes.writeTo(table).createOrReplace()
        assert spark.table(table).count() == 3
    finally:
        spark.catalog.clearCache()


def test_rows_are_distributed_as_those_of_an_insert(lake, spark):
    """A bucket, and a day, has one file, whatever the tasks of the DataFrame had."""
    name = lake.create("id bigint, ts timestamp_ntz", "PARTITIONED BY (bucket(3, id), days(ts))")
    rows = spark.range(0, 40, 1, 4).selectExpr("id", "timestamp_ntz'2024-01-01' + make_dt_interval(0, id) AS ts")
    rows.writeTo(f"lake.{name}").append()
    rows.writeTo(f"lake.{name}").overwritePartitions()
    partitions = [str(file.partition) for file in lake.data_files(name)]
    assert len(partitions) == len(set(partitions)) > 3


def test_a_column_that_is_left_out_gets_its_default(lake, spark):
    """The table's, not NULL; by name only."""
    name = lake.create("id bigint, k string DEFAULT 'new', v int", **{"format-version": "3"})
    if spark.version < "4.1":
        with pytest.raises(AnalysisException, match="CANNOT_FIND_DATA"):
            spark.range(1).writeTo(f"lake.{name}").append()
        return
    spark.range(1).writeTo(f"lake.{name}").append()
    assert lake.rows(name) == [(0, "new", None)]


def test_values_are_stored_by_the_rules_of_ansi(lake, spark):
    """What cannot be stored is refused while the write is analyzed, or when the value is met."""
    name = lake.create(COLUMNS)
    with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
        frame(spark, range(1), v="text").writeTo(f"lake.{name}").append()
    with pytest.raises(PySparkException, match="CAST_OVERFLOW_IN_TABLE_INSERT"):
        frame(spark, range(1), v=2**40).writeTo(f"lake.{name}").append()
    with pytest.raises(AnalysisException, match="too many data columns"):
        frame(spark, range(1)).withColumn("w", lit(1)).writeTo(f"lake.{name}").append()
    assert lake.table(name).current_snapshot() is None
    frame(spark, range(1), v=7).selectExpr("id", "k", "CAST(v AS bigint) AS v").writeTo(f"lake.{name}").append()
    assert lake.rows(name) == [(0, "a", 7)]


@pytest.mark.parametrize("mode", ["append", "overwritePartitions", BY_SPARK])
def test_null_in_a_required_column_is_refused_and_leaves_no_file(lake, spark, mode):
    """By the task that meets it, whichever way the rows come."""
    name = lake.create("id bigint NOT NULL, k string", "PARTITIONED BY (k)")
    before = lake.state(name)
    rows = spark.range(0, 20, 1, 2).selectExpr("nullif(id, 19) AS id", "'a' AS k")
    with pytest.raises(DataError, match="The column 'id' requires a value"):
        attrgetter(mode)(rows.writeTo(f"lake.{name}"))()
    assert lake.state(name) == before


@pytest.mark.parametrize("mode", ["append", "overwritePartitions", BY_SPARK])
def test_a_failing_task_leaves_no_file(lake, spark, mode):
    """What others had written by then is deleted; Spark's own exception arrives."""
    name = lake.create(COLUMNS, "PARTITIONED BY (k)")
    before = lake.state(name)
    rows = frame(spark, range(20)).withColumn("v", expr("if(id = 19, raise_error('no'), 1)").cast("int"))
    with pytest.raises(PySparkException, match="no"):
        attrgetter(mode)(rows.writeTo(f"lake.{name}"))()
    assert lake.state(name) == before


def test_overwrite_replaces_the_rows_of_a_condition(lake, spark):
    """Of whole files; all of them for TRUE."""
    name = filled(lake, spark)
    frame(spark, range(10, 12)).writeTo(f"lake.{name}").overwrite(col("k") == "a")
    assert [row[0] for row in lake.rows(name)] == [10, 11, 2, 3]
    frame(spark, range(20, 21), "b").writeTo(f"lake.{name}").overwrite(col("k").isin("b", "c") & col("k").isNotNull())
    assert [row[0] for row in lake.rows(name)] == [10, 11, 20]
    frame(spark, range(30, 31)).writeTo(f"lake.{name}").overwrite(lit(True))
    assert [row[0] for row in lake.rows(name)] == [30]
    assert summary(lake, name).operation is Operation.OVERWRITE


def test_overwrite_refuses_what_is_not_exact(lake, spark):
    """A condition that is no comparison, and one that holds for a part of a file; nothing is changed."""
    name = filled(lake, spark)
    before = lake.state(name)
    with pytest.raises(NotSupportedError, match="must be chosen by comparisons of columns with constants"):
        frame(spark, range(1)).writeTo(f"lake.{name}").overwrite(length("k") == 1)
    with pytest.raises(ValidationFailedError, match="some, but not all, rows match filter id < 1"):
        frame(spark, range(1)).writeTo(f"lake.{name}").overwrite(col("id") < 1)
    assert lake.state(name) == before


@pytest.mark.parametrize(
    "clauses",
    ["PARTITIONED BY (k)", "PARTITIONED BY (bucket(4, k), truncate(2, id))", ""],
    ids=["identity", "transforms", "unpartitioned"],
)
@pytest.mark.parametrize("write", ["overwritePartitions", BY_SPARK])
def test_overwrite_partitions_replaces_those_of_the_rows(lake, spark, clauses, write):
    """Other partitions stay; without partitions all rows go; no rows replace nothing."""
    name = filled(lake, spark, clauses)
    attrgetter(write)(frame(spark, range(2, 3), "b", 5).writeTo(f"lake.{name}"))()
    assert lake.rows(name) == ([(0, "a", 1), (1, "a", 1)] if clauses else []) + [(2, "b", 5)]
    before = lake.state(name)
    attrgetter(write)(frame(spark, range(0)).writeTo(f"lake.{name}"))()
    assert lake.state(name) == before


@pytest.mark.parametrize("write", ["overwritePartitions", BY_SPARK])
def test_partitions_are_overwritten_in_the_tables_order(lake, spark, write):
    """Files are sorted, and hold one partition each."""
    name = lake.create(COLUMNS, "PARTITIONED BY (k)")
    lake.session.sql(f"ALTER TABLE {name} WRITE ORDERED BY v DESC")
    rows = spark.range(0, 30, 1, 3).selectExpr("id", "if(id % 2 = 0, 'a', 'b') AS k", "CAST(id % 7 AS int) AS v")
    attrgetter(write)(rows.writeTo(f"lake.{name}").option("fanout-enabled", "false"))()
    assert {file.sort_order_id for file in lake.data_files(name)} == {lake.table(name).sort_order().order_id}
    for path in {row[0] for row in lake.rows(f"SELECT _file FROM {name}")}:
        values = spark.read.parquet(path).toPandas()["v"].tolist()
        assert values == sorted(values, reverse=True)


def test_partitions_of_columns_with_dots_in_their_names(lake, spark):
    """Which are no fields of structs."""
    name = lake.create("`a.b` string, st struct<`c.d`: int>", "PARTITIONED BY (`a.b`, st.`c.d`)")
    rows = spark.sql("SELECT 'x' AS `a.b`, named_struct('c.d', 1) AS st")
    for _ in range(2):
        attrgetter(BY_SPARK)(rows.writeTo(f"lake.{name}"))()
    assert spark.table(f"lake.{name}").where("`a.b` = 'x' AND st.`c.d` = 1").count() == 1


def test_partitions_that_the_order_of_columns_mixes_are_open_together(lake, spark):
    """A day has each `k` as often as it has times; also where one file at a time is asked for."""
    name = lake.create("ts timestamp_ntz, k string", "PARTITIONED BY (days(ts), k)")
    times = "timestamp_ntz'2024-01-01' + make_dt_interval(0, id) AS ts"
    rows = spark.range(0, 48, 1, 2).selectExpr(times, "if(id % 2 = 0, 'a', 'b') AS k")
    attrgetter(BY_SPARK)(rows.writeTo(f"lake.{name}").option("fanout-enabled", "false"))()
    assert len(lake.rows(name)) == 48


@pytest.mark.parametrize("write", ["overwrite", "overwritePartitions", BY_SPARK])
def test_rows_of_the_table_itself_are_replaced_only_where_nobody_came_between(lake, spark, write, monkeypatch):
    """Rows that others add after the read would be gone, and nobody would have seen them."""
    name = filled(lake, spark)
    table = f"lake.{name}"
    rows = spark.table(table).withColumn("v", col("v") + 1)
    arguments = [lit(True)] if write == "overwrite" else []
    attrgetter(write)(rows.writeTo(table))(*arguments)
    assert [row[2] for row in lake.rows(name)] == [2, 2, 2, 2]

    catalog = lake.session.registry.catalogs["lake"]
    load = catalog.load_table
    loads: list[Any] = []

    def load_table(identifier):
        found = load(identifier)
        if not loads:
            loads.append(identifier)
            lake.session.sql(f"INSERT INTO {name} VALUES (9, 'a', 9)")
        return found

    again = spark.table(table).withColumn("v", col("v") + 1)
    monkeypatch.setattr(catalog, "load_table", load_table)
    with pytest.raises(CommitConflictError):
        attrgetter(write)(again.writeTo(table))(*arguments)
    assert (9, "a", 9) in lake.rows(name)


def test_insert_into_goes_by_position(lake, spark):
    """And overwrites all rows, or with the dynamic mode the partitions of the new ones."""
    name = filled(lake, spark)
    frame(spark, range(10, 11)).toDF("x", "y", "z").write.insertInto(f"lake.{name}")
    assert (10, "a", 1) in lake.rows(name)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        frame(spark, range(20, 21)).write.insertInto(f"lake.{name}", overwrite=True)
        assert [row[0] for row in lake.rows(name)] == [2, 20, 3]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    frame(spark, range(30, 31)).write.insertInto(f"lake.{name}", overwrite=True)
    assert [row[0] for row in lake.rows(name)] == [30]
    frame(spark, range(40, 41), "b").write.option("overwrite-mode", "dynamic").insertInto(f"lake.{name}", True)
    assert [row[0] for row in lake.rows(name)] == [30, 40]


def test_options_are_those_of_iceberg(lake, spark):
    """They hold for this write alone; some have no effect here, and what is not known is refused."""
    name = filled(lake, spark)
    main = lake.table(name).current_snapshot().snapshot_id
    lake.table(name).manage_snapshots().create_branch(main, "audit").commit()
    writer = frame(spark, range(10, 12)).writeTo(f"lake.{name}")
    for key, value in {
        "branch": "audit",
        "snapshot-property.source": "Test",
        "target-file-size-bytes": "1000000",
        "compression-codec": "gzip",
        "check-nullability": "false",
        "check-ordering": "false",
        "fanout-enabled": "true",
        "merge-schema": "false",
    }.items():
        writer = writer.option(key, value)
    writer.append()
    table = lake.table(name)
    assert table.current_snapshot().snapshot_id == main
    assert table.snapshot_by_name("audit").summary.additional_properties["source"] == "Test"
    assert len(lake.rows(f"SELECT * FROM {name}.branch_audit")) == 6
    frame(spark, range(20, 21)).writeTo(f"lake.{name}.branch_audit").append()
    assert len(lake.rows(f"SELECT * FROM {name}.branch_audit")) == 7


def test_rows_go_by_another_partition_spec(lake, spark):
    """Of the table's history; the session's codec is theirs. What is read, and deleted, is all the same."""
    name = lake.create(COLUMNS, "PARTITIONED BY (k)")
    lake.session.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    spark.conf.set("spark.sql.iceberg.compression-codec", "gzip")
    try:
        frame(spark, range(4)).writeTo(f"lake.{name}").option("output-spec-id", "0").append()
    finally:
        spark.conf.unset("spark.sql.iceberg.compression-codec")
    frame(spark, range(4, 6)).writeTo(f"lake.{name}").append()
    files = lake.data_files(name)
    assert sorted({(file.spec_id, len(file.partition)) for file in files}) == [(0, 1), (1, 2)]
    codecs = {
        file.spec_id: pq.ParquetFile(file.path.removeprefix("file://")).metadata.row_group(0).column(0).compression
        for file in files
    }
    assert codecs == {0: "GZIP", 1: "ZSTD"}
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (1, 4)")
    assert [row[0] for row in lake.rows(name)] == [0, 2, 3, 5]
    with pytest.raises(AnalysisError, match="no such partition spec"):
        frame(spark, range(1)).writeTo(f"lake.{name}").option("output-spec-id", "9").append()


@pytest.mark.parametrize(
    ("key", "value", "error", "says"),
    [
        ("nonsense", "1", NotSupportedError, "'nonsense' is not known"),
        ("write-format", "csv", AnalysisError, "'write.format.default' is 'csv'"),
        ("branch", "nowhere", NotFoundError, "does not exist"),
        ("overwrite-mode", "often", AnalysisError, "'overwrite-mode' is 'often'"),
        ("snapshot-property.rowdelta.x", "1", AnalysisError, "is reserved"),
    ],
)
def test_what_an_option_cannot_be_is_refused(lake, spark, key, value, error, says):
    """Before any job runs."""
    name = lake.create(COLUMNS)
    with pytest.raises(error, match=says):
        frame(spark, range(1)).writeTo(f"lake.{name}").option(key, value).append()
    assert lake.table(name).current_snapshot() is None


def test_what_is_no_table_of_now_is_not_written_to(lake, spark):
    """A tag, and a table that is not there."""
    name = filled(lake, spark)
    lake.table(name).manage_snapshots().create_tag(lake.table(name).current_snapshot().snapshot_id, "fixed").commit()
    with pytest.raises(NotSupportedError, match="is a tag, not a branch"):
        frame(spark, range(1)).writeTo(f"lake.{name}.tag_fixed").append()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        frame(spark, range(1)).writeTo("lake.db.missing").append()


def test_write_audit_publish_stages_a_write(lake, spark):
    """As an INSERT: nobody sees it before it is published."""
    name = filled(lake, spark, **{"write.wap.enabled": "true"})
    spark.conf.set("spark.wap.id", "w1")
    try:
        frame(spark, range(10, 11)).writeTo(f"lake.{name}").append()
    finally:
        spark.conf.unset("spark.wap.id")
    assert len(lake.rows(name)) == 4
    staged = [s for s in lake.table(name).metadata.snapshots if s.summary.additional_properties.get("wap.id") == "w1"]
    assert len(staged) == 1


def test_a_commit_that_fails_leaves_no_file(lake, spark):
    """A conflict that the option asks to look for."""
    name = filled(lake, spark)
    first = lake.table(name).metadata.snapshots[0].snapshot_id
    before = lake.state(name)
    for write in ("overwrite", "overwritePartitions"):
        writer = frame(spark, range(5, 6), "b").writeTo(f"lake.{name}").option("isolation-level", "serializable")
        writer = writer.option("validate-from-snapshot-id", first)
        with pytest.raises(CommitConflictError) as caught:
            getattr(writer, write)(*([col("k") == "b"] if write == "overwrite" else []))
        assert caught.value.kind is ErrorKind.CONFLICT
    assert lake.state(name) == before
