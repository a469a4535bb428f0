"""MERGE with a source of few rows: Spark computes these, and the tasks that read the target do the rest. Driver.

Spark's join has rows of the JVM made of what the target's files hold, shuffles and sorts them, and gives them back to
Python to be written. Where all rows of the source, and all that clauses say of them, are small enough to be sent along,
one job without a shuffle does it.

The source's keys have to be unique; else, and wherever something is not as expected, the statement goes Spark's way.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyiceberg.table import Table
from pyroaring import BitMap
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

from dml.engine.delta_query import value_sql
from dml.engine.distribution import FEW_ROWS
from dml.engine.merge_source import MergeSourceFrame, SourceKeys, source_keys
from dml.engine.scans import Scan
from dml.engine.writes import (
    TASK_COMMIT_SCHEMA,
    DriverRows,
    WriteOutcome,
    run_writing_tasks,
    written_by,
)
from dml.errors import DmlError
from dml.model.columns import INTERNAL_PREFIX
from dml.model.scan_task import ScanTask
from dml.model.write_task import TaskCommit
from dml.plan.row_delta_plan import BroadcastPlan, RawValue, SourceColumn, raw_name
from dml.read.key_index import KeyIndex
from dml.read.packed_groups import PackedGroups
from dml.read.projection import arrow_type
from dml.spark.jobs import cancelled_on_interrupt, ended_on_failure, was_cancelled
from dml.spark.store_assignment import Assign, default_sql
from dml.spark.task_frames import task_frame
from dml.spark.types import spark_type, type_text
from dml.spark.versions import arrow_table
from dml.spark.workers import check_workers
from dml.sqlparse.quoting import quoted
from dml.views import StatementViews
from dml.write.broadcast_merge import (
    BroadcastMergeTask,
    BroadcastProbe,
    BroadcastRows,
    columns_that_match,
    held_inserts,
    inserted_rows,
    matched_rows,
)
from dml.write.held_rows import stream_of
from dml.write.writer_spec import WriteJob, WriterSpec

__all__ = ["BroadcastSource", "broadcast_source", "write_broadcast_merge"]

LOG = logging.getLogger(__name__)

MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 16 * 2**20
"""Of more, each task would take longer to unpack the source than Spark takes to join it."""


MAX_ROW_BYTES: Final = 1024
"""Of more in a row 100,000 of them would be more than a driver should be asked to take."""

FITS: Final = f"{INTERNAL_PREFIX}fits"

SHORT: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType)
"""Spark's types whose values all have some bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSource:
    """The source of a MERGE, as tasks get it.

    Attributes:
        rows: The rows.
        keys: Their keys, for the target's scan.
    """

    rows: BroadcastRows
    keys: SourceKeys


def broadcast_source(
    plan: BroadcastPlan, source: MergeSourceFrame, views: StatementViews, assign: Assign
) -> BroadcastSource | None:
    """The rows of a source, with what the statement's clauses make of them.

    Args:
        plan: What to compute.
        source: The source.
        views: The statement's views.
        assign: The rules of store assignment.

    Returns:
        None where they are too many, where a key comes twice, or where Spark cannot compute all of it: it may be that
        nobody needs what it cannot.

    Raises:
        PySparkException: somebody has cancelled the job.
        Py4JError: the same, as PySpark says it of rows that are collected as Arrow.
    """
    try:
        frame = source_frame(plan, source, views, assign)
        with cancelled_on_interrupt(frame.sparkSession):
            table = arrow_table(frame if source.known_rows is not None else frame.limit(MAX_ROWS + 1))
        if FITS in table.column_names:
            if not pc.all(table.column(FITS), min_count=0).as_py():
                return None
            table = table.drop_columns([FITS])
        if table.num_rows > MAX_ROWS or table.nbytes > MAX_BYTES:
            return None
        return sent(plan, source, table, case_sensitive=assign.case_sensitive)
    except (PySparkException, Py4JError, DmlError, pa.ArrowException) as error:
        if was_cancelled(error):
            raise
        LOG.debug("The source of a MERGE cannot be sent to tasks: %s", error)
        return None


def source_frame(plan: BroadcastPlan, source: MergeSourceFrame, views: StatementViews, assign: Assign) -> DataFrame:
    """The keys and columns of a source, not yet evaluated."""
    raws = ", ".join(f"{column.sql} AS {raw_name(place)}" for place, column in enumerate(plan.columns) if column.sql)
    keys = ", ".join(f"{key} AS {key_name(place)}" for place, key in enumerate(source.key_expressions))
    inner = views.sql(f"SELECT {', '.join(filter(None, (keys, raws)))} FROM {plan.source}")
    types = {field.name: field.dataType for field in inner.schema.fields}

    def stored(place: int, column: SourceColumn) -> str:
        if column.value_of is None:
            return raw_name(place)
        if column.sql is None:
            return default_sql(column.value_of)
        raw = RawValue(raw=raw_name(place), span=column.span)
        sql = value_sql(raw, column.value_of, types, assign, (column.value_of.name,))
        if not column.value_of.field_type.is_primitive:
            # Arrow has no struct that is NULL and has fields that are not: here all of them may be.
            sql = f"CAST({sql} AS {type_text(spark_type(column.value_of.field_type))})"
        return sql if column.guard is None else f"CASE WHEN {raw_name(column.guard)} THEN {sql} END"

    names = (key_name(place) for place in range(len(source.key_expressions)))
    columns = (f"{stored(place, column)} AS c{place}" for place, column in enumerate(plan.columns))
    rows = MAX_ROWS if source.known_rows is None else source.known_rows
    return bounded(inner.selectExpr(*names, *columns), max(MAX_ROW_BYTES, MAX_BYTES // (rows + 1)))


def key_name(place: int) -> str:
    """What a key is called: a name that no expression of the user's means."""
    return f"{INTERNAL_PREFIX}k{place}"


def bounded(frame: DataFrame, most_bytes: int) -> DataFrame:
    """Rows whose texts and the like are no longer than so many bytes; `FITS` says of each whether they were.

    Of a row that is too long nothing remains that is long: the driver asks for rows before it knows how long they are.
    """
    long = [quoted(column.name) for column in frame.schema.fields if not isinstance(column.dataType, SHORT)]
    if not long:
        return frame
    sizes = (f"coalesce(octet_length(CAST({name} AS STRING)), 0)" for name in long)
    named = frame.selectExpr("*", f"{' + '.join(sizes)} <= {most_bytes} AS {FITS}")
    columns = (f"IF({FITS}, {name}, NULL) AS {name}" if name in long else name for name in map(quoted, frame.columns))
    return named.selectExpr(*columns, FITS)


def sent(
    plan: BroadcastPlan, source: MergeSourceFrame, table: pa.Table, *, case_sensitive: bool
) -> BroadcastSource | None:
    """A source as it is sent; None where a key comes twice."""
    table = table.combine_chunks()
    count = len(source.pushable)
    if any(
        column.value_of is None and column.is_condition and kind != pa.bool_()
        for column, kind in zip(plan.columns, table.schema.types[count:], strict=True)
    ):
        return None  # an error, which Spark has the words for
    kinds = [arrow_type(column.field_type, spark=False) for column, _ in source.pushable] + [
        arrow_type(column.value_of.field_type, spark=True)
        if column.value_of is not None and column.value_of.field_type.is_primitive
        else None
        for column in plan.columns
    ]
    arrays = [
        as_array(column) if kind is None else as_array(column).cast(kind)
        for column, kind in zip(table.columns, kinds, strict=True)
    ]
    keys = arrays[:count]
    if not KeyIndex(keys).is_unique:
        return None
    known = pa.table(keys, names=table.column_names[:count]).filter(complete(keys))
    rows = pa.RecordBatch.from_arrays(arrays, names=table.column_names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(rows)
    return BroadcastSource(
        rows=BroadcastRows(join=plan.join, rows=sink.getvalue().to_pybytes(), case_sensitive=case_sensitive),
        keys=source_keys([column for column, _ in source.pushable], known),
    )


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def complete(keys: Sequence[pa.Array]) -> pa.Array:
    """Which keys have no NULL."""
    found = keys[0].is_valid()
    for key in keys[1:]:
        found = pc.and_(found, key.is_valid())
    return found


def write_broadcast_merge(
    spark: SparkSession,
    source: BroadcastSource,
    read_ids: tuple[int, ...],
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    spec: WriterSpec,
    table: Table,
) -> WriteOutcome:
    """Write the delta.

    Args:
        spark: The session.
        source: The source.
        read_ids: Field ids of the target's columns that are read.
        scan: The scan of the target.
        groups: Its tasks, whole files, as Spark's tasks get them.
        spec: The write.
        table: The table.

    Raises:
        SetupError: the workers run a Python without this package.
        DmlError: reading or writing failed; no file is left then. Of kind `OVERFLOW`: a number does not fit its type.
        PySparkException: Spark failed; no file is left then.
    """

    def left(commits: Sequence[TaskCommit]) -> TaskCommit | None:
        rows = inserted_rows(source.rows, spec, matched_rows(commits))
        return None if rows is None else held_inserts(rows, spec)

    inserts = bool(source.rows.join.inserted)
    if not groups:
        return written_by([], table, spec, left if inserts else None)
    check_workers(spark)
    task = BroadcastMergeTask(
        groups=PackedGroups.pack(groups, scan.context),
        read_ids=read_ids,
        source=source.rows,
        is_alone=len(groups) == 1,
        inserted={},
        spec=spec,
    )
    adds: DriverRows | None = left if inserts and not task.is_alone else None
    if adds is not None and spec.job is WriteJob.COPY_ON_WRITE and source.rows.join.matched:
        rows = inserted_rows(source.rows, spec, probed(spark, source.rows, scan, groups, spec))
        few = rows is not None and rows.num_rows <= FEW_ROWS
        task = replace(task, inserted={0: stream_of([rows])} if rows is not None and few else {})
        adds = None if rows is None or few else lambda _: held_inserts(rows, spec)
    return run_writing_tasks(task_frame(spark, len(groups), task, TASK_COMMIT_SCHEMA, len(groups)), table, spec, adds)


def probed(
    spark: SparkSession,
    source: BroadcastRows,
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    spec: WriterSpec,
) -> BitMap:
    """Which rows of the source match.

    Files that are written anew take few new rows along, so that a table has no more files after each MERGE; but which
    rows are new is known when all tasks have seen their keys.

    Raises:
        DmlError: a file cannot be read.
    """
    read_ids = columns_that_match(source, spec)
    context = replace(scan.context, projected_ids=read_ids)
    probe = BroadcastProbe(groups=PackedGroups.pack(groups, context), read_ids=read_ids, source=source, spec=spec)
    with ended_on_failure(spark):
        found = task_frame(spark, len(groups), probe, TASK_COMMIT_SCHEMA, len(groups)).collect()
    commits = [TaskCommit.from_bytes(bytes(row[0])) for row in found]
    for commit in commits:
        if commit.failure is not None:
            raise commit.failure
    return matched_rows(commits)
