"""Answer counts, minima and maxima of a whole table from the manifests. Driver, classic Spark only.

Input: an aggregation without groups, the data files that it reads with their metrics. Output: a row of values, or None
if the files must be read.

The minimum of a file is its lower bound if bounds are exact and no delete can remove that row. This holds for numbers,
dates and timestamps in Parquet files. Bounds of strings are truncated, and those of timestamps in ORC files are
rounded. Bounds of floats ignore NaN, which is the greatest value in Spark, and do not distinguish -0.0 from 0.0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final

from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark_types

from dml import limits
from dml.model.manifest import ContentFile
from dml.pruning.file_bounds import MetricColumn
from dml.rows.program import AggregateFunction
from dml.scan.planner import ScanPlan
from dml.scan.size import live_rows
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import works
from dml.spark.bridge.names import INTERNAL_ROW, RESULTS_READ, ROW_TYPE
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import CONNECTOR, array, constant, java_class, struct_type
from dml.spark_scan.read import AggregateCall, Aggregation, SparkRead
from dml.spark_scan.vectorized import has_stable_types

__all__ = ["KnownRow", "Value", "known_values"]

VALUE_TYPES: Final = (
    IntegerType,
    DateType,
    LongType,
    TimestampType,
    TimestamptzType,
    DecimalType,
    FloatType,
    DoubleType,
)
"""Types whose bounds in the manifests are exact."""

FLOATING: Final = (FloatType, DoubleType)

Value = int | float | Decimal


def may_be_known(aggregation: Aggregation) -> bool:
    """Return whether manifests may have the values of an aggregation."""
    return not aggregation.by and all(map(has_known_value, aggregation.calls))


def has_known_value(call: AggregateCall) -> bool:
    """Return whether manifests may have the value of a function."""
    match call.function:
        case AggregateFunction.COUNT_ROWS:
            return True
        case AggregateFunction.COUNT:
            return call.column is not None and isinstance(call.column.field_type, PrimitiveType)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return call.column is not None and isinstance(call.column.field_type, VALUE_TYPES)
    return False


def known_values(read: SparkRead, plan: ScanPlan) -> tuple[Value | None, ...] | None:
    """Return the values of the aggregation of a read over all rows of its files, from the manifests.

    Args:
        read: The read, with an aggregation.
        plan: Its files.

    Returns:
        The values; None if the files must be read.
    """
    aggregation = read.aggregation
    if aggregation is None or not may_be_known(aggregation) or not works(INTERNAL_ROW.name, try_row, RESULTS_READ):
        return None
    columns = [call.column for call in aggregation.calls if call.column is not None]
    if not columns:
        rows = live_rows(plan.tasks, trust_position_deletes=False)
        return None if rows is None else (rows,) * len(aggregation.calls)
    if any(task.has_deletes for task in plan.tasks) or len(plan.tasks) > limits.MAX_KNOWN_VALUE_FILES:
        return None
    if any(column.initial_default is not None for column in columns) or not has_stable_types(read.table, columns):
        return None
    files = read.plan(keep_metrics=True).metrics if plan.tasks else ()
    if [file.path for file in files] != [task.path for task in plan.tasks]:
        return None
    answers = [answer_aggregate(call, files) for call in aggregation.calls]
    found = tuple(answer.value for answer in answers if answer is not None)
    return found if len(found) == len(answers) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A known value, which may be NULL."""

    value: Value | None


def answer_aggregate(call: AggregateCall, files: Sequence[ContentFile]) -> Answer | None:
    """Return the value of a function over all rows of files without deletes; None if their metrics lack it."""
    column = call.column
    if column is None:
        return Answer(sum(file.record_count for file in files))
    filled = [filled_rows(file, column.field_id) for file in files]
    if call.function is AggregateFunction.COUNT:
        known = [rows for rows in filled if rows is not None]
        return Answer(sum(known)) if len(known) == len(files) else None
    assert isinstance(column.field_type, PrimitiveType)
    decode = MetricColumn.of(column.field_type).decode
    best: Callable[[list[Value]], Value] = min if call.function is AggregateFunction.MIN else max
    values: list[Value] = []
    for file, rows in zip(files, filled, strict=True):
        if rows == 0:
            continue
        bounds = file.lower_bounds if call.function is AggregateFunction.MIN else file.upper_bounds
        value = decode(bounds.get(column.field_id))
        if value is None or file.file_format != "parquet":
            return None
        if isinstance(column.field_type, FLOATING) and (file.nan_value_counts.get(column.field_id) != 0 or value == 0):
            return None
        values.append(value)
    return Answer(best(values) if values else None)


def filled_rows(file: ContentFile, field_id: int) -> int | None:
    """Return the number of rows of a file in which a column is not NULL; None if its metrics lack it."""
    if file.record_count == 0:
        return 0
    nulls = file.null_value_counts.get(field_id)
    if nulls is None or not 0 <= nulls <= file.record_count or file.value_counts.get(field_id) != file.record_count:
        return None
    return file.record_count - nulls


class KnownRow(Proxy):
    """A row of known values, which needs no job.

    Args:
        read: The scan.
        calls: Its aggregate functions.
        values: The values. Dates and timestamps are numbers, as in Spark's internal rows.
        line: The line of EXPLAIN on the reader.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.LocalScan",)

    def __init__(
        self, read: SparkRead, calls: Sequence[AggregateCall], values: Sequence[Value | None], line: str
    ) -> None:
        self.read = read
        self.calls = calls
        self.values = values
        self.reader_line = line

    @property
    def identity(self) -> tuple[object, ...]:
        """A key for the scan, the aggregates and their values."""
        functions = ((call.function, call.column and call.column.field_id) for call in self.calls)
        return (*self.read.identity, *functions, *self.values)

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        shown = ", ".join(dict.fromkeys(call.text for call in self.calls))
        return f"RowDelta {self.read.name} (snapshot {self.read.snapshot_id}): {shown}, {self.reader_line}"

    def readSchema(self) -> JavaObject:
        """Return the schema: one column per value."""
        fields = (
            spark_types.StructField(f"value{number}", call.value_type, nullable=call.is_nullable)
            for number, call in enumerate(self.calls)
        )
        return struct_type(spark_types.StructType(list(fields)))

    def rows(self) -> JavaObject:
        """Return the single row."""
        return one_row([call.value_type for call in self.calls], self.values)

    def supportedCustomMetrics(self) -> JavaObject:
        """Return no metrics."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """Return no metrics."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """Report that the scan returns rows, not columnar batches."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")


def one_row(kinds: Sequence[spark_types.DataType], values: Sequence[Value | None]) -> JavaObject:
    """Return an array of one row in Spark's internal form."""
    row = INTERNAL_ROW.new(len(values))
    for place, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        match kind:
            case _ if value is None:
                row.setNullAt(place)
            case spark_types.DecimalType():
                decimals = java_class("org.apache.spark.sql.types.Decimal")
                row.update(place, decimals.apply(value, kind.precision, kind.scale))
            case spark_types.IntegerType() | spark_types.DateType():
                row.setInt(place, value)
            case spark_types.FloatType():
                row.setFloat(place, value)
            case spark_types.DoubleType():
                row.setDouble(place, value)
            case _:
                row.setLong(place, value)
    return ROW_TYPE.array((row,))


def try_row() -> None:
    """Make a row with a value of each type, to test that Spark's internals work."""
    kinds = (
        spark_types.LongType(),
        spark_types.IntegerType(),
        spark_types.FloatType(),
        spark_types.DoubleType(),
        spark_types.DecimalType(4, 2),
        spark_types.DateType(),
    )
    one_row(kinds, (1, 1, 1.0, 1.0, Decimal("1.00"), None))
