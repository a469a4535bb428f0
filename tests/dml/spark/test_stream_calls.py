"""Streams of and into our tables, by each version of PySpark, and where Spark knows nothing of our catalogs."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import dml
from dml.errors import DmlError, NotSupportedError
from dml.format_calls import refuse
from dml.model.summary_keys import EPOCH_ID
from dml.spark.versions import INSTALLED_FEATURES, Feature
from tests.dml.connector.streams import Stream


@pytest.mark.oldest
@pytest.mark.spark
def test_a_stream_of_a_table_or_one_line_that_says_what_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.enable()
        lake.sql("CREATE NAMESPACE db")
        lake.sql("CREATE TABLE db.t (id INT)")
        for read in (spark.readStream.table, spark.readStream.format("iceberg").load):
            if Feature.DATA_SOURCE_V2 in INSTALLED_FEATURES:
                assert read("lake.db.t").isStreaming
            else:
                with pytest.raises(NotSupportedError, match=r"needs PySpark 4\.0 or later"):
                    read("lake.db.t")
        lake.disable()


@pytest.mark.nightly  # on the newest PySpark, where tests/dml/connector has more of this
@pytest.mark.oldest
@pytest.mark.spark
def test_streams_into_tables_each_micro_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    """Appended, replaced and merged; a micro-batch that runs again is there already; what cannot be is refused."""
    stream = Stream(spark, tmp_path)
    with dml.connect(str(tmp_path / "lake"), spark=spark, progress=False) as lake:
        lake.enable()
        lake.sql("CREATE NAMESPACE db")
        lake.sql("CREATE TABLE db.t (id BIGINT, k STRING, extra INT)")
        stream.add(id=[1, 2], k=["a", "b"])
        stream.add(id=[3], k=["c"])
        seen: list[dml.Result] = []
        stop = lake.after_commit(seen.append)
        for _ in range(2):
            stream.run("lake.db.t", **{"snapshot-property.by": "stream"})
            stream.forget(1)
        stop()
        assert [result.rows_inserted for result in seen] == [2, 1]
        assert lake.sql("SELECT * FROM db.t ORDER BY id").collect() == [(1, "a", None), (2, "b", None), (3, "c", None)]
        written = lake.sql("SELECT summary FROM db.t.snapshots ORDER BY committed_at").collect()
        assert [(row.summary[EPOCH_ID], row.summary["by"]) for row in written] == [("0", "stream"), ("1", "stream")]
        lake.sql("CREATE TABLE db.other (id BIGINT, k STRING)")
        stream.add(id=[4], k=["d"])
        with pytest.raises((StreamingQueryException, DmlError), match="belongs to a stream into another table"):
            stream.run("lake.db.other")

        def again(frame: DataFrame, mode: str, folder: str, table: str, **arguments: str) -> None:
            writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
            query = writer.toTable(f"lake.db.{table}", checkpointLocation=str(tmp_path / folder), **arguments)
            assert query.awaitTermination(120)

        counts = stream.frame().groupBy("k").count()
        again(counts, "complete", "complete", "counts", partitionBy="k")
        assert sorted(lake.sql("SELECT * FROM db.counts").collect()) == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
        assert lake.sql("SELECT DISTINCT partition.k FROM db.counts.files").count() == 4
        lake.stream_merge(stream.frame(), "db.other", on=["id"]).whenNotMatched().insertAll().trigger(
            availableNow=True
        ).start(str(tmp_path / "merge")).awaitTermination(120)
        assert lake.table("db.other").count() == 4
        with pytest.raises(
            NotSupportedError if Feature.DATA_SOURCE_V2 not in INSTALLED_FEATURES else Exception, match="mode"
        ):
            again(counts, "update", "update", "counts")
        lake.disable()


def test_spark_connect_is_told_where_streams_are_read() -> None:
    with pytest.raises(NotSupportedError, match=r"'lake\.db\.t' cannot be read as a stream through Spark Connect"):
        refuse("lake.db.t")
