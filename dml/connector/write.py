"""Writes of DataFrames and streams to RowDelta tables. Driver, classic Spark only.

Input: the table as Spark loaded it for the write, the write's columns, options and condition. Output: Spark's `Write`,
which appends rows, or replaces all rows, those of a condition, or those of the partitions of the new rows.

The rows arrive as a DataFrame (Spark's `V1Write`) with the columns and types of the table, or with their own if the
table accepts any schema. They are written and committed like those of an INSERT. Spark has no such path for dynamic
overwrites and for streams: there, tasks of Spark's own jobs run RowDelta's writer as the write function of a Python
data source (`WriterJob`), and the commit is that of an INSERT OVERWRITE or of a micro-batch. Spark creates one write
per micro-batch, so `dml.streaming.sink` plans each on the table's current state.

Spark distributes the rows of such a job, by columns only. If partition values follow the order of their source columns,
range distribution by these columns brings the rows of a partition to one task or to neighbors. Spark cannot compute
Iceberg's bucket of a value: each task may get rows of every bucket, and keeps a file open for each.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.catalog import LoadState
from dml.catalog.registry import ResolvedTable
from dml.connector.state import column_path
from dml.engine.distribution import distribution_mode, orders_rows
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import (
    InsertOptions,
    RowsWrite,
    commit_rows,
    insert_options,
    plan_rows_write,
    rows_by_name,
    write_rows,
)
from dml.engine.replaced_rows import Replaced
from dml.engine.schema_evolution import Fitted, accepts_any_schema, fit_rows, overwrite_target_schema
from dml.engine.target import Target, write_target
from dml.engine.writes import WriteOutcome, collect_outcome, delete_uncommitted
from dml.errors import ErrorKind, ExecutionError, NotSupportedError
from dml.model.columns import value_name
from dml.model.write_task import report_from_bytes
from dml.options import ADVISORY_PARTITION_SIZE, DistributionMode, integer
from dml.result import Result
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.sessions import analyzed_plan
from dml.spark.bridge.values import CONNECTOR, array, constant, java_class, options_of, python_schema, simple_name
from dml.spark.jobs import await_tasks, new_tag, tag_jobs
from dml.spark.versions import INSTALLED_FEATURES, Feature
from dml.spark.workers import check_writes
from dml.spark_scan.conditions import pushed_down
from dml.spark_scan.running_query import running_plan
from dml.spark_scan.workers import stream_writer_factory, writer_factory
from dml.sqlparse.quoting import quote_name
from dml.streaming.columns import stream_columns
from dml.streaming.sink import StreamSink, commit_epoch, continuous_mode_error, plan_epoch, stream_options
from dml.write.delta_writer import StreamRows, WriteTask

__all__ = ["OVERWRITE_PARTITIONS_OPTION", "SparkWriteBuilder", "WrittenTable", "writer_options"]

EXPRESSIONS: Final = CONNECTOR + "expressions."
CURRENT_SNAPSHOT: Final = "current-snapshot-id"
"""The property with the snapshot at which a table was loaded; before Spark 4.1 tables have no version."""


class DistributedWrite(Proxy):
    """A write whose rows Spark distributes and orders: a micro-batch, or rows that replace their partitions.

    Args:
        write: The write, planned with `keep_files_open`.
        function: The function of each task: `StreamRows` if the columns are not in the table's order yet.
        schema: The columns of the rows.
        tasks: The maximum number of tasks if rows are distributed; 0 lets Spark choose.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.RequiresDistributionAndOrdering",)

    def __init__(self, write: RowsWrite, function: WriteTask | StreamRows, schema: JavaObject, tasks: int = 0) -> None:
        self._write = write
        self._function = function
        self._schema = schema
        self._tasks = tasks
        self._left_out = function.missing_ids(write.target.table) if isinstance(function, StreamRows) else frozenset()

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        replaced = self._write.replaced
        mode = " (dynamic)" if replaced is not None and replaced.row_filter is None else ""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}{mode}"

    def toBatch(self) -> "SparkBatchWrite":
        """Return the job of a DataFrame's write."""
        write = mark_self_read(self._write, running_plan(self._write.engine.spark))
        return SparkBatchWrite(write, self._function, self._schema)

    def toStreaming(self) -> "SparkStreamingWrite":
        """Return the job of a micro-batch."""
        return SparkStreamingWrite(self._write, self._function, self._schema)

    def toString(self) -> str:
        """Return the description."""
        return self.description()

    def requiredDistribution(self) -> JavaObject:
        """Return how Spark distributes the rows to tasks."""
        distributions, distribution = java_class(CONNECTOR + "distributions.Distributions"), self._distribution_terms()
        if distribution is None:
            return distributions.unspecified()
        is_ordered, terms = distribution
        if is_ordered:
            return distributions.ordered(array(EXPRESSIONS + "SortOrder", terms))
        return distributions.clustered(array(EXPRESSIONS + "Expression", terms))

    def distributionStrictlyRequired(self) -> bool:
        """Return False: Spark may coalesce small partitions and split large ones."""
        return False

    def requiredNumPartitions(self) -> int:
        """Return the number of tasks, or 0 if rows are not distributed: Spark rejects a number without distribution."""
        return self._tasks if self._tasks and self._distribution_terms() is not None else 0

    def advisoryPartitionSizeInBytes(self) -> int:
        """Return the table's advisory size if Spark chooses the number of tasks; 0 for Spark's default."""
        properties = self._write.context.properties
        chosen = ADVISORY_PARTITION_SIZE in properties and not self._tasks and self._distribution_terms() is not None
        return integer(properties, ADVISORY_PARTITION_SIZE, 0, minimum=1) if chosen else 0

    def requiredOrdering(self) -> JavaObject:
        """Return the sort order of the rows within a task."""
        columns = [] if self._write.context.options.fanout is not False else self._partition_columns()
        order = self._table_order() if orders_rows(self._write.target.table) else ()
        return array(EXPRESSIONS + "SortOrder", [*map(ascending, columns), *order])

    def _distribution_terms(self) -> tuple[bool, list[JavaObject]] | None:
        """Return whether rows are range-distributed, and by which terms; None if they are not distributed."""
        table, columns = self._write.target.table, self._partition_columns()
        match distribution_mode(table, self._write.context.properties):
            case DistributionMode.HASH if (
                columns and preserves_column_order(table) and not has_only_identity_transforms(table)
            ):
                return True, list(map(ascending, columns))
            case DistributionMode.HASH if columns:
                return False, columns
            case DistributionMode.RANGE if columns or orders_rows(table):
                order = [*map(ascending, columns), *self._table_order()]
                return (True, order) if order else None
            case _:
                return None

    def _partition_columns(self) -> list[JavaObject]:
        """Return the distinct source columns of the partition fields; if any transforms preserve order, only theirs."""
        table = self._write.target.table
        fields = [field for field in partition_fields(table) if self._has_column(field.source_id)]
        chosen = [field for field in fields if field.transform.preserves_order] or fields
        ids = dict.fromkeys(field.source_id for field in chosen)
        return [column_reference(table, source_id) for source_id in ids]

    def _table_order(self) -> Iterator[JavaObject]:
        """Yield the fields of the table's sort order whose source columns the rows have."""
        table = self._write.target.table
        fields: Sequence[SortField] = table.sort_order().fields
        for field in fields:
            if self._has_column(field.source_id):
                yield sort_field(
                    column_reference(table, field.source_id),
                    ascends=field.direction == SortDirection.ASC,
                    nulls_first=field.null_order == NullOrder.NULLS_FIRST,
                )

    def _has_column(self, field_id: int) -> bool:
        """Return True if the rows have a column, or the column that contains a nested field."""
        path = column_path(self._write.target.table.schema(), field_id)
        assert path is not None
        return self._write.target.table.schema().find_field(path[0]).field_id not in self._left_out


class WriterJob(Proxy):
    """One Spark job that runs a writer. It returns what the tasks wrote, or deletes it.

    Args:
        write: The write, planned.
        function: The function of each task.
        schema: The columns of the rows.
    """

    def __init__(self, write: RowsWrite, function: WriteTask | StreamRows, schema: JavaObject) -> None:
        self._write = write
        self._function = function
        self._schema = schema
        self._tag = new_tag()
        self._job = ExitStack()
        self._commits = False

    def toString(self) -> str:
        """Return the text in Spark's log."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def useCommitCoordinator(self) -> bool:
        """Return True: only one attempt of each task may commit."""
        return True

    def _begin(self, make_factory: Callable[[WriteTask | StreamRows, JavaObject], JavaObject]) -> JavaObject:
        """Return the factory of task writers, and tag the job, which starts after this call.

        Raises:
            SetupError: The workers run a Python without this package.
        """
        factory, spark = make_factory(self._function, self._schema), self._write.engine.spark
        check_writes(spark, self._write.target.table, self._write.context)
        self._job.enter_context(tag_jobs(spark, self._tag, interrupts=False))
        return factory

    def _collect_reports(self, messages: Sequence[JavaObject]) -> WriteOutcome:
        """Combine the reports of the tasks. From here on the commit owns the files, even if it fails.

        Args:
            messages: The message of each task.

        Raises:
            DmlError: The first failure that a task reported; the files of all tasks are deleted.
        """
        self._job.close()
        self._commits = True
        reports = [report_from_bytes(bytes(message.pickledMessage())) for message in messages]
        return collect_outcome(reports, self._write.target.table, self._write.task.spec)

    def _abort(self) -> None:
        """Wait for the tasks to end, then delete what they wrote."""
        self._job.close()
        if not self._commits:
            await_tasks(self._write.engine.spark.sparkContext, self._tag)
            delete_uncommitted(self._write.target.table, self._write.context)


class SparkBatchWrite(WriterJob):
    """The job of a DataFrame's write."""

    interfaces: ClassVar[tuple[str, ...]] = ("write.BatchWrite",)

    def createBatchWriterFactory(self, _: JavaObject) -> JavaObject:
        """Return the factory of task writers. The job starts after this call."""
        return self._begin(writer_factory)

    def onDataWriterCommit(self, message: JavaObject) -> None:
        """Do nothing: `commit` receives the messages of all tasks."""

    def commit(self, messages: Sequence[JavaObject], *_: JavaObject) -> None:
        """Commit what the tasks wrote."""
        commit_rows(self._write, self._collect_reports(messages))

    def abort(self, _: Sequence[JavaObject | None]) -> None:
        """Wait for the tasks to end, then delete what they wrote."""
        self._abort()


class SparkStreamingWrite(WriterJob):
    """The job of a micro-batch."""

    interfaces: ClassVar[tuple[str, ...]] = ("org.apache.spark.sql.connector.write.streaming.StreamingWrite",)

    def createStreamingWriterFactory(self, _: JavaObject) -> JavaObject:
        """Return the factory of task writers. The job starts after this call."""
        return self._begin(stream_writer_factory)

    def commit(self, _: int, messages: Sequence[JavaObject]) -> None:
        """Commit what the tasks wrote, unless the table has the micro-batch already."""
        commit_epoch(self._write, self._collect_reports(messages))

    def abort(self, _: int, __: Sequence[JavaObject | None]) -> None:
        """Wait for the tasks to end, then delete what they wrote."""
        self._abort()


def keep_files_open(options: InsertOptions, table: Table) -> InsertOptions:
    """Add `fanout-enabled` to write options if Spark cannot bring the rows of a partition together.

    A single open file is enough only if column order keeps the rows of a partition adjacent and no other order is
    required.
    """
    if has_only_identity_transforms(table) or (
        preserves_column_order(table) and is_clustered_by_columns(table) and not orders_rows(table)
    ):
        return options
    return replace(options, write={**options.write, "fanout-enabled": "true"})


def partition_fields(table: Table) -> Iterator[PartitionField]:
    """Return the fields of the partition spec, without void transforms."""
    return (field for field in table.spec().fields if not isinstance(field.transform, VoidTransform))


def has_only_identity_transforms(table: Table) -> bool:
    """Return True if all partition fields are identity transforms."""
    return all(isinstance(field.transform, IdentityTransform) for field in partition_fields(table))


def preserves_column_order(table: Table) -> bool:
    """Return True if partitions are ordered whenever their source columns are."""
    return all(field.transform.preserves_order for field in partition_fields(table))


def is_clustered_by_columns(table: Table) -> bool:
    """Return True if rows in column order are clustered by partition.

    Rows partitioned by `(days(ts), k)` are not: within a day each `k` recurs for every value of `ts`.
    """
    ids = list(dict.fromkeys(field.source_id for field in partition_fields(table)))
    whole = {field.source_id for field in partition_fields(table) if isinstance(field.transform, IdentityTransform)}
    return all(source_id in whole for source_id in ids[:-1])


def column_reference(table: Table, field_id: int) -> JavaObject:
    """Return Spark's reference to a column or to a nested field."""
    path = column_path(table.schema(), field_id)
    assert path is not None
    return java_class(EXPRESSIONS + "Expressions").column(quote_name(path))


def ascending(column: JavaObject) -> JavaObject:
    """Sort ascending, NULLS FIRST."""
    return sort_field(column, ascends=True, nulls_first=True)


def sort_field(column: JavaObject, *, ascends: bool, nulls_first: bool) -> JavaObject:
    """Return one field of a Spark sort order."""
    direction = constant(EXPRESSIONS + "SortDirection", "ASCENDING" if ascends else "DESCENDING")
    nulls = constant(EXPRESSIONS + "NullOrdering", "NULLS_FIRST" if nulls_first else "NULLS_LAST")
    return java_class(EXPRESSIONS + "Expressions").sort(column, direction, nulls)


def mark_self_read(write: RowsWrite, plan: JavaObject | None) -> RowsWrite:
    """Mark the write if it reads its own table, as far as the plan of its rows shows.

    Such a write validates against the snapshot that the plan reads. Otherwise it would silently replace rows that
    other commits have added since.

    Args:
        write: The write.
        plan: The analyzed plan of its rows; None if unknown.
    """
    if write.replaced is None or plan is None:
        return write
    target = write.target
    own = [relation for relation in relations(plan) if str(relation.table().name()) == target.resolved.name]
    if not own:
        return write
    read = {snapshot_id(relation) for relation in own if not travels(relation)} - {target.snapshot_id}
    oldest = min(read, key=lambda found: age(target, found)) if read else target.snapshot_id
    return replace(
        write, replaced=replace(write.replaced, reads_table=True), target=replace(target, snapshot_id=oldest)
    )


def age(target: Target, read: int | None) -> int:
    """Return a sort key by the order of the table's snapshots; None and expired snapshots come first."""
    snapshot = None if read is None else target.table.snapshot_by_id(read)
    return -1 if snapshot is None else snapshot.sequence_number or 0


def relations(plan: JavaObject) -> Iterator[JavaObject]:
    """Return the catalog tables that a plan reads."""
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        match simple_name(leaf):
            case "DataSourceV2Relation":
                yield leaf
            case "DataSourceV2ScanRelation":
                yield leaf.relation()


def travels(relation: JavaObject) -> bool:
    """Return whether the relation time-travels, as with `VERSION AS OF`; plans before Spark 4.1 do not show it."""
    return Feature.TIME_TRAVEL_IN_PLANS in INSTALLED_FEATURES and bool(relation.timeTravelSpec().isDefined())


def snapshot_id(relation: JavaObject) -> int | None:
    """Return the snapshot at which a RowDelta relation was analyzed; None if the table had none."""
    shown = str(relation.table().properties()[CURRENT_SNAPSHOT])
    return int(shown) if shown.isdigit() else None


QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark sets in the thread of a streaming query; only micro-batches have a batch id."""


def is_of_stream(spark: SparkSession, write_id: str, options: Collection[str]) -> bool:
    """Return True if a write belongs to a streaming query's own sink, not to its `foreachBatch` function.

    Args:
        spark: The session.
        write_id: Spark's id of the write, which is the query's id in a stream.
        options: The names of the write options.
    """
    return spark.sparkContext.getLocalProperty(QUERY_ID) == write_id or any(
        name.lower() == "checkpointlocation" for name in options
    )


def stream_write(engine: Engine, sink: StreamSink, query_id: str, schema: JavaObject) -> DistributedWrite:
    """Plan the write of the micro-batch that this thread runs.

    Args:
        engine: The session and its catalogs.
        sink: The sink of the query, for the table as it was when the query started.
        query_id: The query.
        schema: The columns of its rows.

    Raises:
        NotSupportedError: The query runs in continuous mode, which Spark plans outside of the query's thread.
        DmlError: The rows do not fit the table, or the table does not exist any more.
    """
    number = engine.spark.sparkContext.getLocalProperty(BATCH_ID)
    if number is None:
        raise continuous_mode_error()
    planned = plan_epoch(engine, sink, sink.epoch(query_id, int(number)), python_schema(schema), keep_files_open)
    # A micro-batch is too small for more tasks than run at once: each would add small files.
    return DistributedWrite(planned.rows, planned.function, schema, StatementSettings.of(engine).parallelism)


OVERWRITE_PARTITIONS_OPTION: Final = "rowdelta.overwrite-partitions"
"""The internal option with which `overwritePartitions` marks its write, so that the mark can be removed."""

OnResult = Callable[[Result], None]


def discard_result(_: Result) -> None:
    """Discard the result of a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """The target of a write, as Spark loaded it.

    Attributes:
        engine: The session and its catalogs.
        resolved: The table, and the part of it that its name selects.
        load_state: Set if the same commit creates or replaces the table: loads its state for each attempt.
    """

    engine: Engine
    resolved: ResolvedTable
    load_state: LoadState | None = None


class SparkWriteBuilder(Proxy):
    """Builds one write.

    Args:
        written: The table.
        info: Spark's description of the write, with its options.
        on_result: Called with the result of the write.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.SupportsOverwriteV2", "write.SupportsDynamicOverwrite")

    def __init__(self, written: WrittenTable, info: JavaObject, on_result: OnResult = discard_result) -> None:
        self._written = written
        self._schema = info.schema()
        self._write_id = str(info.queryId())
        self._on_result = on_result
        options = options_of(info.options().asCaseSensitiveMap())
        self._of_partitions = options.pop(OVERWRITE_PARTITIONS_OPTION, "") == "true"
        self._of_stream = is_of_stream(written.engine.spark, self._write_id, options)
        self._given = options
        self._command = "INSERT"
        self._predicates: tuple[JavaObject, ...] | None = None
        self._dynamic = False

    def truncate(self) -> "SparkWriteBuilder":
        """Replace all rows, or the partitions of the new rows if the writer or `overwrite-mode` selects that."""
        self._command, self._predicates = "INSERT OVERWRITE", ()
        return self

    def canOverwrite(self, _: Sequence[JavaObject]) -> bool:
        """Return True: `overwrite` gives a better reason than Spark if it refuses a condition."""
        return True

    def overwrite(self, predicates: Sequence[JavaObject]) -> "SparkWriteBuilder":
        """Replace the rows that satisfy a condition."""
        self._command, self._predicates = "INSERT OVERWRITE", tuple(predicates)
        return self

    def overwriteDynamicPartitions(self) -> "SparkWriteBuilder":
        """Replace the rows of the partitions that the new rows belong to."""
        self._command, self._dynamic = "INSERT OVERWRITE", True
        return self

    def build(self) -> Proxy:
        """Plan the write."""
        started = time.perf_counter()
        written, engine = self._written, self._written.engine
        if self._of_stream:  # in complete mode Spark has called `truncate`
            complete = self._predicates is not None
            sink = StreamSink.of(written.resolved, stream_options(self._given), complete=complete)
            return stream_write(engine, sink, self._write_id, self._schema)
        settings = StatementSettings.of(engine)
        target = write_target(written.resolved, settings, self._command, branch_option=self._options.branch)
        # A table that is being created or replaced has no rows to replace, and is created with the columns of its rows.
        creates = written.load_state is not None
        replaced = None if creates else self._rows_to_replace(target, settings)
        fitted = None if creates else self._match_columns(target, settings, replaced)
        target = target if fitted is None else fitted.target
        write = plan_rows_write(
            engine,
            target,
            self._command,
            started,
            replaced=replaced,
            options=keep_files_open(self._options, target.table) if self._dynamic else self._options,
            load_state=written.load_state,
            by_columns=self._dynamic,
        )
        if self._dynamic:
            function = write.task if fitted is None else arrange_columns(write, python_schema(self._schema), settings)
            return DistributedWrite(write, function, self._schema)
        return SparkWrite(write, self._on_result, fitted)

    @cached_property
    def _options(self) -> InsertOptions:
        return writer_options(self._given, creates=self._written.load_state is not None)

    def _match_columns(self, target: Target, settings: StatementSettings, replaced: Replaced | None) -> Fitted | None:
        """Match the columns of the rows with the table's, adding some if enabled; None if Spark has done so."""
        options = self._options.columns
        if accepts_any_schema(target.table):
            return fit_rows(target, python_schema(self._schema), options, settings, replaced)
        if options.overwrites:
            overwrite_target_schema(target, python_schema(self._schema), settings, replaced)
        return None

    def _rows_to_replace(self, target: Target, settings: StatementSettings) -> Replaced | None:
        """Return which rows are replaced; None for an append."""
        if self._dynamic or (self._predicates == () and (self._of_partitions or self._options.dynamic)):
            return Replaced(row_filter=None)
        if self._predicates is None:
            return None
        if not self._predicates:
            return Replaced(row_filter=AlwaysTrue())
        pushdown = pushed_down(self._predicates, target.table.schema(), settings.rules)
        if not pushdown.pruning_is_exact:
            condition = " AND ".join(str(predicate.describe()) for predicate in self._predicates)
            raise NotSupportedError(
                f"The rows to replace must be chosen by comparisons of columns with constants, not by {condition}",
                kind=ErrorKind.INVALID_CONDITION,
                hint="Delete them with this condition, then append",
            )
        return Replaced(row_filter=pushdown.pruning)


class SparkWrite(Proxy):
    """Rows that arrive as a DataFrame.

    Args:
        write: The write, planned.
        on_result: Called with the result of the write.
        fitted: How their columns are matched; None if Spark has done so.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.V1Write",)

    def __init__(self, write: RowsWrite, on_result: OnResult, fitted: Fitted | None) -> None:
        self._write = write
        self._on_result = on_result
        self._fitted = fitted

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def toString(self) -> str:
        """Return the description."""
        return self.description()

    def toStreaming(self) -> Proxy:
        """Raise an error: micro-batches use `DistributedWrite`, so this is a stream in continuous mode."""
        raise continuous_mode_error()

    def toInsertableRelation(self) -> "RowsRelation":
        """Return the relation that inserts the rows."""
        return RowsRelation(self._write, self._on_result, self._fitted)


class RowsRelation(Proxy):
    """Inserts the rows of a write.

    Args:
        write: The write, planned.
        on_result: Called with the result of the write.
        fitted: How their columns are matched; None if Spark has done so.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("org.apache.spark.sql.sources.InsertableRelation",)

    def __init__(self, write: RowsWrite, on_result: OnResult, fitted: Fitted | None) -> None:
        self._write = write
        self._on_result = on_result
        self._fitted = fitted

    def insert(self, data: JavaObject, _: bool) -> None:
        """Write rows and commit them.

        Args:
            data: The rows, with the table's columns, in its order and types.
            _: Spark's overwrite flag, always False: the builder has recorded which rows are replaced.
        """
        write, spark = self._write, self._write.engine.spark
        rows = DataFrame(data, spark)
        analyzed = analyzed_plan(rows)
        if self._fitted is None:
            rows = self._in_place(rows)
        else:
            rows = rows_by_name(rows, self._fitted, StatementSettings.of(write.engine))
        self._on_result(write_rows(mark_self_read(write, analyzed), rows))

    def _in_place(self, rows: DataFrame) -> DataFrame:
        """Rename the columns of rows that Spark has matched with the table's columns by position."""
        write = self._write
        columns = write.target.table.schema().fields
        if len(rows.columns) != len(columns):  # columns match by position: values would go to the wrong columns
            raise ExecutionError(
                f"Spark gave {len(rows.columns)} columns for the {len(columns)} of {write.target.resolved.name}",
                hint="The table has changed since the write was planned: write again",
            )
        return rows.toDF(*(value_name(index) for index in range(len(rows.columns))))


def arrange_columns(write: RowsWrite, source: StructType, settings: StatementSettings) -> StreamRows:
    """Build the task function that puts columns in the table's order; Spark did not match them by name."""
    target = write.target
    columns = stream_columns(
        source, target.table.schema(), target.resolved.name, case_sensitive=settings.case_sensitive, rows="DataFrame"
    )
    return StreamRows(task=write.task, columns=columns)


def writer_options(given: Mapping[str, str], *, creates: bool) -> InsertOptions:
    """Parse the options of a writer.

    Args:
        given: The options by name.
        creates: True if the write creates its table. The option `path` is the table's location then.

    Raises:
        NotSupportedError: An option is unknown.
        AnalysisError: An option has an invalid value.
    """
    return insert_options([pair for pair in given.items() if not creates or pair[0].lower() != "path"])
