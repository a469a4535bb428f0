"""Rows that tasks read by a function of ours: what Spark believes of their size, and what it does with it."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

import dml
from dml import limits
from dml.spark import task_frames
from dml.spark.task_frames import LEAVES, filtered_numbers, known_numbers, task_frame, value_size

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
PAIR = spark_types.StructType().add("number", "long").add("text", "string")


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each task."""
    for batch in batches:
        texts = [f"task {number}" for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(texts)], ["number", "text"])


def size_of(frame: DataFrame) -> int:
    """Bytes that Spark takes the rows for."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def join_of(left: DataFrame, right: DataFrame) -> str:
    """How Spark plans a join."""
    plan = left.join(right, "id")._jdf.queryExecution().sparkPlan().toString()
    return next(line for line in plan.splitlines() if "Join" in line)


@pytest.mark.oldest
@pytest.mark.spark
def test_types_have_the_sizes_that_spark_takes_them_for(spark: SparkSession) -> None:
    schema = spark.createDataFrame(
        [],
        "a boolean, b byte, c short, d int, e long, f float, g double, h decimal(18, 2), i decimal(19, 2), j string, "
        "k binary, l date, m timestamp, n timestamp_ntz, o array<int>, p map<string, array<date>>, "
        "q struct<x: int, y: struct<z: binary>>, r void",
    ).schema
    java = spark._jvm.org.apache.spark.sql.types.DataType  # type: ignore[union-attr]
    for field in schema.fields:
        assert value_size(field.dataType) == java.fromJson(field.dataType.json()).defaultSize(), field
    assert value_size(schema) == java.fromJson(schema.json()).defaultSize()


@pytest.mark.spark
@pytest.mark.parametrize("plan", ["org.apache.spark.sql.execution.NoSuchPlan", task_frames.RANGE])
def test_a_spark_whose_plans_are_made_otherwise_is_told_by_numbers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    """A plan that is not there, and one with other constructors."""
    monkeypatch.setattr(task_frames, "LOGICAL_RDD", plan)
    monkeypatch.setattr(task_frames, "LEAVES", type(LEAVES)())
    frame = task_frame(spark, 2, numbered, PAIR, 1_000_000)
    assert sorted(frame.collect()) == [(0, "task 0"), (1, "task 1")]
    assert 900_000 < size_of(frame) < 1_100_000
    assert "filter" in frame._jdf.queryExecution().optimizedPlan().toString().lower()


@pytest.mark.oldest
@pytest.mark.spark
def test_each_task_has_its_number_and_all_of_them_any_size(spark: SparkSession) -> None:
    """Also by numbers that a filter leaves, of which there are no more than a server counts in no time."""
    for tasks in (1, 3):
        for make in (known_numbers, filtered_numbers):
            numbers = make(spark, tasks, 1000)
            assert numbers.rdd.getNumPartitions() == tasks
            assert [row.id for row in numbers.collect()] == [*range(tasks)], make
            assert make(spark, tasks, 0).rdd.getNumPartitions() == tasks
            assert 1000 <= size_of(numbers) < 1000 + 8 * tasks
    for size in (10**7, 10**10):
        assert size <= size_of(filtered_numbers(spark, 3, size)) <= size + 20_000
        assert [row.id for row in filtered_numbers(spark, 3, size).collect()] == [0, 1, 2]
    assert 5 * 10**10 < size_of(filtered_numbers(spark, 3, 10**12)) < 10**11
    for size in (100, 10**6, 10**15):
        frame = task_frame(spark, 3, numbered, PAIR, size)
        assert size <= size_of(frame) < size + 8
    assert sorted(frame.collect()) == [(number, f"task {number}") for number in range(3)]
    assert frame.join(frame.toDF("number", "other"), "number").count() == 3
    alone = task_frame(spark, 1, numbered, PAIR, 10**6).groupBy("text").count()
    assert "Exchange" not in alone._jdf.queryExecution().executedPlan().toString()


@pytest.mark.spark
def test_what_is_kept_of_numbers_is_bounded_and_keeps_no_session(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself may keep one session that nobody uses any more, but not all."""
    monkeypatch.setattr(limits, "CACHED_TASK_NUMBERS", 3)
    sessions = []
    LEAVES.clear()
    for start in (1, 3, 5):
        other = spark.newSession()
        known_numbers(other, start, 100)
        known_numbers(other, start + 1, 100)
        sessions.append(spark._jvm.java.lang.ref.WeakReference(other._jsparkSession))  # type: ignore[union-attr]
    assert sorted(LEAVES[spark.sparkContext]) == [4, 5, 6]
    del other
    deadline = time.monotonic() + 60
    while sum(not session.refersTo(None) for session in sessions) > 1 and time.monotonic() < deadline:
        gc.collect()
        spark._jvm.System.gc()  # type: ignore[union-attr]
        time.sleep(0.2)
    assert sum(not session.refersTo(None) for session in sessions) <= 1  # `get` would keep them itself


@pytest.mark.oldest
@pytest.mark.spark
def test_a_query_of_one_table_is_joined_by_its_true_size(spark: SparkSession, tmp_path: Path) -> None:
    """What is read counts: columns that are chosen, rows that are not deleted, files that a condition leaves."""
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.sql("CREATE NAMESPACE db")
        lake.sql(
            "CREATE TABLE db.large (id BIGINT, p INT, v STRING) PARTITIONED BY (p) "
            "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'format-version' = '3')"
        )
        lake.sql("INSERT INTO db.large SELECT id, IF(id < 100, 0, 1), repeat('x', 20) FROM range(20000)")
        lake.sql("CREATE TABLE db.small (id BIGINT, w STRING)")
        lake.sql("INSERT INTO db.small SELECT id, 'w' FROM range(10)")
        large, small = lake.sql("SELECT * FROM db.large"), lake.sql("SELECT * FROM db.small")
        assert 20000 * 32 <= size_of(large) <= 20000 * 32 + 100
        assert size_of(lake.sql("SELECT id FROM db.large")) == pytest.approx(20000 * 8, abs=100)
        assert size_of(lake.sql("SELECT * FROM db.large WHERE p = 0")) == pytest.approx(100 * 32, abs=2000)
        spark.conf.set(THRESHOLD, "100000")
        try:
            assert "SortMergeJoin" in join_of(large, lake.sql("SELECT id, v AS w FROM db.large"))
            assert "BuildRight" in join_of(large, small)
            assert "BuildLeft" in join_of(small, large)
            assert "BroadcastHashJoin" in join_of(large, lake.sql("SELECT id, v AS w FROM db.large WHERE p = 0"))
            assert "SortMergeJoin" in join_of(lake.table("db.large"), large)
            assert "BuildLeft" in join_of(small, lake.table("db.large"))
            assert large.join(small, "id").count() == 10
        finally:
            spark.conf.unset(THRESHOLD)
        assert "BroadcastHashJoin" in join_of(large, large.toDF("id", "q", "w"))
        assert lake.sql("DELETE FROM db.large WHERE p = 1 AND id % 2 = 0").rows_deleted == 9950
        assert size_of(lake.sql("SELECT id FROM db.large")) == pytest.approx(10050 * 8, rel=0.5)
        assert size_of(lake.sql("SELECT id, p, v FROM db.large")) == pytest.approx(10050 * 32, abs=100)
