"""`spark.readStream` on our tables, by each version of PySpark, and where Spark knows nothing of our catalogs."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from dml.errors import NotSupportedError
from dml.spark.stream_calls import refuse
from dml.spark.versions import Feature, has


@pytest.mark.oldest
@pytest.mark.spark
def test_a_stream_of_a_table_or_one_line_that_says_what_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.enable()
        lake.sql("CREATE NAMESPACE db")
        lake.sql("CREATE TABLE db.t (id INT)")
        for read in (spark.readStream.table, spark.readStream.format("iceberg").load):
            if has(Feature.DATA_SOURCE_V2):
                assert read("lake.db.t").isStreaming
            else:
                with pytest.raises(NotSupportedError, match=r"needs PySpark 4\.0 or later"):
                    read("lake.db.t")
        lake.disable()


def test_spark_connect_is_told_where_streams_are_read() -> None:
    with pytest.raises(NotSupportedError, match=r"'lake\.db\.t' cannot be read as a stream through Spark Connect"):
        refuse("lake.db.t")
