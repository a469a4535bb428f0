"""`df.writeTo` and `df.write` on RowDelta tables. Driver, Spark Connect.

Input: a call of a writer. Output: its rows in the table, planned, written and committed like those of INSERT INTO,
INSERT OVERWRITE and CREATE TABLE ... AS SELECT. The rows stay a DataFrame. Only a condition is converted to SQL text,
from its expression tree, so that a single translator decides whether it is exact.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform

from dml.connector.state import load_tables_once
from dml.connector.table_changes import RESERVED_PROPERTIES
from dml.ddl.terms import bind_term, term_text, transform_text
from dml.engine.create_as_select import CreateAsSelect, run_create
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import GivenRows, InsertOptions, insert_options, run_insert
from dml.engine.ownership import parse_cached
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind
from dml.remote.errors import translate_errors
from dml.spark.columns import column_sql
from dml.spark.connect_plans import tables_of
from dml.spark.handlers import run_as_handler
from dml.spark.table_calls import WriteAction, WriteCall
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import CreateTable, InsertStatement, Span, TableReference, TransformTerm

__all__ = ["write_rows_of"]

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

NO_PROVIDERS = frozenset({"iceberg", "parquet"})
"""Providers to ignore: RowDelta's own, and PySpark's default for writers without a format."""
OVERWRITE_MODE = "overwrite-mode"
DYNAMIC = "dynamic"


def write_rows_of(engine: Engine, call: WriteCall) -> None:
    """Run a writer's call.

    Args:
        engine: The session and its catalogs.
        call: The call.

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
    """Refuse a `partitionBy` that differs from the table's partitioning, which a program may rely on.

    Raises:
        AnalysisError: The partitioning differs.
    """
    schema = table.schema()
    wanted = [bind_term(term, schema) for term in terms_of(call)]
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


def terms_of(call: WriteCall) -> tuple[TransformTerm, ...]:
    """Return the partition fields of a write as terms of CREATE TABLE."""
    return tuple(
        TransformTerm(transform=term.transform, column=term.column, argument=term.argument, span=Span(0, 0))
        for term in call.partitioning
    )


def insert(engine: Engine, call: WriteCall) -> None:
    """Write rows to an existing table."""
    name, options = quote_name(call.table), dict(call.options)
    match call.action:
        case WriteAction.OVERWRITE_WHERE:
            assert call.condition is not None
            condition = column_sql(call.condition)
            head = f"INSERT INTO {name} REPLACE WHERE {condition}"
            if condition.upper() == "TRUE":  # all rows, or the partitions if overwrite-mode is dynamic
                head = f"INSERT OVERWRITE {name}"
                options = {OVERWRITE_MODE: "static"} | lower(options)
        case WriteAction.OVERWRITE_PARTITIONS:
            head, options = f"INSERT OVERWRITE {name}", lower(options) | {OVERWRITE_MODE: DYNAMIC}
        case WriteAction.OVERWRITE:
            head = f"INSERT OVERWRITE {name}"
        case _:
            head = f"INSERT INTO {name}"
    text = f"{head} SELECT * FROM rows"  # for error messages; the rows are the DataFrame
    statement = parse_cached(text)
    assert isinstance(statement, InsertStatement)
    statement = replace(statement, by_name=call.by_name, options=tuple(options.items()))
    run_insert(engine, statement, text, given=GivenRows(frame=call.rows, tables=tables_of(call.rows)))


def lower(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the name `overwrite-mode` in lower case."""
    return {OVERWRITE_MODE if key.lower() == OVERWRITE_MODE else key: value for key, value in options.items()}


def create(engine: Engine, call: WriteCall) -> None:
    """Create or replace a table, in one commit with its rows."""
    text, properties = quote_name(call.table), call.properties
    location, options = split_location(call.options)
    statement = CreateTable(
        table=TableReference(parts=call.table, span=Span(0, len(text))),
        provider=None if (call.provider or "").lower() in NO_PROVIDERS else call.provider,
        partitioning=terms_of(call),
        properties=tuple((key, value) for key, value in properties.items() if key not in RESERVED_PROPERTIES),
        comment=properties.get("comment"),
        location=location or properties.get("location"),
        if_not_exists=call.action is WriteAction.CREATE_IF_NOT_EXISTS,
        or_replace=call.action in {WriteAction.REPLACE, WriteAction.CREATE_OR_REPLACE},
        replace_only=call.action is WriteAction.REPLACE,
    )
    settings = StatementSettings.of(engine)
    try:
        run_create(CreateAsSelect(engine, statement, text, call.rows, settings, time.perf_counter(), options))
    except AlreadyExistsError:
        if not statement.if_not_exists:
            raise


def split_location(options: Mapping[str, str]) -> tuple[str | None, InsertOptions]:
    """Separate the location of a new table from the write options of its rows."""
    location = next((value for key, value in options.items() if key.lower() == "path"), None)
    return location, insert_options([(key, value) for key, value in options.items() if key.lower() != "path"])
