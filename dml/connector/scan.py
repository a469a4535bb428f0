"""Scans of our tables as Spark plans them. Driver, classic Spark only.

Input: a table in one state, the columns and rows that Spark can need. Output: Spark's `Batch`: one partition for each
group of scan tasks, read by the reader of `dml.read` in Python workers or by Spark's own (`dml.connector.vectorized`),
and what Spark should know of its size.

Spark asks its whole filter again of the rows that it gets, but where the files that are left hold no other rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from py4j.java_gateway import JavaObject
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.types import NestedField
from pyspark.sql.types import StructType

from dml.connector.conditions import pushed_down
from dml.connector.java import CONNECTOR, array, constant, java_class, optional_long, static, struct_type
from dml.connector.proxies import Proxy
from dml.connector.state import TableState
from dml.connector.stream import SparkMicroBatchStream
from dml.connector.vectorized import VectorizedRead, vectorized_read
from dml.connector.workers import python_partition, reader_factory
from dml.engine.engine import Engine, StatementSettings
from dml.engine.scans import task_groups
from dml.model.scan_task import ScanContext, ScanTask
from dml.pruning.filter_text import filter_text
from dml.scan.planner import ScanPlan, plan_scan
from dml.scan.size import scan_size
from dml.scan.source import scan_context, spark_schema
from dml.spark.shared_files import check_files, check_reads
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput, pack

__all__ = ["PlannedScan", "ScanRead", "SparkScan", "references"]

FILTER_PREDICATE = CONNECTOR + "expressions.filter.Predicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRead:
    """What a scan reads of a table.

    Attributes:
        state: The table, in one state.
        columns: Ids of the columns.
        metadata_columns: Names of metadata columns, after them.
        row_filter: Rows for which it is not true may be left out.
    """

    state: TableState
    columns: tuple[int, ...]
    metadata_columns: tuple[str, ...] = ()
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)

    @staticmethod
    def whole(state: TableState) -> "ScanRead":
        """A read of all columns and rows."""
        return ScanRead(state=state, columns=tuple(field.field_id for field in state.schema.fields))

    @property
    def identity(self) -> tuple[object, ...]:
        """What two scans of the same rows have in common."""
        return (*self.state.version, self.columns, self.metadata_columns, repr(self.row_filter))

    def plan(self, *, find_whole_files: bool = False, keep_metrics: bool = False) -> ScanPlan:
        """Its tasks.

        Args:
            find_whole_files: Find out whether the filter is true for every row of the files that it meets.
            keep_metrics: Whether the entries of the data files are wanted too.
        """
        state = self.state
        if state.snapshot_id is None:
            return ScanPlan(snapshot_id=None)
        return plan_scan(
            state.table,
            state.snapshot_id,
            self.row_filter,
            case_sensitive=True,  # names in the filter are those of the schema
            schema=state.schema,
            find_whole_files=find_whole_files,
            keep_metrics=keep_metrics,
        )

    def context(self, plan: ScanPlan) -> ScanContext:
        """What its tasks share."""
        return scan_context(
            self.state.table,
            plan.tasks,
            self.columns,
            metadata_columns=self.metadata_columns,
            row_filter=None if plan.covers_whole_files or isinstance(self.row_filter, AlwaysTrue) else self.row_filter,
            case_sensitive=True,
            schema=self.state.schema,
        )


class SparkScan(Proxy):
    """Rows and columns of a table in one state.

    Args:
        engine: The session and its catalogs.
        read: What is read.
        plan: Its tasks, where they are known.
        settings: Those of the statement; None for the session's as they are when Spark plans.
        options: Those of the reader.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.Scan",
        "read.SupportsReportStatistics",
        "read.SupportsRuntimeV2Filtering",
    )

    def __init__(
        self,
        engine: Engine,
        read: ScanRead,
        plan: ScanPlan | None = None,
        settings: StatementSettings | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.engine = engine
        self.read = read
        self.options = options or {}
        self._is_stream = False
        self._known_plan = plan
        self._known_settings = settings
        self._narrowed: tuple[ScanTask, ...] | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What two scans of the same rows have in common; what a join leaves out is none of it."""
        return self.read.identity

    def description(self) -> str:
        """What EXPLAIN shows."""
        read = self.read
        shown = "" if isinstance(read.row_filter, AlwaysTrue) else f", filter {filter_text(read.row_filter)}"
        return f"RowDelta {read.state.resolved.name} (snapshot {read.state.snapshot_id}{shown})"

    def readSchema(self) -> JavaObject:
        """The columns of its rows."""
        return self._java_schema

    def toBatch(self) -> "SparkBatch":
        """Its rows."""
        return SparkBatch(self)

    def toMicroBatchStream(self, checkpoint: str) -> SparkMicroBatchStream:
        """The rows that are appended from now on, or from where the reader says. Spark pushes no filters to streams."""
        self._is_stream = True
        read = self.read
        return SparkMicroBatchStream(
            self.engine, read.state, read.columns, read.metadata_columns, self.row_schema, self.options, checkpoint
        )

    def estimateStatistics(self) -> "SparkStatistics":
        """Rows and bytes: of the files that are left, and of the columns that are read; unknown of a stream."""
        if self._is_stream:
            return SparkStatistics(None, None)
        read = self.read
        found = scan_size(
            self.plan.tasks,
            self.row_schema,
            columns=len(read.state.schema.fields),
            columns_read=len(read.columns),
        )
        return SparkStatistics(found.rows, found.size)

    def filterAttributes(self) -> JavaObject:
        """The columns whose values in the other side of a join say which files to read: those of partition fields."""
        return references(known.name for known in self.partition_sources)

    @property
    def partition_sources(self) -> Sequence[NestedField]:
        """The columns that it reads and of which partition fields are made."""
        state = self.read.state
        sources = {part.source_id for spec in state.table.specs().values() for part in spec.fields}
        return [known for known in state.schema.fields if known.field_id in sources & set(self.read.columns)]

    def filter(self, predicates: Sequence[JavaObject]) -> None:
        """Leave out files of which the other side of a join wants no row."""
        settings = self.settings
        wanted = pushed_down(
            predicates, self.read.state.schema, time_zone=settings.time_zone, catalogs=self.engine.registry.catalogs
        )
        narrower = replace(self.read, row_filter=And(self.read.row_filter, wanted.pruning))
        left = {task.path for task in narrower.plan().tasks}
        self._narrowed = tuple(task for task in self.tasks if task.path in left)

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
        """Rows, but where Spark's own reader says that it gives batches of columns."""
        mode = "UNSUPPORTED" if self.vectorized is None else "PARTITION_DEFINED"
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", mode)

    @property
    def tasks(self) -> tuple[ScanTask, ...]:
        """The files that are read."""
        return self.plan.tasks if self._narrowed is None else self._narrowed

    @cached_property
    def plan(self) -> ScanPlan:
        """Its tasks, also those that a join leaves out."""
        return self._known_plan or self.read.plan()

    @cached_property
    def vectorized(self) -> VectorizedRead | None:
        """How Spark's own reader reads its files; None where ours does."""
        read = self.read
        if self._is_stream or read.metadata_columns:
            return None
        context = read.context(self.plan)
        return vectorized_read(
            self.engine.spark,
            read.state.table,
            read.state.schema,
            read.columns,
            self.plan.tasks,
            context.row_filter,
            case_sensitive=context.case_sensitive,
        )

    @cached_property
    def context(self) -> ScanContext:
        """What its tasks share; those of a stream are not known here."""
        if self._is_stream:
            return self.read.context(ScanPlan(snapshot_id=None))
        read = self.read if self.vectorized is None else replace(self.read, columns=self.vectorized.order)
        return read.context(self.plan)

    @cached_property
    def row_schema(self) -> StructType:
        """The columns of its rows."""
        return spark_schema(self.context)

    @cached_property
    def settings(self) -> StatementSettings:
        """The settings that it is planned with."""
        return self._known_settings or StatementSettings.of(self.engine.spark)

    @cached_property
    def _java_schema(self) -> JavaObject:
        return struct_type(self.row_schema)


class PlannedScan(SparkScan):
    """A scan whose tasks stay as they are, whatever Spark needs of them; built by itself."""

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.SupportsPushDownRequiredColumns",
        "read.Scan",
        "read.SupportsReportStatistics",
    )

    def pruneColumns(self, wanted: JavaObject) -> None:
        """None: it reads what its query needs; from now on Spark looks for the columns by their names."""

    def build(self) -> "PlannedScan":
        """Itself."""
        return self


def references(names: Iterable[str]) -> JavaObject:
    """Names of columns, as Spark has them."""
    column = static(CONNECTOR + "expressions.FieldReference", "column")
    return array(CONNECTOR + "expressions.NamedReference", map(column, names))


class SparkBatch(Proxy):
    """The rows of a scan, in partitions.

    Args:
        scan: The scan.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Batch",)

    def __init__(self, scan: SparkScan) -> None:
        self.scan = scan

    @property
    def identity(self) -> tuple[object, ...]:
        """That of its scan."""
        return self.scan.identity

    def planInputPartitions(self) -> JavaObject:
        """A partition for each group of tasks."""
        scan = self.scan
        groups = task_groups(scan.tasks, scan.read.state.table, scan.settings, whole_files=False)
        if scan.vectorized is not None:
            return scan.vectorized.partitions(groups, scan.read.state.schema)
        partitions = (python_partition(number, pack(tuple(group))) for number, group in enumerate(groups))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """What reads a partition on an executor."""
        scan = self.scan
        if scan.vectorized is not None:
            check_files(scan.engine.spark, scan.read.state.table)
            return scan.vectorized.factory(scan.engine.spark, scan.row_schema)
        check_reads(scan.engine.spark, scan.read.state.table)
        return reader_factory(RowTask(input=TaskInput(packed_context=pack(scan.context))), scan.row_schema)


class SparkStatistics(Proxy):
    """How much a scan gives.

    Args:
        rows: How many rows; None where that is not known.
        size: Bytes, likewise.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Statistics",)

    def __init__(self, rows: int | None, size: int | None) -> None:
        self.rows = rows
        self.size = size

    def numRows(self) -> JavaObject:
        """Rows."""
        return optional_long(self.rows)

    def sizeInBytes(self) -> JavaObject:
        """Bytes."""
        return optional_long(self.size)

    def columnStats(self) -> JavaObject:
        """Nothing of single columns."""
        return java_class("java.util.HashMap")()
