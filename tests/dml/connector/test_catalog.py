"""Spark's own calls of our catalogs: `spark.catalog`, SHOW, CREATE, ALTER and DROP through the connector API."""

import pytest
from pyspark.errors import AnalysisException

from dml.connector.install import catalogs_of, install, uninstall
from dml.errors import AnalysisError
from dml.spark.handlers import run_as_handler

pytestmark = pytest.mark.spark


def in_spark(spark, text):
    """A statement that Spark runs itself, on the catalog that it knows."""
    with run_as_handler():
        return spark.sql(text)


def columns_of(lake, name):
    return [(f.name, str(f.field_type), f.required, f.doc) for f in lake.table(name).schema().fields]


@pytest.mark.usefixtures("compiled")  # Spark lists tables by compiled code alone
def test_spark_lists_what_there_is(lake, spark):
    """Namespaces, tables, catalogs."""
    name = lake.create("id bigint")
    assert "lake" in {catalog.name for catalog in spark.catalog.listCatalogs()}
    assert name.split(".")[1] in {table.name for table in spark.catalog.listTables("lake.db")}
    assert [row[0] for row in in_spark(spark, "SHOW NAMESPACES IN lake").collect()] == ["db"]
    assert spark.catalog.databaseExists("lake.db")
    assert not spark.catalog.databaseExists("lake.other")
    assert spark.catalog.tableExists(f"lake.{name}")
    assert not spark.catalog.tableExists("lake.db.missing")
    assert spark.catalog.getTable(f"lake.{name}").catalog == "lake"
    assert [column.name for column in spark.catalog.listColumns(f"lake.{name}")] == ["id"]


def test_what_is_not_there_is_said_as_by_other_catalogs(lake, spark):
    """Spark knows its own exceptions, not ours."""
    with pytest.raises(AnalysisException) as missing:
        spark.table("lake.db.missing")
    assert missing.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    with pytest.raises(AnalysisException) as namespace:
        in_spark(spark, "SHOW TABLES IN lake.nowhere")
    assert namespace.value.getCondition() == "SCHEMA_NOT_FOUND"
    with pytest.raises(AnalysisException) as there:
        in_spark(spark, "CREATE NAMESPACE lake.db")
    assert there.value.getCondition() == "SCHEMA_ALREADY_EXISTS"


def test_a_table_is_created_by_our_own_ddl(lake, spark):
    """Comments, NOT NULL, defaults, transforms, properties and nested types arrive in the metadata."""
    name = lake.new_name()
    in_spark(
        spark,
        f"CREATE TABLE lake.{name} (id bigint NOT NULL COMMENT 'key', `a b` struct<x: int COMMENT 'in', `y.z`: string>,"
        " ts timestamp_ntz, m map<string, array<decimal(9,2)>>) USING iceberg"
        " PARTITIONED BY (bucket(4, id), days(ts), truncate(3, `a b`.`x`)) COMMENT 'made by Spark'"
        " TBLPROPERTIES ('format-version' = '3', 'k' = 'v')",
    )
    table = lake.table(name)
    assert columns_of(lake, name)[0] == ("id", "long", True, "key")
    assert [str(f.field_type) for f in table.schema().fields][2:] == ["timestamp", "map<string, list<decimal(9, 2)>>"]
    struct = table.schema().fields[1].field_type
    assert [(f.name, f.doc) for f in struct.fields] == [("x", "in"), ("y.z", None)]
    assert [str(f.transform) for f in table.spec().fields] == ["bucket[4]", "day", "truncate[3]"]
    assert table.format_version == 3
    assert table.properties["k"] == "v"
    assert table.properties["comment"] == "made by Spark"
    assert not {"provider", "owner", "location"} & table.properties.keys()
    shown = [row[0] for row in in_spark(spark, f"DESCRIBE TABLE lake.{name}").collect()]
    assert shown[:4] == ["id", "a b", "ts", "m"]
    assert {"bucket(4, id)", "days(ts)", "truncate(3, `a b`.x)"} <= {
        row[1] for row in in_spark(spark, f"DESCRIBE TABLE lake.{name}").collect()
    }


def test_creating_what_is_there_fails_and_makes_nothing(lake, spark):
    name = lake.create("id bigint")
    before = lake.state(name)
    with pytest.raises(AnalysisException) as there:
        in_spark(spark, f"CREATE TABLE lake.{name} (x int) USING iceberg")
    assert there.value.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    in_spark(spark, f"CREATE TABLE IF NOT EXISTS lake.{name} (x int) USING iceberg")
    assert lake.state(name) == before
    with pytest.raises(AnalysisException) as nowhere:
        in_spark(spark, "CREATE TABLE lake.nowhere.t (x int) USING iceberg")
    assert nowhere.value.getCondition() == "SCHEMA_NOT_FOUND"


def test_errors_of_ours_arrive_as_they_were_raised(lake, spark):
    """With their class and message, through Spark and back."""
    name = lake.create("id bigint, s struct<a: int>")
    with pytest.raises(AnalysisError) as refused:
        in_spark(spark, f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.delete.mode' = 'sideways')")
    assert "write.delete.mode" in refused.value.message


def test_a_table_is_altered_by_our_own_ddl(lake, spark):
    name = lake.create("id bigint NOT NULL, v int, s struct<a: int>, gone string")
    for change in (
        "ADD COLUMNS (first date COMMENT 'new' FIRST, s.b string AFTER a)",
        "ALTER COLUMN v TYPE bigint",
        "ALTER COLUMN v COMMENT 'wider'",
        "ALTER COLUMN id DROP NOT NULL",
        "RENAME COLUMN v TO w",
        "DROP COLUMN gone",
        "ALTER COLUMN w FIRST",
        "SET TBLPROPERTIES ('k' = '1', 'l' = '2')",
        "UNSET TBLPROPERTIES ('l')",
    ):
        in_spark(spark, f"ALTER TABLE lake.{name} {change}")
    assert [column[0] for column in columns_of(lake, name)] == ["w", "first", "id", "s"]
    assert columns_of(lake, name)[:3] == [
        ("w", "long", False, "wider"),
        ("first", "date", False, "new"),
        ("id", "long", False, None),
    ]
    assert [f.name for f in lake.table(name).schema().find_field("s").field_type.fields] == ["a", "b"]
    assert lake.table(name).properties["k"] == "1"
    assert "l" not in lake.table(name).properties


def test_tables_are_renamed_and_dropped(lake, spark):
    name, new = lake.create("id bigint"), lake.new_name()
    in_spark(spark, f"ALTER TABLE lake.{name} RENAME TO {new}")
    assert not spark.catalog.tableExists(f"lake.{name}")
    folder = lake.folder(new)
    in_spark(spark, f"DROP TABLE lake.{new}")
    assert folder.exists()
    assert not spark.catalog.tableExists(f"lake.{new}")
    with pytest.raises(AnalysisException):
        in_spark(spark, f"DROP TABLE lake.{new}")
    in_spark(spark, f"DROP TABLE IF EXISTS lake.{new}")
    purged = lake.create("id bigint")
    folder = lake.folder(purged)
    in_spark(spark, f"DROP TABLE lake.{purged} PURGE")
    assert not list(folder.rglob("*.json"))


def test_namespaces_are_created_changed_and_dropped(lake, spark):
    in_spark(spark, "CREATE NAMESPACE lake.n1 WITH DBPROPERTIES ('owned' = 'yes')")
    in_spark(spark, "ALTER NAMESPACE lake.n1 SET PROPERTIES ('k' = 'v')")
    shown = {row[0]: row[1] for row in in_spark(spark, "DESCRIBE NAMESPACE EXTENDED lake.n1").collect()}
    assert "(k,v)" in shown["Properties"]
    lake.session.sql("CREATE TABLE n1.t (id bigint)")
    with pytest.raises(AnalysisException) as inside:
        in_spark(spark, "DROP NAMESPACE lake.n1")
    assert inside.value.getCondition() == "SCHEMA_NOT_EMPTY"
    in_spark(spark, "DROP NAMESPACE lake.n1 CASCADE")
    assert not spark.catalog.databaseExists("lake.n1")
    with pytest.raises(AnalysisException):
        in_spark(spark, "DROP NAMESPACE lake.n1")


def test_a_catalog_is_there_while_the_session_is_enabled(lake, spark):
    """Installing twice does no harm, and a catalog of Spark's own settings stays Spark's."""
    name = lake.create("id bigint")
    assert install(lake.engine)
    assert install(lake.engine)
    assert spark.table(f"lake.{name}").columns == ["id"]
    uninstall(lake.engine)
    with pytest.raises(AnalysisException):
        spark.table(f"lake.{name}")
    spark.conf.set("spark.sql.catalog.lake", "org.example.Other")
    try:
        install(lake.engine)
        assert not catalogs_of(lake.engine).contains("lake")
    finally:
        spark.conf.unset("spark.sql.catalog.lake")
