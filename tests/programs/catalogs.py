"""Calls of `spark.catalog`, caches, views, and short names after the current catalog and namespace have changed."""

from typing import Any

from tests.programs.program import Program, calls_of

__all__ = ["CALLS"]


def current_catalog_at_first(p: Program) -> Any:
    return p.spark.catalog.currentCatalog()


def list_catalogs(p: Program) -> Any:
    p.spark.table(p.people)
    return p.catalog in {found.name for found in p.spark.catalog.listCatalogs()}


def list_tables(p: Program) -> Any:
    found = {table.name: table for table in p.spark.catalog.listTables(f"{p.catalog}.db")}
    return [
        (name, found[name].catalog, found[name].namespace, found[name].isTemporary) for name in ("people", "visits")
    ]


def list_tables_by_a_pattern(p: Program) -> Any:
    return sorted(table.name for table in p.spark.catalog.listTables(f"{p.catalog}.db", "vis*"))


def table_exists(p: Program) -> Any:
    exists = p.spark.catalog.tableExists
    return [exists(p.people), exists(p.name("nobody")), exists(f"{p.catalog}.nowhere.people")]


def get_table(p: Program) -> Any:
    found = p.spark.catalog.getTable(p.people)
    return [found.name, found.catalog, found.namespace, found.isTemporary]


def type_of_a_table(p: Program) -> Any:
    return p.spark.catalog.getTable(p.people).tableType


def list_columns(p: Program) -> Any:
    found = p.spark.catalog.listColumns(p.people)
    return [(column.name, column.dataType, column.nullable, column.isPartition) for column in found]


def database_exists(p: Program) -> Any:
    return [p.spark.catalog.databaseExists(f"{p.catalog}.{name}") for name in ("db", "nowhere")]


def get_database(p: Program) -> Any:
    found = p.spark.catalog.getDatabase(f"{p.catalog}.db")
    return [found.name, found.catalog]


def function_exists(p: Program) -> Any:
    return p.spark.catalog.functionExists(f"{p.catalog}.system.bucket")


def cache_table(p: Program) -> Any:
    p.frame([(1, "a")]).writeTo(p.name("kept")).using("iceberg").create()
    p.spark.catalog.cacheTable(p.name("kept"))
    return [p.spark.catalog.isCached(p.name("kept")), p.spark.table(p.name("kept")).count()]


def cached_table_after_an_append(p: Program) -> Any:
    p.frame([(2, "b")]).writeTo(p.name("kept")).append()
    return [p.spark.catalog.isCached(p.name("kept")), p.spark.table(p.name("kept")).count()]


def cached_table_after_a_delete(p: Program) -> Any:
    p.spark.sql(f"DELETE FROM {p.name('kept')} WHERE id = 1")
    return [p.spark.catalog.isCached(p.name("kept")), p.spark.table(p.name("kept")).count()]


def uncache_table(p: Program) -> Any:
    p.spark.catalog.uncacheTable(p.name("kept"))
    return p.spark.catalog.isCached(p.name("kept"))


def cache_table_in_sql(p: Program) -> Any:
    p.spark.sql(f"CACHE TABLE {p.name('kept')}")
    return p.spark.catalog.isCached(p.name("kept"))


def refresh_table(p: Program) -> Any:
    p.spark.catalog.refreshTable(p.name("kept"))
    p.spark.sql(f"REFRESH TABLE {p.name('kept')}")
    return [p.spark.catalog.isCached(p.name("kept")), p.spark.table(p.name("kept")).count()]


def uncache_table_in_sql(p: Program) -> Any:
    p.spark.sql(f"UNCACHE TABLE {p.name('kept')}")
    return p.spark.catalog.isCached(p.name("kept"))


def cache_table_of_a_query(p: Program) -> Any:
    p.spark.sql(f"CACHE TABLE few AS SELECT id FROM {p.people} WHERE id < 3")
    found = [p.spark.catalog.isCached("few"), p.spark.table("few").count()]
    p.spark.catalog.clearCache()
    return [*found, p.spark.catalog.dropTempView("few")]


def temporary_view_follows_the_table(p: Program) -> Any:
    p.spark.table(p.name("kept")).select("id").createOrReplaceTempView("ids")
    p.frame([(3, "c")]).writeTo(p.name("kept")).append()
    return p.spark.table("ids")


def drop_temporary_view(p: Program) -> Any:
    return [
        p.spark.catalog.dropTempView("ids"),
        p.spark.catalog.dropTempView("ids"),
        p.spark.catalog.tableExists("ids"),
    ]


def global_temporary_view(p: Program) -> Any:
    p.spark.table(p.visits).createOrReplaceGlobalTempView("all_visits")
    count = p.spark.table("global_temp.all_visits").count()
    return [count, p.spark.catalog.dropGlobalTempView("all_visits")]


def persistent_view_follows_the_table(p: Program) -> Any:
    p.spark.sql(f"CREATE OR REPLACE VIEW spark_catalog.default.named AS SELECT name FROM {p.name('kept')}")
    p.frame([(4, "d")]).writeTo(p.name("kept")).append()
    return p.spark.table("spark_catalog.default.named")


def persistent_view_of_another_view(p: Program) -> Any:
    p.spark.sql("CREATE VIEW spark_catalog.default.ds AS SELECT * FROM spark_catalog.default.named WHERE name = 'd'")
    found = p.spark.sql("SELECT * FROM spark_catalog.default.ds").collect()
    p.spark.sql("DROP VIEW spark_catalog.default.ds")
    p.spark.sql("DROP VIEW spark_catalog.default.named")
    return [tuple(row) for row in found]


def set_current_catalog(p: Program) -> Any:
    p.spark.catalog.setCurrentCatalog(p.catalog)
    return p.spark.catalog.currentCatalog()


def set_current_database(p: Program) -> Any:
    p.spark.catalog.setCurrentDatabase("db")
    return p.spark.catalog.currentDatabase()


def short_name_of_a_table(p: Program) -> Any:
    return [
        p.spark.table("visits").count(),
        p.spark.read.table("db.visits").count(),
        p.spark.catalog.tableExists("visits"),
    ]


def short_name_in_a_query(p: Program) -> Any:
    return p.spark.sql("SELECT person, pages FROM visits WHERE pages > 2")


def short_name_of_a_writer(p: Program) -> Any:
    p.frame([(1, "a")]).writeTo("short").using("iceberg").create()
    p.frame([(2, "b")]).write.mode("append").saveAsTable("short")
    p.frame([(3, "c")]).write.insertInto("db.short")
    return p.spark.table(p.name("short"))


def short_name_in_statements(p: Program) -> Any:
    p.spark.sql("DELETE FROM short WHERE id = 1")
    p.spark.sql("UPDATE db.short SET name = 'z' WHERE id = 2")
    p.spark.sql("INSERT INTO short VALUES (4, 'd')")
    return p.spark.table("short")


def list_databases(p: Program) -> Any:
    return sorted(found.name for found in p.spark.catalog.listDatabases() if found.name in {"db", "other"})


def list_tables_of_the_current_namespace(p: Program) -> Any:
    return "short" in {table.name for table in p.spark.catalog.listTables()}


def use_another_namespace(p: Program) -> Any:
    p.spark.sql(f"USE {p.catalog}.other")
    return [
        p.spark.catalog.currentDatabase(),
        p.spark.catalog.tableExists("visits"),
        p.spark.table("db.visits").count(),
    ]


def use_a_namespace_of_the_current_catalog(p: Program) -> Any:
    p.spark.sql("USE db")
    return [p.spark.catalog.currentCatalog(), p.spark.catalog.currentDatabase(), p.spark.table("visits").count()]


def show_tables_of_the_current_namespace(p: Program) -> Any:
    return p.spark.sql("SHOW TABLES LIKE 'visits'").select("namespace", "tableName")


def temporary_view_before_a_table(p: Program) -> Any:
    p.spark.range(2).createOrReplaceTempView("visits")
    count = p.spark.table("visits").count()
    p.spark.catalog.dropTempView("visits")
    return [count, p.spark.table("visits").count()]


def back_to_the_first_catalog(p: Program) -> Any:
    p.spark.sql("USE spark_catalog.default")
    return [p.spark.catalog.currentCatalog(), p.spark.catalog.currentDatabase()]


def drop_table(p: Program) -> Any:
    p.spark.sql(f"DROP TABLE {p.name('short')}")
    return p.spark.catalog.tableExists(p.name("short"))


CALLS = calls_of(globals())
