"""Iceberg's functions where Spark resolves them: in expressions, `call_function`, `spark.catalog` and views."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from dml.errors import AnalysisError, ErrorKind
from dml.spark.handlers import run_as_handler
from dml.spark.iceberg_functions import FUNCTIONS
from dml.spark.versions import Feature

pytestmark = [pytest.mark.spark, pytest.mark.needs(Feature.CATALOG_FUNCTIONS)]

VALUES = """
    SELECT CAST(id AS TINYINT) AS t, CAST(id AS INT) AS i, id AS l,
        CAST(id / 3 AS DECIMAL(9, 2)) AS d, timestamp_micros(id * 7777777777777) AS at,
        CAST(timestamp_micros(id * 7777777777777) AS TIMESTAMP_NTZ) AS ntz,
        date_add(DATE '1970-01-01', CAST(id * 31 AS INT)) AS day, concat('w\u00f6rd', id) AS w,
        CAST(NULL AS BIGINT) AS n
    FROM range(-60, 60, 7)
"""
CALLS = (
    *(f"system.bucket(16, {column})" for column in ("i", "l", "d", "at", "ntz", "day", "w")),
    *(f"system.truncate(3, {column})" for column in ("t", "l", "d", "w")),
    *(f"system.{name}(at)" for name in ("years", "months", "days", "hours")),
    *(f"system.{name}(ntz)" for name in ("days", "hours")),
    "system.years(day)",
    "system.iceberg_version()",
    "system.bucket(4, lake.system.truncate(2, l))",
    "SYSTEM.Bucket(cast(2 + 2 as int), n)",
)


def test_expressions_give_what_they_give_in_statements(lake, spark):
    """For each function and each type that it takes; the session's catalog stands before the name."""
    spark.sql(VALUES).createOrReplaceTempView("function_values")
    listed = ", ".join(f"lake.{call} AS c{number}" for number, call in enumerate(CALLS))
    expected = lake.session.sql(f"SELECT {listed} FROM function_values")
    found = spark.table("function_values").selectExpr(*(f"lake.{call}" for call in CALLS))
    assert [tuple(row) for row in found.collect()] == [tuple(row) for row in expected.collect()]
    assert [f.dataType for f in found.schema.fields] == [f.dataType for f in expected.schema.fields]


def test_they_are_called_by_their_names_too(lake, spark):
    """In conditions, in the condition of a join, grouped, and in a view of Spark's."""
    name = lake.create("id bigint, at timestamp_ntz")
    lake.session.sql(
        f"INSERT INTO {name} SELECT id, CAST(timestamp_seconds(id * 40000) AS TIMESTAMP_NTZ) FROM range(9)"
    )
    bucket = F.call_function("lake.system.bucket", F.lit(3), "id")
    table = spark.table(f"lake.{name}")
    kept = [row.id for row in table.where(bucket == 1).collect()]
    assert 0 < len(kept) < 9
    assert kept == [row.id for row in table.where("lake.system.bucket(3, id) = 1").collect()]
    days = F.expr("lake.system.days(at)")
    assert sum(row["count"] for row in table.groupBy(days.alias("day")).count().collect()) == 9
    joined = table.alias("a").join(table.alias("b"), F.expr("lake.system.bucket(3, a.id) = b.id"), "left")
    assert joined.where("b.id IS NULL").count() == 0
    with run_as_handler():  # Spark runs it, not RowDelta
        spark.sql(
            f"CREATE OR REPLACE VIEW spark_catalog.default.days AS SELECT lake.system.days(at) AS d FROM lake.{name}"
        )
        assert spark.table("spark_catalog.default.days").distinct().count() == 4
        spark.sql("DROP VIEW spark_catalog.default.days")


def test_spark_lists_them(lake, spark):
    assert all(spark.catalog.functionExists(f"lake.system.{name}") for name in FUNCTIONS)
    assert not spark.catalog.functionExists("lake.system.nothing")
    assert not spark.catalog.functionExists("lake.db.bucket")
    with run_as_handler():
        shown = {row[0] for row in spark.sql("SHOW USER FUNCTIONS IN lake.system").collect()}
    assert {f"lake.system.{name}" for name in FUNCTIONS} <= shown


def test_what_does_not_fit_is_said(lake, spark):
    """As in statements; a function that is not there is Spark's to report."""
    frame = spark.range(2)
    for wrong in (
        "bucket(4, CAST(id AS DOUBLE))",
        "bucket(4)",
        "bucket(0, id)",
        "bucket(id, id)",
        "hours(DATE '2020-01-01')",
    ):
        with pytest.raises(AnalysisError) as refused:
            frame.selectExpr(f"lake.system.{wrong}")
        assert refused.value.kind is ErrorKind.TYPE_MISMATCH, wrong
    with pytest.raises(AnalysisException) as missing:
        frame.selectExpr("lake.system.nothing(id)")
    assert missing.value.getCondition() == "UNRESOLVED_ROUTINE"


PRUNED = {
    "lake.system.bucket(16, id) = 3": "system.bucket(16, id) = 3",
    "lake.system.bucket(16, id) IN (3, 4) AND k = 1": "system.bucket(16, id) IN (3, 4)",
    "lake.system.bucket(16, id) = 3 OR id = 5": "system.bucket(16, id) = 3 OR id = 5",
    "NOT (lake.system.bucket(16, id) <> 3)": "system.bucket(16, id) = 3",
    "lake.system.bucket(8, w) = 1": "system.bucket(8, w) = 1",
    "lake.system.truncate(2, w) = 'w1'": "startswith(w, 'w1')",
    "lake.system.days(at) < DATE '1970-01-03'": "at < '1970-01-03 00:00:00'",
    "lake.system.hours(at) = 11": "at >= '1970-01-01 11:00:00' AND at < '1970-01-01 12:00:00'",
    "lake.system.years(at) IS NULL": None,
}


def plan_text(frame):
    """The physical plan of a DataFrame."""
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture(scope="module")
def numbers(connector_lake):
    """A table by buckets of its ids."""
    connector_lake.session.sql(
        "CREATE TABLE db.numbers_by_bucket (id BIGINT, k INT, w STRING, at TIMESTAMP_NTZ) "
        "PARTITIONED BY (bucket(16, id))"
    )
    connector_lake.session.sql(
        "INSERT INTO db.numbers_by_bucket SELECT id, CAST(id % 7 AS INT), concat('w', id), "
        "CAST(timestamp_seconds(id * 40000) AS TIMESTAMP_NTZ) FROM range(100)"
    )
    return "lake.db.numbers_by_bucket"


@pytest.mark.parametrize("condition", PRUNED)
def test_conditions_of_dataframes_prune_by_them(lake, numbers, spark, condition):
    """The scan has the filter that the same condition has in SQL, and the rows are those of SQL."""
    frame = spark.table(numbers).where(condition)
    rows = frame.select("id").collect()
    assert sorted(rows) == sorted(spark.sql(f"SELECT id FROM {numbers} WHERE {condition}").collect())
    scan = plan_text(frame).split("BatchScan")[1]
    assert ("filter" not in scan) if PRUNED[condition] is None else (f"{PRUNED[condition]}" in scan)


def test_they_prune_by_what_they_are_called_with(lake, numbers, spark):
    """What a projection computes is no column of the table, though Spark puts it in the place of one."""
    table, bucket = spark.table(numbers), "lake.system.bucket(16, x) = 3"
    by_hand = {row.id for row in table.where("lake.system.bucket(16, id) = 3").collect()}
    computed = table.withColumn("x", F.col("id") + 1).where(f"{bucket} AND lake.system.bucket(8, id) >= 0")
    assert {row.id + 1 for row in computed.collect()} == {
        row.id for row in table.selectExpr("id + 1 AS id").where("lake.system.bucket(16, id) = 3").collect()
    }
    assert "system.bucket" not in plan_text(computed).split("BatchScan")[1]
    renamed = table.withColumnRenamed("id", "x").where(bucket)
    assert {row.x for row in renamed.collect()} == by_hand
    assert "system.bucket(16, id) = 3" in plan_text(renamed)
    other = table.withColumn("x", F.col("k")).where(bucket)
    assert "system.bucket(16, k) = 3" in plan_text(other)
    assert other.count() == table.where("lake.system.bucket(16, k) = 3").count() > 0
    joined = table.alias("a").join(table.alias("b"), F.expr("a.id = b.id + 1"), "left")
    assert joined.where("lake.system.bucket(16, b.id) = 3").count() == len(by_hand - {99})
    assert joined.where("lake.system.bucket(16, b.id) IS NULL").count() == 1
