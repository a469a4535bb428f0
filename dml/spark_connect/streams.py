"""`df.writeStream.toTable` where Spark lacks RowDelta's catalogs: Spark Connect, and Spark before 4.0. Driver.

Input: the settings of a stream's writer. Output: a query whose `foreachBatch` function writes each micro-batch once
(`dml.streaming.sink`): by the query's id and the batch number.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dml import ddl
from dml.connector.table_changes import reference_of
from dml.engine.engine import Engine, StatementSettings, is_connect
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.spark.handlers import run_as_handler
from dml.spark_connect.errors import translate_errors
from dml.spark_connect.server_side import batch_function
from dml.spark_connect.writes import provider_of
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import CreateTable, TransformTerm
from dml.streaming.options import stream_options
from dml.streaming.sink import StreamSink, fit_stream

__all__ = ["StreamCall", "start_stream"]

CHECKPOINT: Final = "checkpointlocation"
PATH: Final = "path"
APPEND: Final = "append"
COMPLETE: Final = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCall:
    """A write of a stream's writer into a table.

    Attributes:
        rows: The stream.
        table: The table's name, catalog first.
        output_mode: The writer's output mode, such as `append`; empty if it is not set.
        options: The writer's options.
        provider: The format that the writer names.
        partitioning: The partition fields of a new table.
    """

    rows: DataFrame
    table: tuple[str, ...]
    output_mode: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    provider: str | None = None
    partitioning: tuple[TransformTerm, ...] = ()


def start_stream(
    engine: Engine, call: StreamCall, start: Callable[[Callable[[DataFrame, int], None]], StreamingQuery]
) -> StreamingQuery:
    """Start a query that writes to a table.

    Args:
        engine: The session and its catalogs.
        call: The settings of the stream's writer.
        start: Starts the query, with the function for each micro-batch.

    Raises:
        NotSupportedError: An output mode, a trigger or an option is not supported.
        AnalysisError: The rows do not fit the table, or there is no checkpoint.
        AnalysisException: The table must be created and its namespace does not exist.
    """
    mode = (call.output_mode or APPEND).lower()
    if mode not in {APPEND, COMPLETE}:
        raise NotSupportedError(
            f"{quote_name(call.table)} does not support {call.output_mode} mode",
            hint="A stream appends or, in complete mode, replaces all rows; lake.stream_merge merges updates",
        )
    given = {key.lower(): value for key, value in call.options.items()}
    checkpoint = given.get(CHECKPOINT)
    if not checkpoint:
        raise AnalysisError(
            "A stream into a table needs a checkpoint: it holds the query's id, which identifies micro-batches",
            kind=ErrorKind.INVALID_VALUE,
            hint="Set the option checkpointLocation",
        )
    options = stream_options(call.options)
    translation = translate_errors(engine, call.table, creates=True) if is_connect(engine.spark) else nullcontext()
    with run_as_handler(), translation:
        resolved = engine.registry.resolve(call.table)
        if resolved is None:
            create(engine, call, given.get(PATH))
            resolved = engine.registry.resolve(call.table)
            assert resolved is not None
        sink = StreamSink.of(resolved, options, complete=mode == COMPLETE)
        fit_stream(engine, sink, call.rows.schema)
    return start(batch_function(engine, sink.write, checkpoint))


def create(engine: Engine, call: StreamCall, location: str | None) -> None:
    """Create the table with the columns of the stream."""
    catalog_name, identifier = engine.registry.split(call.table)
    ddl.create_table(
        CreateTable(
            table=reference_of(call.table),
            provider=provider_of(call.provider),
            partitioning=call.partitioning,
            location=location,
        ),
        engine.registry.catalog(catalog_name),
        identifier,
        ddl.schema_from_json(call.rows.schema.json()),
        time_zone=StatementSettings.of(engine).time_zone,
    )
