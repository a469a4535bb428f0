"""Compute the rows of a MERGE's source for the tasks that read its target. Driver.

Input: the source, and the columns that a plan needs. Output: its keys and columns, which tasks receive with their
function, in a file on their machine, or by a broadcast variable; or the reason why not: it has too many bytes or a
duplicate key, or Spark cannot compute all of it. The limit is in bytes; the number of rows does not matter.

A query of one RowDelta table bypasses Spark: tasks scan the table, or the driver if its files are small. The driver
also computes constants and small foreign rows. Spark computes the other sources.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from dml import limits
from dml.engine.delta_query import value_sql
from dml.engine.merge_source import MergeSourceFrame, SourceKeys, key_name, source_keys
from dml.engine.scanned_rows import DriverRows, combine_chunks
from dml.engine.source_scan import SourceProgram, source_program
from dml.engine.writes import TASK_COMMIT_SCHEMA, checked_reports, task_reports
from dml.errors import DmlError
from dml.model.columns import FITS
from dml.model.scan_task import ScanTask
from dml.model.write_task import SourcePart
from dml.plan.row_delta_plan import RawValue, SentSourcePlan, SourceColumn, ThroughSpark, raw_name
from dml.read.projection import arrow_type
from dml.read.reader import TaskReader
from dml.rows.evaluate import UncomputableValueError
from dml.rows.lookup import KeyLookup, has_length
from dml.rows.program import Changes, Projection
from dml.scan.table_scan import spark_schema
from dml.spark.bridge.gateway import Py4JError
from dml.spark.jobs import cancel_on_interrupt, was_cancelled
from dml.spark.lazy_session import LazySession
from dml.spark.row_batches import ROW_LIMIT_PROPERTIES, can_limit_by_rows, mask_long_rows
from dml.spark.runtime import Runtime
from dml.spark.store_assignment import Assign, default_sql
from dml.spark.task_frames import estimated_bytes, task_frame
from dml.spark.types import spark_type, type_text
from dml.spark.versions import arrow_table
from dml.spark.workers import check_reads, check_workers, scratch_folder
from dml.tasks.row_task import RowTask, project
from dml.tasks.task_input import TaskInput
from dml.views import StatementViews
from dml.write.sent_rows import (
    BroadcastBatch,
    MappedBatch,
    PartWriter,
    SentBatch,
    StreamedBatch,
    part_columns,
    stream_bytes,
)

__all__ = ["SentSource", "bytes_read", "default_limit", "send_source"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSource:
    """The source of a MERGE, as tasks receive it.

    Attributes:
        program: The MERGE.
        rows: The rows.
        keys: Their keys, for the target's scan.
        row_count: The number of rows.
        row_bytes: The mean size of a row, in bytes.
        is_repeatable: Whether the source has the same rows when Spark reads it again.
        through_spark: The reason why Spark computed the rows; None if RowDelta's own scan read them.
    """

    program: Changes
    rows: SentBatch
    keys: SourceKeys
    row_count: int
    row_bytes: float
    is_repeatable: bool
    through_spark: ThroughSpark | None


def send_source(
    plan: SentSourcePlan, source: MergeSourceFrame, views: StatementViews, assign: Assign, most_bytes: int
) -> SentSource | ThroughSpark:
    """Compute the rows of a source and the columns that the statement's clauses need, and send them to tasks.

    Args:
        plan: The columns to compute.
        source: The source.
        views: The statement's views.
        assign: The rules of store assignment.
        most_bytes: The limit for the rows.

    Returns:
        `ThroughSpark` if the rows exceed the limit, a key is a duplicate, or Spark cannot compute all of the source:
        the statement may not need the failing values.

    Raises:
        PySparkException: The job was cancelled.
        Py4JError: The job was cancelled, as PySpark reports it for rows that are collected as Arrow.
    """
    try:
        if source.rows is None:
            return send_from_driver(plan, source, views.lazy_session, assign, most_bytes)
        expressions = source_expressions(plan, source, views)
        with cancel_on_interrupt(expressions.sparkSession):
            columns, through_spark = source_columns(plan, source, expressions, assign, most_bytes)
        if columns is None:
            return ThroughSpark(reason="the source, or one of its rows, is too large to send to each task")
        is_repeatable = through_spark is None or source.known_rows is not None or source.frame.is_cached
        lazy_session = LazySession(expressions.sparkSession)
        return make_sent_source(plan, source, columns, through_spark, lazy_session, is_repeatable=is_repeatable)
    except (PySparkException, Py4JError, DmlError, pa.ArrowException, OSError) as error:
        if was_cancelled(error):
            raise
        LOG.debug("The source of a MERGE cannot be sent to tasks: %s", error)
        return ThroughSpark(reason="not every row of the source could be computed before the join")


def send_from_driver(
    plan: SentSourcePlan, source: MergeSourceFrame, lazy_session: LazySession, assign: Assign, most_bytes: int
) -> SentSource | ThroughSpark:
    """Do the work of `send_source` for a source without a DataFrame; `ThroughSpark` also if it is too large."""
    program = source_program(plan, source, None, assign.policy)
    if isinstance(program, ThroughSpark):
        return program
    if lazy_session.is_deferred:
        most_bytes = min(most_bytes, limits.MAX_DRIVER_SOURCE_ROW_BYTES)
    try:
        columns = scanned_columns(lazy_session, program, most_bytes, in_driver=True)
    except UncomputableValueError as error:
        return ThroughSpark(reason=str(error))
    if columns is None:
        return ThroughSpark(reason="the source is too large for the driver to read")
    # While Spark is deferred, keys alone decide conflicts: comparing the full condition would start it.
    return make_sent_source(plan, source, columns, None, lazy_session, is_repeatable=not lazy_session.is_deferred)


def source_columns(
    plan: SentSourcePlan, source: MergeSourceFrame, expressions: DataFrame, assign: Assign, most_bytes: int
) -> tuple[list[pa.ChunkedArray] | None, ThroughSpark | None]:
    """Compute the keys and columns of a source by RowDelta's own scan, or through Spark.

    Args:
        plan: The columns.
        source: The source.
        expressions: As from `source_expressions`.
        assign: The rules of store assignment.
        most_bytes: The limit for the rows.

    Returns:
        The keys and columns, or None if all rows, or a single one, exceed their limit; and why Spark computed them.
    """
    program = source_program(plan, source, types_of(expressions), assign.policy)
    if isinstance(program, SourceProgram):
        try:
            return scanned_columns(LazySession(expressions.sparkSession), program, most_bytes), None
        except UncomputableValueError as error:
            program = ThroughSpark(reason=str(error))
    return computed_columns(source, stored_frame(plan, source, expressions, assign), most_bytes), program


def computed_columns(source: MergeSourceFrame, frame: DataFrame, most_bytes: int) -> list[pa.ChunkedArray] | None:
    """Compute the columns of a source; None if all rows, or a single one, exceed their limit.

    Args:
        source: The source.
        frame: The keys and columns of the source.
        most_bytes: The limit for the rows.
    """
    if Runtime.of(frame.sparkSession).is_connect:  # the rows travel with each plan that a client sends
        most_bytes = min(most_bytes, limits.MAX_TRIED_SOURCE_BYTES)
    size = estimated_bytes(source.frame)  # cheap: Spark has optimized this frame already
    if size is not None and size > limits.MAX_CACHED_SOURCE_BYTES:
        size = estimated_bytes(frame)
    if source.known_rows is not None and size is not None:
        if size > most_bytes:
            return None
        if size <= limits.MAX_CACHED_SOURCE_BYTES:
            return literal_columns(frame)
    if size is None or size > most_bytes:
        most_bytes = min(most_bytes, limits.MAX_TRIED_SOURCE_BYTES)
        source.keep()
    elif size <= limits.MAX_CACHED_SOURCE_BYTES:
        source.keep()
    return columns_of_frame(frame, most_bytes) if most_bytes else None


def default_limit(spark: SparkSession, tasks: int) -> int:
    """Return the limit for the rows of a source, in bytes, for tables without the property.

    Args:
        spark: The session.
        tasks: The number of concurrent tasks.
    """
    return (
        max(limits.MAX_TRIED_SOURCE_BYTES, limits.MAX_SHARED_SOURCE_BYTES // max(1, tasks))
        if Runtime.of(spark).shares_files
        else limits.MAX_CLUSTER_SOURCE_BYTES
    )


def literal_columns(frame: DataFrame) -> list[pa.ChunkedArray] | None:
    """Return the columns of a few rows that Spark has in its plan, without a task; None if a row is too long."""
    table = arrow_table(frame)
    if FITS in table.column_names:
        if not pc.all(table.column(FITS), min_count=0).as_py():
            return None
        table = table.drop_columns([FITS])
    columns: list[pa.ChunkedArray] = table.columns
    return columns


def columns_of_frame(frame: DataFrame, most_bytes: int) -> list[pa.ChunkedArray] | None:
    """Let tasks compute the columns of a source; None if they exceed the limit, or a row is too long.

    Spark's estimates may be far off: text in a file may be compressed, or computed by an expression.

    Args:
        frame: The rows, from `mask_long_rows`: the driver collects rows before it knows their total size.
        most_bytes: The limit for the rows.
    """
    fits = FITS if FITS in frame.columns else ""
    check_workers(frame.sparkSession)
    found = columns_of_parts(
        frame.sparkSession,
        lambda write: frame.mapInArrow(cast("Any", write), TASK_COMMIT_SCHEMA),
        most_bytes,
        fits,
        ROW_LIMIT_PROPERTIES if can_limit_by_rows(frame) else {},
    )
    if found == []:
        found = arrow_table(frame.limit(0)).columns
        del found[len(found) - bool(fits) :]
    return found


def columns_of_parts(
    spark: SparkSession,
    job: Callable[[PartWriter], DataFrame],
    most_bytes: int,
    fits: str = "",
    properties: Mapping[str, str] = MappingProxyType({}),
) -> list[pa.ChunkedArray] | None:
    """Run a job whose tasks send rows to the driver.

    Args:
        spark: The session.
        job: Returns the reports of tasks that pass their rows to the writer.
        most_bytes: The limit for the rows.
        fits: As in `PartWriter`.
        properties: Local properties of the job.

    Returns:
        The columns, an empty list if there are no rows; None if they exceed the limit, or a row is too long.

    Raises:
        DmlError: A task failed.
        PySparkException: Spark failed.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(spark.sparkContext)) if Runtime.of(spark).shares_files else ""
        write = PartWriter(folder=folder, most_bytes=most_bytes, held_bytes=limits.MAX_INLINE_SOURCE_BYTES, fits=fits)
        parts = [part for part in checked_reports(task_reports(job(write), properties)) if isinstance(part, SourcePart)]
        if not all(part.fits for part in parts):
            return None
        found = part_columns(parts)
    return None if sum(column.nbytes for column in found) > most_bytes else found


def scanned_columns(
    lazy_session: LazySession, program: SourceProgram, most_bytes: int, *, in_driver: bool = False
) -> list[pa.ChunkedArray] | None:
    """Read a source by RowDelta's own scan, and compute its keys and columns; None if they exceed the limit.

    Args:
        lazy_session: The Spark session, which starts on first use.
        program: The program of the source.
        most_bytes: The limit for the rows.
        in_driver: Whether tasks must not read it: None if its files are too many or too large for the driver.

    Raises:
        UncomputableValueError: Only Spark can compute a value.
        DmlError: A file cannot be read.
        PySparkException: Spark failed.
    """
    if not most_bytes:
        return None
    rows, values = program.rows, program.fields
    if isinstance(rows, DriverRows):
        return computed_by(program, [rows.columns[number - 1] for number in program.field_ids], most_bytes)
    spark = None if lazy_session.is_deferred else lazy_session.spark
    scan = rows.scan(values)
    tasks = scan.plan().tasks
    context = replace(scan.context(tasks), decides_rows=True)  # Spark does not filter the rows again
    size = scan.size(tasks, spark_schema(context)).size
    if (spark is not None and Runtime.of(spark).is_connect) or size is None or size > most_bytes:
        most_bytes = min(most_bytes, limits.MAX_TRIED_SOURCE_BYTES)
    found: list[pa.ChunkedArray] | None
    if len(tasks) <= limits.MAX_DRIVER_SOURCE_FILES and sum(map(bytes_read, tasks)) <= limits.MAX_DRIVER_SOURCE_BYTES:
        # Small batches: a few bytes of a file may hold many long texts.
        reader = TaskReader(replace(context, batch_rows=limits.DRIVER_SOURCE_BATCH_ROWS))
        batches = (batch for task in tasks for batch in reader.read(task))
        found = columns_of_batches((project(batch, context, values) for batch in batches), most_bytes)
    elif in_driver or spark is None:
        return None
    else:
        check_reads(spark, rows.table)
        groups = scan.groups(tasks, rows.parallelism)
        task = RowTask(input=TaskInput.of(groups, context), program=Projection(values=values))
        found = columns_of_parts(
            spark,
            lambda write: task_frame(
                lazy_session.spark, len(groups), replace(task, sink=write), TASK_COMMIT_SCHEMA, len(groups)
            ),
            most_bytes,
        )
    if found is None:
        return None
    found = found or [pa.chunked_array([], value.type) for value in values]
    return computed_by(program, [combine_chunks(column) for column in found], most_bytes)


def computed_by(program: SourceProgram, fields: Sequence[pa.Array], most_bytes: int) -> list[pa.ChunkedArray] | None:
    """Compute the keys and columns of a source from its fields; None if they exceed the limit."""
    columns = program.compute(fields)
    if sum(column.nbytes for column in columns) > most_bytes or longest_row(columns) > limits.MAX_SOURCE_ROW_BYTES:
        return None
    return [pa.chunked_array([column]) for column in columns]


def longest_row(columns: Sequence[pa.Array]) -> int:
    """Return the maximum bytes of text in one row. Many rows of the target may get a copy of it."""
    texts = [pc.binary_length(column).fill_null(0) for column in columns if has_length(column.type)]
    return (pc.max(reduce(pc.add, texts)).as_py() or 0) if texts else 0


def bytes_read(task: ScanTask) -> int:
    """Return the bytes of a data file and of its delete files."""
    deletes = (*task.position_deletes, *task.equality_deletes, *filter(None, (task.deletion_vector,)))
    return task.length + sum(delete.content_size_in_bytes or delete.file_size_in_bytes for delete in deletes)


def columns_of_batches(batches: Iterable[pa.RecordBatch], most_bytes: int) -> list[pa.ChunkedArray] | None:
    """Return the columns of batches, an empty list if there are none; None if they exceed a limit."""
    held, size = list[pa.RecordBatch](), 0
    for batch in batches:
        size += batch.nbytes
        if size > most_bytes:
            return None
        held.append(batch)
    columns: list[pa.ChunkedArray] = pa.Table.from_batches(held).columns if held else []
    return columns


def source_expressions(plan: SentSourcePlan, source: MergeSourceFrame, views: StatementViews) -> DataFrame:
    """Select the keys of a source and the expressions of its columns, in the types that Spark infers."""
    raws = ", ".join(f"{column.sql} AS {raw_name(place)}" for place, column in enumerate(plan.columns) if column.sql)
    keys = ", ".join(f"{key} AS {key_name(place)}" for place, key in enumerate(source.key_expressions))
    return views.sql(f"SELECT {', '.join(filter(None, (keys, raws)))} FROM {plan.source}")


def types_of(frame: DataFrame) -> dict[str, DataType]:
    return {field.name: field.dataType for field in frame.schema.fields}


def stored_frame(plan: SentSourcePlan, source: MergeSourceFrame, expressions: DataFrame, assign: Assign) -> DataFrame:
    """Select the keys of a source, and its columns as they are stored."""
    types = types_of(expressions)

    def stored(place: int, column: SourceColumn) -> str:
        if column.value_of is None:
            return raw_name(place)
        if column.sql is None:
            return default_sql(column.value_of)
        raw = RawValue(raw=raw_name(place), span=column.span)
        sql = value_sql(raw, column.value_of, types, assign, (column.value_of.name,))
        if not column.value_of.field_type.is_primitive:
            # The cast makes all fields nullable: Arrow requires it of the fields of a struct that is NULL.
            sql = f"CAST({sql} AS {type_text(spark_type(column.value_of.field_type))})"
        return sql if column.guard is None else f"CASE WHEN {raw_name(column.guard)} THEN {sql} END"

    names = (key_name(place) for place in range(len(source.key_expressions)))
    columns = (f"{stored(place, column)} AS c{place}" for place, column in enumerate(plan.columns))
    known = source.known_rows
    most = (
        limits.MAX_SOURCE_ROW_BYTES
        if known is None
        else max(limits.MAX_SOURCE_ROW_BYTES, limits.MAX_TRIED_SOURCE_BYTES // (known + 1))
    )
    return mask_long_rows(expressions.selectExpr(*names, *columns), most)


def make_sent_source(
    plan: SentSourcePlan,
    source: MergeSourceFrame,
    columns: list[pa.ChunkedArray],
    through_spark: ThroughSpark | None,
    lazy_session: LazySession,
    *,
    is_repeatable: bool,
) -> SentSource | ThroughSpark:
    """Return a source as it is sent, or the reason why not: a duplicate key, or a condition that is not boolean.

    Args:
        plan: The columns that were computed.
        source: The source.
        columns: Its keys and columns. They are removed from the list one by one, so that none is held twice.
        through_spark: As in `SentSource`.
        lazy_session: The Spark session, which starts on first use.
        is_repeatable: As in `SentSource`.
    """
    keys = [
        combine_chunks(columns.pop(0)).cast(arrow_type(column.field_type, spark=False)) for column, _ in source.pushable
    ]
    others = [combine_chunks(columns.pop(0)) for _ in source.pruning_keys[len(keys) :]]
    arrays = list(keys)
    for column in plan.columns:
        array = combine_chunks(columns.pop(0))
        if column.value_of is None and column.is_condition and array.type != pa.bool_():
            return ThroughSpark(reason="a condition is not boolean")  # Spark raises the error
        if column.value_of is not None and column.value_of.field_type.is_primitive:
            array = array.cast(arrow_type(column.value_of.field_type, spark=True))
        elif pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))
        arrays.append(array)
    if not KeyLookup(keys, source.null_safe).is_unique:
        return ThroughSpark(reason="two rows of the source have the same key")
    names = [f"k{place}" for place in range(len(keys))]
    known = pa.table([*keys, *others], names=[key_name(place) for place in range(len(source.pruning_keys))])
    matching = [key.is_valid() for place, key in enumerate(keys) if key.null_count and place not in source.null_safe]
    if matching:
        known = known.filter(reduce(pc.and_, matching))
    rows = pa.RecordBatch.from_arrays(arrays, names=[*names, *(f"c{place}" for place in range(len(plan.columns)))])
    return SentSource(
        program=plan.program,
        rows=sent_batch(source, rows, lazy_session),
        keys=source_keys(source, known),
        row_count=rows.num_rows,
        row_bytes=rows.nbytes / max(1, rows.num_rows),
        is_repeatable=is_repeatable,
        through_spark=through_spark,
    )


def sent_batch(source: MergeSourceFrame, batch: pa.RecordBatch, lazy_session: LazySession) -> SentBatch:
    """Return a batch in the form that tasks receive. Its file or variable exists until the source is released."""
    if batch.nbytes <= limits.MAX_INLINE_SOURCE_BYTES:
        return StreamedBatch.of(batch)
    spark, runtime = lazy_session.spark, lazy_session.runtime
    if runtime.is_connect:
        return StreamedBatch.of(batch)
    if runtime.shares_files:
        folder = source.resources.enter_context(scratch_folder(spark.sparkContext))
        return MappedBatch.write(f"{folder}/source.arrow", batch)
    variable = spark.sparkContext.broadcast(stream_bytes([batch], batch.schema))
    source.resources.callback(variable.destroy)
    return BroadcastBatch(variable, batch)
