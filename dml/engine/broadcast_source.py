"""The source of a MERGE as the tasks that read its target get it: all rows of it, computed by Spark. Driver.

Input: the source, and what a plan wants of it. Output: its keys and columns, to be sent with the function that tasks
run where they are few, else in a file that these map into memory; None where it is too large, a key comes twice, or
Spark cannot compute all of it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

from dml.engine.delta_query import value_sql
from dml.engine.merge_source import INTEGERS, MergeSourceFrame, SourceKeys, source_keys
from dml.errors import DmlError
from dml.model.columns import INTERNAL_PREFIX
from dml.plan.row_delta_plan import BroadcastPlan, RawValue, SourceColumn, raw_name
from dml.read.key_index import KeyIndex
from dml.read.projection import arrow_type
from dml.spark.handlers import is_classic
from dml.spark.jobs import cancelled_on_interrupt, ended_on_failure, was_cancelled
from dml.spark.local_rows import estimated_bytes
from dml.spark.store_assignment import Assign, default_sql
from dml.spark.types import spark_type, type_text
from dml.spark.versions import arrow_table
from dml.spark.workers import check_workers, run_here, scratch_folder
from dml.sqlparse.quoting import quoted
from dml.views import StatementViews
from dml.write.broadcast_merge import BroadcastRows
from dml.write.source_parts import MappedBatch, PartWriter, mapped_columns

__all__ = ["BroadcastSource", "broadcast_source"]

LOG = logging.getLogger(__name__)

MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 16 * 2**20
"""More is not sent with the function, and not asked for before Spark has said about how large it is."""

MAX_ROW_BYTES: Final = 1024
"""Of more in a row 100,000 of them would be more than a driver should be asked to take."""

ENCRYPTS: Final = "spark.io.encryption.enabled"

FITS: Final = f"{INTERNAL_PREFIX}fits"

SHORT: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType)
"""Spark's types whose values all have some bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastSource:
    """The source of a MERGE, as tasks get it.

    Attributes:
        rows: The rows.
        keys: Their keys, for the target's scan.
        row_count: How many there are.
        is_large: Whether they are in a file. Spark has not kept them then: asked again, the source may give others.
    """

    rows: BroadcastRows
    keys: SourceKeys
    row_count: int
    is_large: bool


def broadcast_source(
    plan: BroadcastPlan, source: MergeSourceFrame, views: StatementViews, assign: Assign, most_bytes: int
) -> BroadcastSource | None:
    """The rows of a source, with what the statement's clauses make of them.

    Args:
        plan: What to compute.
        source: The source.
        views: The statement's views.
        assign: The rules of store assignment.
        most_bytes: So many bytes it may have where Spark knows about how many it has.

    Returns:
        None where they are too many, where a key comes twice, or where Spark cannot compute all of it: it may be that
        nobody needs what it cannot.

    Raises:
        PySparkException: somebody has cancelled the job.
        Py4JError: the same, as PySpark says it of rows that are collected as Arrow.
    """
    try:
        frame = source_frame(plan, source, views, assign)
        is_large = looks_large(source, frame, most_bytes)
        with cancelled_on_interrupt(frame.sparkSession):
            columns = columns_in_files(frame, most_bytes) if is_large else columns_of(source, frame)
        if columns is None:
            return None
        return sent(plan, source, columns, case_sensitive=assign.case_sensitive, is_large=is_large)
    except (PySparkException, Py4JError, DmlError, pa.ArrowException, OSError) as error:
        if was_cancelled(error):
            raise
        LOG.debug("The source of a MERGE cannot be sent to tasks: %s", error)
        return None


def looks_large(source: MergeSourceFrame, frame: DataFrame, most_bytes: int) -> bool:
    """Whether a source is to be sent as a large one.

    Spark takes it for more than a small one, and what is asked of it for no more than may be sent; its key is one whole
    number or date, which tasks look up without a hash table; and all tasks run on this machine, where no file has to be
    encrypted.
    """
    keys = [column.field_type for column, _ in source.pushable]
    if source.known_rows is not None or len(keys) != 1 or not isinstance(keys[0], INTEGERS):
        return False
    if not shares_files(frame.sparkSession):
        return False
    size = estimated_bytes(source.frame)  # which has been optimized already: a small source costs no more than this
    if size is None or size <= MAX_BYTES:
        return False
    size = estimated_bytes(frame)
    return size is not None and MAX_BYTES < size <= most_bytes


def shares_files(spark: SparkSession) -> bool:
    """Whether tasks and driver may leave rows to each other in files."""
    if not is_classic(spark) or not run_here(spark.sparkContext):
        return False
    return (spark.sparkContext.getConf().get(ENCRYPTS) or "false").strip().lower() != "true"


def columns_of(source: MergeSourceFrame, frame: DataFrame) -> list[pa.ChunkedArray] | None:
    """The columns of a small source, by way of the JVM; None where it is not small, or a row of it is not."""
    source.keep()
    table = arrow_table(frame if source.known_rows is not None else frame.limit(MAX_ROWS + 1))
    if FITS in table.column_names:
        if not pc.all(table.column(FITS), min_count=0).as_py():
            return None
        table = table.drop_columns([FITS])
    if table.nbytes > MAX_BYTES or table.num_rows > MAX_ROWS:
        return None
    columns: list[pa.ChunkedArray] = table.columns
    return columns


def columns_in_files(frame: DataFrame, most_bytes: int) -> list[pa.ChunkedArray] | None:
    """The columns of a large source, which tasks have put into files; None where it is too large, or a row of it is.

    What Spark believes of sizes may be wrong by far: text in a file may be compressed, or made by an expression.
    """
    spark, fits = frame.sparkSession, FITS if FITS in frame.columns else ""
    check_workers(spark)
    with scratch_folder(spark.sparkContext) as folder:
        write = PartWriter(folder=folder, most_bytes=most_bytes, fits=fits)
        with ended_on_failure(spark):
            parts = frame.mapInArrow(cast("Any", write), "path STRING, fits BOOLEAN").collect()
        if not all(part.fits for part in parts):
            return None
        found = mapped_columns(part.path for part in parts if part.path)  # which stay when the files are gone
    if not found:
        found = arrow_table(frame.limit(0)).columns
        del found[len(found) - bool(fits) :]
    return found


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
    plan: BroadcastPlan,
    source: MergeSourceFrame,
    columns: list[pa.ChunkedArray],
    *,
    case_sensitive: bool,
    is_large: bool,
) -> BroadcastSource | None:
    """A source as it is sent; None where a key comes twice.

    Args:
        plan: What Spark has computed.
        source: The source.
        columns: Its keys and columns. They are taken out of the list one by one, so that none is held twice.
        case_sensitive: How names match.
        is_large: Whether it is sent as a file.
    """
    keys = [as_array(columns.pop(0)).cast(arrow_type(column.field_type, spark=False)) for column, _ in source.pushable]
    arrays = list(keys)
    for column in plan.columns:
        array = as_array(columns.pop(0))
        if column.value_of is None and column.is_condition and array.type != pa.bool_():
            return None  # an error, which Spark has the words for
        if column.value_of is not None and column.value_of.field_type.is_primitive:
            array = array.cast(arrow_type(column.value_of.field_type, spark=True))
        elif pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))
        arrays.append(array)
    if not KeyIndex(keys).is_unique:
        return None
    names = [f"k{place}" for place in range(len(keys))]
    known = pa.table(keys, names=names)
    if any(key.null_count for key in keys):
        known = known.filter(complete(keys))
    rows = pa.RecordBatch.from_arrays(arrays, names=[*names, *(f"c{place}" for place in range(len(plan.columns)))])
    return BroadcastSource(
        rows=BroadcastRows(
            join=plan.join, rows=in_file(source, rows) if is_large else compressed(rows), case_sensitive=case_sensitive
        ),
        keys=source_keys([column for column, _ in source.pushable], known),
        row_count=rows.num_rows,
        is_large=is_large,
    )


def in_file(source: MergeSourceFrame, batch: pa.RecordBatch) -> MappedBatch:
    """A batch in a file, which is there until the source is released."""
    folder = source.resources.enter_context(scratch_folder(source.frame.sparkSession.sparkContext))
    return MappedBatch.write(f"{folder}/source.arrow", batch)


def compressed(batch: pa.RecordBatch) -> bytes:
    """A batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def complete(keys: Sequence[pa.Array]) -> pa.Array:
    """Which keys have no NULL."""
    found = keys[0].is_valid()
    for key in keys[1:]:
        found = pc.and_(found, key.is_valid())
    return found
