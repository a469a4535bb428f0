"""Spark Connect Columns as SQL text. tests/dml/spark/test_columns.py covers classic Spark."""

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users write it

from dml.errors import NotSupportedError
from dml.sql_values import column_sql
from tests.dml.spark import column_cases

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frame(spark):
    """Three rows with columns of many types."""
    return spark.sql(column_cases.FRAME).coalesce(1)


def test_columns_and_their_sql_text_are_equivalent(spark, frame):
    cases = column_cases.cases(spark)
    cases.pop("literal time", None)  # Connect's client has the type, its server refuses it
    texts = {name: column_sql(column) for name, column in cases.items()}
    direct = frame.select(*(column.alias(f"c{index}") for index, column in enumerate(cases.values())))
    textual = frame.selectExpr(*(f"{text} AS c{index}" for index, text in enumerate(texts.values())))
    for name, left, right in zip(cases, direct.schema, textual.schema, strict=True):
        assert left.dataType == right.dataType, (name, texts[name])
    for left, right in zip(direct.collect(), textual.collect(), strict=True):
        for index, name in enumerate(cases):
            assert repr(left[index]) == repr(right[index]), (name, texts[name])


def test_columns_without_sql_text_are_rejected(frame):
    refused = column_cases.refused(frame, lambda value: value) | {"window": F.sum("a").over(Window.partitionBy("b"))}
    refused.pop("outer()")  # which Connect leaves out itself
    for message, column in refused.items():
        with pytest.raises(NotSupportedError) as caught:
            column_sql(column)
        assert message in caught.value.message
        assert caught.value.hint
