"""Write the micro-batches of a streaming query to a table, each once. Driver.

Input: a query's sink, the number of a micro-batch, its rows. Output: a snapshot that records the query and the number.
If the branch has this micro-batch already, the files of this run are deleted instead.

Two adapters share this. Spark's own sink (`dml.connector.write`) runs the planned function in the tasks of its job and
calls `commit_epoch` with their reports. A function of `foreachBatch` has a DataFrame: `StreamSink.write` plans it,
writes it like the rows of an INSERT, and commits.

The table is reloaded for each micro-batch, because its schema, partitioning and properties may change while a stream
runs.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dml.catalog.registry import ResolvedTable
from dml.commit import AlreadyAppliedError, StreamEpoch
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
from dml.engine.schema_evolution import Fitted, merge_target_schema
from dml.engine.target import Target, write_target
from dml.engine.writes import WriteOutcome
from dml.errors import DmlError, NotFoundError, NotSupportedError
from dml.options import boolean
from dml.spark.bridge.gateway import to_callback_error
from dml.spark.handlers import run_as_handler
from dml.spark.jobs import running_query_id
from dml.spark.lazy_session import LazySession
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import Span
from dml.streaming.columns import stream_columns
from dml.write.delta_writer import StreamColumn, StreamRows

__all__ = [
    "EpochWrite",
    "LocalBatches",
    "StreamOptions",
    "StreamSink",
    "WriteBatch",
    "commit_epoch",
    "continuous_mode_error",
    "fit_stream",
    "plan_epoch",
    "stream_options",
]

LOG: Final = logging.getLogger(__name__)

Refine = Callable[[InsertOptions, Table], InsertOptions]
WriteBatch = Callable[[Engine, DataFrame, str, int], None]
"""Writes a micro-batch once: the engine of its session, its rows, the query's id, the number of the micro-batch."""


ADOPT_CHECKPOINT: Final = "adopt-checkpoint"

SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options that Spark handles itself and also passes to the sink."""

OVERWRITE_OPTIONS: Final = frozenset(
    {"isolation-level", "overwrite-mode", "overwrite-schema", "overwriteschema", "validate-from-snapshot-id"}
)
"""INSERT options that streams reject: a stream appends, or replaces all rows unconditionally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The parsed options of a stream's writer.

    Attributes:
        write: The options that an INSERT also has.
        adopts_checkpoint: True if the stream may continue from a checkpoint whose earlier micro-batches are not in the
            table.
    """

    write: InsertOptions
    adopts_checkpoint: bool = False


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream's writer.

    Args:
        given: The options by name, in any case.

    Raises:
        NotSupportedError: An option is unknown, or not available for streams.
        AnalysisError: An option has an invalid value.
    """
    lower = {key.lower(): value for key, value in given.items()}
    refused = sorted(OVERWRITE_OPTIONS.intersection(lower))
    if refused:
        raise NotSupportedError(
            f"The write option '{refused[0]}' is not supported for streams",
            hint="Remove it: a stream appends, or replaces all rows in complete mode",
            option=refused[0],
        )
    return StreamOptions(
        write=insert_options(
            [pair for pair in given.items() if pair[0].lower() not in {*SPARK_OPTIONS, ADOPT_CHECKPOINT}]
        ),
        adopts_checkpoint=boolean(lower, ADOPT_CHECKPOINT, default=False),
    )


def check_output_mode(table: Iterable[str], mode: str) -> None:
    """Check that the output mode of a stream is `append` or `complete`.

    Args:
        table: The parts of the table's name.
        mode: The output mode, in any letter case.

    Raises:
        NotSupportedError: It is another mode.
    """
    if mode.lower() not in {"append", "complete"}:
        raise NotSupportedError(
            f"A stream into '{quote_name(table)}' does not support {mode.lower()} mode",
            hint="Use append or complete mode, or lake.stream_merge to merge updates by a key",
            option="outputMode",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSink:
    """The target of a streaming query. It can be pickled.

    Attributes:
        table: The table's name, catalog first, with its branch at the end.
        table_uuid: The identity of the table when the query started. A table of another UUID is an error.
        options: The options of the stream's writer.
        complete: True if the rows of a micro-batch replace all others.
    """

    table: tuple[str, ...]
    table_uuid: UUID
    options: StreamOptions
    complete: bool

    @staticmethod
    def of(resolved: ResolvedTable, options: StreamOptions, *, complete: bool) -> "StreamSink":
        """Return the sink of a query that starts on a table."""
        return StreamSink(
            table=resolved.branch_parts,
            table_uuid=resolved.table.metadata.table_uuid,
            options=options,
            complete=complete,
        )

    def epoch(self, query_id: str, number: int) -> StreamEpoch:
        """Return the identity of a micro-batch."""
        return StreamEpoch(
            query_id=query_id,
            epoch_id=number,
            table_uuid=self.table_uuid,
            adopts_checkpoint=self.options.adopts_checkpoint,
        )

    def write(self, engine: Engine, batch: DataFrame, query_id: str, number: int) -> None:
        """Write the rows of a micro-batch, unless the table has it already.

        Args:
            engine: The session of the micro-batch, and the catalogs.
            batch: The rows.
            query_id: The query.
            number: The number of the micro-batch.

        Raises:
            NotFoundError: The table or its branch does not exist any more.
            DmlError: The rows do not fit the table, or the table cannot be written.
        """
        with run_as_handler():
            write = plan_epoch(engine, self, self.epoch(query_id, number), batch.schema).rows
            rows = rows_by_name(batch, Fitted(target=write.target), StatementSettings.of(engine))
            with skip_if_applied(write):
                write_rows(write, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBatches:
    """The function of `foreachBatch` on classic Spark, which runs in the process of the session.

    Attributes:
        engine: The session that started the query, and its catalogs.
        write: Writes a micro-batch.
    """

    engine: Engine = field(repr=False)
    write: WriteBatch

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write the micro-batch in its own session, a clone of the one that started the query."""
        engine = replace(self.engine, lazy_session=LazySession(batch.sparkSession), progress=False)
        try:
            self.write(engine, batch, running_query_id(), number)
        except DmlError as error:
            raise to_callback_error(error) from error  # so that awaitTermination raises this error, unwrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochWrite:
    """The planned write of a micro-batch.

    Attributes:
        rows: The write.
        function: The function that each task runs if Spark distributes the rows.
    """

    rows: RowsWrite
    function: StreamRows


def plan_epoch(
    engine: Engine, sink: StreamSink, epoch: StreamEpoch, stream: StructType, refine: Refine | None = None
) -> EpochWrite:
    """Plan how a micro-batch is written.

    Args:
        engine: The session and its catalogs.
        sink: The sink of its query.
        epoch: The query and the number of the micro-batch.
        stream: The columns of its rows.
        refine: Adjusts the write options if Spark distributes the rows by columns; None if RowDelta distributes them.

    Raises:
        NotFoundError: The table or its branch does not exist any more.
        DmlError: The rows do not fit the table, or the table cannot be written.
    """
    started = time.perf_counter()
    target, columns = fit_stream(engine, sink, stream, epoch)
    options = sink.options.write
    rows = plan_rows_write(
        engine,
        target,
        "INSERT OVERWRITE" if sink.complete else "INSERT",
        started,
        replaced=Replaced(row_filter=AlwaysTrue()) if sink.complete else None,
        options=options if refine is None else refine(options, target.table),
        by_columns=refine is not None,
    )
    return EpochWrite(rows=rows, function=StreamRows(task=rows.task, columns=columns))


def fit_stream(
    engine: Engine, sink: StreamSink, stream: StructType, epoch: StreamEpoch | None = None
) -> tuple[Target, tuple[StreamColumn, ...]]:
    """Load the table of a query, and match the columns of its rows.

    Args:
        engine: The session and its catalogs.
        sink: The sink of the query.
        stream: The columns of the rows.
        epoch: The micro-batch to write; None to check the columns before the query starts.

    Returns:
        The table, with the columns that the rows add, and the source of each of its columns.

    Raises:
        NotFoundError: The table or its branch does not exist any more.
        DmlError: The rows do not fit the table, or the table cannot be written.
    """
    settings = StatementSettings.of(engine)
    resolved = engine.registry.resolve(sink.table)
    if resolved is None:
        raise NotFoundError(
            f"The table {'.'.join(sink.table)}, which the stream writes to, does not exist any more",
            hint="It was dropped or renamed: start the stream again with another table and a new checkpoint",
        )
    options = sink.options.write
    target = write_target(resolved, settings, "INSERT", branch_option=options.branch, idempotency_key=epoch)
    if options.columns.in_session(settings).merges:
        target = merge_target_schema(target, stream, settings, Span(0, len(target.names.sql)))
    columns = stream_columns(stream, target.table.schema(), resolved.name, case_sensitive=settings.case_sensitive)
    return target, columns


def commit_epoch(write: RowsWrite, written: WriteOutcome) -> None:
    """Commit what the tasks of a micro-batch wrote, unless the branch has the micro-batch already.

    Args:
        write: The micro-batch.
        written: The combined output of the tasks.

    Raises:
        DmlError: The commit failed. Its files have been deleted.
    """
    with skip_if_applied(write):
        commit_rows(write, written)


@contextmanager
def skip_if_applied(write: RowsWrite) -> Iterator[None]:
    """Treat a micro-batch that the branch already has as success; the commit has deleted the files of this run."""
    try:
        yield
    except AlreadyAppliedError as found:
        LOG.info("%s: %s", write.target.resolved.name, found.message)


def continuous_mode_error() -> NotSupportedError:
    """Build the error for a stream in continuous mode."""
    return NotSupportedError(
        "Streams write to tables in micro-batches, not in continuous mode",
        hint="Use trigger(processingTime=...) or trigger(availableNow=True)",
    )
