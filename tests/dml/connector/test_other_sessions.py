"""Sessions that Spark makes of the one that was connected find the tables too: batches of streams, `newSession`."""

import gc
import time

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import expr, lit

pytestmark = pytest.mark.spark


@pytest.fixture
def target(lake):
    """A table with the row 1."""
    name = lake.create("id bigint, s string")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'old')")
    return name


def test_a_batch_of_a_stream_is_written_as_any_dataframe(lake, spark, target, tmp_path):
    """Appended, merged, saved as another table: the batch belongs to a clone of the session."""
    copies = lake.new_name()

    def apply(batch, number):
        batch.writeTo(f"lake.{target}").append()
        on = expr(f"{target[3:]}.id = b.id")
        batch.alias("b").mergeInto(f"lake.{target}", on).whenMatched().update({"s": lit(f"merged {number}")}).merge()
        batch.write.mode("append").saveAsTable(f"lake.{copies}")
        assert batch.sparkSession.table(f"lake.{copies}").count() == 2

    spark.range(2, 4).selectExpr("id", "'new' AS s").coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id bigint, s string").parquet(str(tmp_path / "in"))
    query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert lake.rows(target) == [(1, "old"), (2, "merged 0"), (3, "merged 0")]
    assert lake.rows(copies) == [(2, "new"), (3, "new")]


def test_a_new_session_has_the_tables(lake, spark, target):
    """Also when the first thing that it does is to read one, or to write."""
    assert spark.newSession().table(f"lake.{target}").count() == 1
    other = spark.newSession()
    other.range(5, 6).selectExpr("id", "'other' AS s").writeTo(f"lake.{target}").append()
    assert lake.rows(target) == [(1, "old"), (5, "other")]
    assert spark.newSession().catalog.tableExists(f"lake.{target}")


def test_no_session_is_kept_for_its_catalogs(lake, spark, target):
    """Nor for the tables of its views. Spark itself may keep one that nobody uses any more, but not all."""
    sessions = []
    for _ in range(3):
        other = spark.newSession()
        other.table(f"lake.{target}").createOrReplaceTempView("mine")
        other.table(f"lake.{target}.files").createOrReplaceTempView("files")
        assert other.table("mine").count() == 1
        assert "file_path" in other.table("files").columns
        sessions.append(spark._jvm.java.lang.ref.WeakReference(other._jsparkSession))
    del other
    deadline = time.monotonic() + 60
    while sum(not session.refersTo(None) for session in sessions) > 1 and time.monotonic() < deadline:
        gc.collect()
        spark._jvm.System.gc()
        time.sleep(0.2)
    assert sum(not session.refersTo(None) for session in sessions) <= 1  # `get` would keep them itself


def test_a_session_that_is_left_gives_nothing_on(lake, spark, target):
    """A new one does not know the tables then."""
    lake.session.disable()
    with pytest.raises(AnalysisException):
        spark.newSession().table(f"lake.{target}")
    lake.session.enable()
