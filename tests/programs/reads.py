"""Calls that read: `spark.table`, `spark.read`, states of a table, metadata tables, Iceberg's functions."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from tests.programs.program import Program, calls_of

__all__ = ["CALLS"]


def table_by_its_name(p: Program) -> Any:
    return p.spark.table(p.people)


def read_table(p: Program) -> Any:
    return p.spark.read.table(p.visits)


def schema_of_a_table(p: Program) -> Any:
    return [(f.name, f.dataType.simpleString(), f.nullable) for f in p.spark.table(p.people).schema.fields]


def some_columns(p: Program) -> Any:
    return p.spark.table(p.people).select("name", F.col("home.floor").alias("floor"))


def filter_by_a_column(p: Program) -> Any:
    people = p.spark.table(p.people)
    return people.filter((people.city == "Rome") | people.score.isNull()).select("id", "city")


def filter_by_a_date(p: Program) -> Any:
    return p.spark.table(p.people).where("joined >= DATE '2024-01-01'").select("id", "joined")


def filter_by_a_timestamp(p: Program) -> Any:
    return p.spark.table(p.people).where("at < TIMESTAMP '2020-02-01 00:00:00'").selectExpr("id", "CAST(at AS STRING)")


def filter_by_nulls(p: Program) -> Any:
    return p.spark.table(p.people).where("city IS NULL OR name <=> NULL").select("id")


def filter_by_a_nested_field(p: Program) -> Any:
    return p.spark.table(p.people).where("home.zip = '00100'").select("id")


def count_of_all_rows(p: Program) -> Any:
    return p.spark.table(p.people).count()


def groups(p: Program) -> Any:
    return p.spark.table(p.people).groupBy("city").agg(F.count("*").alias("n"), F.max("score").alias("best"))


def exploded_arrays(p: Program) -> Any:
    return p.spark.table(p.people).select("id", F.explode("tags").alias("tag"))


def window_function(p: Program) -> Any:
    order = Window.partitionBy("city").orderBy("id")
    return p.spark.table(p.people).select("id", F.row_number().over(order).alias("place"))


def inner_join(p: Program) -> Any:
    visits = p.spark.table(p.visits)
    return p.spark.table(p.people).join(visits, F.col("id") == visits.person).select("name", "day", "pages")


def left_join_with_a_hint(p: Program) -> Any:
    visits = p.spark.table(p.visits).groupBy("person").agg(F.sum("pages").alias("pages"))
    joined = p.spark.table(p.people).join(visits.hint("broadcast"), F.col("id") == F.col("person"), "left")
    return joined.select("id", "pages")


def anti_join_with_a_dataframe(p: Program) -> Any:
    few = p.frame([(1, "x"), (5, "y")])
    return p.spark.table(p.people).join(few, "id", "left_anti").select("id")


def union_of_two_states(p: Program) -> Any:
    first = p.spark.read.option("snapshot-id", str(p.snapshots(p.people)[0])).table(p.people)
    return first.select("id").unionByName(p.spark.table(p.people).select("id"))


def snapshot_by_an_option(p: Program) -> Any:
    first = p.snapshots(p.people)[0]
    return p.spark.read.option("snapshot-id", first).table(p.people).select("id", "name")


def time_by_an_option(p: Program) -> Any:
    seconds = p.spark.table(f"{p.people}.snapshots").selectExpr("unix_millis(committed_at) AS at").orderBy("at")
    second = seconds.collect()[1].at
    return p.spark.read.option("as-of-timestamp", str(second - 1)).table(p.people).select("id")


def branch_by_an_option(p: Program) -> Any:
    return p.spark.read.option("branch", "main").table(p.people).select("id")


def version_in_a_query(p: Program) -> Any:
    return p.spark.sql(f"SELECT id FROM {p.people} VERSION AS OF {p.snapshots(p.people)[0]}")


def branch_in_the_name(p: Program) -> Any:
    return p.spark.table(f"{p.people}.branch_main").select("id")


def snapshot_in_the_name(p: Program) -> Any:
    return p.spark.table(f"{p.people}.snapshot_id_{p.snapshots(p.people)[0]}").select("id")


def format_iceberg_load(p: Program) -> Any:
    return p.spark.read.format("iceberg").load(p.people).select("id")


def format_iceberg_load_of_a_snapshot(p: Program) -> Any:
    reader = p.spark.read.format("iceberg").option("snapshot-id", p.snapshots(p.people)[0])
    return reader.load(p.people).select("id")


def table_of_snapshots(p: Program) -> Any:
    return p.spark.table(f"{p.people}.snapshots").select("operation", F.col("summary")["total-records"].alias("total"))


def table_of_files(p: Program) -> Any:
    return p.spark.table(f"{p.people}.files").select("content", "file_format", "record_count", "partition.city")


def table_of_partitions(p: Program) -> Any:
    return p.spark.table(f"{p.people}.partitions").select("partition.city", "record_count", "file_count")


def table_of_refs(p: Program) -> Any:
    return p.spark.read.table(f"{p.people}.refs").select("name", "type")


def metadata_columns(p: Program) -> Any:
    return (
        p.spark.table(p.people).where("id < 3").select("id", "_spec_id", F.col("_file").endswith("parquet").alias("f"))
    )


def bucket_in_a_condition(p: Program) -> Any:
    return p.spark.table(p.people).where(f"{p.catalog}.system.bucket(4, id) = 2").select("id")


def bucket_of_each_type(p: Program) -> Any:
    buckets = ("id", "name", "joined", "at", "CAST(score AS DECIMAL(9, 2))", "CAST(id AS INT)")
    listed = ", ".join(f"{p.catalog}.system.bucket(16, {column}) AS b{n}" for n, column in enumerate(buckets))
    return p.spark.sql(f"SELECT id, {listed} FROM {p.people}")


def truncate_in_an_expression(p: Program) -> Any:
    system = f"{p.catalog}.system"
    return p.spark.table(p.people).selectExpr(
        "id", f"{system}.truncate(2, name) AS name", f"{system}.truncate(10, CAST(id * 7 AS INT)) AS tens"
    )


def days_by_call_function(p: Program) -> Any:
    days = F.call_function(f"{p.catalog}.system.days", F.col("at"))
    years = F.call_function(f"{p.catalog}.system.years", F.col("joined"))
    return p.spark.table(p.people).select("id", days.alias("days"), years.alias("years"))


def months_and_hours_in_expressions(p: Program) -> Any:
    months, hours = F.expr(f"{p.catalog}.system.months(at)"), F.expr(f"{p.catalog}.system.hours(at)")
    return p.spark.table(p.people).select("id", months.alias("months"), hours.alias("hours"))


def cached_dataframe(p: Program) -> Any:
    frame = p.spark.table(p.people).where("id > 2").cache()
    try:
        return [frame.count(), frame.where("id > 5").count(), frame.is_cached]
    finally:
        frame.unpersist()


def rows_one_by_one(p: Program) -> Any:
    ordered = p.spark.table(p.people).select("id").orderBy("id")
    return [ordered.first(), ordered.take(2), [row.id for row in ordered.toLocalIterator()], ordered.isEmpty()]


CALLS = calls_of(globals())
