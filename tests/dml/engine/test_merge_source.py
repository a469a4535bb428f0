"""The source of a MERGE: evaluated once, and left as the user has it."""

import secrets

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from tests.dml.engine.conftest import Lake

pytestmark = pytest.mark.spark

DRAWN_FROM = 1_000


def test_the_source_of_a_merge_is_evaluated_once(lake: Lake, spark: SparkSession) -> None:
    """Its keys narrow the scan of the target: were it evaluated again, other rows would find no partner there."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 0 FROM range({DRAWN_FROM})")
    drawn = udf(lambda _: secrets.randbelow(DRAWN_FROM), LongType()).asNondeterministic()
    source = spark.range(1).select(drawn("id").alias("id"))
    merge = lake.session.merge_into(source, f"{name} t", "t.id = source.id")
    result = merge.whenMatched().update({"k": "1"}).whenNotMatched().insert({"id": "source.id", "k": "2"}).merge()
    assert (result.rows_updated, result.rows_inserted) == (1, 0)


def test_a_statement_leaves_what_the_user_has_cached(lake: Lake, spark: SparkSession) -> None:
    """The views of a statement's DataFrames go without the rows that Spark keeps of them."""
    name = lake.create("id BIGINT, k INT")
    cached = spark.range(5).selectExpr("id", "1 AS k").cache()
    cached.count()
    cached.createOrReplaceTempView("kept_rows")
    lake.session.merge_into(cached, f"{name} t", "t.id = source.id").whenNotMatched().insertAll().merge()
    lake.session.sql(f"INSERT INTO {name} SELECT * FROM kept_rows")
    assert cached.storageLevel.useMemory
    cached.unpersist()
