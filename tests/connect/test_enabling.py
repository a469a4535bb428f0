"""`enable` and `disable` intercept and restore `spark.sql` and PySpark's calls on Spark Connect."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.readwriter import DataFrameReader

import dml
from dml.errors import NotSupportedError
from dml.result import Result
from tests.connect.sessions import another_session

pytestmark = pytest.mark.spark


def test_sessions_are_enabled_and_disabled_one_by_one(lake, spark):
    lake.session.sql("CREATE TABLE db.t AS SELECT 1 AS id")
    taken = DataFrameReader.table
    lake.session.disable()
    assert DataFrameReader.table is not taken
    assert not hasattr(DataFrameReader.table, "__wrapped__")
    for call in (lambda: spark.sql("SELECT * FROM lake.db.t"), lambda: spark.table("lake.db.t")):
        with pytest.raises(PySparkException):
            call().collect()
    dml.enable(spark)
    assert spark.sql("SELECT * FROM lake.db.t").count() == spark.table("lake.db.t").count() == 1
    for read in (spark.readStream.table, spark.readStream.format("iceberg").load):
        with pytest.raises(NotSupportedError, match="cannot be read as a stream through Spark Connect"):
            read("lake.db.t")
    second = another_session()
    assert second.table("lake.db.t").count() == 1
    dml.enable(second)
    updated = second.sql("UPDATE lake.db.t SET id = 2")
    assert isinstance(updated, Result)
    assert updated.rows_updated == 1
    assert second.sql("SELECT * FROM lake.db.t").collect() == [(2,)]
    dml.disable(second)
    with pytest.raises(PySparkException):
        second.table("lake.db.t").collect()
    assert spark.table("lake.db.t").collect() == [(2,)]
    dml.disable(spark)
    assert not hasattr(DataFrameReader.table, "__wrapped__")
