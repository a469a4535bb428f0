"""Calls that fail, each in its way."""

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from tests.programs.program import Program, calls_of

__all__ = ["CALLS"]


def missing_table(p: Program) -> Any:
    return p.spark.table(p.name("nobody"))


def missing_namespace(p: Program) -> Any:
    return p.spark.table(f"{p.catalog}.nowhere.people")


def missing_column(p: Program) -> Any:
    return p.spark.table(p.people).select("nobody")


def missing_column_in_a_condition(p: Program) -> Any:
    return p.spark.table(p.people).where("nobody = 1")


def missing_function(p: Program) -> Any:
    return p.spark.table(p.people).selectExpr(f"{p.catalog}.system.nothing(id)")


def missing_snapshot(p: Program) -> Any:
    return p.spark.read.option("snapshot-id", "17").table(p.people)


def missing_branch(p: Program) -> Any:
    return p.spark.read.option("branch", "nobody").table(p.people)


def time_before_the_first_snapshot(p: Program) -> Any:
    return p.spark.read.option("as-of-timestamp", "1000").table(p.people)


def two_states_at_once(p: Program) -> Any:
    reader = p.spark.read.option("snapshot-id", p.snapshots(p.people)[0]).option("branch", "main")
    return reader.table(p.people)


def append_to_a_missing_table(p: Program) -> Any:
    p.frame([(1, "a")]).writeTo(p.name("nobody")).append()


def append_of_a_wrong_type(p: Program) -> Any:
    p.frame([("x", 1, 2)], "person STRING, day INT, pages INT").writeTo(p.visits).append()


def append_of_too_few_columns(p: Program) -> Any:
    p.frame([(3,)], "id BIGINT").writeTo(p.name("described")).append()


def append_of_a_further_column(p: Program) -> Any:
    rows = p.spark.table(p.visits).withColumn("further", F.lit(1))
    rows.writeTo(p.visits).append()


def append_of_a_value_that_does_not_fit(p: Program) -> Any:
    rows = p.spark.table(p.visits).withColumn("pages", F.lit(5_000_000_000))
    rows.writeTo(p.visits).append()


def create_of_a_table_that_is_there(p: Program) -> Any:
    p.frame([(1, "a")]).writeTo(p.visits).using("iceberg").create()


def save_of_a_table_that_is_there(p: Program) -> Any:
    p.frame([(1, "a")]).write.format("iceberg").mode("error").saveAsTable(p.visits)


def replace_of_a_missing_table(p: Program) -> Any:
    p.frame([(1, "a")]).writeTo(p.name("nobody")).using("iceberg").replace()


def create_in_a_missing_namespace(p: Program) -> Any:
    p.frame([(1, "a")]).writeTo(f"{p.catalog}.nowhere.t").using("iceberg").create()


def overwrite_of_a_part_of_a_file(p: Program) -> Any:
    p.spark.table(p.visits).where("pages > 100").writeTo(p.visits).overwrite(F.col("pages") == 3)


def overwrite_by_a_function(p: Program) -> Any:
    p.spark.table(p.visits).writeTo(p.visits).overwrite(F.length(F.col("day").cast("string")) == 3)


def insert_into_a_missing_table(p: Program) -> Any:
    p.frame([(1, "a")]).write.insertInto(p.name("nobody"))


def insert_of_too_few_columns(p: Program) -> Any:
    p.frame([(1,)], "person BIGINT").write.insertInto(p.visits)


def null_for_a_required_column(p: Program) -> Any:
    p.spark.sql(f"CREATE TABLE {p.name('strict')} (id BIGINT NOT NULL, name STRING) USING iceberg")
    p.frame([(None, "a")]).writeTo(p.name("strict")).append()


def list_tables_of_a_missing_namespace(p: Program) -> Any:
    return p.spark.catalog.listTables(f"{p.catalog}.nowhere")


def get_a_missing_table(p: Program) -> Any:
    return p.spark.catalog.getTable(p.name("nobody"))


def current_database_that_is_missing(p: Program) -> Any:
    p.spark.sql(f"USE {p.catalog}.nowhere")


def current_catalog_that_is_missing(p: Program) -> Any:
    p.spark.catalog.setCurrentCatalog("nobody")


def uncache_a_missing_table(p: Program) -> Any:
    p.spark.catalog.uncacheTable(p.name("nobody"))


def drop_a_missing_table(p: Program) -> Any:
    p.spark.sql(f"DROP TABLE {p.name('nobody')}")


def unknown_transform_of_partitions(p: Program) -> Any:
    p.spark.sql(f"CREATE TABLE {p.name('sliced')} (id BIGINT) USING iceberg PARTITIONED BY (slices(4, id))")


def wrong_type_for_a_bucket(p: Program) -> Any:
    return p.spark.table(p.people).selectExpr(f"{p.catalog}.system.bucket(4, score)")


def nothing_has_changed(p: Program) -> Any:
    return p.spark.table(p.visits)


CALLS = calls_of(globals())
