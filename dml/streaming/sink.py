"""Write one micro-batch of a streaming query to a table. Driver.

Input: the query, the number of its micro-batch, the columns of its rows. Output: the function that tasks run; then a
snapshot that records the query and the number. If the branch has this micro-batch already, the files of this run are
deleted instead.

The table is reloaded for each micro-batch, because its schema, partitioning and properties may change while a stream
runs.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyspark.sql.types import StructType

from dml.catalog.registry import ResolvedTable
from dml.commit import AlreadyAppliedError, StreamEpoch
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import InsertOptions, RowsWrite, commit_rows, plan_rows_write
from dml.engine.replaced_rows import Replaced
from dml.engine.schema_evolution import merge_target_schema
from dml.engine.target import writable_target
from dml.engine.writes import WriteOutcome
from dml.errors import NotFoundError
from dml.result import Result
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import Span, TableReference
from dml.streaming.columns import stream_columns
from dml.streaming.options import StreamOptions
from dml.write.delta_writer import StreamRows

__all__ = ["EpochWrite", "commit_epoch", "plan_epoch"]

LOG: Final = logging.getLogger(__name__)

Refine = Callable[[InsertOptions, Table], InsertOptions]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochWrite:
    """The planned write of a micro-batch.

    Attributes:
        rows: The write.
        function: The function that each task runs.
    """

    rows: RowsWrite
    function: StreamRows


def plan_epoch(
    engine: Engine,
    started_on: ResolvedTable,
    epoch: StreamEpoch,
    stream: StructType,
    options: StreamOptions,
    *,
    complete: bool,
    refine: Refine,
) -> EpochWrite:
    """Plan how a micro-batch is written.

    Args:
        engine: The session and its catalogs.
        started_on: The table as it was when the query was started.
        epoch: The query and the number of its micro-batch.
        stream: The columns of its rows.
        options: The options of the stream's writer.
        complete: True if the rows replace all others.
        refine: Adds the write options that depend on how Spark distributes the rows.

    Raises:
        NotFoundError: The table or its branch does not exist any more.
        DmlError: The rows do not fit the table, or the table cannot be written.
    """
    started = time.perf_counter()
    settings = StatementSettings.of(engine)
    suffix = () if started_on.branch is None else (f"branch_{started_on.branch}",)
    parts = (started_on.catalog_name, *started_on.identifier, *suffix)
    resolved = engine.registry.resolve(parts)
    if resolved is None:
        raise NotFoundError(
            f"The table {started_on.name}, which the stream writes to, does not exist any more",
            hint="It was dropped or renamed: start the stream again with another table and a new checkpoint",
        )
    text = quote_name(parts)
    reference = TableReference(parts=parts, span=Span(0, len(text)))
    target = writable_target(
        resolved,
        reference,
        text,
        settings,
        "INSERT",
        branch_option=options.write.branch,
        idempotency_key=epoch,
    )
    if options.write.columns.in_session(settings).merges:
        target = merge_target_schema(target, stream, settings, reference.span)
    schema = target.table.schema()
    columns = stream_columns(stream, schema, started_on.name, case_sensitive=settings.case_sensitive)
    rows = plan_rows_write(
        engine,
        target,
        "INSERT OVERWRITE" if complete else "INSERT",
        started,
        replaced=Replaced(row_filter=AlwaysTrue()) if complete else None,
        options=refine(options.write, target.table),
        by_columns=True,
    )
    return EpochWrite(rows=rows, function=StreamRows(task=rows.task, columns=columns))


def commit_epoch(write: EpochWrite, written: WriteOutcome) -> Result | None:
    """Commit what the tasks of a micro-batch wrote.

    Args:
        write: The micro-batch.
        written: The combined output of the tasks.

    Returns:
        The result of the commit; None if the branch has the micro-batch already.

    Raises:
        DmlError: The commit failed. Its files have been deleted.
    """
    try:
        return commit_rows(write.rows, written)
    except AlreadyAppliedError as found:
        LOG.info("%s: %s", write.rows.target.resolved.name, found.message)
        return None
