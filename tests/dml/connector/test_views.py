"""Views in our catalogs, by Spark's own statements."""

import pytest
from pyspark.errors import AnalysisException

from dml.catalog import list_views, load_view
from dml.errors import NotFoundError
from dml.spark.versions import Feature

pytestmark = [pytest.mark.spark, pytest.mark.needs(Feature.CATALOG_VIEWS)]


@pytest.fixture
def table(lake):
    """Three rows."""
    name = lake.create("id bigint, s string")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    return name


@pytest.fixture
def view(lake, spark, table):
    """A view of the rows with 'b'."""
    name = f"{table}_view"
    spark.sql(
        f"CREATE VIEW lake.{name} (key COMMENT 'the key', s) COMMENT 'b only' AS "
        f"SELECT id, s FROM lake.{table} WHERE s = 'b'"
    )
    yield name
    spark.sql(f"DROP VIEW IF EXISTS lake.{name}")


def rows(frame):
    return sorted(tuple(row) for row in frame.collect())


def test_a_view_shows_the_table_as_it_is_when_it_is_read(lake, spark, table, view):
    """By every way in; joined with our tables, and as the source of a MERGE."""
    assert rows(spark.sql(f"SELECT * FROM lake.{view}")) == [(2, "b"), (3, "b")]
    lake.session.sql(f"UPDATE {table} SET s = 'b' WHERE id = 1")
    assert rows(spark.table(f"lake.{view}")) == [(1, "b"), (2, "b"), (3, "b")]
    assert rows(lake.session.sql(f"SELECT v.key, t.s FROM lake.{view} v JOIN {table} t ON t.id = v.key")) == [
        (1, "b"),
        (2, "b"),
        (3, "b"),
    ]
    target = lake.create("key bigint, s string")
    merged = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    lake.session.sql(f"MERGE INTO {target} t USING lake.{view} v ON t.key = v.key {merged}")
    assert lake.rows(target) == [(1, "b"), (2, "b"), (3, "b")]


@pytest.mark.usefixtures("compiled")  # Spark lists tables by compiled code alone
def test_a_view_is_described_listed_and_replaced(lake, spark, table, view):
    """Comments and columns are kept; another definition is a version of the same view."""
    described = {row[0]: row[1:] for row in spark.sql(f"DESCRIBE TABLE EXTENDED lake.{view}").collect()}
    assert described["key"] == ("bigint", "the key")
    assert described["Type"][0] == "VIEW"
    assert described["Comment"][0] == "b only"
    namespace, name = view.split(".")
    assert name in {row[1] for row in spark.sql(f"SHOW VIEWS IN lake.{namespace}").collect()}
    assert name in {row[1] for row in spark.sql(f"SHOW TABLES IN lake.{namespace}").collect()}
    assert {name, table.split(".")[1]} <= {found.name for found in spark.catalog.listTables(f"lake.{namespace}")}
    assert name not in {identifier[-1] for identifier in lake.session.registry.catalogs["lake"].list_tables(namespace)}
    catalog = lake.session.registry.catalogs["lake"]
    before = load_view(catalog, (namespace, name))
    assert before.properties["spark.query-column-names"] == "id,s"
    spark.sql(f"CREATE OR REPLACE VIEW lake.{view} AS SELECT s, count(*) AS n FROM lake.{table} GROUP BY s")
    assert rows(spark.table(f"lake.{view}")) == [("a", 1), ("b", 2)]
    after = load_view(catalog, (namespace, name))
    assert (after.uuid(), after.current_version().version_id) == (before.uuid(), 2)
    spark.sql(f"ALTER VIEW lake.{view} RENAME TO lake.{namespace}.renamed")
    assert rows(spark.table(f"lake.{namespace}.renamed")) == [("a", 1), ("b", 2)]
    spark.sql(f"DROP VIEW lake.{namespace}.renamed")
    assert not list_views(catalog, (namespace,))


def test_a_view_remembers_where_it_was_made(lake, spark, table):
    """Bare names in its query are those of the namespace that was current then."""
    namespace, name = table.split(".")
    spark.catalog.setCurrentCatalog("lake")
    try:
        spark.catalog.setCurrentDatabase(namespace)
        spark.sql(f"CREATE OR REPLACE VIEW bare AS SELECT count(*) AS n FROM {name}")
    finally:
        spark.catalog.setCurrentCatalog("spark_catalog")
    assert rows(spark.table(f"lake.{namespace}.bare")) == [(3,)]
    spark.sql(f"DROP VIEW lake.{namespace}.bare")


def test_columns_of_a_view_may_be_called_anything(spark, table):
    """Also what joins names in the metadata."""
    spark.sql("CREATE VIEW lake.db.odd (`x,y`, `a.b`) AS SELECT 1 AS `p,q`, 2 AS r")
    assert spark.table("lake.db.odd").columns == ["x,y", "a.b"]
    assert rows(spark.table("lake.db.odd")) == [(1, 2)]
    spark.sql("DROP VIEW lake.db.odd")


def test_tables_and_views_are_not_mixed_up(lake, spark, table, view):
    """Neither is made over the other, changed or dropped as the other."""
    with pytest.raises(AnalysisException):
        spark.sql(f"CREATE OR REPLACE VIEW lake.{table} AS SELECT 1 AS x")
    with pytest.raises(AnalysisException):
        spark.sql(f"CREATE VIEW lake.{view} AS SELECT 1 AS x")
    with pytest.raises(AnalysisException):
        spark.sql(f"DROP VIEW lake.{table}")
    with pytest.raises(Exception, match="view"):
        spark.sql(f"DELETE FROM lake.{view}")
    with pytest.raises(NotFoundError, match="no_such_view"):
        spark.sql("SELECT * FROM lake.db.no_such_view")
    assert lake.rows(table) == [(1, "a"), (2, "b"), (3, "b")]


def test_a_namespace_with_a_view_is_not_empty(lake, spark, table):
    """CASCADE drops the view."""
    spark.sql("CREATE NAMESPACE lake.viewed")
    spark.sql(f"CREATE VIEW lake.viewed.v AS SELECT * FROM lake.{table}")
    with pytest.raises(Exception, match="not empty"):
        spark.sql("DROP NAMESPACE lake.viewed")
    spark.sql("DROP NAMESPACE lake.viewed CASCADE")
    assert not spark.catalog.databaseExists("lake.viewed")
