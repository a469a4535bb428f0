"""`df.writeStream.toTable` on RowDelta tables if Spark lacks RowDelta's catalogs: Connect, and Spark before 4.0.

Input: the settings of a stream's writer. Output: a query whose `foreachBatch` function runs an INSERT per micro-batch,
exactly once as on other Spark versions: by the query's id and the batch number. Driver. On Connect micro-batches are
written beside the server, where the id is read from the checkpoint; on classic Spark, in the process of the session.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dml import ddl
from dml.commit import AlreadyAppliedError, StreamEpoch
from dml.connector.state import load_tables_once
from dml.engine.engine import Engine, StatementSettings, is_connect
from dml.engine.insert import GivenRows, run_insert
from dml.engine.ownership import parse_cached
from dml.engine.schema_evolution import merge_target_schema
from dml.engine.target import target_of
from dml.errors import AnalysisError, DmlError, ErrorKind, NotSupportedError
from dml.remote.errors import translate_errors
from dml.remote.writes import NO_PROVIDERS
from dml.spark.bridge.gateway import to_callback_error
from dml.spark.handlers import run_as_handler
from dml.spark.jobs import running_query_id
from dml.spark.runtime import Runtime
from dml.spark.table_calls import StreamCall
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import CreateTable, InsertStatement, Span, TableReference, TransformTerm
from dml.streaming.columns import stream_columns
from dml.streaming.options import insert_options_of, stream_options
from dml.streaming.server_side import engine_of, pack_catalogs, query_id_of

__all__ = ["start_stream"]

CHECKPOINT: Final = "checkpointlocation"
PATH: Final = "path"
APPEND: Final = "append"
COMPLETE: Final = "complete"


def start_stream(engine: Engine, call: StreamCall) -> StreamingQuery:
    """Start a query that writes to a table.

    Args:
        engine: The session and its catalogs.
        call: The settings of the stream's writer.

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
    connect = is_connect(engine.spark)
    translation = translate_errors(engine, call.table, creates=True) if connect else nullcontext()
    with run_as_handler(), translation:
        resolved = engine.registry.resolve(call.table)
        if resolved is None:
            create(engine, call, given.get(PATH))
            resolved = engine.registry.resolve(call.table)
            assert resolved is not None
        settings = StatementSettings.of(engine)
        merges = bool(options.write.columns.in_session(settings).merges)
        reference = TableReference(parts=call.table, span=Span(0, 0))
        target = target_of(resolved, reference, quote_name(call.table), settings)
        if merges:
            target = merge_target_schema(target, call.rows.schema, settings, reference.span)
        columns = target.table.schema()
        stream_columns(call.rows.schema, columns, resolved.name, case_sensitive=settings.case_sensitive)
    suffix = () if resolved.branch is None else (f"branch_{resolved.branch}",)
    insert = BatchInsert(
        table=(resolved.catalog_name, *resolved.identifier, *suffix),
        complete=mode == COMPLETE,
        merges=merges,
        options={"check-ordering": "false", **insert_options_of(call.options)},
        epoch=StreamEpoch(
            query_id="",
            epoch_id=0,
            table_uuid=resolved.table.metadata.table_uuid,
            adopts_checkpoint=options.adopts_checkpoint,
        ),
    )
    function: Callable[[DataFrame, int], None]
    if connect:
        function = RemoteInsert(catalogs=pack_catalogs(engine.registry), insert=insert, checkpoint=checkpoint)
    else:
        function = LocalInsert(engine=engine, insert=insert)
    return call.start(function)


def create(engine: Engine, call: StreamCall, location: str | None) -> None:
    """Create the table with the columns of the stream."""
    catalog_name, identifier = engine.registry.split(call.table)
    statement = CreateTable(
        table=TableReference(parts=call.table, span=Span(0, 0)),
        provider=None if (call.provider or "").lower() in {"", *NO_PROVIDERS} else call.provider,
        partitioning=tuple(
            TransformTerm(transform="identity", column=column, argument=None, span=Span(0, 0))
            for column in call.partitioning
        ),
        location=location,
    )
    ddl.create_table(
        statement,
        engine.registry.catalog(catalog_name),
        identifier,
        ddl.schema_from_json(call.rows.schema.json()),
        time_zone=StatementSettings.of(engine).time_zone,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInsert:
    """The INSERT of a micro-batch. It can be pickled.

    Attributes:
        table: The table's name, catalog first.
        complete: True if the rows replace all others.
        merges: True if columns that the table lacks are added.
        options: The write options.
        epoch: The stream epoch without the query id and the batch number.
    """

    table: tuple[str, ...]
    complete: bool
    merges: bool
    options: Mapping[str, str]
    epoch: StreamEpoch

    def run(self, engine: Engine, batch: DataFrame, query_id: str, number: int) -> None:
        """Write a micro-batch, unless the table has it already.

        Args:
            engine: The micro-batch's session and the catalogs.
            batch: Its rows.
            query_id: The query.
            number: The batch number.

        Raises:
            DmlError: The rows do not fit the table, or the table cannot be written.
        """
        epoch = replace(self.epoch, query_id=query_id, epoch_id=number)
        command, options = ("INSERT OVERWRITE", {"overwrite-mode": "static"}) if self.complete else ("INSERT INTO", {})
        text = f"{command} {quote_name(self.table)} SELECT * FROM rows"  # for error messages; the rows are the batch
        statement = parse_cached(text)
        assert isinstance(statement, InsertStatement)
        statement = replace(
            statement,
            by_name=True,
            with_schema_evolution=self.merges,
            options=tuple({**self.options, **options}.items()),
        )
        with load_tables_once(engine.spark), run_as_handler():
            try:
                run_insert(engine, statement, text, epoch, GivenRows(frame=batch))
            except AlreadyAppliedError:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteInsert:
    """Writes a micro-batch beside a Spark Connect server. It can be pickled.

    Attributes:
        catalogs: The packed catalogs of the session that started the query.
        insert: The INSERT.
        checkpoint: The query's checkpoint location.
    """

    catalogs: bytes = field(repr=False)
    insert: BatchInsert
    checkpoint: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write the micro-batch, unless the table has it already."""
        query_id = query_id_of(batch.sparkSession, self.checkpoint)
        self.insert.run(engine_of(batch, self.catalogs), batch, query_id, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalInsert:
    """Writes a micro-batch in the process of the session, on classic Spark.

    Attributes:
        engine: The session that started the query, and its catalogs.
        insert: The INSERT.
    """

    engine: Engine = field(repr=False)
    insert: BatchInsert

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write the micro-batch, unless the table has it already."""
        engine = replace(self.engine, runtime=Runtime(batch.sparkSession), progress=False)
        try:
            self.insert.run(engine, batch, running_query_id(), number)
        except DmlError as error:
            raise to_callback_error(error) from error  # so that awaitTermination raises this error, unwrapped
