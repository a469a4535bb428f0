"""Batches in which Spark sends rows to Python workers. Driver, classic only.

Spark ends a batch after 10,000 rows or 64 MiB. To compare the bytes, it adds up the buffers of all columns after each
row, which takes almost half of the time to send six columns (decision 066). The same bound costs nothing if no row is
long: a batch of short rows ends by their number alone.

The numbers are local properties of the jobs: tasks read them unless the session has settings of the same names.
Source: Spark's `BatchedPythonArrowInput` and `SQLExecution.withSQLConfPropagated`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dml import limits
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import FAILURES
from dml.spark.bridge.names import TREE_PATTERN
from dml.spark.bridge.sessions import analyzed_plan, is_classic
from dml.spark.bridge.values import elements
from dml.sqlparse.quoting import quote_string, quoted

__all__ = ["COUNTED_BATCHES", "FIXED_WIDTH_TYPES", "found_long_row", "may_count_rows", "require_short_rows"]

COUNTED_BATCHES: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # the only value with which Spark adds up no bytes
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(limits.COUNTED_BATCH_ROWS),
}
"""Local properties of jobs: their batches end by the number of rows."""

FIXED_WIDTH_TYPES: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType, NullType)
"""Spark's types whose values all have a few bytes."""

LONG_ROW: Final = "[rowdelta:long-row]"
"""The text of the error that a long row raises."""


def may_count_rows(frame: DataFrame) -> bool:
    """Return whether batches may end by the number of rows, if the rows of the DataFrame itself are short.

    False on Connect, whose clients cannot set properties, and if functions in Python compute the rows from texts,
    documents or pictures, because the properties apply to their batches, too.
    """
    if not is_classic(frame.sparkSession):
        return False
    try:
        return not sends_long_values(analyzed_plan(frame))
    except FAILURES:  # Spark's own bound is slower, and always right
        return False


LONG_TYPE: Final = re.compile("string|char|binary|array|map|variant|geometry|geography")
"""In the text of a schema with a column that is not of fixed width."""


def sends_long_values(plan: JavaObject) -> bool:
    """Return whether functions in Python may receive long values: a step that calls one has columns of such a type."""
    pattern = TREE_PATTERN.call("PYTHON_UDF")
    stack = [plan]
    while stack:
        node = stack.pop()
        if not node.containsPattern(pattern):  # the pattern covers children and subqueries
            continue
        below = elements(node.children())
        if any(each.containsPattern(pattern) for each in elements(node.expressions())) and any(
            LONG_TYPE.search(str(child.schema().catalogString())) for child in below
        ):
            return True
        stack += [*below, *elements(node.subqueries())]
    return False


def require_short_rows(frame: DataFrame) -> DataFrame | None:
    """Let a DataFrame fail at the first row that is long; None if the lengths of its columns are not known.

    Returns:
        The same rows in the same order. `found_long_row` recognizes the failure.
    """
    parts = {column.name: long_parts(quoted(column.name), column.dataType) for column in frame.schema.fields}
    count = sum(len(found) for found in parts.values() if found is not None)
    if None in parts.values():
        return None
    most = limits.MAX_COUNTED_ROW_BYTES // max(1, count)
    # Not a filter, which Spark would evaluate below a projection, and compute the texts twice.
    return frame.selectExpr(*(checked_column(name, found or (), most) for name, found in parts.items()))


def checked_column(name: str, parts: Sequence[str], most: int) -> str:
    """Return the SQL of a column that raises if one of its parts has more than `most` bytes."""
    column = quoted(name)
    if not parts:
        return column
    is_short = " AND ".join(f"coalesce(octet_length({part}) <= {most}, TRUE)" for part in parts)
    return f"IF({is_short}, {column}, raise_error({quote_string(LONG_ROW)})) AS {column}"


def long_parts(path: str, kind: DataType) -> list[str] | None:
    """Return the texts and binary values of a column or a field, as SQL; None if it has values of another length."""
    match kind:
        case StringType() | BinaryType():
            return [path]
        case StructType():
            parts = [long_parts(f"{path}.{quoted(field.name)}", field.dataType) for field in kind.fields]
            return None if None in parts else [part for found in parts for part in found or ()]
        case _:
            return [] if isinstance(kind, FIXED_WIDTH_TYPES) else None


def found_long_row(error: PySparkException) -> bool:
    """Return whether a row was too long for `require_short_rows`."""
    return LONG_ROW in str(error)
