"""Answer counts, minima and maxima of a whole table from the manifests. Driver, classic Spark only.

Input: the aggregate functions of a query, the data files that it reads with their metrics. Output: one row of values,
or None if the files must be read.

The minimum of a file is its lower bound if bounds are exact and no delete can remove that row. This holds for numbers,
dates and timestamps in Parquet files. Bounds of strings are truncated, and those of timestamps in ORC files are
rounded. Bounds of floats ignore NaN, which is the greatest value in Spark, and do not distinguish -0.0 from 0.0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from dml import limits
from dml.model.manifest import ContentFile
from dml.pruning.file_bounds import MetricColumn
from dml.scan.planner import ScanPlan
from dml.scan.size import live_rows
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import works
from dml.spark.bridge.names import INTERNAL_ROW, RESULTS_READ, ROW_TYPE
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import CONNECTOR, array, constant, java_class, simple_name, struct_type
from dml.spark.types import spark_type
from dml.spark_scan.scan import SparkRead
from dml.spark_scan.vectorized import has_stable_types

__all__ = [
    "Function",
    "KnownAggregate",
    "KnownRow",
    "aggregates_of",
    "has_known_extremes",
    "is_wanted",
    "known_row",
]

SETTING: Final = "spark.sql.iceberg.aggregate-push-down.enabled"
"""Iceberg's session setting."""


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


class Function(StrEnum):
    """Aggregate functions of all rows, by the names of Spark's classes."""

    COUNT_ROWS = "CountStar"
    COUNT = "Count"
    MIN = "Min"
    MAX = "Max"


COUNTS: Final = frozenset({Function.COUNT_ROWS, Function.COUNT})
"""Functions that are never NULL."""


NAMES: Final[Mapping[str, Function]] = {"count": Function.COUNT, "min": Function.MIN, "max": Function.MAX}
"""Functions by their names in SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAggregate:
    """An aggregate function of a query.

    Attributes:
        function: The function.
        column: Its argument; None for `count(*)`.
    """

    function: Function
    column: NestedField | None = None

    @property
    def kind(self) -> spark_types.DataType:
        """The type of its value."""
        if self.column is None or self.function is Function.COUNT:
            return spark_types.LongType()
        return spark_type(self.column.field_type)


def is_wanted(spark: SparkSession) -> bool:
    """Return whether the session allows answers from metadata."""
    return (spark.conf.get(SETTING, "true") or "true").strip().lower() != "false"


def aggregates_of(aggregation: JavaObject, schema: Schema) -> tuple[KnownAggregate, ...] | None:
    """Return the functions of an aggregation without groups; None if manifests can never answer one of them."""
    if len(aggregation.groupByExpressions()):
        return None
    found: list[KnownAggregate] = []
    for call in aggregation.aggregateExpressions():
        known = aggregate_of(call, schema)
        if known is None:
            return None
        found.append(known)
    return tuple(found)


def aggregate_of(call: JavaObject, schema: Schema) -> KnownAggregate | None:
    """Convert one of Spark's functions of a top-level column."""
    name = simple_name(call)
    if name not in set(Function):
        return None
    function = Function(name)
    if function is Function.COUNT_ROWS:
        return KnownAggregate(function=function)
    if (function is Function.COUNT and call.isDistinct()) or simple_name(call.column()) != "FieldReference":
        return None
    parts = list(map(str, call.column().fieldNames()))
    columns = {field.name: field for field in schema.fields}
    column = columns.get(parts[0]) if len(parts) == 1 else None
    return None if column is None else aggregate(function, column)


def aggregate(function: Function, column: NestedField) -> KnownAggregate | None:
    """Return a function of a column, if manifests may have its value."""
    if not isinstance(column.field_type, PrimitiveType):
        return None
    if function is not Function.COUNT and not isinstance(column.field_type, VALUE_TYPES):
        return None
    return KnownAggregate(function=function, column=column)


def known_row(read: SparkRead, plan: ScanPlan, aggregates: Sequence[KnownAggregate]) -> "KnownRow | None":
    """Return the values of aggregates over all rows of some files.

    Args:
        read: The scan.
        plan: Its files.
        aggregates: The aggregate functions.

    Returns:
        The values; None if the files must be read.
    """
    if not works(INTERNAL_ROW.name, try_row, RESULTS_READ):
        return None
    if all(call.column is None for call in aggregates):
        rows = live_rows(plan.tasks, trust_position_deletes=False)
        return None if rows is None else KnownRow(read, aggregates, [rows] * len(aggregates))
    columns = [call.column for call in aggregates if call.column is not None]
    if any(task.has_deletes for task in plan.tasks) or len(plan.tasks) > limits.MAX_KNOWN_VALUE_FILES:
        return None
    if any(column.initial_default is not None for column in columns) or not has_stable_types(read.table, columns):
        return None
    files = read.plan(keep_metrics=True).metrics if plan.tasks else ()
    if [file.path for file in files] != [task.path for task in plan.tasks]:
        return None
    values: list[Value | None] = []
    for call in aggregates:
        answer = answer_aggregate(call, files)
        if answer is None:
            return None
        values.append(answer.value)
    return KnownRow(read, aggregates, values)


def has_known_extremes(
    spark: SparkSession, read: SparkRead, plan: ScanPlan, extremes: Sequence[tuple[str, str]]
) -> bool:
    """Return whether the manifests can answer a SQL query.

    Args:
        spark: The session.
        read: The scan.
        plan: Its files.
        extremes: SQL functions and the names of their columns, `*` for rows.
    """
    aggregates = [named_aggregate(*each, read.schema) for each in extremes]
    known = [each for each in aggregates if each is not None]
    if not aggregates or len(known) != len(aggregates) or read.metadata_columns:
        return False
    return is_wanted(spark) and known_row(read, plan, known) is not None


def named_aggregate(function: str, name: str, schema: Schema) -> KnownAggregate | None:
    """Return a SQL function of the column with a name."""
    if name == "*":
        return KnownAggregate(function=Function.COUNT_ROWS)
    found = [field for field in schema.fields if field.name.lower() == name.lower()]
    return aggregate(NAMES[function], found[0]) if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A known value, which may be NULL."""

    value: Value | None


def answer_aggregate(call: KnownAggregate, files: Sequence[ContentFile]) -> Answer | None:
    """Return the value of a function over all rows of files without deletes; None if their metrics lack it."""
    column = call.column
    if column is None:
        return Answer(sum(file.record_count for file in files))
    filled = [filled_rows(file, column.field_id) for file in files]
    if call.function is Function.COUNT:
        known = [rows for rows in filled if rows is not None]
        return Answer(sum(known)) if len(known) == len(files) else None
    assert isinstance(column.field_type, PrimitiveType)
    decode = MetricColumn.of(column.field_type).decode
    best: Callable[[list[Value]], Value] = min if call.function is Function.MIN else max
    values: list[Value] = []
    for file, rows in zip(files, filled, strict=True):
        if rows == 0:
            continue
        bounds = file.lower_bounds if call.function is Function.MIN else file.upper_bounds
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
        aggregates: Its aggregate functions.
        values: The values. Dates and timestamps are numbers, as in Spark's internal rows.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.LocalScan",)

    def __init__(self, read: SparkRead, aggregates: Sequence[KnownAggregate], values: Sequence[Value | None]) -> None:
        self.read = read
        self.aggregates = aggregates
        self.values = values

    @property
    def identity(self) -> tuple[object, ...]:
        """A key for the scan, the aggregates and their values."""
        functions = ((each.function, each.column and each.column.field_id) for each in self.aggregates)
        return (*self.read.identity, *functions, *self.values)

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        functions = (
            "count" if each.column is None else f"{each.function.lower()}({each.column.name})"
            for each in self.aggregates
        )
        return f"RowDelta {', '.join(dict.fromkeys(functions))} of {self.read.name} (snapshot {self.read.snapshot_id})"

    def readSchema(self) -> JavaObject:
        """Return the schema: one column per value."""
        fields = (
            spark_types.StructField(f"value{number}", call.kind, nullable=call.function not in COUNTS)
            for number, call in enumerate(self.aggregates)
        )
        return struct_type(spark_types.StructType(list(fields)))

    def rows(self) -> JavaObject:
        """Return the single row."""
        return one_row([call.kind for call in self.aggregates], self.values)

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
