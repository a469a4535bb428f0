"""Streams into tables on Spark Connect."""

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.model.summary_keys import EPOCH_ID

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

EMPTY = "CREATE TABLE db.{0} (id BIGINT, k STRING)"


def add_micro_batch(folder, number, **columns):
    """Write one source file, which becomes one micro-batch."""
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "in" / f"{number}.parquet")


def remove_checkpoint_commit(folder, number):
    """Simulate a driver killed after the table commit and before the checkpoint commit."""
    (folder / "c" / "commits" / str(number)).unlink()
    (folder / "c" / "commits" / f".{number}.crc").unlink(missing_ok=True)


def rows(lake, name):
    return sorted(tuple(row) for row in lake.session.spark.table(f"lake.db.{name}").collect())


def epochs(lake, name):
    return [snapshot.summary.additional_properties.get(EPOCH_ID) for snapshot in lake.table(f"db.{name}").snapshots()]


def test_streams_write_each_micro_batch_once(lake, spark, tmp_path):
    """Append mode, complete mode and `stream_merge`. Unsupported streams are rejected."""
    folder = tmp_path
    add_micro_batch(folder, 0, id=[1, 2], k=["a", "b"])
    source = spark.readStream.schema("id BIGINT, k STRING").option("maxFilesPerTrigger", "1")
    frame = source.parquet(str(folder / "in"))

    def writer(stream=frame):
        return stream.writeStream.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True)

    def run(query):
        assert query.awaitTermination(120)

    run(writer().partitionBy("k").toTable("lake.db.appended"))
    add_micro_batch(folder, 1, id=[3], k=["c"])
    run(writer().format("iceberg").start("lake.db.appended"))
    remove_checkpoint_commit(folder, 1)
    run(writer().format("iceberg").option("path", "lake.db.appended").start())
    assert rows(lake, "appended") == [(1, "a"), (2, "b"), (3, "c")]
    assert epochs(lake, "appended") == ["0", "1"]

    more = frame.selectExpr("id", "7 AS n").writeStream.option("checkpointLocation", str(folder / "more"))
    lake.session.sql("CREATE TABLE db.more (id INT, k STRING)")
    with pytest.raises(AnalysisError, match="'id' is BIGINT"):
        more.trigger(availableNow=True).toTable("lake.db.more")
    run(more.option("mergeSchema", "true").trigger(availableNow=True).toTable("lake.db.more"))
    assert rows(lake, "more") == [(1, None, 7), (2, None, 7), (3, None, 7)]

    with pytest.raises(NotSupportedError, match="does not support update mode"):
        writer().toTable("lake.db.appended", outputMode="update")
    with pytest.raises(NotSupportedError, match="continuous"):
        frame.writeStream.trigger(continuous="1 second").toTable("lake.db.appended")
    with pytest.raises(NotFoundError, match=r"no table 'lake\.db\.missing'"):
        writer().format("iceberg").start("lake.db.missing")
    refused = frame.writeStream.partitionBy("k").trigger(availableNow=True)
    with pytest.raises(AnalysisError, match="needs a checkpoint"):
        refused.toTable("lake.db.partitioned")
    run(refused.option("checkpointLocation", str(folder / "p")).toTable("lake.db.partitioned"))
    assert "k" in lake.table("db.partitioned").spec().fields[0].name
    with pytest.raises(AnalysisError) as caught:
        writer(frame.selectExpr("id AS nope")).toTable("lake.db.appended")
    assert caught.value.kind is ErrorKind.UNRESOLVED_COLUMN
    lake.session.sql(EMPTY.format("other"))
    add_micro_batch(folder, 2, id=[4], k=["d"])
    with pytest.raises(StreamingQueryException) as failed:
        run(writer().toTable("lake.db.other"))
    assert re.search("belongs to a stream into another table", str(failed.value))
    assert epochs(lake, "other") == []

    lake.session.sql("CREATE TABLE db.counts (k STRING, n BIGINT)")
    counts = frame.groupBy("k").agg({"id": "count"}).toDF("k", "n")
    complete = counts.writeStream.option("checkpointLocation", str(folder / "d")).outputMode("complete")
    run(complete.trigger(availableNow=True).toTable("lake.db.counts"))
    assert rows(lake, "counts") == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]

    lake.session.sql(EMPTY.format("merged") + " TBLPROPERTIES ('commit.tag.creation' = 'commit')")
    for _ in range(2):
        merging = lake.session.stream_merge(frame, "db.merged", on=["id"], latest_by="k")
        merging = merging.whenMatched().updateAll().whenNotMatched().insertAll().trigger(availableNow=True)
        run(merging.start(str(folder / "m")))
        add_micro_batch(folder, 3, id=[1, 1], k=["x", "y"])
    assert rows(lake, "merged") == [(1, "y"), (2, "b"), (3, "c"), (4, "d")]
    assert epochs(lake, "merged") == ["0", "1", "2", "3"]
    assert count_tagged_snapshots(lake, "merged") == 4
    check_post_commit_actions(lake, spark, folder, frame)


def count_tagged_snapshots(lake, name):
    """Return the number of distinct snapshots with a tag."""
    (row,) = lake.session.sql(
        f"SELECT count(DISTINCT snapshot_id) AS n FROM db.{name}.refs WHERE type = 'TAG'"
    ).collect()
    return row.n


def check_post_commit_actions(lake, spark, folder, frame):
    """Tags set in the session's configuration are created after micro-batches.

    Functions of `after_commit` are not called, because the server commits micro-batches.
    """
    seen: list[Any] = []
    stop = lake.session.after_commit(seen.append)
    spark.conf.set("spark.sql.iceberg.commit.tag.creation", "commit")
    lake.session.sql(EMPTY.format("hooked"))
    writer = frame.writeStream.option("checkpointLocation", str(folder / "h")).trigger(availableNow=True)
    assert writer.toTable("lake.db.hooked").awaitTermination(120)
    spark.conf.unset("spark.sql.iceberg.commit.tag.creation")
    stop()
    assert count_tagged_snapshots(lake, "hooked") == len(epochs(lake, "hooked")) == 4
    assert seen == []
