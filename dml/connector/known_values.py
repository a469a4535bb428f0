"""Counts, least and greatest values of all rows of a table, where the manifests know them. Driver, classic Spark only.

Input: the aggregate functions of a query, the data files that it reads with their metrics. Output: one row of values,
or nothing where only reading tells.

The least value of a file is its lower bound where bounds are whole values and no delete can take that row: those of
numbers, dates and timestamps in Parquet files. Bounds of strings are cut, those of timestamps in ORC files are rounded,
and those of floats know no NaN, which to Spark is the greatest value, nor which of its two zeros a zero is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
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

from dml.connector.java import CONNECTOR, array, constant, java_class, simple_name, struct_type
from dml.connector.proxies import Proxy
from dml.connector.scan import ScanRead
from dml.connector.vectorized import kept_types
from dml.model.manifest import ContentFile
from dml.pruning.file_bounds import MetricColumn
from dml.scan.planner import ScanPlan
from dml.scan.size import live_rows
from dml.spark.internals import works
from dml.spark.types import spark_type

__all__ = [
    "Function",
    "KnownAggregate",
    "KnownRow",
    "aggregates_of",
    "has_known_extremes",
    "is_wanted",
    "known_row",
]

ROW: Final = "org.apache.spark.sql.catalyst.expressions.GenericInternalRow"
SETTING: Final = "spark.sql.iceberg.aggregate-push-down.enabled"
"""Iceberg's setting of a session."""

MOST_FILES: Final = 20_000
"""Of more files, to look at the metrics of each takes as long as a job."""

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
"""Types whose bounds in the manifests are values of the file."""

FLOATING: Final = (FloatType, DoubleType)

Value = int | float | Decimal


class Function(StrEnum):
    """What is asked of all rows, by the names of Spark's classes."""

    ROWS = "CountStar"
    FILLED = "Count"
    LEAST = "Min"
    GREATEST = "Max"


COUNTS: Final = frozenset({Function.ROWS, Function.FILLED})
"""Functions that are never NULL."""


NAMES: Final[Mapping[str, Function]] = {"count": Function.FILLED, "min": Function.LEAST, "max": Function.GREATEST}
"""Functions by their names in SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAggregate:
    """An aggregate function of a query.

    Attributes:
        function: The function.
        column: What it is asked of; None for rows.
    """

    function: Function
    column: NestedField | None = None

    @property
    def kind(self) -> spark_types.DataType:
        """The type of its value."""
        if self.column is None or self.function is Function.FILLED:
            return spark_types.LongType()
        return spark_type(self.column.field_type)


def is_wanted(spark: SparkSession) -> bool:
    """Whether a session wants metadata to answer."""
    return (spark.conf.get(SETTING, "true") or "true").strip().lower() != "false"


def aggregates_of(aggregation: JavaObject, schema: Schema) -> tuple[KnownAggregate, ...] | None:
    """The functions of an aggregation of all rows at once; None where the manifests never know one of them."""
    if len(aggregation.groupByExpressions()):
        return None
    found: list[KnownAggregate] = []
    for asked in aggregation.aggregateExpressions():
        known = aggregate_of(asked, schema)
        if known is None:
            return None
        found.append(known)
    return tuple(found)


def aggregate_of(asked: JavaObject, schema: Schema) -> KnownAggregate | None:
    """One of Spark's functions, of a column that is no part of another."""
    name = simple_name(asked)
    if name not in set(Function):
        return None
    function = Function(name)
    if function is Function.ROWS:
        return KnownAggregate(function=function)
    if (function is Function.FILLED and asked.isDistinct()) or simple_name(asked.column()) != "FieldReference":
        return None
    parts = list(map(str, asked.column().fieldNames()))
    columns = {field.name: field for field in schema.fields}
    column = columns.get(parts[0]) if len(parts) == 1 else None
    return None if column is None else aggregate(function, column)


def aggregate(function: Function, column: NestedField) -> KnownAggregate | None:
    """A function of a column, if manifests may know it."""
    if not isinstance(column.field_type, PrimitiveType):
        return None
    if function is not Function.FILLED and not isinstance(column.field_type, VALUE_TYPES):
        return None
    return KnownAggregate(function=function, column=column)


def known_row(read: ScanRead, plan: ScanPlan, aggregates: Sequence[KnownAggregate]) -> "KnownRow | None":
    """The values that a query asks of rows, all rows of some files.

    Args:
        read: What is read.
        plan: Its files.
        aggregates: What is asked.

    Returns:
        The values; None where only reading tells.
    """
    if not works(ROW, try_row, "queries read values that the manifests have"):
        return None
    if all(asked.column is None for asked in aggregates):
        rows = live_rows(plan.tasks, trust_position_deletes=False)
        return None if rows is None else KnownRow(read, aggregates, [rows] * len(aggregates))
    columns = [asked.column for asked in aggregates if asked.column is not None]
    if any(task.has_deletes for task in plan.tasks) or len(plan.tasks) > MOST_FILES:
        return None
    if any(column.initial_default is not None for column in columns) or not kept_types(read.state.table, columns):
        return None
    files = read.plan(keep_metrics=True).metrics if plan.tasks else ()
    if [file.path for file in files] != [task.path for task in plan.tasks]:
        return None
    values: list[Value | None] = []
    for asked in aggregates:
        answer = answered(asked, files)
        if answer is None:
            return None
        values.append(answer.value)
    return KnownRow(read, aggregates, values)


def has_known_extremes(
    spark: SparkSession, read: ScanRead, plan: ScanPlan, extremes: Sequence[tuple[str, str]]
) -> bool:
    """Whether the manifests know what a query in SQL shows.

    Args:
        spark: The session.
        read: What is read.
        plan: Its files.
        extremes: Functions of SQL and the names of their columns, `*` for rows.
    """
    asked = [named_aggregate(*each, read.state.schema) for each in extremes]
    known = [each for each in asked if each is not None]
    if not asked or len(known) != len(asked) or read.metadata_columns:
        return False
    return is_wanted(spark) and known_row(read, plan, known) is not None


def named_aggregate(function: str, name: str, schema: Schema) -> KnownAggregate | None:
    """A function of SQL of the column with a name."""
    if name == "*":
        return KnownAggregate(function=Function.ROWS)
    found = [field for field in schema.fields if field.name.lower() == name.lower()]
    return aggregate(NAMES[function], found[0]) if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A value that is known, NULL included."""

    value: Value | None


def answered(asked: KnownAggregate, files: Sequence[ContentFile]) -> Answer | None:
    """The value of a function over all rows of files without deletes; None where their metrics do not tell."""
    column = asked.column
    if column is None:
        return Answer(sum(file.record_count for file in files))
    filled = [filled_rows(file, column.field_id) for file in files]
    if asked.function is Function.FILLED:
        known = [rows for rows in filled if rows is not None]
        return Answer(sum(known)) if len(known) == len(files) else None
    assert isinstance(column.field_type, PrimitiveType)
    decode = MetricColumn.of(column.field_type).decode
    best: Callable[[list[Value]], Value] = min if asked.function is Function.LEAST else max
    values: list[Value] = []
    for file, rows in zip(files, filled, strict=True):
        if rows == 0:
            continue
        bounds = file.lower_bounds if asked.function is Function.LEAST else file.upper_bounds
        value = decode(bounds.get(column.field_id))
        if value is None or file.file_format != "parquet":
            return None
        if isinstance(column.field_type, FLOATING) and (file.nan_value_counts.get(column.field_id) != 0 or value == 0):
            return None
        values.append(value)
    return Answer(best(values) if values else None)


def filled_rows(file: ContentFile, field_id: int) -> int | None:
    """In how many rows of a file a column is not NULL, if its metrics tell."""
    if file.record_count == 0:
        return 0
    nulls = file.null_value_counts.get(field_id)
    if nulls is None or not 0 <= nulls <= file.record_count or file.value_counts.get(field_id) != file.record_count:
        return None
    return file.record_count - nulls


class KnownRow(Proxy):
    """A row of values that no job has to make.

    Args:
        read: What was asked.
        aggregates: What is asked of it.
        values: The values: numbers, and dates and timestamps as the numbers that Spark's rows have for them.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.LocalScan",)

    def __init__(self, read: ScanRead, aggregates: Sequence[KnownAggregate], values: Sequence[Value | None]) -> None:
        self.read = read
        self.aggregates = aggregates
        self.values = values

    @property
    def identity(self) -> tuple[object, ...]:
        """What is asked, and the answer."""
        asked = ((each.function, each.column and each.column.field_id) for each in self.aggregates)
        return (*self.read.identity, *asked, *self.values)

    def description(self) -> str:
        """What EXPLAIN shows."""
        asked = (
            "count" if each.column is None else f"{each.function.lower()}({each.column.name})"
            for each in self.aggregates
        )
        state = self.read.state
        return f"RowDelta {', '.join(dict.fromkeys(asked))} of {state.resolved.name} (snapshot {state.snapshot_id})"

    def readSchema(self) -> JavaObject:
        """A column for each value."""
        fields = (
            spark_types.StructField(f"value{number}", asked.kind, nullable=asked.function not in COUNTS)
            for number, asked in enumerate(self.aggregates)
        )
        return struct_type(spark_types.StructType(list(fields)))

    def rows(self) -> JavaObject:
        """The one row."""
        return one_row([asked.kind for asked in self.aggregates], self.values)

    def supportedCustomMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """A row, not batches of columns."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")


def one_row(kinds: Sequence[spark_types.DataType], values: Sequence[Value | None]) -> JavaObject:
    """Return an array of one row in Spark's internal form."""
    row = java_class(ROW)(len(values))
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
    return array("org.apache.spark.sql.catalyst.InternalRow", (row,))


def try_row() -> None:
    """Make a row with a value of each type, as a trial."""
    kinds = (
        spark_types.LongType(),
        spark_types.IntegerType(),
        spark_types.FloatType(),
        spark_types.DoubleType(),
        spark_types.DecimalType(4, 2),
        spark_types.DateType(),
    )
    one_row(kinds, (1, 1, 1.0, 1.0, Decimal("1.00"), None))
