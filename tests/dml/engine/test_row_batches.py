"""Batches of short rows end by their number; a job whose rows are long runs again with Spark's bounds."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType

from dml import limits
from dml.engine import writes
from dml.spark.jobs import await_end_on_failure
from dml.spark.row_batches import COUNTED_BATCHES, found_long_row, may_count_rows, require_short_rows
from tests.dml.engine.conftest import Lake

pytestmark = pytest.mark.spark

LONG = limits.MAX_COUNTED_ROW_BYTES + 1


def lengths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([batch.num_rows])], names=["rows"])


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def test_batches_end_by_their_number_of_rows_unless_the_session_has_a_bound(spark: SparkSession) -> None:
    frame = spark.range(0, 2500, 1, 1).mapInArrow(lengths, "rows BIGINT")
    with await_end_on_failure(spark, COUNTED_BATCHES):
        assert [row.rows for row in frame.collect()] == [1000, 1000, 500]
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
        try:
            assert [row.rows for row in frame.collect()] == [2000, 500]
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [row.rows for row in frame.collect()] == [2500]


def test_functions_in_python_keep_the_bounds_of_spark_for_long_values(spark: SparkSession) -> None:
    texts = spark.range(3).selectExpr("id", "CAST(id AS STRING) AS text")
    numbers = spark.range(3)
    length = pandas_udf(lambda values: pd.Series(values).str.len(), LongType())
    assert may_count_rows(texts)
    assert may_count_rows(numbers.mapInArrow(identity, "id BIGINT").where("id > 1"))
    assert not may_count_rows(texts.mapInArrow(identity, "id BIGINT, text STRING").select("id"))
    assert not may_count_rows(texts.select(length("text").alias("id")).where("id > 0"))
    assert not may_count_rows(texts.groupBy("id").applyInPandas(lambda group: group, "id BIGINT, text STRING"))
    assert not may_count_rows(texts.select(length("text").alias("id")).cache())


@pytest.mark.parametrize(
    ("column", "fails"),
    [
        ("'a'", False),
        ("CAST(NULL AS STRING)", False),
        (f"repeat('a', {LONG})", True),
        (f"CAST(repeat('a', {LONG}) AS BINARY)", True),
        (f"named_struct('x', 1, 'y', named_struct('z.z', repeat('ä', {LONG // 2 + 1})))", True),
        ("named_struct('x', 1, 'y', named_struct('z.z', 'a'))", False),
    ],
)
def test_a_long_value_fails(spark: SparkSession, column: str, fails: bool) -> None:
    frame = spark.sql(f"SELECT id, {column} AS `long.value` FROM range(0, 5, 1, 1) ORDER BY id DESC")
    checked = require_short_rows(frame)
    assert checked is not None
    assert checked.schema.simpleString() == frame.schema.simpleString()
    if not fails:
        assert checked.collect() == frame.collect()
        return
    with pytest.raises(Exception, match="long-row") as caught:
        checked.collect()
    assert found_long_row(caught.value)


def test_values_of_unknown_length_keep_the_bounds_of_spark(spark: SparkSession) -> None:
    assert require_short_rows(spark.sql("SELECT array('a') AS a")) is None
    assert require_short_rows(spark.sql("SELECT named_struct('m', map(1, 2)) AS s")) is None


@pytest.mark.usefixtures("in_workers")
def test_a_statement_with_a_long_row_runs_again(lake: Lake) -> None:
    name = lake.create("id BIGINT, text STRING")
    text = f"initcap(repeat('a', IF(id = 1900, {LONG}, 3)))"
    table = lake.table(name)
    assert table.location() not in writes.LONG_ROWED
    result = lake.session.sql(f"INSERT INTO {name} SELECT id, {text} FROM range(0, 2000, 1, 2)")
    assert result.rows_inserted == 2000
    assert lake.rows(f"SELECT count(*), sum(length(text)) FROM {name}") == [(2000, 1999 * 3 + LONG)]
    assert table.location() in writes.LONG_ROWED
    written = {path.name for path in lake.folder(name).rglob("*.parquet")}
    assert written == {Path(file.path).name for file in lake.data_files(name)}
