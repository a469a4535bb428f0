"""Table scans that Spark plans (`Scan` and `Batch` of DataSource V2). Driver, classic Spark only.

Input: a table in one state, the columns and rows that Spark may need. Output: Spark's `Batch`: one partition for each
group of scan tasks, read by the reader of `dml.read` in Python workers or by Spark's own (`dml.spark_scan.vectorized`),
and statistics of its size and, for Spark's cost-based optimizer, of its columns.

Spark applies its whole filter again to these rows, unless the remaining files hold no others.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from pyiceberg.expressions import And
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, NestedField, StringType
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dml.commit import ancestors
from dml.model.scan_task import ScanContext, ScanTask
from dml.scan.planner import ScanPlan
from dml.scan.split import MIN_PARALLEL_QUERY_BYTES
from dml.scan.table_scan import Scan, spark_schema
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import CONNECTOR, array, constant, java_class, optional_long, static_method, struct_type
from dml.spark.workers import check_files, check_reads
from dml.spark_scan.conditions import pushed_down
from dml.spark_scan.read import SparkRead
from dml.spark_scan.readers import Reader, ReaderCapabilities, choose_reader, reader_text
from dml.spark_scan.vectorized import VectorizedRead
from dml.spark_scan.workers import python_partition, reader_factory
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput, pack

__all__ = ["FILTER_PREDICATE", "SparkBatch", "SparkScan", "SparkStatistics", "references"]

COUNT = re.compile("[0-9]{1,18}")
"""A number of distinct values in metadata of any program, which fits Java's long."""

FILTER_PREDICATE = CONNECTOR + "expressions.filter.Predicate"


class SparkScan(Proxy):
    """Rows and columns of a table in one state.

    Args:
        spark: The session.
        read: The read to plan.
        plan: Its scan tasks, if they are known.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.Scan",
        "read.SupportsReportStatistics",
        "read.SupportsRuntimeV2Filtering",
    )

    def __init__(self, spark: SparkSession, read: SparkRead, plan: ScanPlan | None = None) -> None:
        self.spark = spark
        self.read = read
        self._known_plan = plan
        self._narrowed: tuple[ScanTask, ...] | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that is equal for scans of the same rows; pruning by a join does not change it."""
        return self.read.identity

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        return f"{self.read.description(self.plan)}, {reader_text(self.reader)}"

    def readSchema(self) -> JavaObject:
        """Return the schema of the rows."""
        return self._java_schema

    def toBatch(self) -> "SparkBatch":
        """Return the batch of the rows."""
        return SparkBatch(self)

    def estimateStatistics(self) -> "SparkStatistics":
        """Estimate rows and bytes of the remaining files and the projected columns."""
        found = self.read.size(self.plan.tasks, self.row_schema)
        if self.spark.conf.get("spark.sql.cbo.enabled") != "true":
            return SparkStatistics(found.rows, found.size)
        read = self.read
        counts = distinct_counts(read.table.metadata, read.snapshot_id)
        columns = {
            known.name: SparkColumnStatistics(min(counts[known.field_id], found.rows), known_nulls(known))
            for known in read.schema.fields
            if known.field_id in read.columns and known.field_id in counts
        }
        return SparkStatistics(found.rows, found.size, columns)

    def filterAttributes(self) -> JavaObject:
        """Return the source columns of partition fields. Their values on the other side of a join can prune files."""
        return references(known.name for known in self.partition_sources)

    @property
    def partition_sources(self) -> Sequence[NestedField]:
        """The projected columns that are sources of partition fields."""
        sources = {part.source_id for spec in self.read.table.specs().values() for part in spec.fields}
        return [known for known in self.read.schema.fields if known.field_id in sources & set(self.read.columns)]

    def filter(self, predicates: Sequence[JavaObject]) -> None:
        """Prune files by the values on the other side of a join."""
        wanted = pushed_down(predicates, self.read.schema, self.read.rules)
        narrower = replace(self.read, row_filter=And(self.read.row_filter, wanted.pruning))
        left = {task.path for task in narrower.plan().tasks}
        self._narrowed = tuple(task for task in self.tasks if task.path in left)

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
        """Report rows, or columnar batches if Spark's own reader supports the scan."""
        mode = "UNSUPPORTED" if self.vectorized is None else "PARTITION_DEFINED"
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", mode)

    @property
    def tasks(self) -> tuple[ScanTask, ...]:
        """The scan tasks that remain after pruning."""
        return self.plan.tasks if self._narrowed is None else self._narrowed

    @cached_property
    def plan(self) -> ScanPlan:
        """The plan, including the tasks that a join prunes."""
        return self._known_plan or self.read.plan()

    @cached_property
    def reader(self) -> Reader:
        """The reader of the rows."""
        return choose_reader(self.read, self.plan, ReaderCapabilities.of(self.spark))

    @property
    def vectorized(self) -> VectorizedRead | None:
        """The settings of Spark's own reader; None if RowDelta's reader is used."""
        return self.reader if isinstance(self.reader, VectorizedRead) else None

    @cached_property
    def context(self) -> ScanContext:
        """The context that its tasks share."""
        read = self.read if self.vectorized is None else replace(self.read, columns=self.vectorized.order)
        return Scan(read=read, plan=self.plan).context

    @cached_property
    def row_schema(self) -> StructType:
        """The columns of its rows."""
        return spark_schema(self.context)

    @cached_property
    def _java_schema(self) -> JavaObject:
        return struct_type(self.row_schema)


def references(names: Iterable[str]) -> JavaObject:
    """Convert column names to Spark's references."""
    column = static_method(CONNECTOR + "expressions.FieldReference", "column")
    return array(CONNECTOR + "expressions.NamedReference", map(column, names))


class SparkBatch(Proxy):
    """The batch of a scan.

    Args:
        scan: The scan.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Batch",)

    def __init__(self, scan: SparkScan) -> None:
        self.scan = scan

    @property
    def identity(self) -> tuple[object, ...]:
        """The key of its scan."""
        return self.scan.identity

    def planInputPartitions(self) -> JavaObject:
        """Return a partition for each task group."""
        scan = self.scan
        groups = scan.read.groups(scan.tasks, scan.read.parallelism, MIN_PARALLEL_QUERY_BYTES)
        if scan.vectorized is not None:
            return scan.vectorized.partitions(groups, scan.read.schema)
        partitions = (python_partition(number, pack(tuple(group))) for number, group in enumerate(groups))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """Return the factory of the readers that executors run."""
        scan = self.scan
        if scan.vectorized is not None:
            check_files(scan.spark, scan.read.table)
            return scan.vectorized.factory(scan.spark, scan.row_schema)
        check_reads(scan.spark, scan.read.table)
        return reader_factory(RowTask(input=TaskInput(packed_context=pack(scan.context))), scan.row_schema)


class SparkStatistics(Proxy):
    """The estimated size of a scan.

    Args:
        rows: Rows; None if unknown.
        size: Bytes; None if unknown.
        columns: The statistics of columns by name.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Statistics",)

    def __init__(
        self, rows: int | None, size: int | None, columns: "Mapping[str, SparkColumnStatistics] | None" = None
    ) -> None:
        self.rows = rows
        self.size = size
        self.columns = columns or {}

    def numRows(self) -> JavaObject:
        """Return the number of rows."""
        return optional_long(self.rows)

    def sizeInBytes(self) -> JavaObject:
        """Return the number of bytes."""
        return optional_long(self.size)

    def columnStats(self) -> JavaObject:
        """Return the statistics of columns by Spark's references to them."""
        column = static_method(CONNECTOR + "expressions.FieldReference", "column")
        found = java_class("java.util.HashMap")()
        for name, one in self.columns.items():
            found.put(column(name), one)
        return found


class SparkColumnStatistics(Proxy):
    """The statistics of a column.

    Args:
        distinct: The number of distinct values.
        nulls: The number of NULLs; None if unknown.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("org.apache.spark.sql.connector.read.colstats.ColumnStatistics",)

    def __init__(self, distinct: int, nulls: int | None) -> None:
        self.distinct = distinct
        self.nulls = nulls

    def distinctCount(self) -> JavaObject:
        """Return the number of distinct values."""
        return optional_long(self.distinct)

    def nullCount(self) -> JavaObject:
        """Return the number of NULLs."""
        return optional_long(self.nulls)


def known_nulls(field: NestedField) -> int | None:
    """Return the number of NULLs in a column to tell Spark; None if it is unknown.

    Spark estimates joins and groups only by columns whose NULLs are counted. It takes a counted column without minimum
    and maximum for one of NULLs alone, so that a join has no rows, unless its type is a string or binary
    (`ValueInterval`). Scan tasks have neither counts nor bounds.
    """
    return 0 if field.required and isinstance(field.field_type, StringType | BinaryType) else None


def distinct_counts(metadata: TableMetadata, snapshot_id: int | None) -> dict[int, int]:
    """Return the numbers of distinct values by column, from the statistics of a snapshot or its nearest ancestor.

    Source: Iceberg specification, "Table Statistics"; Puffin specification, "apache-datasketches-theta-v1 blob type".
    """
    files = {file.snapshot_id: file for file in metadata.statistics}
    if not files:
        return {}
    found = next((files[one.snapshot_id] for one in ancestors(metadata, snapshot_id) if one.snapshot_id in files), None)
    counts = {}
    for blob in () if found is None else found.blob_metadata:
        text = (blob.properties or {}).get("ndv", "")
        if blob.type == "apache-datasketches-theta-v1" and len(blob.fields) == 1 and COUNT.fullmatch(text):
            counts[blob.fields[0]] = int(text)
    return counts
