"""Columns on a Spark Connect session, for `connect_engine.py`: imported when there is one, as they are of its kind."""

import column_cases
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users write it

from dml.errors import NotSupportedError
from dml.sql_values import column_sql

__all__ = ["run"]


def run(spark):
    """Every kind of Column means the same as its text."""
    frame = spark.sql(column_cases.FRAME).coalesce(1)
    cases = column_cases.cases(spark)
    cases.pop("literal time", None)  # Connect's client has the type, its server refuses it
    texts = {name: column_sql(column) for name, column in cases.items()}
    direct = frame.select(*(column.alias(f"c{index}") for index, column in enumerate(cases.values())))
    textual = frame.selectExpr(*(f"{text} AS c{index}" for index, text in enumerate(texts.values())))
    for name, left, right in zip(cases, direct.schema, textual.schema, strict=True):
        assert left.dataType == right.dataType, (name, texts[name], left.dataType, right.dataType)
    for left, right in zip(direct.collect(), textual.collect(), strict=True):
        for index, name in enumerate(cases):
            assert repr(left[index]) == repr(right[index]), (name, texts[name], left[index], right[index])

    refused = column_cases.refused(frame, lambda value: value) | {"window": F.sum("a").over(Window.partitionBy("b"))}
    refused.pop("outer()")  # which Connect leaves out itself
    for message, column in refused.items():
        outcome = None
        try:
            text = column_sql(column)
        except NotSupportedError as error:
            outcome = error
        assert outcome is not None, (message, text)
        assert message in outcome.message, (message, outcome.message)
        assert outcome.hint
