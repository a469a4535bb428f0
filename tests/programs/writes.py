"""Calls that write: `df.writeTo`, `df.write.insertInto`, `df.write.saveAsTable`, `df.write.format("iceberg")`.

Calls on one table follow each other: each finds what the one before it has left.
"""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from tests.programs.program import Program, calls_of

__all__ = ["CALLS"]


def create(p: Program) -> Any:
    p.frame([(1, "a"), (2, "b")]).writeTo(p.name("plain")).using("iceberg").create()
    return p.spark.table(p.name("plain"))


def append(p: Program) -> Any:
    p.frame([(3, "c"), (4, None)]).writeTo(p.name("plain")).append()
    return p.spark.table(p.name("plain"))


def append_with_columns_in_another_order(p: Program) -> Any:
    p.frame([("e", 5)], "name STRING, id BIGINT").writeTo(p.name("plain")).append()
    return p.spark.table(p.name("plain"))


def append_with_a_cast(p: Program) -> Any:
    p.frame([(6, "f")], "id INT, name STRING").writeTo(p.name("plain")).append()
    return p.spark.table(p.name("plain"))


def append_of_the_table_to_itself(p: Program) -> Any:
    p.spark.table(p.name("plain")).where("id = 1").selectExpr("id + 10 AS id", "name").writeTo(p.name("plain")).append()
    return p.spark.table(p.name("plain"))


def overwrite_by_a_condition(p: Program) -> Any:
    everything = F.col("id") > 0
    p.frame([(7, "g")]).writeTo(p.name("plain")).overwrite(everything)
    return p.spark.table(p.name("plain"))


def overwrite_by_true(p: Program) -> Any:
    p.frame([(8, "h"), (9, "i")]).writeTo(p.name("plain")).overwrite(F.lit(True))
    return p.spark.table(p.name("plain"))


def create_or_replace(p: Program) -> Any:
    p.frame([(1, 1.5)], "id BIGINT, price DOUBLE").writeTo(p.name("plain")).using("iceberg").createOrReplace()
    return p.spark.table(p.name("plain"))


def create_or_replace_a_new_table(p: Program) -> Any:
    p.frame([(1, "new")]).writeTo(p.name("second")).using("iceberg").createOrReplace()
    return p.spark.table(p.name("second"))


def replace(p: Program) -> Any:
    p.frame([("only",)], "word STRING").writeTo(p.name("second")).using("iceberg").replace()
    return p.spark.table(p.name("second"))


def replace_keeps_the_history(p: Program) -> Any:
    return len(p.snapshots(p.name("second")))


def create_with_properties(p: Program) -> Any:
    writer = p.frame([(1, "a")]).writeTo(p.name("described")).using("iceberg")
    writer.tableProperty("format-version", "2").tableProperty("owner.team", "data").create()
    return p.spark.sql(f"SHOW TBLPROPERTIES {p.name('described')}").where("key IN ('format-version', 'owner.team')")


def append_with_a_snapshot_property(p: Program) -> Any:
    p.frame([(2, "b")]).writeTo(p.name("described")).option("snapshot-property.job", "nightly").append()
    return p.spark.table(f"{p.name('described')}.snapshots").select(F.col("summary")["job"].alias("job"))


def create_partitioned_by_columns(p: Program) -> Any:
    rows = p.spark.table(p.people).select("id", "city", "score")
    rows.writeTo(p.name("cities")).using("iceberg").partitionedBy("city").create()
    return p.spark.table(p.name("cities"))


def partitions_of_columns(p: Program) -> Any:
    return p.partition_fields(p.name("cities"))


def overwrite_partitions(p: Program) -> Any:
    rows = p.frame([(20, "Rome", 1.0), (21, "Lima", None)], "id BIGINT, city STRING, score DOUBLE")
    rows.writeTo(p.name("cities")).overwritePartitions()
    return p.spark.table(p.name("cities"))


def overwrite_one_partition(p: Program) -> Any:
    rows = p.frame([(30, "Oslo", 3.0)], "id BIGINT, city STRING, score DOUBLE")
    rows.writeTo(p.name("cities")).overwrite(F.col("city") == "Oslo")
    return p.spark.table(p.name("cities"))


def overwrite_the_partition_of_null(p: Program) -> Any:
    rows = p.frame([(31, None, 0.0)], "id BIGINT, city STRING, score DOUBLE")
    rows.writeTo(p.name("cities")).overwrite(F.col("city").isNull())
    return p.spark.table(p.name("cities"))


def create_partitioned_by_times(p: Program) -> Any:
    rows = p.spark.table(p.people).select("id", "joined", "at")
    rows.writeTo(p.name("times")).using("iceberg").partitionedBy(F.years("joined"), F.hours("at")).create()
    return p.partition_fields(p.name("times"))


def create_partitioned_by_months_and_days(p: Program) -> Any:
    rows = p.spark.table(p.people).select("id", "joined", "at")
    rows.writeTo(p.name("dates")).using("iceberg").partitionedBy(F.months("joined"), F.days("at")).create()
    return p.partition_fields(p.name("dates")).selectExpr("joined_month", "CAST(at_day AS STRING) AS at_day")


def create_partitioned_by_buckets(p: Program) -> Any:
    rows = p.spark.table(p.people).select("id", "name")
    rows.writeTo(p.name("buckets")).using("iceberg").partitionedBy(F.bucket(4, "id")).create()
    return p.partition_fields(p.name("buckets"))


def overwrite_partitions_of_buckets(p: Program) -> Any:
    p.frame([(1, "again"), (100, "new")]).writeTo(p.name("buckets")).overwritePartitions()
    return p.spark.table(p.name("buckets"))


def create_of_nested_values(p: Program) -> Any:
    p.spark.table(p.people).select("id", "tags", "home").writeTo(p.name("nested")).using("iceberg").create()
    return p.spark.table(p.name("nested"))


def create_of_no_rows(p: Program) -> Any:
    p.frame([]).writeTo(p.name("nothing")).using("iceberg").create()
    return [p.spark.table(p.name("nothing")).count(), p.spark.table(p.name("nothing")).columns]


def save_as_table(p: Program) -> Any:
    p.frame([(1, "a"), (2, "b")]).write.format("iceberg").saveAsTable(p.name("saved"))
    return p.spark.table(p.name("saved"))


def save_as_table_append(p: Program) -> Any:
    p.frame([("c", 3)], "name STRING, id BIGINT").write.format("iceberg").mode("append").saveAsTable(p.name("saved"))
    return p.spark.table(p.name("saved"))


def save_as_table_ignore(p: Program) -> Any:
    p.frame([(9, "ignored")]).write.format("iceberg").mode("ignore").saveAsTable(p.name("saved"))
    return p.spark.table(p.name("saved"))


def save_as_table_overwrite(p: Program) -> Any:
    rows = p.frame([(5, 2.5)], "id BIGINT, price DOUBLE")
    rows.write.format("iceberg").mode("overwrite").saveAsTable(p.name("saved"))
    return p.spark.table(p.name("saved"))


def save_as_partitioned_table(p: Program) -> Any:
    rows = p.spark.table(p.people).select("id", "city")
    rows.write.format("iceberg").partitionBy("city").saveAsTable(p.name("parted"))
    return p.partition_fields(p.name("parted"))


def insert_into(p: Program) -> Any:
    p.frame([(6, 3.5)], "other BIGINT, names DOUBLE").write.insertInto(p.name("saved"))
    return p.spark.table(p.name("saved"))


def insert_into_overwrite(p: Program) -> Any:
    p.frame([(7, 4.5)], "id BIGINT, price DOUBLE").write.insertInto(p.name("saved"), overwrite=True)
    return p.spark.table(p.name("saved"))


def insert_into_overwrite_of_partitions(p: Program) -> Any:
    p.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        p.frame([(40, "Rome")], "id BIGINT, city STRING").write.insertInto(p.name("parted"), overwrite=True)
    finally:
        p.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    return p.spark.table(p.name("parted"))


def format_iceberg_save_append(p: Program) -> Any:
    rows = p.frame([(8, 5.5)], "id BIGINT, price DOUBLE")
    rows.write.format("iceberg").mode("append").save(p.name("saved"))
    return p.spark.table(p.name("saved"))


def format_iceberg_save_overwrite(p: Program) -> Any:
    rows = p.frame([(9, 6.5)], "id BIGINT, price DOUBLE")
    rows.write.format("iceberg").mode("overwrite").save(p.name("saved"))
    return p.spark.table(p.name("saved"))


CALLS = calls_of(globals())
