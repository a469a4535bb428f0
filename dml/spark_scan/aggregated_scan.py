"""Scans with partial aggregation in tasks, which Spark completes. Driver, classic Spark only.

Input: an aggregation that Spark pushes down, and a scan of all rows of some files. Output: a scan whose tasks return a
row for each group in their files. Spark combines these rows, for example `Min` of `Min`s and `Sum` of `Count`s. Results
equal Spark's to the bit, except for floating-point sums, whose last digits depend on the order of rows in Spark too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Final

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, BooleanType, DateType, IcebergType, NestedField, StringType
from pyspark.sql import types as spark_types

from dml.plan.table_read import COUNTED, EXACT, SUMMED
from dml.rows.program import Aggregate, AggregateFunction, Groups
from dml.scan.table_scan import Scan
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import CONNECTOR, array, constant, simple_name, struct_type
from dml.spark.types import spark_type
from dml.spark.workers import check_reads
from dml.spark_scan.scan import FILTER_PREDICATE, SparkBatch, SparkRead, SparkScan, SparkStatistics, references
from dml.spark_scan.workers import python_partition, reader_factory
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput, pack

__all__ = ["AggregatedScan", "partial_aggregation"]

TEXTS: Final = (BinaryType, StringType)
"""Types whose values are slow to convert into Spark's rows."""

FEW_VALUES: Final = (BooleanType, DateType, StringType)
"""Types of columns that usually have few distinct values."""

ROW_BYTES: Final = 100
"""Estimated bytes of a row of aggregates."""


def partial_aggregation(aggregation: JavaObject, read: SparkRead) -> tuple[SparkRead, Groups] | None:
    """Return what tasks read and compute for an aggregation, if they can compute it.

    Args:
        aggregation: The aggregation that Spark pushes down.
        read: The rows to aggregate.

    Returns:
        The columns to read and the program of the tasks; None if Spark must aggregate rows.
    """
    schema, places = read.schema, dict[int, int]()

    def place_of(column: NestedField) -> int:
        return places.setdefault(column.field_id, len(places))

    groups: list[int] = []
    for expression in aggregation.groupByExpressions():
        column = column_of(expression, schema, EXACT)
        if column is None:
            return None
        groups.append(place_of(column))
    aggregates: list[Aggregate] = []
    for call in aggregation.aggregateExpressions():
        name = simple_name(call)
        if name not in set(AggregateFunction):
            return None
        function = AggregateFunction(name)
        if function is AggregateFunction.COUNT_ROWS:
            aggregates.append(Aggregate(function=function))
            continue
        counted_once = function in {AggregateFunction.COUNT, AggregateFunction.SUM} and call.isDistinct()
        column = column_of(call.column(), schema, KINDS[function])
        if counted_once or column is None:
            return None
        aggregates.append(Aggregate(function=function, place=place_of(column)))
    if not places:
        return None
    found = replace(read, columns=tuple(places), metadata_columns=())
    return found, Groups(by=tuple(groups), aggregates=tuple(aggregates))


KINDS: Final[Mapping[AggregateFunction, tuple[type[IcebergType], ...]]] = {
    AggregateFunction.COUNT: COUNTED,
    AggregateFunction.MIN: EXACT,
    AggregateFunction.MAX: EXACT,
    AggregateFunction.SUM: SUMMED,
}


def column_of(expression: JavaObject, schema: Schema, kinds: tuple[type[IcebergType], ...]) -> NestedField | None:
    """Return the top-level column that an expression names, if it has one of some types."""
    if simple_name(expression) != "FieldReference":
        return None
    parts = list(map(str, expression.fieldNames()))
    found = [column for column in schema.fields if [column.name] == parts]
    return found[0] if len(found) == 1 and isinstance(found[0].field_type, kinds) else None


class AggregatedScan(Proxy):
    """A scan that returns partial aggregates.

    Args:
        scan: The scan of the rows, with the columns that the program needs.
        program: The partial aggregation.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.Scan",
        "read.SupportsReportStatistics",
        "read.SupportsRuntimeV2Filtering",
    )

    def __init__(self, scan: SparkScan, program: Groups) -> None:
        self.scan = scan
        self.program = program

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that is equal for scans of the same groups."""
        return (*self.scan.identity, self.program)

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        names = [column.name for column in self.columns]
        groups = ", ".join(names[place] for place in self.program.by)
        values = ", ".join(
            "count(*)" if each.place is None else f"{each.function.lower()}({names[each.place]})"
            for each in self.program.aggregates
        )
        return f"{self.scan.description()}: {values or 'groups'}{' by ' + groups if groups else ''} in each task"

    @property
    def is_worthwhile(self) -> bool:
        """True if tasks aggregate faster than Spark, which groups numbers fast if it reads the files itself.

        Integers, times and decimals are often nearly unique, and then Python workers return as many groups as rows.
        Which reader is used is known only after planning, so that test comes last.
        """
        has_texts = any(isinstance(column.field_type, TEXTS) for column in self.columns)
        are_few = all(isinstance(column.field_type, FEW_VALUES) for column in self.grouped)
        return (has_texts and are_few) or self.scan.vectorized is None

    def readSchema(self) -> JavaObject:
        """Return the schema of the grouping columns and the aggregates."""
        return self._java_schema

    def toBatch(self) -> "AggregatedBatch":
        """Return the batch of groups."""
        return AggregatedBatch(self)

    def estimateStatistics(self) -> SparkStatistics:
        """Estimate as if each row were a group; without grouping columns, as one row per scan task."""
        if not self.program.by:
            rows = max(1, len(self.scan.tasks))
            return SparkStatistics(rows, rows * ROW_BYTES)
        return self.scan.estimateStatistics()

    def filterAttributes(self) -> JavaObject:
        """Return the grouping columns whose values on the other side of a join can prune files."""
        names = [str(field.name).lower() for field in self.row_schema.fields]
        sources = {column.name for column in self.scan.partition_sources}
        return references(
            column.name for column in self.grouped if column.name in sources and names.count(column.name.lower()) == 1
        )

    def filter(self, predicates: Sequence[JavaObject]) -> None:
        """Prune files by the values on the other side of a join."""
        self.scan.filter(predicates)

    def pushedPredicates(self) -> JavaObject:
        """Return none: Spark applies its whole filter."""
        return array(FILTER_PREDICATE, ())

    def supportsIterativePushdown(self) -> bool:
        """Return False: one round of pushdown is enough."""
        return False

    def reflectsFullyPushedDownFilters(self) -> bool:
        """Return False: statistics cover the files that remain after pruning."""
        return False

    def supportedCustomMetrics(self) -> JavaObject:
        """Return no metrics."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """Return no metrics."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """Report that the scan returns rows, not columnar batches."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")

    @cached_property
    def columns(self) -> Sequence[NestedField]:
        """The columns that are read."""
        read = self.scan.read
        return [read.schema.find_field(field_id) for field_id in read.columns]

    @cached_property
    def grouped(self) -> Sequence[NestedField]:
        """The grouping columns."""
        return [self.columns[place] for place in self.program.by]

    @cached_property
    def row_schema(self) -> spark_types.StructType:
        """The columns of its rows. Grouping columns keep their names from the table, by which joins refer to them."""
        fields = [spark_types.StructField(column.name, spark_type(column.field_type)) for column in self.grouped]
        fields += [
            spark_types.StructField(f"value{number}", self._kind(each))
            for number, each in enumerate(self.program.aggregates)
        ]
        return spark_types.StructType(fields)

    def _kind(self, each: Aggregate) -> spark_types.DataType:
        if each.place is None or each.function is AggregateFunction.COUNT:
            return spark_types.LongType()
        kind = spark_type(self.columns[each.place].field_type)
        is_sum = each.function is AggregateFunction.SUM
        return spark_types.LongType() if is_sum and isinstance(kind, spark_types.IntegerType) else kind

    @cached_property
    def _java_schema(self) -> JavaObject:
        return struct_type(self.row_schema)


class AggregatedBatch(SparkBatch):
    """The batch of an aggregated scan.

    Args:
        groups: The scan.
    """

    def __init__(self, groups: AggregatedScan) -> None:
        super().__init__(groups.scan)
        self.groups = groups

    @property
    def identity(self) -> tuple[object, ...]:
        """The key of its scan."""
        return self.groups.identity

    def planInputPartitions(self) -> JavaObject:
        """Return a partition for each group of tasks; without grouping columns, at least one, to return a row."""
        scan = self.scan
        tasks = list(scan.read.groups(scan.tasks, scan.read.parallelism))
        if not tasks and not self.groups.program.by:
            tasks = [()]
        partitions = (python_partition(number, pack(group)) for number, group in enumerate(tasks))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """Return the factory of the readers that executors run."""
        scan = self.scan
        check_reads(scan.spark, scan.read.table)
        context = Scan(read=scan.read, plan=scan.plan).context
        reader = RowTask(input=TaskInput(packed_context=pack(context)), program=self.groups.program)
        return reader_factory(reader, self.groups.row_schema)
