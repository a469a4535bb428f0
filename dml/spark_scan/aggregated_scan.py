"""Scans with partial aggregation in tasks, which Spark completes. Driver, classic Spark only.

Input: a `GroupedRead` of all rows of some files. Output: a scan whose tasks return a row for each group in their files.
Spark combines these rows, for example `Min` of `Min`s and `Sum` of `Count`s. Results equal Spark's to the bit, except
for floating-point sums, whose last digits depend on the order of rows in Spark too.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Final

from pyiceberg.types import NestedField
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from dml.scan.planner import ScanPlan
from dml.scan.split import MIN_PARALLEL_QUERY_BYTES
from dml.scan.table_scan import Scan
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import CONNECTOR, array, constant, struct_type
from dml.spark.types import spark_type
from dml.spark.workers import check_reads
from dml.spark_scan.read import SparkRead
from dml.spark_scan.readers import GroupedRead, reader_text
from dml.spark_scan.scan import FILTER_PREDICATE, SparkBatch, SparkScan, SparkStatistics, references
from dml.spark_scan.workers import python_partition, reader_factory
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput, pack

__all__ = ["AggregatedScan"]

ROW_BYTES: Final = 100
"""Estimated bytes of a row of aggregates."""


class AggregatedScan(Proxy):
    """A scan that returns partial aggregates.

    Args:
        spark: The session.
        read: The read that Spark aggregates.
        plan: Its scan tasks.
        reader: The columns to read and the program of the tasks.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.Scan",
        "read.SupportsReportStatistics",
        "read.SupportsRuntimeV2Filtering",
    )

    def __init__(self, spark: SparkSession, read: SparkRead, plan: ScanPlan | None, reader: GroupedRead) -> None:
        self.scan = SparkScan(spark, replace(read, columns=reader.columns, metadata_columns=()), plan)
        self.reader = reader
        self.program = reader.program

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that is equal for scans of the same groups."""
        return (*self.scan.identity, self.program)

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        groups = ", ".join(column.name for column in self.grouped)
        values = ", ".join(call.text for call in self.reader.calls)
        computed = f"{values or 'groups'}{' by ' + groups if groups else ''} in each task"
        return f"{self.scan.read.description(self.scan.plan)}: {computed}, {reader_text(self.reader)}"

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
            spark_types.StructField(f"value{number}", call.value_type) for number, call in enumerate(self.reader.calls)
        ]
        return spark_types.StructType(fields)

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
        tasks = list(scan.read.groups(scan.tasks, scan.read.parallelism, MIN_PARALLEL_QUERY_BYTES))
        if not tasks and not self.groups.program.by:
            tasks = [()]
        partitions = (python_partition(number, pack(group)) for number, group in enumerate(tasks))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """Return the factory of the readers that executors run."""
        scan = self.scan
        check_reads(scan.spark, scan.read.table)
        context = Scan(read=scan.read, plan=scan.plan).context
        task = RowTask(input=TaskInput(packed_context=pack(context)), program=self.groups.program)
        return reader_factory(task, self.groups.row_schema)
