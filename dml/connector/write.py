"""What a DataFrame's writer, or a stream's, does to a table of ours. Driver, classic Spark only.

Input: the table as Spark loaded it for the write, the write's columns, options and condition. Output: Spark's `Write`:
rows into the table, in the place of all, of those of a condition, or of those of their partitions.

The rows arrive as a DataFrame (Spark's `V1Write`) with the columns and types of the table, or with their own where the
table accepts any, and are written and committed as those of an INSERT. For partitions that the rows themselves choose,
and for streams, Spark has no such way: there the tasks of Spark's own jobs run our writer as the write function of a
Python data source (`WriterJob`), and the commit is that of an INSERT OVERWRITE, or of a micro-batch. Spark makes one
write for each micro-batch, so each is planned on the table as it is then, by `dml.streaming.sink`.

Spark distributes the rows of such a job, and can do so by columns alone. By those of the partition's values where these
follow the columns' order, so that the rows of a partition come to one task or to neighbours. The bucket of a value is
not known to Spark: each task may have rows of each bucket, and keeps a file open for each.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.catalog import LoadState
from dml.catalog.registry import ResolvedTable
from dml.commit import StreamEpoch
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
from dml.engine.schema_evolution import Fitted, accepts_any_schema, fitted_rows, overwritten_target
from dml.engine.target import Target, writable_target
from dml.engine.writes import WriteOutcome, delete_uncommitted, written_by
from dml.errors import ErrorKind, ExecutionError, NotSupportedError
from dml.model.columns import value_name
from dml.model.write_task import report_from_bytes
from dml.options import ADVISORY_PARTITION_SIZE, DistributionMode, integer
from dml.result import Result
from dml.spark.java import CONNECTOR, array, constant, java_class, options_of, python_schema, simple_name
from dml.spark.jobs import await_tasks, new_tag, tagged
from dml.spark.proxies import Proxy
from dml.spark.versions import Feature, has
from dml.spark.workers import check_writes
from dml.spark_scan.conditions import pushed_down
from dml.spark_scan.running_query import running_plan
from dml.spark_scan.workers import stream_writer_factory, writer_factory
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import Span, TableReference
from dml.streaming.columns import stream_columns
from dml.streaming.options import StreamOptions, stream_options
from dml.streaming.sink import EpochWrite, commit_epoch, plan_epoch
from dml.write.delta_writer import StreamRows

__all__ = ["OF_PARTITIONS", "SparkWriteBuilder", "WrittenTable", "stream_write"]

EXPRESSIONS: Final = CONNECTOR + "expressions."
CURRENT_SNAPSHOT: Final = "current-snapshot-id"
"""The property with the snapshot that a table was loaded at: before Spark 4.1 tables have no version."""


class DistributedWrite(Proxy):
    """A write whose rows Spark distributes and orders.

    Args:
        write: The write, planned with `keeping_files_open`.
        tasks: How many tasks write at most, where rows are distributed; 0 for as many as Spark thinks right.
        left_out: Ids of the columns that the rows have not.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.RequiresDistributionAndOrdering",)

    def __init__(self, write: RowsWrite, tasks: int = 0, left_out: frozenset[int] = frozenset()) -> None:
        self._write = write
        self._tasks = tasks
        self._left_out = left_out

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def toString(self) -> str:
        """What Spark shows."""
        return self.description()

    def requiredDistribution(self) -> JavaObject:
        """Which rows have to come to one task."""
        distributions, spread = java_class(CONNECTOR + "distributions.Distributions"), self._spread()
        if spread is None:
            return distributions.unspecified()
        is_ordered, terms = spread
        if is_ordered:
            return distributions.ordered(array(EXPRESSIONS + "SortOrder", terms))
        return distributions.clustered(array(EXPRESSIONS + "Expression", terms))

    def distributionStrictlyRequired(self) -> bool:
        """Whether Spark may not put many small parts together, or split a large one."""
        return False

    def requiredNumPartitions(self) -> int:
        """How many tasks there are, where rows are distributed; Spark takes a number for nothing else."""
        return self._tasks if self._tasks and self._spread() is not None else 0

    def advisoryPartitionSizeInBytes(self) -> int:
        """As large as the table says, or as Spark thinks right; only where Spark chooses how many tasks there are."""
        properties = self._write.context.properties
        chosen = ADVISORY_PARTITION_SIZE in properties and not self._tasks and self._spread() is not None
        return integer(properties, ADVISORY_PARTITION_SIZE, 0, minimum=1) if chosen else 0

    def requiredOrdering(self) -> JavaObject:
        """The order in which the rows come to a task."""
        columns = [] if self._write.context.options.fanout is not False else self._partition_columns()
        order = self._table_order() if orders_rows(self._write.target.table) else ()
        return array(EXPRESSIONS + "SortOrder", [*map(ascending, columns), *order])

    def _spread(self) -> tuple[bool, list[JavaObject]] | None:
        """By what rows are spread, and whether that is an order; None where they stay where they are."""
        table, columns = self._write.target.table, self._partition_columns()
        match distribution_mode(table, self._write.context.properties):
            case DistributionMode.HASH if columns and follow_columns(table) and not all_identities(table):
                return True, list(map(ascending, columns))
            case DistributionMode.HASH if columns:
                return False, columns
            case DistributionMode.RANGE if columns or orders_rows(table):
                order = [*map(ascending, columns), *self._table_order()]
                return (True, order) if order else None
            case _:
                return None

    def _partition_columns(self) -> list[JavaObject]:
        """The columns that tell partitions apart, each once: those whose order partitions follow, if there are any."""
        table = self._write.target.table
        fields = [field for field in partition_fields(table) if self._has(field.source_id)]
        chosen = [field for field in fields if field.transform.preserves_order] or fields
        ids = dict.fromkeys(field.source_id for field in chosen)
        return [column_reference(table, source_id) for source_id in ids]

    def _table_order(self) -> Iterator[JavaObject]:
        """The table's sort order, where each of its fields is a column as it is."""
        table = self._write.target.table
        fields: Sequence[SortField] = table.sort_order().fields
        for field in fields:
            if self._has(field.source_id):
                yield sorted_by(
                    column_reference(table, field.source_id),
                    ascends=field.direction == SortDirection.ASC,
                    nulls_first=field.null_order == NullOrder.NULLS_FIRST,
                )

    def _has(self, field_id: int) -> bool:
        """Whether the rows have a column, or the column that a field is in."""
        path = column_path(self._write.target.table.schema(), field_id)
        assert path is not None
        return self._write.target.table.schema().find_field(path[0]).field_id not in self._left_out


class WriterJob:
    """One job of Spark's that runs a writer: what it wrote, or nothing that stays.

    Args:
        write: The write, planned.
    """

    def __init__(self, write: RowsWrite) -> None:
        self._write = write
        self._tag = new_tag()
        self._job = ExitStack()
        self._commits = False

    def begin(self) -> None:
        """The job begins after this.

        Raises:
            SetupError: the workers run a Python without this package.
        """
        spark = self._write.engine.spark
        check_writes(spark, self._write.target.table, self._write.context)
        self._job.enter_context(tagged(spark, self._tag, interrupts=False))

    def written(self, messages: Sequence[JavaObject]) -> WriteOutcome:
        """What the tasks wrote. From here on the files are the commit's, also where it fails.

        Args:
            messages: What each task said.

        Raises:
            DmlError: the first failure that a task reported; the files of all tasks are deleted.
        """
        self._job.close()
        self._commits = True
        reports = [report_from_bytes(bytes(message.pickledMessage())) for message in messages]
        return written_by(reports, self._write.target.table, self._write.task.spec)

    def abort(self) -> None:
        """Delete what the tasks wrote, when they have ended."""
        self._job.close()
        if not self._commits:
            await_tasks(self._write.engine.spark.sparkContext, self._tag)
            delete_uncommitted(self._write.target.table, self._write.context)


def keeping_files_open(options: InsertOptions, table: Table) -> InsertOptions:
    """The options of a write, with `fanout-enabled` where Spark cannot bring the rows of a partition together.

    One file at a time is enough only where rows in the order of the columns are partition by partition, and no other
    order is wanted.
    """
    if all_identities(table) or (follow_columns(table) and clustered_by_columns(table) and not orders_rows(table)):
        return options
    return replace(options, write={**options.write, "fanout-enabled": "true"})


def partition_fields(table: Table) -> Iterator[PartitionField]:
    """The fields that tell partitions apart."""
    return (field for field in table.spec().fields if not isinstance(field.transform, VoidTransform))


def all_identities(table: Table) -> bool:
    """Whether a partition is told by the values of columns themselves."""
    return all(isinstance(field.transform, IdentityTransform) for field in partition_fields(table))


def follow_columns(table: Table) -> bool:
    """Whether the partitions of rows that are in the order of the columns are in order too."""
    return all(field.transform.preserves_order for field in partition_fields(table))


def clustered_by_columns(table: Table) -> bool:
    """Whether rows in the order of the columns are partition by partition.

    With `(days(ts), k)` they are not: a day has each `k` as often as it has other values of `ts`.
    """
    ids = list(dict.fromkeys(field.source_id for field in partition_fields(table)))
    whole = {field.source_id for field in partition_fields(table) if isinstance(field.transform, IdentityTransform)}
    return all(source_id in whole for source_id in ids[:-1])


def column_reference(table: Table, field_id: int) -> JavaObject:
    """A column, or a field of one, as Spark's expressions name it."""
    path = column_path(table.schema(), field_id)
    assert path is not None
    return java_class(EXPRESSIONS + "Expressions").column(quote_name(path))


def ascending(column: JavaObject) -> JavaObject:
    """Ascending, NULL first."""
    return sorted_by(column, ascends=True, nulls_first=True)


def sorted_by(column: JavaObject, *, ascends: bool, nulls_first: bool) -> JavaObject:
    """One part of an order."""
    direction = constant(EXPRESSIONS + "SortDirection", "ASCENDING" if ascends else "DESCENDING")
    nulls = constant(EXPRESSIONS + "NullOrdering", "NULLS_FIRST" if nulls_first else "NULLS_LAST")
    return java_class(EXPRESSIONS + "Expressions").sort(column, direction, nulls)


def reading_itself(write: RowsWrite, plan: JavaObject | None) -> RowsWrite:
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
    return has(Feature.TRAVEL_IN_PLANS) and bool(relation.timeTravelSpec().isDefined())


def snapshot_id(relation: JavaObject) -> int | None:
    """Return the snapshot at which a RowDelta relation was analyzed; None if the table had none."""
    shown = str(relation.table().properties()[CURRENT_SNAPSHOT])
    return int(shown) if shown.isdigit() else None


class PartitionWrite(DistributedWrite):
    """Rows that replace the partitions that they lie in.

    Args:
        write: The write, planned with `keeping_files_open`.
        schema: The columns of the rows.
        arranged: Puts them in the table's order where Spark has not.
    """

    interfaces: ClassVar[tuple[str, ...]] = DistributedWrite.interfaces

    def __init__(self, write: RowsWrite, schema: JavaObject, arranged: StreamRows | None) -> None:
        super().__init__(write, left_out=frozenset() if arranged is None else arranged.left_out(write.target.table))
        self._schema = schema
        self._arranged = arranged

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name} (dynamic)"

    def toBatch(self) -> "SparkBatchWrite":
        """The write of one job."""
        write = reading_itself(self._write, running_plan(self._write.engine.spark))
        return SparkBatchWrite(write, self._schema, self._arranged)


class SparkBatchWrite(Proxy):
    """The write of one job.

    Args:
        write: The write, planned.
        schema: The columns of the rows.
        arranged: Puts them in the table's order where Spark has not.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.BatchWrite",)

    def __init__(self, write: RowsWrite, schema: JavaObject, arranged: StreamRows | None) -> None:
        self._write = write
        self._schema = schema
        self._arranged = arranged
        self._job = WriterJob(write)

    def toString(self) -> str:
        """What Spark's log shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def createBatchWriterFactory(self, _: JavaObject) -> JavaObject:
        """What writes the rows of a task; the job begins after this."""
        factory = writer_factory(self._arranged or self._write.task, self._schema)
        self._job.begin()
        return factory

    def useCommitCoordinator(self) -> bool:
        """One attempt of a task counts."""
        return True

    def onDataWriterCommit(self, message: JavaObject) -> None:
        """Nothing: the files of a task are known with those of all tasks."""

    def commit(self, messages: Sequence[JavaObject], *_: JavaObject) -> None:
        """Commit what the tasks wrote."""
        commit_rows(self._write, self._job.written(messages))

    def abort(self, _: Sequence[JavaObject | None]) -> None:
        """Delete what the tasks wrote, when they have ended."""
        self._job.abort()


QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark says of itself in the thread of a streaming query; only micro-batches have a number."""


def is_of_stream(spark: SparkSession, write_id: str, options: Collection[str]) -> bool:
    """Whether a write is that of a streaming query's own sink, and not one that its `foreachBatch` makes.

    Args:
        spark: The session.
        write_id: Spark's id of the write: a stream's has the id of the query.
        options: The names of its options.
    """
    return spark.sparkContext.getLocalProperty(QUERY_ID) == write_id or any(
        name.lower() == "checkpointlocation" for name in options
    )


def not_continuous() -> NotSupportedError:
    """The error for a stream in continuous mode, which Spark plans outside of the query's thread."""
    return NotSupportedError(
        "Streams write to tables in micro-batches, not in continuous mode",
        hint="Use trigger(processingTime=...) or trigger(availableNow=True)",
    )


def stream_write(
    engine: Engine,
    started_on: ResolvedTable,
    query_id: str,
    schema: JavaObject,
    options: StreamOptions,
    *,
    complete: bool,
) -> "StreamWrite":
    """The write of the micro-batch that this thread runs.

    Args:
        engine: The session and its catalogs.
        started_on: The table as it was when the query was started.
        query_id: The query.
        schema: The columns of its rows.
        options: Of the stream's writer.
        complete: Whether the rows replace all others.

    Raises:
        NotSupportedError: the query runs in continuous mode.
        DmlError: the rows do not fit the table, or it is not there any more.
    """
    number = engine.spark.sparkContext.getLocalProperty(BATCH_ID)
    if number is None:
        raise not_continuous()
    epoch = StreamEpoch(
        query_id=query_id,
        epoch_id=int(number),
        table_uuid=started_on.table.metadata.table_uuid,
        adopts_checkpoint=options.adopts_checkpoint,
    )
    columns = python_schema(schema)
    planned = plan_epoch(engine, started_on, epoch, columns, options, complete=complete, refine=keeping_files_open)
    return StreamWrite(planned, schema, StatementSettings.of(engine).parallelism)


class StreamWrite(DistributedWrite):
    """A micro-batch.

    Args:
        planned: The micro-batch, planned.
        schema: The columns of its rows.
        tasks: How many tasks run at once: a micro-batch is too small for more, and each would leave files of its own.
    """

    interfaces: ClassVar[tuple[str, ...]] = DistributedWrite.interfaces

    def __init__(self, planned: EpochWrite, schema: JavaObject, tasks: int) -> None:
        super().__init__(planned.rows, tasks, planned.function.left_out(planned.rows.target.table))
        self._planned = planned
        self._schema = schema

    def toStreaming(self) -> "SparkStreamingWrite":
        """The write of its job."""
        return SparkStreamingWrite(self._planned, self._schema)


class SparkStreamingWrite(Proxy):
    """The write of a micro-batch's job.

    Args:
        planned: The micro-batch, planned.
        schema: The columns of its rows.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("org.apache.spark.sql.connector.write.streaming.StreamingWrite",)

    def __init__(self, planned: EpochWrite, schema: JavaObject) -> None:
        self._planned = planned
        self._schema = schema
        self._job = WriterJob(planned.rows)

    def toString(self) -> str:
        """What Spark's log shows."""
        return f"RowDelta streaming {self._planned.rows.command} {self._planned.rows.target.resolved.name}"

    def createStreamingWriterFactory(self, _: JavaObject) -> JavaObject:
        """What writes the rows of a task; the job begins after this."""
        factory = stream_writer_factory(self._planned.function, self._schema)
        self._job.begin()
        return factory

    def useCommitCoordinator(self) -> bool:
        """One attempt of a task counts."""
        return True

    def commit(self, _: int, messages: Sequence[JavaObject]) -> None:
        """Commit what the tasks wrote, unless the table has the micro-batch already."""
        commit_epoch(self._planned, self._job.written(messages))

    def abort(self, _: int, __: Sequence[JavaObject | None]) -> None:
        """Delete what the tasks wrote, when they have ended."""
        self._job.abort()


OF_PARTITIONS: Final = "rowdelta.overwrite-partitions"
"""The option of a writer that is called to overwrite partitions: no user's, so that it can be taken back."""

OnResult = Callable[[Result], None]


def ignored(_: Result) -> None:
    """What came of a write, where nobody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table that is written to, as Spark loaded it for the write.

    Attributes:
        engine: The session and its catalogs.
        resolved: The table, and what its name says beside it.
        load_state: Where the table is created or replaced by the same commit: finds it as it is for each attempt.
    """

    engine: Engine
    resolved: ResolvedTable
    load_state: LoadState | None = None


class SparkWriteBuilder(Proxy):
    """Builds one write.

    Args:
        written: The table.
        info: What Spark says of the write: its options.
        on_result: Is told what came of it.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.SupportsOverwriteV2", "write.SupportsDynamicOverwrite")

    def __init__(self, written: WrittenTable, info: JavaObject, on_result: OnResult = ignored) -> None:
        self._written = written
        self._schema = info.schema()
        self._write_id = str(info.queryId())
        self._on_result = on_result
        options = options_of(info.options().asCaseSensitiveMap())
        self._of_partitions = options.pop(OF_PARTITIONS, "") == "true"
        self._of_stream = is_of_stream(written.engine.spark, self._write_id, options)
        self._given = options
        self._command = "INSERT"
        self._predicates: tuple[JavaObject, ...] | None = None
        self._dynamic = False

    def truncate(self) -> "SparkWriteBuilder":
        """The rows replace all others; where the writer or `overwrite-mode` says so, those of their partitions."""
        self._command, self._predicates = "INSERT OVERWRITE", ()
        return self

    def canOverwrite(self, _: Sequence[JavaObject]) -> bool:
        """Whether `overwrite` may be asked: it says better than Spark why a condition is refused."""
        return True

    def overwrite(self, predicates: Sequence[JavaObject]) -> "SparkWriteBuilder":
        """The rows replace those of a condition."""
        self._command, self._predicates = "INSERT OVERWRITE", tuple(predicates)
        return self

    def overwriteDynamicPartitions(self) -> "SparkWriteBuilder":
        """The rows replace those of their partitions."""
        self._command, self._dynamic = "INSERT OVERWRITE", True
        return self

    def build(self) -> Proxy:
        """The write."""
        started = time.perf_counter()
        written, engine = self._written, self._written.engine
        if self._of_stream:
            return self._stream_write()
        settings = StatementSettings.of(engine)
        target = target_of_write(written, self._command, settings, self._options)
        # A table that is being created or replaced has no rows to replace, and the columns of its rows.
        creates = written.load_state is not None
        replaced = None if creates else self._replaced(target, settings)
        fitted = None if creates else self._fitted(target, settings, replaced)
        target = target if fitted is None else fitted.target
        write = plan_rows_write(
            engine,
            target,
            self._command,
            started,
            replaced=replaced,
            options=keeping_files_open(self._options, target.table) if self._dynamic else self._options,
            load_state=written.load_state,
            by_columns=self._dynamic,
        )
        if self._dynamic:
            rows = None if fitted is None else arranged(write, python_schema(self._schema), settings)
            return PartitionWrite(write, self._schema, rows)
        return SparkWrite(write, self._on_result, fitted)

    @cached_property
    def _options(self) -> InsertOptions:
        return writer_options(self._given, creates=self._written.load_state is not None)

    def _stream_write(self) -> Proxy:
        """That of a micro-batch; a stream in complete mode truncates first."""
        return stream_write(
            self._written.engine,
            self._written.resolved,
            self._write_id,
            self._schema,
            stream_options(self._given),
            complete=self._predicates is not None,
        )

    def _fitted(self, target: Target, settings: StatementSettings, replaced: Replaced | None) -> Fitted | None:
        """The target with a place for the columns of the rows; None where Spark has fitted them to the table's."""
        options = self._options.columns
        if accepts_any_schema(target.table):
            return fitted_rows(target, python_schema(self._schema), options, settings, replaced)
        if options.overwrites:
            overwritten_target(target, python_schema(self._schema), settings, replaced)
        return None

    def _replaced(self, target: Target, settings: StatementSettings) -> Replaced | None:
        """Which rows the new ones replace."""
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
        on_result: Is told what came of it.
        fitted: How their columns are matched; None where Spark has done so.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.V1Write",)

    def __init__(self, write: RowsWrite, on_result: OnResult, fitted: Fitted | None) -> None:
        self._write = write
        self._on_result = on_result
        self._fitted = fitted

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def toString(self) -> str:
        """What Spark shows."""
        return self.description()

    def toStreaming(self) -> Proxy:
        """None: micro-batches have a write of their own, so this is a stream in continuous mode."""
        raise not_continuous()

    def toInsertableRelation(self) -> "RowsRelation":
        """Where the rows go."""
        return RowsRelation(self._write, self._on_result, self._fitted)


class RowsRelation(Proxy):
    """Takes the rows of a write.

    Args:
        write: The write, planned.
        on_result: Is told what came of it.
        fitted: How their columns are matched; None where Spark has done so.
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
            _: Whether they replace others: always false, what is replaced is known before.
        """
        write, spark = self._write, self._write.engine.spark
        rows = DataFrame(data, spark)
        if self._fitted is None:
            rows = self._in_place(rows)
        else:
            rows = rows_by_name(rows, self._fitted, StatementSettings.of(write.engine))
        self._on_result(write_rows(reading_itself(write, data.queryExecution().analyzed()), rows))

    def _in_place(self, rows: DataFrame) -> DataFrame:
        """Rows that Spark has fitted to the table's columns."""
        write = self._write
        columns = write.target.table.schema().fields
        if len(rows.columns) != len(columns):  # values go to columns by their places: these would go to others
            raise ExecutionError(
                f"Spark gave {len(rows.columns)} columns for the {len(columns)} of {write.target.resolved.name}",
                hint="The table has changed meanwhile: write again",
            )
        return rows.toDF(*(value_name(index) for index in range(len(rows.columns))))


def arranged(write: RowsWrite, source: StructType, settings: StatementSettings) -> StreamRows:
    """What puts the columns of rows that Spark has not fitted in the table's order."""
    target = write.target
    columns = stream_columns(
        source, target.table.schema(), target.resolved.name, case_sensitive=settings.case_sensitive, rows="DataFrame"
    )
    return StreamRows(task=write.task, columns=columns)


def target_of_write(written: WrittenTable, command: str, settings: StatementSettings, options: InsertOptions) -> Target:
    """The branch that a write changes."""
    resolved = written.resolved
    suffix = () if resolved.branch is None else (f"branch_{resolved.branch}",)
    parts = (resolved.catalog_name, *resolved.identifier, *suffix)
    text = quote_name(parts)
    reference = TableReference(parts=parts, span=Span(0, len(text)))
    return writable_target(resolved, reference, text, settings, command, branch_option=options.branch)


def writer_options(given: Mapping[str, str], *, creates: bool) -> InsertOptions:
    """The options of a writer.

    Args:
        given: They, by name.
        creates: Whether the write creates its table: the location among its options is the table's then.

    Raises:
        NotSupportedError: an option that is not known.
        AnalysisError: a value that the option cannot have.
    """
    return insert_options([pair for pair in given.items() if not creates or pair[0].lower() != "path"])
