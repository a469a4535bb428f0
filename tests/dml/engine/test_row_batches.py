"""Batches of short rows are limited by row count; a job with a long row runs again with Spark's limits."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import count, pandas_udf, udtf
from pyspark.sql.types import LongType

from dml import limits
from dml.engine import writes
from dml.errors import DataError
from dml.spark.jobs import await_end_on_failure
from dml.spark.row_batches import ROW_LIMIT_PROPERTIES, can_limit_by_rows, has_cheap_lengths, mask_long_rows
from tests.lake import Lake

pytestmark = pytest.mark.spark

MOST = limits.MAX_WORKER_ROW_BYTES


def lengths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([batch.num_rows])], names=["rows"])


def test_batches_are_limited_by_row_count_unless_the_session_sets_a_limit(spark: SparkSession) -> None:
    frame = spark.range(0, 2500, 1, 1).mapInArrow(lengths, "rows BIGINT")
    with await_end_on_failure(spark, ROW_LIMIT_PROPERTIES):
        assert [row.rows for row in frame.collect()] == [1000, 1000, 500]
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
        try:
            assert [row.rows for row in frame.collect()] == [2000, 500]
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [row.rows for row in frame.collect()] == [2500]


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class Words:
    """A table function that returns the words of a text."""

    def eval(self, text: str) -> Iterator[tuple[str]]:
        for word in text.split():
            yield (word,)


def test_plans_with_other_python_functions_keep_the_limits_of_spark(spark: SparkSession) -> None:
    texts = spark.range(3).selectExpr("id", "CAST(id AS STRING) AS text")
    numbers = spark.range(3).mapInArrow(identity, "id BIGINT, text STRING")  # as RowDelta's own scans
    length = pandas_udf(lambda values: pd.Series(values).str.len(), LongType())
    spark.udtf.register("words_of", udtf(Words, returnType="word STRING"))
    words = spark.sql("SELECT word FROM range(3), LATERAL words_of('a b')")
    split = spark.sql("SELECT word FROM range(3) LATERAL VIEW explode(array('a', 'b')) AS word")
    hidden = texts.select(length("text").alias("id")).localCheckpoint(eager=False)
    try:
        for frame in (texts, numbers.where("id > 1"), numbers.join(texts, "id"), split, texts.cache()):
            assert can_limit_by_rows(frame)
        for frame in (
            texts.mapInArrow(identity, "id BIGINT, text STRING").select("id"),
            texts.mapInArrow(identity, "id BIGINT, text STRING").select("id").mapInArrow(identity, "id BIGINT"),
            texts.select(length("text").alias("id")).mapInArrow(identity, "id BIGINT"),
            texts.select(length("text").alias("id")).where("id > 0"),
            texts.select(length("text").alias("id")).cache(),
            texts.groupBy("id").applyInPandas(lambda group: group, "id BIGINT, text STRING"),
            numbers.select(*(length("text").alias(f"c{number}") for number in range(100))),
            texts.observe("seen", count("*")),
            words,
            hidden,
        ):
            assert not can_limit_by_rows(frame)
    finally:
        spark.catalog.clearCache()


@pytest.mark.parametrize("name", ROW_LIMIT_PROPERTIES)
def test_a_limit_of_the_session_is_kept(spark: SparkSession, name: str) -> None:
    spark.conf.set(name, "1000000")
    try:
        assert not can_limit_by_rows(spark.range(3))
    finally:
        spark.conf.unset(name)
    assert can_limit_by_rows(spark.range(3))


def test_only_the_sum_of_a_row_counts(spark: SparkSession) -> None:
    half = MOST // 2
    frame = spark.sql(
        f"SELECT id, repeat('a', n) AS `text.ä`, CAST(repeat('a', m) AS BINARY) AS data, current_date() AS day FROM "
        f"VALUES (1, {half}, {half}), (2, 0, {MOST}), (3, NULL, {MOST + 1}), (4, {half}, {half + 1}), (5, NULL, 1) "
        "AS v (id, n, m)"
    )
    rows = mask_long_rows(frame, MOST).orderBy("id").collect()
    assert [row[-1] for row in rows] == [True, True, False, False, True]
    assert [(row[1] is None, row[2] is None) for row in rows] == [
        (False, False),
        (False, False),
        (True, True),
        (True, True),
        (True, False),
    ]
    assert mask_long_rows(spark.range(3), MOST).columns == ["id"]


def test_rows_whose_lengths_cost_much_keep_the_limits_of_spark(spark: SparkSession) -> None:
    assert has_cheap_lengths(spark.sql("SELECT 1, 'a', NULL, DATE '2020-01-01', CAST('a' AS BINARY), 1.5"))
    assert has_cheap_lengths(spark.range(1).selectExpr(*(f"id AS c{number}" for number in range(100))))
    assert not has_cheap_lengths(
        spark.range(1).selectExpr(*(f"CAST(id AS STRING) AS c{number}" for number in range(17)))
    )
    assert not has_cheap_lengths(spark.sql("SELECT array('a')"))
    assert not has_cheap_lengths(spark.sql("SELECT named_struct('a', 1)"))


@pytest.mark.usefixtures("in_workers")
def test_a_statement_with_a_long_row_runs_again(lake: Lake) -> None:
    name = lake.create("id BIGINT, text STRING")
    text = f"initcap(repeat('a', IF(id = 1900, {MOST + 1}, 3)))"
    table = lake.table(name)
    assert table.location() not in writes.TABLES_WITH_LONG_ROWS
    result = lake.session.sql(f"INSERT INTO {name} SELECT id, {text} FROM range(0, 2000, 1, 2)")
    assert result.rows_inserted == 2000
    assert lake.rows(f"SELECT count(*), sum(length(text)) FROM {name}") == [(2000, 1999 * 3 + MOST + 1)]
    assert table.location() in writes.TABLES_WITH_LONG_ROWS
    written = {path.name for path in lake.folder(name).rglob("*.parquet")}
    assert written == {Path(file.path).name for file in lake.data_files(name)}


@pytest.mark.usefixtures("in_workers")
def test_another_failure_of_a_job_is_reported(lake: Lake) -> None:
    name = lake.create("id BIGINT NOT NULL, text STRING")
    before = lake.state(name)
    with pytest.raises(DataError, match="id"):
        lake.session.sql(f"INSERT INTO {name} SELECT nullif(id, 7), initcap('a') FROM range(0, 2000, 1, 2)")
    assert lake.table(name).location() not in writes.TABLES_WITH_LONG_ROWS
    assert lake.state(name) == before
