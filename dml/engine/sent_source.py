"""Compute the rows of a MERGE's source for the tasks that read its target. Driver.

Input: the source, and the columns that a plan needs. Output: its keys and columns, which tasks receive with their
function, in a file on their machine, or by a broadcast variable; or the reason why not: it has too many bytes or a
duplicate key, or Spark cannot compute all of it. The limit is in bytes; the number of rows does not matter.
"""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

from dml import limits
from dml.engine.delta_query import value_sql
from dml.engine.merge_source import MergeSourceFrame, SourceKeys, key_name, source_keys
from dml.errors import DmlError
from dml.model.columns import INTERNAL_PREFIX
from dml.plan.row_delta_plan import RawValue, SentSourcePlan, SourceColumn, ThroughSpark, raw_name
from dml.read.projection import arrow_type
from dml.rows.lookup import KeyLookup
from dml.rows.program import Changes
from dml.spark.handlers import is_classic
from dml.spark.jobs import cancelled_on_interrupt, ended_on_failure, was_cancelled
from dml.spark.local_rows import estimated_bytes
from dml.spark.store_assignment import Assign, default_sql
from dml.spark.types import spark_type, type_text
from dml.spark.versions import arrow_table
from dml.spark.workers import check_workers, scratch_folder, shares_files
from dml.sqlparse.quoting import quoted
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

__all__ = ["SentSource", "default_limit", "send_source"]

LOG = logging.getLogger(__name__)


FITS: Final = f"{INTERNAL_PREFIX}fits"

SHORT: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType)
"""Spark's types whose values all have some bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSource:
    """The source of a MERGE, as tasks get it.

    Attributes:
        program: The MERGE.
        rows: The rows.
        keys: Their keys, for the target's scan.
        row_count: The number of rows.
        row_bytes: The mean size of a row, in bytes.
        is_repeatable: Whether the source has the same rows when Spark reads it again.
    """

    program: Changes
    rows: SentBatch
    keys: SourceKeys
    row_count: int
    row_bytes: float
    is_repeatable: bool


def send_source(
    plan: SentSourcePlan, source: MergeSourceFrame, views: StatementViews, assign: Assign, most_bytes: int
) -> SentSource | ThroughSpark:
    """The rows of a source, with what the statement's clauses make of them.

    Args:
        plan: What to compute.
        source: The source.
        views: The statement's views.
        assign: The rules of store assignment.
        most_bytes: The limit for the rows.

    Returns:
        `ThroughSpark` if the rows exceed the limit, a key is a duplicate, or Spark cannot compute all of the source:
        the statement may not need what it cannot compute.

    Raises:
        PySparkException: The job was cancelled.
        Py4JError: The job was cancelled, as PySpark reports it for rows that are collected as Arrow.
    """
    try:
        frame = source_frame(plan, source, views, assign)
        with cancelled_on_interrupt(frame.sparkSession):
            columns = computed_columns(source, frame, most_bytes)
        if columns is None:
            return ThroughSpark(reason="the source, or one of its rows, is too large to send to each task")
        return sent(plan, source, columns)
    except (PySparkException, Py4JError, DmlError, pa.ArrowException, OSError) as error:
        if was_cancelled(error):
            raise
        LOG.debug("The source of a MERGE cannot be sent to tasks: %s", error)
        return ThroughSpark(reason="Spark could not compute every row of the source before the join")


def computed_columns(source: MergeSourceFrame, frame: DataFrame, most_bytes: int) -> list[pa.ChunkedArray] | None:
    """Compute the columns of a source; None if all rows, or a single one, exceed their limit.

    Args:
        source: The source.
        frame: The keys and columns of the source.
        most_bytes: The limit for the rows.
    """
    if not is_classic(frame.sparkSession):  # the rows travel with each plan that a client sends
        most_bytes = min(most_bytes, limits.MAX_TRIED_SOURCE_BYTES)
    size = estimated_bytes(source.frame)  # which has been optimized already
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
    return columns_of_parts(frame, most_bytes) if most_bytes else None


def default_limit(spark: SparkSession, tasks: int) -> int:
    """Return the limit for the rows of a source, in bytes, for tables without the property.

    Args:
        spark: The session.
        tasks: The number of concurrent tasks.
    """
    return (
        max(limits.MAX_TRIED_SOURCE_BYTES, limits.MAX_SHARED_SOURCE_BYTES // max(1, tasks))
        if shares_files(spark)
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


def columns_of_parts(frame: DataFrame, most_bytes: int) -> list[pa.ChunkedArray] | None:
    """Let tasks compute the columns of a source; None if they exceed the limit, or a row is too long.

    Spark's estimates may be far off: text in a file may be compressed, or computed by an expression.
    """
    spark, fits = frame.sparkSession, FITS if FITS in frame.columns else ""
    check_workers(spark)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(spark.sparkContext)) if shares_files(spark) else ""
        write = PartWriter(folder=folder, most_bytes=most_bytes, held_bytes=limits.MAX_INLINE_SOURCE_BYTES, fits=fits)
        stack.enter_context(ended_on_failure(spark))
        parts = frame.mapInArrow(cast("Any", write), "path STRING, rows BINARY, fits BOOLEAN").collect()
        if not all(part.fits for part in parts):
            return None
        found = part_columns(parts)
    if not found:
        found = arrow_table(frame.limit(0)).columns
        del found[len(found) - bool(fits) :]
    return None if sum(column.nbytes for column in found) > most_bytes else found


def source_frame(plan: SentSourcePlan, source: MergeSourceFrame, views: StatementViews, assign: Assign) -> DataFrame:
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
    known = source.known_rows
    most = (
        limits.MAX_SOURCE_ROW_BYTES
        if known is None
        else max(limits.MAX_SOURCE_ROW_BYTES, limits.MAX_TRIED_SOURCE_BYTES // (known + 1))
    )
    return bounded(inner.selectExpr(*names, *columns), most)


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


def sent(plan: SentSourcePlan, source: MergeSourceFrame, columns: list[pa.ChunkedArray]) -> SentSource | ThroughSpark:
    """A source as it is sent, if no key comes twice.

    Args:
        plan: What Spark has computed.
        source: The source.
        columns: Its keys and columns. They are taken out of the list one by one, so that none is held twice.
    """
    keys = [as_array(columns.pop(0)).cast(arrow_type(column.field_type, spark=False)) for column, _ in source.pushable]
    others = [as_array(columns.pop(0)) for _ in source.pruning_keys[len(keys) :]]
    arrays = list(keys)
    for column in plan.columns:
        array = as_array(columns.pop(0))
        if column.value_of is None and column.is_condition and array.type != pa.bool_():
            return ThroughSpark(reason="a condition is not boolean")  # Spark has the words for this error
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
        rows=sent_batch(source, rows),
        keys=source_keys(source, known),
        row_count=rows.num_rows,
        row_bytes=rows.nbytes / max(1, rows.num_rows),
        is_repeatable=source.known_rows is not None or source.frame.is_cached,
    )


def sent_batch(source: MergeSourceFrame, batch: pa.RecordBatch) -> SentBatch:
    """Return a batch in the form that tasks receive. Its file or variable exists until the source is released."""
    spark = source.frame.sparkSession
    if batch.nbytes <= limits.MAX_INLINE_SOURCE_BYTES or not is_classic(spark):
        return StreamedBatch.of(batch)
    if shares_files(spark):
        folder = source.resources.enter_context(scratch_folder(spark.sparkContext))
        return MappedBatch.write(f"{folder}/source.arrow", batch)
    variable = spark.sparkContext.broadcast(stream_bytes([batch], batch.schema))
    source.resources.callback(variable.destroy)
    return BroadcastBatch(variable)


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
