"""`create`, `replace`, `createOrReplace` and `saveAsTable`: a table and its rows in one commit, or nothing."""

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.functions import partitioning as by

from dml.errors import NotSupportedError

pytestmark = pytest.mark.spark


def frame(spark, ids):
    return spark.range(ids.start, ids.stop, 1, 2).select("id", lit("a").alias("k"), expr("DATE'2024-01-01'").alias("d"))


def exists(lake, name):
    return lake.session.registry.catalogs["lake"].table_exists(tuple(name.split(".")))


def test_create_makes_a_table_with_its_rows_in_one_commit(lake, spark):
    """Partitioning, properties and provider are the table's."""
    name = lake.new_name()
    writer = frame(spark, range(10)).writeTo(f"lake.{name}").using("iceberg").tableProperty("owner-team", "x")
    writer.partitionedBy(by.bucket(4, "id"), by.months("d"), col("k")).create()
    table = lake.table(name)
    assert len(lake.rows(name)) == 10
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]", "month", "identity"]
    assert table.properties["owner-team"] == "x"
    assert len(table.metadata.snapshots) == 1
    assert not table.metadata.metadata_log


@pytest.mark.parametrize("transform", ["years", "months", "days", "hours"])
def test_times_partition_a_new_table(lake, spark, transform):
    """By Spark's own functions."""
    name = lake.new_name()
    rows = spark.range(2).selectExpr("id", "timestamp'2024-01-01 05:06:07' AS ts")
    rows.writeTo(f"lake.{name}").partitionedBy(getattr(by, transform)("ts")).create()
    assert str(lake.table(name).spec().fields[0].transform) == transform[:-1]
    assert len(lake.rows(name)) == 2


def test_create_refuses_a_table_that_is_there(lake, spark):
    """And `replace` one that is not; both in Spark's words."""
    name = lake.create("id bigint")
    before = lake.state(name)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        frame(spark, range(1)).writeTo(f"lake.{name}").create()
    assert lake.state(name) == before
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        frame(spark, range(1)).writeTo("lake.db.missing").replace()
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        frame(spark, range(1)).writeTo("lake.nowhere.t").create()


@pytest.mark.parametrize("provider", ["delta", "orc"])
def test_another_provider_is_refused(lake, spark, provider):
    """Tables of the catalog are Iceberg's."""
    name = lake.new_name()
    with pytest.raises(NotSupportedError, match=f"USING {provider} is not possible"):
        frame(spark, range(1)).writeTo(f"lake.{name}").using(provider).create()
    assert not exists(lake, name)


def test_a_table_may_have_no_rows(lake, spark):
    """It is there all the same, and a table that is replaced by none has none."""
    name = lake.new_name()
    frame(spark, range(0)).writeTo(f"lake.{name}").create()
    assert lake.rows(name) == []
    frame(spark, range(2)).writeTo(f"lake.{name}").append()
    spark.range(0).selectExpr("id AS other").writeTo(f"lake.{name}").replace()
    assert lake.rows(name) == []
    assert [field.name for field in lake.table(name).schema().fields] == ["other"]


def test_a_table_is_replaced_by_its_own_rows(lake, spark):
    """The history stays; the schema is the new rows'."""
    name = lake.new_name()
    frame(spark, range(5)).writeTo(f"lake.{name}").createOrReplace()
    uuid = lake.table(name).metadata.table_uuid
    changed = spark.table(f"lake.{name}").where("id > 2").selectExpr("id", "id * 2 AS twice")
    changed.writeTo(f"lake.{name}").createOrReplace()
    assert lake.rows(name) == [(3, 6), (4, 8)]
    assert lake.table(name).metadata.table_uuid == uuid
    assert len(lake.table(name).metadata.snapshots) == 2


@pytest.mark.parametrize("write", ["create", "replace", "createOrReplace"])
def test_a_failure_leaves_what_was_there(lake, spark, write):
    """No table, or the old one, and no file."""
    name = lake.new_name()
    if write == "replace":
        frame(spark, range(3)).writeTo(f"lake.{name}").create()
    before = lake.state(name) if write == "replace" else None
    rows = frame(spark, range(20)).withColumn("v", expr("if(id = 19, raise_error('no'), 1)").cast("int"))
    with pytest.raises(PySparkException, match="no"):
        getattr(rows.writeTo(f"lake.{name}"), write)()
    assert exists(lake, name) == (write == "replace")
    if before is not None:
        assert lake.state(name) == before


def test_save_as_table_has_four_modes(lake, spark):
    """Without a format, as most programs call it."""
    name = lake.new_name()
    table = f"lake.{name}"
    frame(spark, range(2)).write.saveAsTable(table)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        frame(spark, range(1)).write.mode("error").saveAsTable(table)
    frame(spark, range(9)).write.mode("ignore").saveAsTable(table)
    assert len(lake.rows(name)) == 2
    frame(spark, range(2, 3)).select("d", "k", "id").write.mode("append").saveAsTable(table)
    assert [row[0] for row in lake.rows(name)] == [0, 1, 2]
    frame(spark, range(7, 8)).write.mode("overwrite").partitionBy("k").saveAsTable(table)
    assert [row[0] for row in lake.rows(name)] == [7]
    assert [str(field.transform) for field in lake.table(name).spec().fields] == ["identity"]


def test_programs_may_say_that_the_format_is_icebergs(lake, spark):
    """A new table and one that is there; of what is no table's name it is said what to give."""
    table = f"lake.{lake.new_name()}"
    frame(spark, range(2)).write.format("iceberg").saveAsTable(table)
    frame(spark, range(2, 3)).write.saveAsTable(table, format="iceberg", mode="append")
    assert spark.table(table).count() == 3
    with pytest.raises(PySparkException, match="The format 'iceberg' loads and saves tables by name"):
        spark.read.format("iceberg").load("/somewhere/else")
