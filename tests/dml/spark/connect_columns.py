"""Run as a program: Columns on a Spark Connect session, where one process cannot hold a classic session too."""

import os
import sys

from connect_port import PORT_SETTING, free_port
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users write it

os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.remote("local[1]").config("spark.driver.memory", "1g").config(PORT_SETTING, free_port())
spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()

import column_cases  # noqa: E402 - its Columns are of the session's kind

from dml.errors import NotSupportedError  # noqa: E402
from dml.spark.columns import column_sql  # noqa: E402

frame = spark.sql(column_cases.FRAME).coalesce(1)
cases = column_cases.cases()
cases.pop("literal time")  # Connect's client has the type, its server refuses it
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
print("all columns mean the same")
spark.stop()
