"""Python's `spark.sql` with a handler in front."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dml.errors import AnalysisError
from dml.result import Result
from dml.spark import interception
from dml.spark.handlers import PASSING

pytestmark = pytest.mark.spark


def test_a_command_gives_our_result_and_a_query_a_dataframe(spark, handler):
    result = spark.sql("UPDATE lake.t SET a = 1")
    assert isinstance(result, Result)
    assert result.rows_updated == 7
    assert [row.lake_id for row in spark.sql("SELECT * FROM lake.t").collect()] == [0, 1, 2, 3, 4]


def test_every_python_object_of_the_session_is_covered(spark, handler):
    assert isinstance(SparkSession.getActiveSession().sql("UPDATE lake.t SET a = 1"), Result)
    assert isinstance(spark.range(1).sparkSession.sql("UPDATE lake.t SET a = 1"), Result)


def test_exceptions_arrive_as_they_were_raised(spark, handler):
    with pytest.raises(AnalysisError, match="no such table") as caught:
        spark.sql("DELETE FROM lake.fail")
    assert type(caught.value) is AnalysisError


def test_arguments_arrive_as_they_were_given(spark, handler):
    spark.sql("DELETE FROM lake.t WHERE a = :a", args={"a": 3})
    spark.sql("DELETE FROM lake.t WHERE a = ?", [4])
    assert [args for _, args in handler.calls] == [{"a": 3}, [4]]


def test_values_in_braces_are_filled_in_for_both_sides(spark, handler):
    frame = spark.range(2)
    assert spark.sql("SELECT * FROM {frame}", frame=frame).collect() == [(0,), (1,)]
    spark.sql("DELETE FROM lake.t WHERE a = {value}", value="it's")
    assert handler.calls[-1][0] == "DELETE FROM lake.t WHERE a = 'it\\'s'"
    spark.sql("SELECT * FROM lake.t JOIN {frame}", frame=frame)
    assert "{" not in handler.calls[-1][0]
    assert not [table for table in spark.catalog.listTables() if table.name.startswith("_pyspark_")]


def test_enabling_twice_replaces_the_handler_and_disabling_restores_pyspark(spark, handler):
    replaced = SparkSession.sql
    interception.enable(spark, handler.registered())
    assert SparkSession.sql is replaced
    interception.disable(spark)
    assert SparkSession.sql is replaced.__wrapped__
    interception.disable(spark)
    with pytest.raises(AnalysisException):
        spark.sql("UPDATE lake.t SET a = 1")


def test_a_failing_statement_leaves_nothing_behind(spark, handler):
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nope")
    assert not PASSING
