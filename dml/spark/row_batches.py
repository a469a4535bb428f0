"""Batches of rows that Spark sends to Python workers. Driver, classic only.

Spark ends a batch at 10,000 rows or at a byte limit. To enforce the byte limit, it sums the buffers of all columns
after each row, which takes almost half of the JVM's time for six columns (decision 066). Checking the length of each
row in the query is cheaper. If all rows are short, a limit on their number also limits the bytes.

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
from dml.spark.bridge.sessions import analyzed_plan
from dml.spark.bridge.values import elements, simple_name
from dml.spark.runtime import Runtime
from dml.spark.settings import settings_of
from dml.spark.versions import Feature
from dml.sqlparse.quoting import quoted

__all__ = ["ROW_LIMIT_PROPERTIES", "can_limit_by_rows", "has_cheap_lengths", "mask_long_rows"]

ROW_LIMIT_PROPERTIES: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # the only value for which Spark skips the sums
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(limits.WORKER_BATCH_ROWS),
}
"""Local properties of a job that limit its batches by row count alone. Session settings override them."""

FIXED_WIDTH_TYPES: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType, NullType)
"""Spark's types whose values all have a few bytes."""


def has_cheap_lengths(frame: DataFrame) -> bool:
    """Return whether checking row lengths is cheaper than Spark's byte limit.

    True if all columns have a fixed width, except for at most `MAX_CHECKED_COLUMNS` string and binary columns, whose
    lengths Spark stores.
    """
    long = [column.dataType for column in frame.schema if not isinstance(column.dataType, FIXED_WIDTH_TYPES)]
    return len(long) <= limits.MAX_CHECKED_COLUMNS and all(isinstance(kind, (StringType, BinaryType)) for kind in long)


def mask_long_rows(frame: DataFrame, most_bytes: int) -> DataFrame:
    """Replace variable-width values by NULL in rows with more than `most_bytes` bytes of them; `FITS` is false there.

    This is not a filter, because Spark would push it below the projection and compute the strings twice.
    """
    long = [quoted(column.name) for column in frame.schema if not isinstance(column.dataType, FIXED_WIDTH_TYPES)]
    if not long:
        return frame
    sizes = (f"coalesce(octet_length(CAST({name} AS STRING)), 0)" for name in long)
    named = frame.selectExpr("*", f"{' + '.join(sizes)} <= {most_bytes} AS {FITS}")
    columns = (f"IF({FITS}, {name}, NULL) AS {name}" if name in long else name for name in map(quoted, frame.columns))
    return named.selectExpr(*columns, FITS)


def can_limit_by_rows(frame: DataFrame) -> bool:
    """Return whether batches may be limited by row count alone, provided that the rows of `frame` are short.

    False on Spark Connect and PySpark 3.5, where local properties have no effect; if the session sets a batch limit;
    and if the plan needs Spark's byte limit (`needs_byte_limit`).
    """
    spark = frame.sparkSession
    runtime = Runtime.of(spark)
    if runtime.is_connect or Feature.BATCH_PROPERTIES not in runtime.features:
        return False
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":  # another thread's jobs would get the properties
        return False
    setting = settings_of(spark)
    if any(setting(name, None) is not None for name in ROW_LIMIT_PROPERTIES):
        return False
    try:
        return not needs_byte_limit(analyzed_plan(frame))
    except FAILURES:  # Spark's byte limit is slower, but always safe
        return False


NUMBERS: Final = "struct<id:bigint>"
"""Input schema of RowDelta's scan functions: a task number per row, from a leaf of the plan."""

BYTE_LIMITED_NODES: Final = frozenset({"LogicalRDD", "ExternalRDD", "CollectMetrics"})
"""Nodes that scan an RDD, whose rows may come from Python functions, and `observe`, which would count a rerun twice."""


def needs_byte_limit(plan: JavaObject) -> bool:
    """Return whether a plan may pass long rows to a Python function, or must not run twice."""
    pattern = TREE_PATTERN.call("PYTHON_UDF")
    stack = [plan]
    while stack:
        node = stack.pop()
        name, below = str(node.nodeName()), elements(node.children())
        if name == "MapInArrow" and [str(child.schema().catalogString()) for child in below] == [NUMBERS]:
            stack += [child for child in below if child.children().size()]  # what computes a user's numbers
            continue
        if name in BYTE_LIMITED_NODES or (name == "Generate" and "Python" in simple_name(node.generator())):
            return True
        if node.containsPattern(pattern) and calls_python(node, pattern):
            return True
        stack += [*below, *elements(node.subqueries())]
    return False


def calls_python(node: JavaObject, pattern: JavaObject) -> bool:
    """Return whether a plan node calls a Python function; True if it has too many expressions to search."""
    expressions = node.expressions()
    if expressions.size() > limits.MAX_EXAMINED_EXPRESSIONS:
        return True
    return any(each.containsPattern(pattern) for each in elements(expressions))
