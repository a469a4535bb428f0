"""The read that Spark requests of a table in one state: columns, a filter, an aggregation. Driver.

Input: a `TableScan` with the rules of the session; Spark's `Aggregation`. Output: values without Java objects, from
which `dml.spark_scan.readers` chooses a reader.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField
from pyspark.sql import types as spark_types

from dml.plan.names import SqlRules, column_text
from dml.pruning.filter_text import filter_text
from dml.rows.program import AggregateFunction
from dml.scan.planner import ScanPlan
from dml.scan.table_scan import TableScan
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.values import simple_name
from dml.spark.types import spark_type

__all__ = ["AggregateCall", "Aggregation", "SparkRead"]

COUNTS: Final = frozenset({AggregateFunction.COUNT_ROWS, AggregateFunction.COUNT})
"""Functions that are never NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """An aggregate function of a query.

    Attributes:
        function: The function.
        column: Its argument, a top-level column; None for `count(*)`.
    """

    function: AggregateFunction
    column: NestedField | None = None

    @property
    def value_type(self) -> spark_types.DataType:
        """The type of the result."""
        if self.column is None or self.function is AggregateFunction.COUNT:
            return spark_types.LongType()
        is_long_sum = self.function is AggregateFunction.SUM and isinstance(self.column.field_type, IntegerType)
        return spark_types.LongType() if is_long_sum else spark_type(self.column.field_type)

    @property
    def is_nullable(self) -> bool:
        """Whether the result may be NULL."""
        return self.function not in COUNTS

    @property
    def text(self) -> str:
        """The call, for EXPLAIN."""
        return "count(*)" if self.column is None else f"{self.function.lower()}({self.column.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """An aggregation of all rows, or of the rows in each group.

    Attributes:
        by: The grouping columns.
        calls: The aggregate functions.
    """

    by: tuple[NestedField, ...]
    calls: tuple[AggregateCall, ...]

    @staticmethod
    def of(asked: JavaObject, schema: Schema) -> "Aggregation | None":
        """Convert Spark's `Aggregation`; None for DISTINCT, other functions, or arguments that are not columns."""
        by = [top_level_column(expression, schema) for expression in asked.groupByExpressions()]
        calls = [aggregate_call(call, schema) for call in asked.aggregateExpressions()]
        if None in by or None in calls:
            return None
        return Aggregation(
            by=tuple(column for column in by if column is not None),
            calls=tuple(call for call in calls if call is not None),
        )

    @property
    def counts_rows(self) -> bool:
        """Whether it contains `count(*)`."""
        return any(call.function is AggregateFunction.COUNT_ROWS for call in self.calls)


def aggregate_call(call: JavaObject, schema: Schema) -> AggregateCall | None:
    """Convert one of Spark's aggregate functions."""
    name = simple_name(call)
    if name not in set(AggregateFunction):
        return None
    function = AggregateFunction(name)
    if function is AggregateFunction.COUNT_ROWS:
        return AggregateCall(function=function)
    column = top_level_column(call.column(), schema)
    may_be_distinct = function in {AggregateFunction.COUNT, AggregateFunction.SUM}
    if column is None or (may_be_distinct and call.isDistinct()):
        return None
    return AggregateCall(function=function, column=column)


def top_level_column(expression: JavaObject, schema: Schema) -> NestedField | None:
    """Return the top-level column that an expression names, if it is one."""
    if simple_name(expression) != "FieldReference":
        return None
    parts = list(map(str, expression.fieldNames()))
    found = [column for column in schema.fields if [column.name] == parts]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRead(TableScan):
    """The columns and rows that a scan planned by Spark reads. Names in the filter match the schema's with exact case.

    Attributes:
        name: The table's full name.
        version: Identifies this state of the table, so that Spark can compare scans.
        rules: Rules for the names and literals of the query.
        parallelism: The number of concurrent tasks.
        aggregation: The aggregation of the rows, if the query needs nothing else of them.
    """

    name: str
    version: tuple[object, ...]
    rules: SqlRules
    parallelism: int
    case_sensitive: bool = True
    aggregation: Aggregation | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that is equal for scans of the same rows."""
        return (*self.version, self.columns, self.metadata_columns, repr(self.row_filter), repr(self.row_predicate))

    def description(self, plan: ScanPlan) -> str:
        """Return the text of the scan for EXPLAIN."""
        condition = filter_text(self.row_filter, partial(column_text, self.schema))
        shown = "" if isinstance(self.row_filter, AlwaysTrue) else f", filter {condition}"
        files = f"{len(plan.tasks)} of {plan.total_data_files} data files"
        return f"RowDelta {self.name} (snapshot {self.snapshot_id}, {files}{shown})"
