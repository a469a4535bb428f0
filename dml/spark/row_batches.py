"""Batches in which Spark sends rows to Python workers. Driver, classic only.

Spark ends a batch after 10,000 rows or a number of bytes. To compare the bytes, it adds up the buffers of all columns
after each row, which takes almost half of the time to send six columns (decision 066). The same bound costs little if
Spark checks the length of each row instead: batches of short rows then end by their number alone.

The limits are local properties of the jobs. Source: Spark's `BatchedPythonArrowInput` and
`SQLExecution.withSQLConfPropagated`.
"""

import os
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dml import limits
from dml.model.columns import FITS
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import FAILURES
from dml.spark.bridge.names import TREE_PATTERN
from dml.spark.bridge.sessions import analyzed_plan, is_classic
from dml.spark.bridge.values import elements, simple_name
from dml.spark.settings import settings_of
from dml.spark.versions import Feature, has_feature
from dml.sqlparse.quoting import quoted

__all__ = ["COUNTED_BATCHES", "has_cheap_lengths", "may_count_rows", "truncate_wide_values"]

COUNTED_BATCHES: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # the only value with which Spark adds up no bytes
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(limits.COUNTED_BATCH_ROWS),
}
"""Local properties of jobs whose batches end by the number of rows. Settings of a session override them."""

FIXED_WIDTH_TYPES: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType, NullType)
"""Spark's types whose values all have a few bytes."""


def has_cheap_lengths(frame: DataFrame) -> bool:
    """Return whether Spark checks the lengths of rows in less time than the bytes of batches.

    Their columns are texts and binary values, whose lengths Spark knows, and few of them, or have a fixed width.
    """
    long = [column.dataType for column in frame.schema if not isinstance(column.dataType, FIXED_WIDTH_TYPES)]
    return len(long) <= limits.MAX_CHECKED_COLUMNS and all(isinstance(kind, (StringType, BinaryType)) for kind in long)


def truncate_wide_values(frame: DataFrame, most_bytes: int) -> DataFrame:
    """Replace the long values of rows with more than `most_bytes` bytes of them by NULL, and mark such rows in `FITS`.

    A filter would not do: Spark evaluates one below a projection, and would compute the texts twice.
    """
    long = [quoted(column.name) for column in frame.schema if not isinstance(column.dataType, FIXED_WIDTH_TYPES)]
    if not long:
        return frame
    sizes = (f"coalesce(octet_length(CAST({name} AS STRING)), 0)" for name in long)
    named = frame.selectExpr("*", f"{' + '.join(sizes)} <= {most_bytes} AS {FITS}")
    columns = (f"IF({FITS}, {name}, NULL) AS {name}" if name in long else name for name in map(quoted, frame.columns))
    return named.selectExpr(*columns, FITS)


def may_count_rows(frame: DataFrame) -> bool:
    """Return whether batches may end by the number of rows, if the rows of the DataFrame itself are short.

    False on Connect and PySpark 3.5, where local properties have no effect; if the session has limits of its own; and
    if steps of the plan that RowDelta does not know may send other rows to functions in Python.
    """
    spark = frame.sparkSession
    if not is_classic(spark) or not has_feature(Feature.BATCH_PROPERTIES):
        return False
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":  # another thread's jobs would get the properties
        return False
    setting = settings_of(spark)
    if any(setting(name, None) is not None for name in COUNTED_BATCHES):
        return False
    try:
        return not runs_unknown_steps(analyzed_plan(frame))
    except FAILURES:  # Spark's own bound is slower, and always right
        return False


NUMBERS: Final = "struct<id:bigint>"
"""The rows that RowDelta's own functions receive: numbers of tasks."""

UNKNOWN_STEPS: Final = frozenset({"LogicalRDD", "ExternalRDD", "CollectMetrics"})
"""Steps whose rows may come from functions in Python, and those that count rows of a job that may run twice."""


def runs_unknown_steps(plan: JavaObject) -> bool:
    """Return whether an analyzed plan calls functions in Python that are not RowDelta's own, or may do so."""
    pattern = TREE_PATTERN.call("PYTHON_UDF")
    stack = [plan]
    while stack:
        node = stack.pop()
        name, below = str(node.nodeName()), elements(node.children())
        if name == "MapInArrow" and [str(child.schema().catalogString()) for child in below] == [NUMBERS]:
            continue
        if name in UNKNOWN_STEPS or (name == "Generate" and "Python" in simple_name(node.generator())):
            return True
        if node.containsPattern(pattern) and calls_python(node, pattern):
            return True
        stack += [*below, *elements(node.subqueries())]
    return False


def calls_python(node: JavaObject, pattern: JavaObject) -> bool:
    """Return whether an expression of a step calls a function in Python; True if it has too many to look."""
    expressions = node.expressions()
    if expressions.size() > limits.MAX_EXAMINED_EXPRESSIONS:
        return True
    return any(each.containsPattern(pattern) for each in elements(expressions))
