"""Spark settings for Iceberg's JAR are refused or reported if the JAR is missing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from dml.connector.install import leftover_settings

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


def test_catalogs_that_spark_can_load_are_left_alone_and_others_are_reported_once(
    setting, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting("lake", PRESENT)
    setting("elsewhere", JAR + "SparkCatalog")
    for _ in range(2):
        with dml.connect(str(tmp_path), spark=spark) as lake:
            assert lake.sql("SHOW NAMESPACES").collect() == []
    reported = [record.getMessage() for record in caplog.records if "Iceberg's JAR" in record.getMessage()]
    assert len(reported) == 1
    assert "spark.sql.catalog.elsewhere " in reported[0]
    assert "add_catalog('elsewhere', ...)" in reported[0]


def test_an_extension_of_the_missing_jar_is_reported() -> None:
    """The setting is static, so no running session can get it."""
    ours, theirs = "org.example.Extension", JAR + "extensions.IcebergSparkSessionExtensions"
    settings = {"lake": JAR + "SparkCatalog", "lake.type": "org.apache.iceberg.x", "other": PRESENT}
    warnings = list(leftover_settings(settings, f"{ours}, {theirs}", lambda _: False))
    assert [warning.split(" ")[2] for warning in warnings] == ["spark.sql.catalog.lake", "spark.sql.extensions"]
    assert theirs in warnings[1]
    assert not list(leftover_settings(settings, f"{ours}, {theirs}", lambda _: True))
