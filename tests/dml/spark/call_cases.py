"""PySpark's calls on tables of a catalog, run on classic Spark and on Spark Connect: both have to answer alike."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import dml
from dml.engine import row_level
from dml.engine.merge_source import MergeSourceFrame
from dml.errors import (
    AnalysisError,
    CommitConflictError,
    DmlError,
    NotFoundError,
    NotSupportedError,
    ValidationFailedError,
)
from dml.plan.row_delta_plan import ThroughSpark

__all__ = ["CASES"]

NUMBERS = itertools.count()


def new_name() -> str:
    """The full name of a table that is not there."""
    return f"lake.db.call_{next(NUMBERS)}"


def rows(frame) -> list[tuple]:
    return sorted(map(tuple, frame.collect()))


def frame(spark, ids, k="a", v=1):
    return spark.range(ids.start, ids.stop, 1, 2).select("id", sf.lit(k).alias("k"), sf.lit(v).alias("v"))


def filled(spark) -> str:
    """A table of a and b, two rows each, partitioned by them."""
    name = new_name()
    rows_of_both = frame(spark, range(2)).union(frame(spark, range(2, 4), "b"))
    rows_of_both.coalesce(1).writeTo(name).partitionedBy("k").create()
    return name


def table_of(lake: dml.Session, name: str):
    """The table as the catalog has it."""
    return lake.registry.catalogs["lake"].load_table(tuple(name.split(".")[1:]))


def kind_of(call: Callable[[], object]) -> str | None:
    """The condition of the error of a call, or its class."""
    with pytest.raises((PySparkException, DmlError)) as caught:
        call()
    error = caught.value
    return type(error).__name__ if isinstance(error, DmlError) else error.getCondition()


def tables_are_read(spark: SparkSession, lake: dml.Session) -> None:
    """By name; what is made of it follows the table, and knows it by its name."""
    name = filled(spark)
    short = name.rpartition(".")[2]
    found = spark.table(name)
    assert found.columns == ["id", "k", "v"]
    assert [field.dataType.simpleString() for field in found.schema] == ["bigint", "string", "int"]
    assert rows(found.where(f"{short}.id > 1").select(sf.col(f"{short}.k"))) == [("b",), ("b",)]
    assert rows(found.join(spark.read.table(name).groupBy("k").count(), "k").select("id", "count"))[0] == (0, 2)
    assert found.where(found.id == 3).count() == 1
    lake.sql(f"DELETE FROM {name} WHERE id = 0")
    assert found.count() == 3
    assert spark.sql("SELECT count(*) FROM {frame}", frame=found).collect() == [(3,)]
    assert spark.table(f"{name}.snapshots").count() == 2
    assert spark.table("lake.db.`" + short + "`").count() == 3
    assert kind_of(lambda: spark.table("lake.db.missing").collect()) == "TABLE_OR_VIEW_NOT_FOUND"
    assert kind_of(lambda: spark.table("lake.nowhere.t").collect()) == "TABLE_OR_VIEW_NOT_FOUND"
    lake.sql(f"DROP TABLE {name}")
    assert kind_of(lambda: spark.table(name).collect()) == "TABLE_OR_VIEW_NOT_FOUND"


def states_are_read(spark: SparkSession, lake: dml.Session) -> None:
    """A snapshot, a time, a branch: fixed, with the columns that the table has now, or had then."""
    name = filled(spark)
    table = table_of(lake, name)
    first = table.current_snapshot()
    table.manage_snapshots().create_branch(first.snapshot_id, "audit").create_tag(first.snapshot_id, "v1").commit()
    frame(spark, range(4, 5)).writeTo(name).option("branch", "audit").append()
    lake.sql(f"DELETE FROM {name} WHERE id < 2")
    reader = spark.read
    assert spark.table(name).count() == 2
    assert spark.read.option("snapshot-id", first.snapshot_id).table(name).count() == 4
    assert spark.read.option("as-of-timestamp", first.timestamp_ms).table(name).count() == 4
    assert spark.read.option("branch", "audit").table(name).count() == 5
    assert spark.read.option("tag", "v1").table(name).count() == 4
    assert spark.read.option("versionAsOf", first.snapshot_id).table(name).count() == 4
    assert spark.table(f"{name}.branch_audit").count() == 5
    assert reader.format("iceberg").load(name).count() == 2
    assert spark.read.load(name, format="iceberg", branch="audit").count() == 5
    assert spark.read.format("iceberg").option("snapshot-id", first.snapshot_id).load(name).count() == 4
    assert spark.read.format("iceberg").load(f"{name}.snapshots").count() == 3
    lake.sql(f"ALTER TABLE {name} ADD COLUMN w INT")
    assert spark.read.option("snapshot-id", first.snapshot_id).table(name).columns == ["id", "k", "v", "w"]
    assert kind_of(lambda: spark.read.option("branch", "no").table(name).collect()) == "NotFoundError"
    both = spark.read.option("branch", "audit").option("snapshot-id", first.snapshot_id)
    assert kind_of(lambda: both.table(name).collect()) == "AnalysisError"
    with pytest.raises(NotFoundError, match="no branch, tag or snapshot 'no'"):
        spark.read.option("tag", "no").table(name).collect()


def rows_are_written(spark: SparkSession, lake: dml.Session) -> None:
    """`writeTo`: by name, in the place of those of a condition, or of partitions."""
    name = filled(spark)
    frame(spark, range(4, 5)).select("v", "id", "k").writeTo(name).append()
    spark.range(9, 10).writeTo(name).option("snapshot-property.source", "test").append()
    assert rows(spark.table(name).where("id > 3").select("id", "k", "v")) == [(4, "a", 1), (9, None, None)]
    assert table_of(lake, name).current_snapshot().summary.additional_properties["source"] == "test"
    frame(spark, range(10, 12)).writeTo(name).overwrite((sf.col("k") == "a") & sf.col("k").isNotNull())
    assert [row[0] for row in rows(spark.table(name))] == [2, 3, 9, 10, 11]
    frame(spark, range(20, 21), "b").writeTo(name).overwritePartitions()
    assert [row[0] for row in rows(spark.table(name))] == [9, 10, 11, 20]
    before = table_of(lake, name).current_snapshot()
    with pytest.raises(NotSupportedError, match="by comparisons of columns with constants"):
        frame(spark, range(1)).writeTo(name).overwrite(sf.length("k") == 1)
    with pytest.raises(ValidationFailedError, match="some, but not all, rows match filter"):
        frame(spark, range(1)).writeTo(name).overwrite(sf.col("id") < 11)
    with pytest.raises(NotSupportedError, match="'nonsense' is not known"):
        frame(spark, range(1)).writeTo(name).option("nonsense", "1").append()
    failing = frame(spark, range(9)).withColumn("v", sf.expr("if(id = 8, raise_error('no'), 1)").cast("int"))
    assert kind_of(failing.writeTo(name).append) == "USER_RAISED_EXCEPTION"
    assert kind_of(frame(spark, range(1)).writeTo("lake.db.missing").append) == "TABLE_OR_VIEW_NOT_FOUND"
    assert kind_of(frame(spark, range(1)).writeTo("lake.db.missing").overwritePartitions) == "TABLE_OR_VIEW_NOT_FOUND"
    assert table_of(lake, name).current_snapshot() == before
    spark.table(name).withColumn("v", sf.lit(5)).writeTo(name).overwrite(sf.lit(True))
    assert rows(spark.table(name).select("v").distinct()) == [(5,)]
    frame(spark, range(30, 31)).writeTo(name).option("overwrite-mode", "dynamic").overwrite(sf.lit(True))
    assert [row[0] for row in rows(spark.table(name))] == [9, 20, 30]


def snapshots_are_described(spark: SparkSession, lake: dml.Session) -> None:
    """By the session, by the writer, by the block: the nearest counts."""
    name, setting = filled(spark), "spark.sql.iceberg.snapshot-property."
    writer = frame(spark, range(4, 5)).writeTo(name).option("snapshot-property.b", "writer")
    spark.conf.set(f"{setting}a", "session")
    spark.conf.set(f"{setting}b", "session")
    try:
        with dml.commit_properties({"c": "block"}):
            writer.append()
        summary = table_of(lake, name).current_snapshot().summary.additional_properties
        assert (summary["a"], summary["b"], summary["c"]) == ("session", "writer", "block")
        spark.conf.set(f"{setting}total-records", "0")
        with pytest.raises(AnalysisError, match="is reserved"):
            writer.append()
    finally:
        for key in ("a", "b", "total-records"):
            spark.conf.unset(setting + key)


def own_rows_are_replaced_where_nobody_came_between(spark: SparkSession, lake: dml.Session) -> None:
    """Rows that others add after the read would be gone, and nobody would have seen them."""
    name, catalog = filled(spark), lake.registry.catalogs["lake"]
    load = catalog.load_table
    came: list[Any] = []

    def load_table(identifier):
        found = load(identifier)
        if not came:
            came.append(identifier)
            lake.sql(f"INSERT INTO {name} VALUES (9, 'a', 9)")
        return found

    own = spark.table(name).withColumn("v", sf.col("v") + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "load_table", load_table)
        with pytest.raises(CommitConflictError):
            own.writeTo(name).overwrite(sf.lit(True))
    assert rows(spark.table(name).select("v").distinct()) == [(1,), (9,)]


def tables_are_made_of_rows(spark: SparkSession, lake: dml.Session) -> None:
    """`create`, `replace` and `createOrReplace`, with what a table may have."""
    name = new_name()
    stamped = frame(spark, range(10)).withColumn("at", sf.lit("2024-01-01 05:06:07").cast("timestamp"))
    writer = stamped.writeTo(name).using("iceberg").tableProperty("team", "x").tableProperty("comment", "made")
    writer = writer.partitionedBy(sf.partitioning.bucket(4, "id"), sf.partitioning.days("at"), sf.col("k"))
    writer.option("snapshot-property.job", "1").create()
    table = table_of(lake, name)
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]", "day", "identity"]
    assert (table.properties["team"], table.properties["comment"]) == ("x", "made")
    assert table.current_snapshot().summary.additional_properties["job"] == "1"
    assert len(table.metadata.snapshots) == 1
    assert kind_of(frame(spark, range(1)).writeTo(name).create) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    assert kind_of(frame(spark, range(1)).writeTo("lake.db.missing").replace) == "TABLE_OR_VIEW_NOT_FOUND"
    assert kind_of(frame(spark, range(1)).writeTo("lake.nowhere.t").create) == "SCHEMA_NOT_FOUND"
    with pytest.raises(NotSupportedError, match="USING delta is not possible"):
        frame(spark, range(1)).writeTo(new_name()).using("delta").create()
    changed = spark.table(name).where("id > 7").selectExpr("id", "id * 2 AS twice")
    changed.writeTo(name).createOrReplace()
    assert rows(spark.table(name)) == [(8, 16), (9, 18)]
    spark.range(0).selectExpr("id AS other").writeTo(name).replace()
    assert spark.table(name).columns == ["other"]
    assert spark.table(name).count() == 0
    failing = frame(spark, range(9)).withColumn("v", sf.expr("if(id = 8, raise_error('no'), 1)").cast("int"))
    gone = new_name()
    assert kind_of(failing.writeTo(gone).create) == "USER_RAISED_EXCEPTION"
    assert not spark.catalog.tableExists(gone)


def rows_are_inserted_and_saved(spark: SparkSession, lake: dml.Session) -> None:
    """`df.write`: by position with `insertInto`, by name with `saveAsTable`, in four modes."""
    name = filled(spark)
    frame(spark, range(10, 11)).toDF("x", "y", "z").write.insertInto(name)
    assert (10, "a", 1) in rows(spark.table(name))
    frame(spark, range(20, 21)).write.option("overwrite-mode", "dynamic").insertInto(name, True)
    assert [row[0] for row in rows(spark.table(name))] == [2, 3, 20]
    frame(spark, range(30, 31)).write.mode("overwrite").insertInto(name)
    assert [row[0] for row in rows(spark.table(name))] == [30]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    frame(spark, range(31, 32), "b").write.insertInto(name, overwrite=True)
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert [row[0] for row in rows(spark.table(name))] == [30, 31]
    made = new_name()
    frame(spark, range(2)).write.saveAsTable(made)
    assert kind_of(lambda: frame(spark, range(1)).write.mode("error").saveAsTable(made)) == (
        "TABLE_OR_VIEW_ALREADY_EXISTS"
    )
    frame(spark, range(9)).write.mode("ignore").saveAsTable(made)
    frame(spark, range(2, 3)).select("v", "k", "id").write.format("iceberg").mode("append").saveAsTable(made)
    assert [row[0] for row in rows(spark.table(made))] == [0, 1, 2]
    frame(spark, range(7, 8)).write.mode("overwrite").partitionBy("k").saveAsTable(made)
    assert rows(spark.table(made)) == [(7, "a", 1)]
    assert [str(field.transform) for field in table_of(lake, made).spec().fields] == ["identity"]
    frame(spark, range(1)).write.saveAsTable(new_name(), mode="append", format="iceberg", partitionBy="k")
    bucketed = new_name()
    frame(spark, range(2)).write.bucketBy(4, "id").saveAsTable(bucketed)
    assert [str(field.transform) for field in table_of(lake, bucketed).spec().fields] == ["bucket[4]"]


def other_columns_are_merged_or_replace_the_tables(spark: SparkSession, lake: dml.Session) -> None:
    """In a table that accepts any: with their rows, by name; nothing of a write that fails."""
    name = new_name()
    lake.sql(
        f"CREATE TABLE {name} (id INT NOT NULL, k STRING) TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')"
    )
    more = spark.range(1).selectExpr("5000000000 + id AS id", "'a' AS k", "named_struct('x', 1) AS s")
    assert kind_of(more.writeTo(name).append) == "AnalysisError"
    more.writeTo(name).option("mergeSchema", "true").append()
    less = spark.range(1).selectExpr("2 AS id", "named_struct('y', 'z') AS s")
    less.write.mode("append").option("merge-schema", "true").insertInto(name)
    assert rows(spark.table(name).selectExpr("id", "k", "s.x", "s.y")) == [
        (2, None, None, "z"),
        (5000000000, "a", 1, None),
    ]
    swapped = spark.range(1).selectExpr("'b' AS k", "CAST(3 AS BIGINT) AS id")
    assert kind_of(swapped.writeTo(name).append) == "AnalysisError"
    swapped.writeTo(name).option("check-ordering", "false").append()
    assert kind_of(spark.range(1).selectExpr("'b' AS k").writeTo(name).append) == "AnalysisError"
    assert kind_of(spark.range(1).selectExpr("1.5D AS id").writeTo(name).append) == "AnalysisError"
    assert len(rows(spark.table(name).select("id"))) == 3
    over = swapped.writeTo(name).option("overwriteSchema", "true")
    assert kind_of(over.append) == "NotSupportedError"
    over.overwrite(sf.lit(True))
    assert rows(spark.table(name)) == [("b", 3)]
    plain = filled(spark)
    assert kind_of(lambda: over_plain(spark, plain)) == "NotSupportedError"


def over_plain(spark: SparkSession, name: str) -> None:
    """Other columns in the place of those of a table that does not accept them."""
    frame(spark, range(1)).writeTo(name).option("overwriteSchema", "true").overwrite(sf.lit(True))


def rows_are_saved_by_format(spark: SparkSession, lake: dml.Session) -> None:
    """`format("iceberg").save(name)`, as programs for the JAR write it."""
    name = new_name()
    frame(spark, range(2)).write.format("iceberg").save(name)
    assert kind_of(lambda: frame(spark, range(1)).write.format("iceberg").save(name)) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    frame(spark, range(9)).write.format("iceberg").mode("ignore").save(name)
    frame(spark, range(2, 3)).select("v", "id", "k").write.format("iceberg").mode("append").save(name)
    frame(spark, range(3, 4)).write.save(name, format="iceberg", mode="append", **{"snapshot-property.a": "b"})
    assert table_of(lake, name).current_snapshot().summary.additional_properties["a"] == "b"
    assert [row[0] for row in rows(spark.table(name))] == [0, 1, 2, 3]
    frame(spark, range(5, 6)).write.format("iceberg").mode("overwrite").save(name)
    assert rows(spark.table(name)) == [(5, "a", 1)]
    missing = frame(spark, range(1)).write.format("iceberg").mode("append")
    assert kind_of(lambda: missing.save("lake.db.missing")) == "TABLE_OR_VIEW_NOT_FOUND"


def rows_are_merged(spark: SparkSession, lake: dml.Session) -> None:
    """`mergeInto`, with columns by name and columns of the source."""
    name = filled(spark)
    short = name.rpartition(".")[2]
    changes = spark.createDataFrame([(1, "a", 7), (8, "a", 8)], "id bigint, k string, v int")
    merge = changes.alias("c").mergeInto(name, sf.expr(f"{short}.id = c.id"))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().whenNotMatchedBySource(
        sf.col(f"{short}.id") > 2
    ).delete().merge()
    assert rows(spark.table(name)) == [(0, "a", 1), (1, "a", 7), (2, "b", 1), (8, "a", 8)]
    some = changes.where("id > 0")
    merge = some.mergeInto(name, some.id == sf.col(f"{short}.id"))
    merge.whenMatched(changes.id > 5).update({"v": changes.v + sf.lit(1)}).whenMatched().delete().merge()
    assert rows(spark.table(name)) == [(0, "a", 1), (2, "b", 1), (8, "a", 9)]
    with pytest.raises(NotSupportedError, match="belongs to a DataFrame"):
        changes.mergeInto(name, spark.range(1).id == changes.id)
    itself = spark.table(name).alias("s")
    itself.mergeInto(name, sf.expr(f"s.id = {short}.id")).whenMatched(itself.v > 5).delete().merge()
    assert rows(spark.table(name)) == [(0, "a", 1), (2, "b", 1)]


def the_catalog_answers(spark: SparkSession, lake: dml.Session) -> None:
    """`spark.catalog`, of our names."""
    name, catalog = filled(spark), spark.catalog
    short = name.rpartition(".")[2]
    assert catalog.tableExists(name)
    assert not catalog.tableExists("lake.db.missing")
    assert not catalog.tableExists("lake.nowhere.t")
    assert catalog.databaseExists("lake.db")
    assert not catalog.databaseExists("lake.nowhere")
    listed = {table.name: table for table in catalog.listTables("lake.db")}
    assert listed[short] == catalog.getTable(name)
    found = catalog.getTable(name)
    assert (found.name, found.catalog, found.namespace) == (short, "lake", ["db"])
    assert (found.tableType, found.isTemporary) == ("MANAGED", False)
    assert [table.name for table in catalog.listTables("lake.db", f"{short}*")] == [short]
    columns = [(column.name, column.dataType, column.nullable) for column in catalog.listColumns(name)]
    assert columns == [("id", "bigint", True), ("k", "string", True), ("v", "int", True)]
    assert [column.isPartition for column in catalog.listColumns(name)] == [False, True, False]
    database = catalog.getDatabase("lake.db")
    assert (database.name, database.catalog) == ("db", "lake")
    assert kind_of(lambda: catalog.getTable("lake.db.missing")) == "TABLE_OR_VIEW_NOT_FOUND"
    assert kind_of(lambda: catalog.listTables("lake.nowhere")) == "SCHEMA_NOT_FOUND"
    catalog.refreshTable(name)
    assert kind_of(lambda: catalog.refreshTable("lake.db.missing")) == "TABLE_OR_VIEW_NOT_FOUND"
    made = new_name()
    created = catalog.createTable(made, schema=frame(spark, range(1)).schema)
    assert (created.columns, created.count()) == (["id", "k", "v"], 0)
    assert kind_of(lambda: catalog.createTable(made, schema=created.schema)) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    assert lake.table(made).columns == ["id", "k", "v"]


def tables_are_cached(spark: SparkSession, lake: dml.Session) -> None:
    """And what is read after a change is what is there."""
    name, catalog = filled(spark), spark.catalog
    assert not catalog.isCached(name)
    catalog.cacheTable(name)
    assert catalog.isCached(name)
    assert spark.table(name).count() == 4
    catalog.uncacheTable(name)
    assert not catalog.isCached(name)
    cached = spark.table(name).cache()
    assert cached.count() == 4
    lake.sql(f"DELETE FROM {name} WHERE id = 0")
    assert spark.table(name).count() == 3
    cached.unpersist()
    catalog.clearCache()


def names_of_others_are_sparks(spark: SparkSession, lake: dml.Session) -> None:
    """Views, and tables of Spark's own catalog."""
    frame(spark, range(3)).createOrReplaceTempView("a_view")
    assert spark.table("a_view").count() == 3
    assert spark.catalog.tableExists("a_view")
    name = f"plain_{next(NUMBERS)}"
    frame(spark, range(2)).write.saveAsTable(name, format="parquet")
    frame(spark, range(2, 3)).write.insertInto(name)
    frame(spark, range(3, 4)).write.mode("append").saveAsTable(f"default.{name}", format="parquet")
    assert [row[0] for row in rows(spark.read.table(f"spark_catalog.default.{name}"))] == [0, 1, 2, 3]
    assert name in [table.name for table in spark.catalog.listTables("default")]
    assert kind_of(lambda: spark.table("nobody.knows").collect()) == "TABLE_OR_VIEW_NOT_FOUND"
    assert kind_of(frame(spark, range(1)).writeTo("nobody.knows").append) == "TABLE_OR_VIEW_NOT_FOUND"
    lake.sql(f"DROP TABLE {name}")


def a_writer_is_called_again(spark: SparkSession, lake: dml.Session) -> None:
    """What one call of it was about does not count for the next."""
    name = filled(spark)
    writer = frame(spark, range(7, 8)).writeTo(name)
    writer.overwritePartitions()
    assert rows(spark.table(name)) == [(2, "b", 1), (3, "b", 1), (7, "a", 1)]
    writer.overwrite(sf.lit(True))
    assert rows(spark.table(name)) == [(7, "a", 1)]


def a_merge_reads_its_source_in_one_state(spark: SparkSession, lake: dml.Session) -> None:
    """It takes the keys first and the rows later: what others add between is in neither."""
    name, source = filled(spark), filled(spark)
    keys, added = MergeSourceFrame.keys, []

    def add() -> None:
        added.append(frame(spark, range(100, 101)).writeTo(source).append())

    def keys_and_then_others(self: MergeSourceFrame):
        found = keys(self)
        if not added:
            with ThreadPoolExecutor(1) as another:
                another.submit(add).result()
        return found

    on = sf.expr(f"s.id = {name.rpartition('.')[2]}.id")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MergeSourceFrame, "keys", keys_and_then_others)
        patched.setattr(row_level, "send_source", lambda *_: ThroughSpark(reason="the test says so"))
        merge = spark.table(source).alias("s").mergeInto(name, on)
        merge.whenMatched().update({"v": sf.lit(2)}).whenNotMatched().insertAll().merge()
    assert added
    assert rows(spark.table(name).groupBy("v").count()) == [(2, 4)]
    assert spark.table(source).count() == 5


CASES = {
    case.__name__: case
    for case in (
        tables_are_read,
        states_are_read,
        rows_are_written,
        snapshots_are_described,
        own_rows_are_replaced_where_nobody_came_between,
        tables_are_made_of_rows,
        rows_are_inserted_and_saved,
        other_columns_are_merged_or_replace_the_tables,
        rows_are_saved_by_format,
        rows_are_merged,
        the_catalog_answers,
        tables_are_cached,
        names_of_others_are_sparks,
        a_writer_is_called_again,
        a_merge_reads_its_source_in_one_state,
    )
}
