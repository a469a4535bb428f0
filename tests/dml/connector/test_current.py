"""The current catalog and namespace: one, whoever changes it, statements of ours or Spark's own calls."""

import pytest
from pyspark.errors import AnalysisException, PySparkException

from dml.errors import NotFoundError

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _elsewhere(lake, spark):
    """The session's own namespace is another one before each test."""
    lake.session.registry.current_namespace = ("default",)
    yield
    spark.catalog.setCurrentCatalog("spark_catalog")
    lake.session.registry.current_namespace = ("default",)


@pytest.mark.usefixtures("compiled")  # Spark lists tables by compiled code alone
@pytest.mark.parametrize("give", ["spark", "session"])
def test_use_moves_spark(lake, spark, give):
    """Then Spark's own calls know short names; given to either."""
    name = lake.create("id bigint").split(".")[1]
    run = spark.sql if give == "spark" else lake.session.sql
    run("USE lake.db")
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == ("lake", "db")
    spark.range(3).writeTo(name).append()
    spark.range(3, 5).write.mode("append").saveAsTable(name)
    assert spark.table(name).count() == spark.read.table(f"db.{name}").count() == 5
    assert spark.catalog.tableExists(name)
    assert name in {table.name for table in spark.catalog.listTables()}


def test_what_spark_is_told_counts_for_statements(lake, spark):
    name = lake.create("id bigint").split(".")[1]
    spark.catalog.setCurrentCatalog("lake")
    spark.catalog.setCurrentDatabase("db")
    lake.session.sql(f"INSERT INTO {name} VALUES (1), (2), (3)")
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    assert lake.session.update(name, {"id": "id * 10"}, "id = 2").rows_updated == 1
    lake.session.merge_into(spark.range(3, 4), name, f"{name}.id = source.id").whenMatched().delete().merge()
    assert lake.session.table(name).collect() == spark.table(name).collect() == [(20,)]
    assert lake.session.verify(name).ok


def test_a_namespace_of_the_current_catalog(lake, spark):
    """`USE other`, and a catalog alone."""
    lake.session.sql("CREATE NAMESPACE IF NOT EXISTS second")
    lake.session.sql("USE lake")
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == ("lake", "default")
    spark.sql("USE second")
    assert spark.catalog.currentDatabase() == "second"
    spark.range(1).writeTo("t").createOrReplace()
    assert lake.session.sql("SELECT * FROM t").count() == 1
    assert lake.session.sql("SELECT * FROM second.t").count() == 1
    with pytest.raises((AnalysisException, NotFoundError)):
        spark.sql("USE nowhere")
    assert spark.catalog.currentDatabase() == "second"
    lake.session.sql("DROP NAMESPACE second CASCADE")


def test_a_temporary_view_comes_before_a_table_of_its_name(lake, spark):
    name = lake.create("id bigint").split(".")[1]
    spark.sql("USE lake.db")
    spark.range(7).createOrReplaceTempView(name)
    try:
        assert spark.table(name).count() == spark.sql(f"SELECT * FROM {name}").count() == 7
        assert lake.session.sql(f"SELECT * FROM lake.db.{name}").count() == 0
    finally:
        spark.catalog.dropTempView(name)
    assert spark.sql(f"SELECT * FROM {name}").count() == 0


def test_spark_catalog_again(lake, spark):
    """Spark's own tables have short names again, and a session that is left leaves Spark in its own catalog."""
    name = lake.create("id bigint").split(".")[1]
    spark.sql("USE lake.db")
    spark.sql("USE spark_catalog.default")
    with pytest.raises(PySparkException):
        spark.table(name)
    spark.sql("USE lake.db")
    lake.session.disable()
    assert spark.catalog.currentCatalog() == "spark_catalog"
    assert spark.sql("SELECT 1").count() == 1
    lake.session.enable()


def test_statements_about_caches_know_the_session_s_short_names(lake, spark):
    name = lake.create("id bigint")
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    lake.session.sql(f"CACHE TABLE {name}")
    assert spark.catalog.isCached(f"lake.{name}")
    lake.session.sql(f"REFRESH TABLE {name}")
    assert spark.catalog.isCached(f"lake.{name}")
    lake.session.sql("USE db")
    lake.session.sql(f"uncache table if exists `{name.split('.')[1]}`;")
    assert not spark.catalog.isCached(f"lake.{name}")
    spark.range(2).createOrReplaceTempView("cached_view")
    lake.session.sql("CACHE LAZY TABLE cached_view")
    assert spark.catalog.isCached("cached_view")
    lake.session.sql("UNCACHE TABLE cached_view")
    spark.catalog.dropTempView("cached_view")
