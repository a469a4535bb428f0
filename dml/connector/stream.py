"""Streaming reads of RowDelta tables as Spark runs them. Driver, classic Spark only.

Input: a table, the columns that a query reads, the options of its reader. Output: Spark's `MicroBatchStream`.
`dml.streaming` selects the snapshots and files of a batch; they are read like those of a batch scan.

Spark calls from the query's thread, one call after the other: `latestOffset`, then `planInputPartitions`. The first of
them reloads the table.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dml import catalog as catalogs
from dml.connector.state import TableState
from dml.engine.engine import Engine, StatementSettings
from dml.errors import ExecutionError, NotFoundError
from dml.model.scan_task import ScanContext
from dml.scan.planner import ScanPlan
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.names import STREAM_OFFSET
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.sessions import session_state
from dml.spark.bridge.values import (
    CONNECTOR,
    array,
    java_class,
    java_collection,
    java_error,
    simple_name,
    static_method,
)
from dml.spark.versions import Feature, require
from dml.spark.workers import check_reads
from dml.spark_scan.read import SparkRead
from dml.spark_scan.readers import PythonRead, Reader
from dml.spark_scan.running_query import running_plan
from dml.spark_scan.scan import SparkScan, SparkStatistics
from dml.spark_scan.workers import python_partition, reader_factory
from dml.streaming.files import SnapshotFileCache
from dml.streaming.offsets import NOTHING_READ, StreamOffset
from dml.streaming.source import StreamedTable, check_columns
from dml.streaming.source_options import ReadLimits, SourceOptions, fixed_state_error
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput, pack

__all__ = ["SparkMicroBatchStream", "StreamableScan"]

STREAMING: Final = "org.apache.spark.sql.connector.read.streaming."
READ_LIMIT: Final = STREAMING + "ReadLimit"
INITIAL_OFFSET: Final = "offsets/0"
"""The file in a source's checkpoint folder that records where the stream began, at the same path as Iceberg's JAR."""
MOST_FILES: Final = 2**31 - 1


class StreamableScan(SparkScan):
    """A scan of a table that Spark may also read as a stream.

    Args:
        engine: The session and its catalogs.
        state: The table.
        options: The reader's options.
        spark: The session.
        read: The read to plan.
        plan: Its scan tasks, if they are known.
    """

    def __init__(
        self,
        engine: Engine,
        state: TableState,
        options: Mapping[str, str],
        spark: SparkSession,
        read: SparkRead,
        plan: ScanPlan | None = None,
    ) -> None:
        super().__init__(spark, read, plan)
        self._engine = engine
        self._state = state
        self._options = options
        self._is_stream = False

    def toMicroBatchStream(self, checkpoint: str) -> "SparkMicroBatchStream":
        """Return the stream of rows appended from now on, or from the reader's start. Streams get no filters."""
        self._is_stream = True
        return SparkMicroBatchStream(self._engine, self._state, self.read, self.row_schema, self._options, checkpoint)

    def estimateStatistics(self) -> SparkStatistics:
        """Return the scan's statistics; those of a stream are unknown."""
        return SparkStatistics(None, None) if self._is_stream else super().estimateStatistics()

    @cached_property
    def reader(self) -> Reader:
        """The reader of the rows; Python workers read those of a stream."""
        return PythonRead(reason="the query is a stream") if self._is_stream else super().reader

    @cached_property
    def context(self) -> ScanContext:
        """The context that its tasks share; a stream's has no tasks."""
        return self.read.context(()) if self._is_stream else super().context


class SparkMicroBatchStream(Proxy):
    """The rows that are appended to a table.

    Args:
        engine: The session and its catalogs.
        state: The table when the query started.
        read: The read of the query's columns.
        row_schema: Spark's schema of the rows.
        options: The reader's options.
        checkpoint: The source's folder in the checkpoint of the query.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        STREAMING + "MicroBatchStream",
        STREAMING + "SupportsTriggerAvailableNow",
    )

    def __init__(
        self,
        engine: Engine,
        state: TableState,
        read: SparkRead,
        row_schema: StructType,
        options: Mapping[str, str],
        checkpoint: str,
    ) -> None:
        self.engine = engine
        self.state = state
        self.read = read
        self.row_schema = row_schema
        self.options = source_options(state, options)
        self.checkpoint = checkpoint
        self._files = SnapshotFileCache()
        self._table = state.table
        self._is_bounded = False
        self._last_id: int | None = None  # the last snapshot that a bounded stream reads

    def toString(self) -> str:
        """Return the name in query progress. The folder distinguishes two sources of one query."""
        return f"RowDelta {self.state.resolved.name} ({self.checkpoint})"

    def initialOffset(self) -> JavaObject:
        """Return where the stream begins. The first call records it, because the table changes later."""
        file = InitialOffsetFile(self.engine, self.checkpoint)
        written = file.read()
        if written is not None:
            return java_offset(StreamOffset.of_json(written))
        begin = self._reload().starting_offset()
        file.write(begin.json)
        return java_offset(begin)

    def deserializeOffset(self, text: str) -> JavaObject:
        """Parse an offset of a checkpoint."""
        return java_offset(StreamOffset.of_json(text))

    def latestOffset(self, *how: JavaObject) -> JavaObject | None:
        """Return the end of the next batch, given its start and read limit; None if there is nothing new."""
        if not how:
            raise java_error("java.lang.UnsupportedOperationException", "latestOffset needs a start and a limit")
        start, limit = how
        begin = python_offset(start)
        now = self._reload()
        last_id = self._last_id if self._is_bounded else now.head_id
        end = now.latest_offset(begin, limits_of(limit), last_id)
        return None if end == begin else java_offset(end)

    def reportLatestOffset(self) -> JavaObject | None:
        """Return the end of the newest snapshot, for query progress."""
        known = self._streamed_table()
        return java_offset(known.end_of_head())

    def getDefaultReadLimit(self) -> JavaObject:
        """Return the limit of one batch, for triggers that do not read everything available."""
        limits, parts = self.options.limits, []
        if limits.files is not None:
            parts.append(static_method(READ_LIMIT, "maxFiles")(min(limits.files, MOST_FILES)))
        if limits.rows is not None:
            parts.append(static_method(READ_LIMIT, "maxRows")(limits.rows))
        if limits.size is not None:
            parts.append(static_method(READ_LIMIT, "maxBytes")(limits.size))
        if not parts:
            return static_method(READ_LIMIT, "allAvailable")()
        return parts[0] if len(parts) == 1 else static_method(READ_LIMIT, "compositeLimit")(array(READ_LIMIT, parts))

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the stream at the snapshot that is the newest now."""
        self._last_id = self._reload().head_id
        self._is_bounded = True

    def planInputPartitions(self, start: JavaObject, end: JavaObject) -> JavaObject:
        """Plan the partitions of a batch; each carries everything that a worker needs."""
        begin, stop = python_offset(start), python_offset(end)
        known = self._streamed_table()
        if stop != NOTHING_READ and known.table.snapshot_by_id(stop.snapshot_id) is None:
            known = self._reload()  # a batch that was planned before the query was stopped
        read = Schema(*(field for field in self.state.schema.fields if field.field_id in self.read.columns))
        check_columns(known.name, read, known.table.schema())
        tasks = known.tasks(begin, stop)
        scan = replace(self.read, table=known.table)
        context = scan.context(tasks)
        groups = scan.groups(tasks, StatementSettings.of(self.engine).parallelism)
        partitions = (python_partition(number, pack((context, *group))) for number, group in enumerate(groups))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """Return the factory of the readers that executors run."""
        check_reads(self.engine.spark, self.state.table)
        self._check_output()
        return reader_factory(RowTask(input=TaskInput()), self.row_schema)

    def commit(self, end: JavaObject) -> None:
        """Do nothing: the table keeps its rows."""

    def stop(self) -> None:
        """Do nothing: no resource is open."""

    def _check_output(self) -> None:
        """Refuse metadata columns on Spark versions that do not request them: they would get values of other columns.

        Raises:
            NotSupportedError: The query names a metadata column.
        """
        plan = None if Feature.METADATA_IN_STREAMS in self.engine.runtime.features else running_plan(self.engine.spark)
        for leaf in () if plan is None else java_collection(plan.collectLeaves()):
            is_mine = (
                simple_name(leaf) == "StreamingDataSourceV2ScanRelation" and leaf.stream().toString() == self.toString()
            )
            if is_mine and leaf.output().length() > len(self.row_schema):
                require(Feature.METADATA_IN_STREAMS)

    def _streamed_table(self) -> StreamedTable:
        return StreamedTable(name=self.state.resolved.name, table=self._table, options=self.options, files=self._files)

    def _reload(self) -> StreamedTable:
        """Reload the table.

        Raises:
            NotFoundError: The table was dropped.
        """
        self._table = reload_table(self.state)
        return self._streamed_table()


def source_options(state: TableState, options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a reader, including the branch in the table's name.

    Raises:
        NotSupportedError: The options or the name select a fixed state of the table.
    """
    resolved = state.resolved
    if resolved.tag is not None:
        raise fixed_state_error(f"the tag '{resolved.tag}'")
    if resolved.snapshot_id is not None or resolved.timestamp_ms is not None:
        raise fixed_state_error("the end of the table's name")
    return SourceOptions.of(options, resolved.branch)


def reload_table(state: TableState) -> Table:
    """Reload the table of a running stream.

    Raises:
        NotFoundError: The table was dropped, or another table has its name.
    """
    resolved = state.resolved
    table = catalogs.load_table(resolved.catalog, resolved.identifier)
    if table.metadata.table_uuid != resolved.table.metadata.table_uuid:
        raise NotFoundError(
            f"The table {resolved.name} was dropped and created again while the stream read it",
            hint="Start the query again with a new 'checkpointLocation'",
        )
    return table


def java_offset(offset: StreamOffset) -> JavaObject:
    """Wrap an offset for Spark. Java's `Offset` is a class that Python cannot extend; this one holds any JSON."""
    return STREAM_OFFSET.new(offset.json)


def python_offset(offset: JavaObject) -> StreamOffset:
    """Parse an offset that Spark returns."""
    return StreamOffset.of_json(str(offset.json()))


def limits_of(limit: JavaObject) -> ReadLimits:
    """Convert Spark's read limit of a batch."""
    match simple_name(limit):
        case "ReadMaxFiles":
            return ReadLimits(files=int(limit.maxFiles()))
        case "ReadMaxRows":
            return ReadLimits(rows=int(limit.maxRows()))
        case "ReadMaxBytes":
            return ReadLimits(size=int(limit.maxBytes()))
        case "CompositeReadLimit":
            limits = ReadLimits()
            for part in limit.getReadLimits():
                limits = limits.combine(limits_of(part))
            return limits
        case _:  # ReadAllAvailable
            return ReadLimits()


class InitialOffsetFile:
    """The file in a checkpoint that records where a stream began, written through Spark's Hadoop file system.

    Args:
        engine: The session.
        checkpoint: The source's folder.
    """

    def __init__(self, engine: Engine, checkpoint: str) -> None:
        paths: Any = java_class("org.apache.hadoop.fs.Path")
        self._path = paths(f"{checkpoint}/{INITIAL_OFFSET}")
        self._unfinished = paths(f"{checkpoint}/offsets/.0.unfinished")
        self._files = self._path.getFileSystem(session_state(engine.spark).newHadoopConf())

    def read(self) -> str | None:
        """Return the file's text, or None if there is no file."""
        if not self._files.exists(self._path):
            return None
        stream = self._files.open(self._path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, text: str) -> None:
        """Write the file atomically."""
        stream = self._files.create(self._unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._files.rename(self._unfinished, self._path):
            raise ExecutionError(
                f"The file '{self._path}' of the checkpoint cannot be written",
                hint="Give each query its own 'checkpointLocation', with write access",
            )
