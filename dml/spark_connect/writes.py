"""`df.writeTo`, `df.write` and `df.writeStream` on RowDelta tables. Driver, Spark Connect.

Input: a call of a writer, as a value. Output: its rows in the table, planned, written and committed like those of
INSERT INTO, INSERT OVERWRITE and CREATE TABLE ... AS SELECT. The rows stay a DataFrame. Only a condition is converted
to SQL text, from its expression tree, so that a single translator decides whether it is exact.

A stream becomes a query whose function of `foreachBatch` writes each micro-batch once (`dml.streaming.sink`): by the
query's id and the number of the micro-batch. Streams of classic Spark before 4.0, which has no catalogs of RowDelta
either, are started here too.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dml import ddl
from dml.connector.state import load_tables_once
from dml.connector.table_changes import RESERVED_PROPERTIES
from dml.connector.write import writer_options
from dml.ddl.terms import bind_term, term_text, transform_text
from dml.engine.create_as_select import CreateAsSelect, run_create
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import GivenRows, run_insert
from dml.engine.ownership import parse_cached
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind
from dml.spark.handlers import run_as_handler
from dml.spark_connect.columns import connect_sql
from dml.spark_connect.errors import translate_errors
from dml.spark_connect.plans import tables_of
from dml.spark_connect.server_side import batch_function
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import CreateTable, InsertStatement, Span, TableReference, TransformTerm
from dml.streaming.sink import StreamSink, check_output_mode, fit_stream, stream_options

__all__ = ["WriteAction", "WriteCall", "run_write_call", "start_stream"]


class WriteAction(Enum):
    """The effect of a write on the table."""

    APPEND = auto()
    APPEND_OR_CREATE = auto()
    OVERWRITE = auto()
    OVERWRITE_WHERE = auto()
    OVERWRITE_PARTITIONS = auto()
    CREATE = auto()
    CREATE_IF_NOT_EXISTS = auto()
    REPLACE = auto()
    CREATE_OR_REPLACE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """A write of a DataFrame's or a stream's writer into a table.

    Attributes:
        rows: The rows.
        table: The table's name, catalog first.
        action: The effect on the table.
        by_name: Whether columns match by name, or by position.
        condition: The rows to replace, for `OVERWRITE_WHERE`.
        options: The writer's options.
        properties: Properties of a new table.
        provider: The format that the writer names.
        partitioning: The partition fields of a new table.
    """

    rows: DataFrame
    table: tuple[str, ...]
    action: WriteAction
    by_name: bool = True
    condition: Column | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    provider: str | None = None
    partitioning: tuple[TransformTerm, ...] = ()


CREATIONS = frozenset(
    {
        WriteAction.APPEND_OR_CREATE,
        WriteAction.CREATE,
        WriteAction.CREATE_IF_NOT_EXISTS,
        WriteAction.REPLACE,
        WriteAction.CREATE_OR_REPLACE,
    }
)
"""Actions that may create a table."""

DEFAULT_PROVIDERS = frozenset({"", "iceberg", "parquet"})
"""Providers to ignore: RowDelta's own, and PySpark's default for writers without a format."""
OVERWRITE_MODE = "overwrite-mode"
DYNAMIC = "dynamic"


def run_write_call(engine: Engine, call: WriteCall) -> None:
    """Write the rows of a call, like INSERT INTO, INSERT OVERWRITE or CREATE TABLE AS SELECT.

    Args:
        engine: The session and its catalogs.
        call: The write.

    Raises:
        AnalysisException: The table does not exist, or exists already.
        DmlError: The rows do not fit the table, or could not be written. The table is unchanged then.
    """
    action = call.action
    with (
        load_tables_once(engine.spark),
        run_as_handler(),
        translate_errors(engine, call.table, creates=action in CREATIONS),
    ):
        resolved = engine.registry.resolve(call.table) if action in APPENDS_OR_CREATES else None
        if resolved is not None and action is WriteAction.CREATE_IF_NOT_EXISTS:
            return
        if resolved is not None:
            check_partitioning(call, resolved.table)
            insert(engine, replace(call, action=WriteAction.APPEND))
        elif action in CREATIONS:
            create(engine, call)
        else:
            insert(engine, call)


APPENDS_OR_CREATES = frozenset({WriteAction.APPEND_OR_CREATE, WriteAction.CREATE_IF_NOT_EXISTS})


def check_partitioning(call: WriteCall, table: Table) -> None:
    """Refuse a `partitionBy` that differs from the table's partitioning, because the program may rely on it.

    Raises:
        AnalysisError: The partitioning differs.
    """
    schema = table.schema()
    wanted = [bind_term(term, schema) for term in call.partitioning]
    fields = [field for field in table.spec().fields if not isinstance(field.transform, VoidTransform)]
    if wanted and [(source.field_id, transform) for source, transform in wanted] != [
        (field.source_id, field.transform) for field in fields
    ]:
        texts = [
            transform_text(transform, quote_name(term.column))
            for term, (_, transform) in zip(call.partitioning, wanted, strict=True)
        ]
        known = f"({', '.join(term_text(field, schema) for field in fields)})" if fields else "nothing"
        raise AnalysisError(
            f"The table {quote_name(call.table)} is partitioned by {known}, not by ({', '.join(texts)})",
            kind=ErrorKind.INVALID_VALUE,
            hint="Remove partitionBy: the table's partitioning applies",
        )


def insert(engine: Engine, call: WriteCall) -> None:
    """Write rows to an existing table."""
    name, options = quote_name(call.table), dict(call.options)
    match call.action:
        case WriteAction.OVERWRITE_WHERE:
            assert call.condition is not None
            condition = connect_sql(call.condition, {})
            head = f"INSERT INTO {name} REPLACE WHERE {condition}"
            if condition.upper() == "TRUE":  # all rows, or the partitions if overwrite-mode is dynamic
                head = f"INSERT OVERWRITE {name}"
                options = {OVERWRITE_MODE: "static"} | normalize_overwrite_mode(options)
        case WriteAction.OVERWRITE_PARTITIONS:
            head, options = f"INSERT OVERWRITE {name}", normalize_overwrite_mode(options) | {OVERWRITE_MODE: DYNAMIC}
        case WriteAction.OVERWRITE:
            head = f"INSERT OVERWRITE {name}"
        case _:
            head = f"INSERT INTO {name}"
    text = f"{head} SELECT * FROM rows"  # for error messages; the rows are the DataFrame
    statement = parse_cached(text)
    assert isinstance(statement, InsertStatement)
    statement = replace(statement, by_name=call.by_name, options=tuple(options.items()))
    run_insert(engine, statement, text, given=GivenRows(frame=call.rows, tables=tables_of(call.rows)))


def normalize_overwrite_mode(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the key `overwrite-mode` in lower case, so that another value replaces it."""
    return {OVERWRITE_MODE if key.lower() == OVERWRITE_MODE else key: value for key, value in options.items()}


def create(engine: Engine, call: WriteCall) -> None:
    """Create or replace a table, in one commit with its rows."""
    statement, options = create_statement(call), writer_options(call.options, creates=True)
    text, settings = quote_name(call.table), StatementSettings.of(engine)
    try:
        run_create(CreateAsSelect(engine, statement, text, call.rows, settings, time.perf_counter(), options))
    except AlreadyExistsError:
        if not statement.if_not_exists:
            raise


def create_empty(engine: Engine, call: WriteCall) -> None:
    """Create a table with the columns of the rows, but without rows."""
    catalog_name, identifier = engine.registry.split(call.table)
    ddl.create_table(
        create_statement(call),
        engine.registry.catalog(catalog_name),
        identifier,
        ddl.schema_from_json(call.rows.schema.json()),
        time_zone=StatementSettings.of(engine).time_zone,
    )


def create_statement(call: WriteCall) -> CreateTable:
    """Build the CREATE TABLE of a write."""
    properties, provider = call.properties, (call.provider or "").lower()
    return CreateTable(
        table=TableReference(parts=call.table, span=Span(0, len(quote_name(call.table)))),
        provider=None if provider in DEFAULT_PROVIDERS else call.provider,
        partitioning=call.partitioning,
        properties=tuple((key, value) for key, value in properties.items() if key not in RESERVED_PROPERTIES),
        comment=properties.get("comment"),
        location=option_of(call, "path") or properties.get("location"),
        if_not_exists=call.action is WriteAction.CREATE_IF_NOT_EXISTS,
        or_replace=call.action in {WriteAction.REPLACE, WriteAction.CREATE_OR_REPLACE},
        replace_only=call.action is WriteAction.REPLACE,
    )


def option_of(call: WriteCall, name: str) -> str | None:
    """Return the value of a writer's option by its name in lower case; None if it is not set."""
    return next((value for key, value in call.options.items() if key.lower() == name), None)


def start_stream(
    engine: Engine,
    call: WriteCall,
    output_mode: str,
    start: Callable[[Callable[[DataFrame, int], None]], StreamingQuery],
) -> StreamingQuery:
    """Start a streaming query that writes to a table, and create the table if it is missing.

    Args:
        engine: The session and its catalogs.
        call: The settings of the stream's writer.
        output_mode: Its output mode, such as `append`; empty if it is not set.
        start: Starts the query, with the function for each micro-batch.

    Raises:
        NotSupportedError: An output mode, a trigger or an option is not supported.
        AnalysisError: The rows do not fit the table, or there is no checkpoint.
        AnalysisException: The table must be created and its namespace does not exist.
    """
    mode = output_mode.lower() or "append"
    check_output_mode(call.table, mode)
    checkpoint = option_of(call, "checkpointlocation")
    if not checkpoint:
        raise AnalysisError(
            "A stream into a table needs a checkpoint: it holds the query's id, which identifies micro-batches",
            kind=ErrorKind.INVALID_VALUE,
            hint="Set the option checkpointLocation",
        )
    options = stream_options(call.options)
    translation = translate_errors(engine, call.table, creates=True) if engine.runtime.is_connect else nullcontext()
    with run_as_handler(), translation:
        resolved = engine.registry.resolve(call.table)
        if resolved is None:
            create_empty(engine, call)
            resolved = engine.registry.resolve(call.table)
            assert resolved is not None
        sink = StreamSink.of(resolved, options, complete=mode == "complete")
        fit_stream(engine, sink, call.rows.schema)
    return start(batch_function(engine, sink.write, checkpoint))
