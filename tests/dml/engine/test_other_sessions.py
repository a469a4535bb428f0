"""Sessions that Spark makes of the one that was connected: for the batches of a stream, and by `newSession`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import dml
from dml.errors import NotFoundError
from dml.result import Result
from tests.lake import Lake

pytestmark = pytest.mark.spark

MERGE = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture
def target(lake: Lake) -> str:
    """A table with the row 1."""
    name = lake.create("id BIGINT, s STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'old')")
    return name


def run_stream(spark: SparkSession, folder: Path, apply: Callable[[DataFrame, int], object]) -> None:
    """Give two batches of one file each to a function: the rows 1 and 2, then 2 and 3."""
    for number in (1, 2):
        rows = f"SELECT id, concat('batch ', {number}) AS s FROM range({number}, {number + 2}, 1, 1)"
        spark.sql(rows).write.mode("append").parquet(str(folder / "in"))
        query = (
            spark.readStream.schema("id BIGINT, s STRING")
            .parquet(str(folder / "in"))
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)


def test_a_stream_merges_its_batches(spark: SparkSession, lake: Lake, target: str, tmp_path: Path) -> None:
    """`lake.merge_into(batch, ...)`."""

    def upsert(batch: DataFrame, number: int) -> None:
        merge = lake.session.merge_into(batch, f"{target} t", "t.id = source.id")
        merge.whenMatched().updateAll().whenNotMatched().insertAll().merge(idempotency_key=f"batch-{number}")

    run_stream(spark, tmp_path, upsert)
    assert lake.rows(target) == [(1, "batch 1"), (2, "batch 2"), (3, "batch 2")]


@pytest.mark.parametrize("way", ["lake.sql", "batch.sparkSession.sql", "batch.sparkSession from the JVM"])
def test_a_statement_over_a_view_of_the_batch(
    way: str, spark: SparkSession, lake: Lake, target: str, tmp_path: Path
) -> None:
    """Whoever is asked, the views are those of the batch."""

    def upsert(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("updates")
        session = batch.sparkSession
        sql = {
            "lake.sql": lake.session.sql,
            "batch.sparkSession.sql": session.sql,
            "batch.sparkSession from the JVM": session._jsparkSession.sql,
        }[way]
        sql(f"MERGE INTO lake.{target} t USING updates u ON t.id = u.id {MERGE}")

    run_stream(spark, tmp_path, upsert)
    assert lake.rows(target) == [(1, "batch 1"), (2, "batch 2"), (3, "batch 2")]
    assert not spark.catalog.tableExists("updates")


def test_in_a_batch_the_views_of_both_sessions_are_found(
    spark: SparkSession, lake: Lake, target: str, tmp_path: Path
) -> None:
    """A view that was made since the stream began is in the connected session alone."""
    found = []

    def look(batch: DataFrame, _: int) -> None:
        spark.sql("SELECT 7 AS id").createOrReplaceTempView("made_meanwhile")
        batch.createOrReplaceTempView("rows_of_the_batch")
        for view in ("made_meanwhile", "rows_of_the_batch"):
            query = f"SELECT count(*) AS n FROM {view} v LEFT JOIN {target} t ON t.id = v.id"
            found.append((view, lake.session.sql(query).collect()[0].n))
            found.append(lake.session.delete(target, f"id IN (SELECT id FROM {view}) AND false").rows_deleted)

    try:
        run_stream(spark, tmp_path, look)
    finally:
        spark.catalog.dropTempView("made_meanwhile")
    assert found == [("made_meanwhile", 1), 0, ("rows_of_the_batch", 2), 0] * 2


def test_an_error_in_a_batch_is_ours(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """And says what is wrong."""
    errors = []

    def fail(batch: DataFrame, _: int) -> None:
        try:
            batch.sparkSession.sql("DELETE FROM lake.db.nothing WHERE id = 1")
        except dml.DmlError as error:
            errors.append(error)

    run_stream(spark, tmp_path, fail)
    assert [type(error) for error in errors] == [NotFoundError] * 2


def test_a_new_session_reads_and_writes_with_views_and_a_namespace_of_its_own(
    spark: SparkSession, lake: Lake, target: str
) -> None:
    """What one session says of itself, the others do not have."""
    first, second = spark.newSession(), spark.newSession()
    table = target.partition(".")[2]
    first.sql("SELECT 2L AS id, 'first' AS s").createOrReplaceTempView("updates")
    second.sql("SELECT 3L AS id, 'second' AS s").createOrReplaceTempView("updates")
    first.sql("USE lake.db")
    assert first.sql(f"MERGE INTO {table} t USING updates u ON t.id = u.id {MERGE}").rows_inserted == 1
    assert second.sql(f"MERGE INTO lake.{target} t USING updates u ON t.id = u.id {MERGE}").rows_inserted == 1
    with pytest.raises(NotFoundError):
        second.sql(f"DELETE FROM lake.{table}")
    assert lake.session.registry.current_namespace == ("default",)
    assert first.sql(f"SELECT * FROM {table} ORDER BY id").collect() == [(1, "old"), (2, "first"), (3, "second")]


def test_a_dataframe_of_another_session_is_merged_there(spark: SparkSession, lake: Lake, target: str) -> None:
    """Its view is made, and found, in its own session."""
    frame = spark.newSession().createDataFrame([(1, "new"), (2, "new")], "id BIGINT, s STRING")
    merge = lake.session.merge_into(frame, f"{target} t", "t.id = source.id")
    result = merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert lake.rows(target) == [(1, "new"), (2, "new")]
    assert lake.session.insert(target, frame.where("id = 2")).rows_inserted == 1
    gone = lake.session.sql(f"DELETE FROM {target} WHERE id IN (SELECT id FROM {{rows}})", rows=frame)
    assert isinstance(gone, Result)
    assert gone.rows_deleted == 3


def test_a_new_session_has_its_own_time_zone(spark: SparkSession, lake: Lake) -> None:
    """As statements of Spark's have."""
    name = lake.create("at TIMESTAMP")
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    other.sql(f"INSERT INTO lake.{name} VALUES (TIMESTAMP '2020-01-01 00:00:00')")
    assert lake.rows(f"SELECT CAST(at AS STRING) FROM {name}") == [("2020-01-01 05:00:00",)]
