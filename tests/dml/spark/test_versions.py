"""What stands in for what a version of PySpark lacks does the same as what newer ones have."""

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, spark_partition_id
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from dml.errors import NotSupportedError
from dml.spark import versions
from dml.spark.task_frames import invert_hash, repartition_by_id, repartition_by_key
from dml.spark.versions import (
    Feature,
    arrow_table,
    features_of,
    frame_of_table,
    require,
    sql_failure,
)

pytestmark = pytest.mark.oldest

SCHEMA = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("name", StringType()),
        StructField("at", TimestampType()),
    ]
)
TABLE = pa.table(
    {
        "id": pa.array([1, 2**60, 3], pa.int64()),
        "name": pa.array(["a", None, "ž"], pa.string()),
        "at": pa.array([0, None, 1_700_000_000_123_456], pa.timestamp("us", tz="UTC")),
    }
)


@pytest.mark.spark
@pytest.mark.parametrize("repartition", [repartition_by_id, repartition_by_key])
@pytest.mark.parametrize("partitions", [2, 7, 300])
def test_rows_go_to_the_partition_of_their_number(spark: SparkSession, repartition, partitions: int) -> None:
    """By Spark's own way and by the hash that stands in for it."""
    frame = spark.range(0, 2 * partitions, 1, 3).selectExpr(f"CAST(id % {partitions} AS INT) AS number")
    placed = repartition(frame, partitions, col("number")).withColumn("place", spark_partition_id()).collect()
    assert len(placed) == 2 * partitions
    assert all(row["number"] == row["place"] for row in placed)


@pytest.mark.spark
def test_a_number_is_the_hash_of_what_stands_for_it(spark: SparkSession) -> None:
    """Spark's hash, whose result may be any int."""
    wanted = [0, 1, 2, 3, 1000, 2**31 - 1, -1, -(2**31)]
    row = spark.sql(f"SELECT {', '.join(f'hash({invert_hash(each)})' for each in wanted)}").first()
    assert row is not None
    assert list(row) == wanted


@pytest.mark.spark
@pytest.mark.parametrize("version", [pyspark.__version__, "3.5.7"])
@pytest.mark.parametrize("rows", [0, 3])
def test_arrow_tables_go_through_spark_as_they_are(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, version: str, rows: int
) -> None:
    """Values, types and NULLs, also where PySpark takes no Arrow tables."""
    with monkeypatch.context() as patched:
        patched.setattr(versions, "INSTALLED_FEATURES", features_of(version))
        frame = frame_of_table(spark, TABLE.slice(0, rows), SCHEMA)
    table = arrow_table(frame)
    assert table.to_pylist() == TABLE.slice(0, rows).to_pylist()
    assert [field.type for field in table.schema] == [field.type for field in TABLE.schema]


@pytest.mark.spark
def test_an_exception_says_its_condition_its_message_and_the_sql(spark: SparkSession) -> None:
    """Whatever its methods are called."""
    with pytest.raises(AnalysisException) as raised:
        spark.sql("SELECT nothing + 1 FROM VALUES (1) AS t (a)").collect()
    failure = sql_failure(raised.value)
    assert failure.condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert "nothing" in failure.message
    assert failure.fragments == ("nothing",)


def test_a_feature_that_is_lacking_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "INSTALLED_FEATURES", features_of("3.5.7"))
    with pytest.raises(NotSupportedError, match=r"^Spark Connect needs PySpark 4\.0 or later, and this is "):
        require(Feature.CONNECT)


def test_a_feature_that_is_there_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "INSTALLED_FEATURES", features_of("4.10.0"))
    for feature in Feature:
        require(feature)
