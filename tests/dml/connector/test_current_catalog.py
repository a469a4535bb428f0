"""Spark's current catalog is one of ours: what `spark.sql.defaultCatalog` makes of names without a catalog.

The statements are those of dbt-spark, which names a schema and a table, and begins each with a comment.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dml.errors import NotFoundError
from dml.spark.versions import Feature

pytestmark = pytest.mark.spark

HEAD = '/* {"app": "dbt", "node_id": "model.shop.orders"} */\n'


def test_a_new_thread_has_the_default_catalog(lake, spark):
    """Its thread in the JVM has no active session yet, and Spark's own settings where there is none."""
    name = lake.create("id BIGINT").rpartition(".")[2]
    spark.conf.set("spark.sql.defaultCatalog", "lake")
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(spark.sql, f"INSERT INTO db.{name} VALUES (1)").result()
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(spark.sql, f"SELECT id FROM db.{name}").result().collect() == [(1,)]
    finally:
        spark.conf.unset("spark.sql.defaultCatalog")


@pytest.fixture
def sql(lake, spark):
    """Runs a statement as dbt does, in a namespace of its own; what it returns."""
    spark.catalog.setCurrentCatalog("lake")

    def run(text):
        outcome = spark.sql(HEAD + text)
        return [tuple(row) for row in outcome.collect()] if hasattr(outcome, "collect") else []

    run("create schema if not exists dbt")
    yield run
    run("drop schema if exists dbt cascade")
    run("drop schema if exists `default` cascade")
    spark.catalog.setCurrentCatalog("spark_catalog")
    lake.session.registry.current_namespace = ("default",)


def information(sql):
    """What dbt looks for in `show table extended`: name, the lines of the last column."""
    return {row[1]: row[3].splitlines() for row in sql("show table extended in dbt like '*'")}


@pytest.mark.needs(Feature.CATALOG_VIEWS)
def test_namespaces_and_tables_are_those_of_the_catalog(sql, lake):
    """Made, listed and described without its name; dbt reads the kind and the provider of each."""
    assert ("dbt",) in sql("show databases")
    assert information(sql) == {}
    sql("create table dbt.seed (id bigint,day date,state string)\n    using iceberg")
    sql("insert into dbt.seed values\n (cast(1.0 as bigint),cast('2024-01-01' as date),cast('new' as string))")
    sql(
        "create or replace table dbt.orders\n using iceberg partitioned by (day)\n comment 'all'\n as\n"
        "select id, day from dbt.seed"
    )
    sql("create or replace view dbt.recent\n as\n select * from dbt.orders")
    assert lake.rows("dbt.orders")[0][0] == 1
    assert sql("show tables in dbt like '*'") == [("dbt", name, False) for name in ("orders", "recent", "seed")]
    found = information(sql)
    assert set(found) == {"orders", "recent", "seed"}
    assert "Provider: iceberg" in found["orders"]
    assert "Type: VIEW" in found["recent"]
    assert any(line.startswith(" |-- id: long (nullable = ") for line in found["seed"])
    described = sql("describe extended dbt.orders")
    assert [row[:2] for row in described[:2]] == [("id", "bigint"), ("day", "date")]
    assert ("Provider", "iceberg", "") in described
    assert sql("describe extended dbt.recent")[0][:2] == ("id", "bigint")
    sql("alter table dbt.orders add columns (\n `state` string\n)")
    sql("alter table dbt.orders alter column\n id\n comment 'it\\'s the key'")
    assert sql("describe dbt.orders")[0] == ("id", "bigint", "it's the key")
    sql("drop table if exists dbt.seed")
    sql("drop view if exists dbt.recent")
    sql("drop view if exists dbt.recent")
    assert sql("show tables in dbt") == [("dbt", "orders", False)]


def test_incremental_models_run_over_temporary_views(sql, lake, spark):
    """append, merge and insert_overwrite; the view may read the table that changes."""
    sql("create or replace table dbt.orders using iceberg as select * from values (1, 'a'), (2, 'a') as t(id, s)")
    sql("create or replace temporary view orders__tmp as\n select id + 1 as id, 'b' as s from dbt.orders")
    assert [row[:2] for row in sql("describe extended orders__tmp")[:2]] == [("id", "int"), ("s", "string")]
    sql("insert into table dbt.orders\n    select `id`, `s` from orders__tmp where id = 3")
    assert lake.rows("dbt.orders") == [(1, "a"), (2, "a"), (3, "b")]
    sql(
        "merge into dbt.orders as DBT_INTERNAL_DEST\n using orders__tmp as DBT_INTERNAL_SOURCE\n"
        " on DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id\n"
        " when matched then update set\n * \n when not matched then insert *"
    )
    assert lake.rows("dbt.orders") == [(1, "a"), (2, "b"), (3, "b")]
    sql("create table dbt.days using iceberg partitioned by (k) as select * from values (1, 1), (2, 2) t(id, k)")
    sql("set spark.sql.sources.partitionOverwriteMode = DYNAMIC")
    sql("insert overwrite dbt.days\n select id + 10 as id, k from dbt.days where k = 2")
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert lake.rows("dbt.days") == [(1, 1), (12, 2)]
    spark.catalog.dropTempView("orders__tmp")


@pytest.mark.needs(Feature.CATALOG_VIEWS)
def test_a_snapshot_is_merged_from_a_view_with_a_bare_name(sql, lake):
    """Its columns are asked for, and its query reads the target."""
    sql("create or replace table dbt.history using iceberg as select 1 as id, 'a' as s, cast(null as string) as gone")
    sql(
        "create or replace view orders__dbt_tmp\n as\n with old as (select * from dbt.history)\n"
        " select id, s, gone, 'update' as dbt_change_type from old"
    )
    assert [row[0] for row in sql("describe extended orders__dbt_tmp")[:4]] == ["id", "s", "gone", "dbt_change_type"]
    sql(
        "merge into dbt.history as DBT_INTERNAL_DEST\n using orders__dbt_tmp as DBT_INTERNAL_SOURCE\n"
        " on DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id\n when matched\n and DBT_INTERNAL_DEST.gone is null\n"
        " and DBT_INTERNAL_SOURCE.dbt_change_type in ('update', 'delete')\n then update\n set gone = 'yes'\n"
        " when not matched\n and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert'\n then insert *"
    )
    assert lake.rows("dbt.history") == [(1, "a", "yes")]
    sql("drop view if exists orders__dbt_tmp")


def test_use_is_for_both(sql, lake, spark):
    """The registry and Spark mean the same namespace; `default` need not be there; a temporary view hides a table."""
    sql("use dbt")
    sql("create table t (id bigint)")
    sql("insert into t values (7)")
    assert spark.catalog.currentDatabase() == "dbt"
    assert [tuple(row) for row in spark.table("t").collect()] == [(7,)]
    assert sql("select * from t") == [(7,)]
    spark.range(2).createOrReplaceTempView("t")
    assert sql("select count(*) from t") == [(2,)]
    spark.catalog.dropTempView("t")
    sql("use `default`")
    assert spark.catalog.currentDatabase() == "default"
    with pytest.raises(NotFoundError):
        sql("use nowhere")
    spark.catalog.setCurrentDatabase("dbt")
    assert sql("select * from t") == [(7,)]
    sql("delete from t where id = 7")
    assert sql("select * from t") == []
    sql("create schema if not exists spark_catalog.aside")
    assert spark.catalog.databaseExists("spark_catalog.aside")
    sql("drop schema spark_catalog.aside")
    sql("use `default`")
