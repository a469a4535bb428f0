"""Spark settings that define a catalog are refused if the class is missing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml

pytestmark = pytest.mark.spark

JAR = "org.apache.iceberg.spark."
PRESENT = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """A function that sets a catalog's class; the settings are removed afterwards."""
    keys = []

    def define(name: str, kind: str) -> None:
        keys.append(f"spark.sql.catalog.{name}")
        spark.conf.set(keys[-1], kind)

    yield define
    for key in keys:
        spark.conf.unset(key)


@pytest.mark.parametrize(("name", "kind"), [("lake", "SparkCatalog"), ("spark_catalog", "SparkSessionCatalog")])
def test_a_leftover_setting_of_the_jar_is_refused(setting, spark: SparkSession, tmp_path: Path, name, kind) -> None:
    """The error has the key and the remedy. The session is unchanged, and connects without the setting."""
    setting(name, JAR + kind)
    with pytest.raises(dml.SetupError) as caught:
        dml.connect(str(tmp_path), spark=spark)
    message = f"Spark's setting spark.sql.catalog.{name} names the class {JAR}{kind}, which is not on the class path"
    assert str(caught.value).startswith(f"{message}. Remove this setting")
    assert "Or add the JAR" in str(caught.value)
    spark.conf.unset(f"spark.sql.catalog.{name}")
    with dml.connect(str(tmp_path), spark=spark) as lake:
        lake.sql("CREATE NAMESPACE db; CREATE TABLE db.t (id INT)")
        assert spark.table("lake.db.t").count() == 0


def test_a_catalog_that_is_added_is_looked_at_too(setting, spark: SparkSession, tmp_path: Path) -> None:
    with dml.connect(str(tmp_path / "lake"), spark=spark) as lake:
        setting("other", JAR + "SparkCatalog")
        with pytest.raises(dml.SetupError, match=r"spark\.sql\.catalog\.other"):
            lake.add_catalog("other", warehouse=str(tmp_path / "other"))
        assert list(lake.registry.catalogs) == ["lake"]


def test_catalogs_that_spark_can_load_and_those_of_others_are_left_alone(
    setting, spark: SparkSession, tmp_path: Path
) -> None:
    setting("lake", PRESENT)
    setting("elsewhere", JAR + "SparkCatalog")
    with dml.connect(str(tmp_path), spark=spark) as lake:
        assert lake.sql("SHOW NAMESPACES").collect() == []
