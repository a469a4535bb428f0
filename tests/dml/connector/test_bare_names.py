"""Names without a catalog in PySpark's calls: Spark's error has a note with the table's full name."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dml.errors import NotFoundError

pytestmark = pytest.mark.spark

CALLS: dict[str, tuple[Callable[[SparkSession, str], Any], str]] = {
    "table": (lambda spark, name: spark.table(f"db.{name}"), "table"),
    "read": (lambda spark, name: spark.read.table(f"db.{name}"), "table"),
    "insertInto": (lambda spark, name: spark.range(1).write.insertInto(f"db.{name}"), "table"),
    "writeTo": (lambda spark, name: spark.range(1).writeTo(f"db.{name}").append(), "table"),
    "getTable": (lambda spark, name: spark.catalog.getTable(f"db.{name}"), "table"),
    "saveAsTable": (lambda spark, name: spark.range(1).write.saveAsTable(f"db.{name}"), "namespace"),
    "listTables": (lambda spark, name: spark.catalog.listTables("db"), "namespace"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_name_that_spark_does_not_find_is_shown_with_the_catalog(lake, spark: SparkSession, call: str) -> None:
    name = lake.create("id BIGINT").rpartition(".")[2]
    run, what = CALLS[call]
    with pytest.raises(AnalysisException) as caught:
        run(spark, name)
    full = f"lake.db.{name}" if what == "table" else "lake.db"
    assert caught.value.__notes__ == [
        f"If the {what} is in RowDelta's catalog 'lake', write '{full}', or run 'USE lake' first"
    ]


@pytest.mark.parametrize(
    "run",
    [
        lambda spark: spark.table("lake.db.nothing"),
        lambda spark: spark.sql("SELECT * FROM db.nothing"),
        lambda spark: spark.sql("SELECT nothing"),
    ],
    ids=["full name", "statement", "column"],
)
def test_other_errors_have_no_note(lake, spark: SparkSession, run) -> None:
    """The name has the catalog, or is looked up in it anyway, or no table is missing."""
    with pytest.raises((AnalysisException, NotFoundError)) as caught:
        run(spark)
    assert not hasattr(caught.value, "__notes__")


def test_in_our_catalog_and_after_the_end_there_is_no_note(lake, spark: SparkSession) -> None:
    spark.catalog.setCurrentCatalog("lake")
    try:
        with pytest.raises(AnalysisException) as inside:
            spark.table("db.nothing")
    finally:
        spark.catalog.setCurrentCatalog("spark_catalog")
    lake.session.disable()
    with pytest.raises(AnalysisException) as afterwards:
        spark.table("db.nothing")
    assert not hasattr(inside.value, "__notes__")
    assert not hasattr(afterwards.value, "__notes__")


def test_show_tables_without_a_namespace_says_how_to_name_one(lake) -> None:
    with pytest.raises(NotFoundError) as caught:
        lake.session.sql("SHOW TABLES")
    assert "Write SHOW TABLES IN and a namespace, or USE one first" in str(caught.value)
