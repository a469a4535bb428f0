"""Scans that give groups of rows, of which Spark makes the rest. Driver, classic Spark only.

Input: an aggregation as Spark pushes it, and a scan of all rows of some files. Output: a scan whose tasks give a row
for each group that they meet, `Min` of `Min`s and `Sum` of `Count`s being Spark's. What is computed is what Spark
computes, to the bit but for sums of floating point numbers, whose last digits depend on the order of rows there too.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, BooleanType, DateType, IcebergType, NestedField, StringType
from pyspark.sql import types as spark_types

from dml.connector.java import CONNECTOR, array, constant, simple_name, struct_type
from dml.connector.proxies import Proxy
from dml.connector.scan import FILTER_PREDICATE, ScanRead, SparkBatch, SparkScan, SparkStatistics, references
from dml.connector.workers import python_partition, reader_factory
from dml.engine.scans import task_groups
from dml.plan.table_read import COUNTED, EXACT, SUMMED
from dml.rows.program import Aggregate, AggregateFunction, Groups
from dml.spark.shared_files import check_reads
from dml.spark.types import spark_type
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput, pack

__all__ = ["AggregatedScan", "partial_aggregation"]

TEXTS: Final = (BinaryType, StringType)
"""Types of values that take long on their way into rows of Spark."""

FEW_VALUES: Final = (BooleanType, DateType, StringType)
"""Types of columns that tell few groups apart, as a rule."""

ROW_BYTES: Final = 100
"""So many bytes a row of values takes, about."""


def partial_aggregation(aggregation: JavaObject, read: ScanRead) -> tuple[ScanRead, Groups] | None:
    """What tasks read and compute, where they can compute what an aggregation asks.

    Args:
        aggregation: What Spark asks.
        read: The rows that it asks it of.

    Returns:
        The columns that are needed, and what is made of them; None where Spark has to make it of rows.
    """
    schema, places = read.state.schema, dict[int, int]()

    def place_of(column: NestedField) -> int:
        return places.setdefault(column.field_id, len(places))

    groups: list[int] = []
    for expression in aggregation.groupByExpressions():
        column = column_of(expression, schema, EXACT)
        if column is None:
            return None
        groups.append(place_of(column))
    aggregates: list[Aggregate] = []
    for asked in aggregation.aggregateExpressions():
        name = simple_name(asked)
        if name not in set(AggregateFunction):
            return None
        function = AggregateFunction(name)
        if function is AggregateFunction.COUNT_ROWS:
            aggregates.append(Aggregate(function=function))
            continue
        counted_once = function in {AggregateFunction.COUNT, AggregateFunction.SUM} and asked.isDistinct()
        column = column_of(asked.column(), schema, KINDS[function])
        if counted_once or column is None:
            return None
        aggregates.append(Aggregate(function=function, place=place_of(column)))
    if not places:
        return None
    found = ScanRead(state=read.state, columns=tuple(places), row_filter=read.row_filter)
    return found, Groups(by=tuple(groups), aggregates=tuple(aggregates))


KINDS: Final[Mapping[AggregateFunction, tuple[type[IcebergType], ...]]] = {
    AggregateFunction.COUNT: COUNTED,
    AggregateFunction.MIN: EXACT,
    AggregateFunction.MAX: EXACT,
    AggregateFunction.SUM: SUMMED,
}


def column_of(expression: JavaObject, schema: Schema, kinds: tuple[type[IcebergType], ...]) -> NestedField | None:
    """The column that an expression is, if it is one of some types and no part of another."""
    if simple_name(expression) != "FieldReference":
        return None
    parts = list(map(str, expression.fieldNames()))
    found = [column for column in schema.fields if [column.name] == parts]
    return found[0] if len(found) == 1 and isinstance(found[0].field_type, kinds) else None


class AggregatedScan(Proxy):
    """Groups of the rows of a scan.

    Args:
        scan: The rows: its columns are those that are needed.
        program: What tasks compute of them.
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
        """What two scans of the same groups have in common."""
        return (*self.scan.identity, self.program)

    def description(self) -> str:
        """What EXPLAIN shows."""
        names = [column.name for column in self.columns]
        groups = ", ".join(names[place] for place in self.program.by)
        values = ", ".join(
            "count(*)" if each.place is None else f"{each.function.lower()}({names[each.place]})"
            for each in self.program.aggregates
        )
        return f"{self.scan.description()}: {values or 'groups'}{' by ' + groups if groups else ''} in each task"

    @property
    def is_worthwhile(self) -> bool:
        """Whether tasks are quicker than Spark, which makes groups of numbers fast where it reads the files itself.

        Whole numbers, times and decimals often tell nearly all rows apart, and then Python workers give as many groups.
        Which of them reads the files is known when they are planned, so that is asked last.
        """
        has_texts = any(isinstance(column.field_type, TEXTS) for column in self.columns)
        are_few = all(isinstance(column.field_type, FEW_VALUES) for column in self.grouped)
        return (has_texts and are_few) or self.scan.vectorized is None

    def readSchema(self) -> JavaObject:
        """The columns of the groups, and of what is computed of them."""
        return self._java_schema

    def toBatch(self) -> "AggregatedBatch":
        """Its groups."""
        return AggregatedBatch(self)

    def estimateStatistics(self) -> SparkStatistics:
        """Rows and bytes, as if each row were a group; one row for each task where there is one group."""
        if not self.program.by:
            rows = max(1, len(self.scan.tasks))
            return SparkStatistics(rows, rows * ROW_BYTES)
        return self.scan.estimateStatistics()

    def filterAttributes(self) -> JavaObject:
        """The columns of groups whose values in the other side of a join say which files to read."""
        names = [str(field.name).lower() for field in self.row_schema.fields]
        sources = {column.name for column in self.scan.partition_sources}
        return references(
            column.name for column in self.grouped if column.name in sources and names.count(column.name.lower()) == 1
        )

    def filter(self, predicates: Sequence[JavaObject]) -> None:
        """Leave out files of which the other side of a join wants no group."""
        self.scan.filter(predicates)

    def pushedPredicates(self) -> JavaObject:
        """None that replaces Spark's own filter."""
        return array(FILTER_PREDICATE, ())

    def supportsIterativePushdown(self) -> bool:
        """Once is enough."""
        return False

    def reflectsFullyPushedDownFilters(self) -> bool:
        """Statistics are those of the files that are left."""
        return False

    def supportedCustomMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """Rows."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")

    @cached_property
    def columns(self) -> Sequence[NestedField]:
        """The columns that are read."""
        read = self.scan.read
        return [read.state.schema.find_field(field_id) for field_id in read.columns]

    @cached_property
    def grouped(self) -> Sequence[NestedField]:
        """The columns whose values tell groups apart."""
        return [self.columns[place] for place in self.program.by]

    @cached_property
    def row_schema(self) -> spark_types.StructType:
        """The columns of its rows: a join knows those of groups by the names that they have in the table."""
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
    """The groups of a scan, in partitions.

    Args:
        groups: The scan.
    """

    def __init__(self, groups: AggregatedScan) -> None:
        super().__init__(groups.scan)
        self.groups = groups

    @property
    def identity(self) -> tuple[object, ...]:
        """That of its scan."""
        return self.groups.identity

    def planInputPartitions(self) -> JavaObject:
        """A partition for each group of tasks; one at least of one group, which is there also where no file is."""
        scan = self.scan
        tasks = list(map(tuple, task_groups(scan.tasks, scan.read.state.table, scan.settings, whole_files=False)))
        if not tasks and not self.groups.program.by:
            tasks = [()]
        partitions = (python_partition(number, pack(group)) for number, group in enumerate(tasks))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """What reads a partition on an executor."""
        scan = self.scan
        check_reads(scan.engine.spark, scan.read.state.table)
        context = scan.read.context(scan.plan)
        reader = RowTask(input=TaskInput(packed_context=pack(context)), program=self.groups.program)
        return reader_factory(reader, self.groups.row_schema)
