"""CALL: a procedure, its arguments and its rows. Driver.

    CALL system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '2026-01-01 00:00:00', dry_run => true)

Values are constant expressions, and Spark evaluates them.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import NullType

from dml.engine.engine import Engine
from dml.engine.procedures import PROCEDURES, Procedure
from dml.errors import AnalysisError, DmlError, ErrorKind, NotSupportedError
from dml.spark.types import quoted
from dml.sqlparse.names import name_parts
from dml.sqlparse.statements import Call, CallArgument, Span, TableReference
from dml.sqlparse.tokens import Kind, read_source, string_value
from dml.suggestions import did_you_mean

__all__ = ["run_call", "table_of_call"]


def run_call(engine: Engine, statement: Call, sql: str) -> DataFrame:
    """Run a procedure.

    Args:
        engine: The session's means.
        statement: The statement.
        sql: Its text.

    Returns:
        Its rows.

    Raises:
        DmlError: an argument does not fit, or the procedure failed.
    """
    procedure = PROCEDURES[statement.procedure]
    arguments = bound(procedure, statement, sql)
    values = evaluated(engine, procedure, arguments, sql)
    if "table" not in values:
        raise pointing(AnalysisError("The argument 'table' is missing"), sql, statement.span, "Write table => 'db.t'")
    parts = name_parts(values["table"])
    if not parts:
        error = AnalysisError(f"'{values['table']}' is no name of a table", kind=ErrorKind.INVALID_VALUE)
        raise pointing(error, sql, arguments["table"].span)
    if statement.catalog is not None:
        parts = in_catalog(engine, statement, parts, sql)
    return procedure.run(engine, parts, {name: value for name, value in values.items() if name != "table"})


def table_of_call(statement: Call) -> TableReference | None:
    """The table that a procedure is called for, as far as it can be told without evaluating anything."""
    first = statement.arguments[:1]
    named = (given for given in statement.arguments if given.name == "table")
    argument = first[0] if first and first[0].name is None else next(named, None)
    if argument is None:
        return None
    source = read_source(argument.value.text)
    if source.end != 1 or source.tokens[0].kind is not Kind.STRING:
        return None
    parts = name_parts(string_value(argument.value.text))
    prefix = () if statement.catalog is None or parts[:1] == (statement.catalog,) else (statement.catalog,)
    return TableReference(parts=(*prefix, *parts), span=argument.value.span) if parts else None


def bound(procedure: Procedure, statement: Call, sql: str) -> dict[str, CallArgument]:
    """The arguments by the names of their parameters.

    Raises:
        AnalysisError: there is no such parameter, there are too many arguments, or one is given twice.
        NotSupportedError: a parameter that is not taken.
    """
    known = {parameter.name for parameter in procedure.parameters}
    found: dict[str, CallArgument] = {}
    for place, argument in enumerate(statement.arguments):
        if argument.name is None and place >= len(procedure.parameters):
            error = AnalysisError(f"{procedure.name} takes {len(procedure.parameters)} arguments")
            raise pointing(error, sql, argument.span)
        name = argument.name or procedure.parameters[place].name
        if name not in known:
            error = AnalysisError(f"{procedure.name} has no parameter '{name}'")
            raise pointing(error, sql, argument.span, did_you_mean(name, known))
        if name in found:
            raise pointing(AnalysisError(f"The argument '{name}' is given twice"), sql, argument.span)
        if argument.value.has_subquery:
            raise pointing(AnalysisError(f"The argument '{name}' is no constant"), sql, argument.value.span)
        found[name] = argument
    return found


def evaluated(engine: Engine, procedure: Procedure, arguments: Mapping[str, CallArgument], sql: str) -> dict[str, Any]:
    """The values of the arguments; those that are NULL are left out, like those that are not given.

    Raises:
        AnalysisError: a value has another type than its parameter.
        NotSupportedError: a parameter that is not taken has a value.
    """
    if not arguments:
        return {}
    known = {parameter.name: parameter for parameter in procedure.parameters}
    columns = (f"({given.value.text}) AS {quoted(name)}" for name, given in arguments.items())
    frame = engine.spark.sql(f"SELECT {', '.join(columns)}")
    for name, given in arguments.items():
        kind = frame.schema[name].dataType
        if not isinstance(kind, (*known[name].accepts, NullType)):
            error = AnalysisError(
                f"The argument '{name}' has the type {kind.simpleString()}", kind=ErrorKind.TYPE_MISMATCH
            )
            raise pointing(error, sql, given.value.span, f"It must be {known[name].kind}")
    converted = (f"{known[name].conversion.format(quoted(name))} AS {quoted(name)}" for name in arguments)
    row = frame.selectExpr(*converted).first()
    assert row is not None
    values = {name: value for name, value in row.asDict().items() if value is not None}
    for name in values:
        reason = known[name].refused
        if reason is not None:
            error = NotSupportedError(f"{procedure.name} does not take '{name}'")
            raise pointing(error, sql, arguments[name].span, reason)
    return values


def in_catalog(engine: Engine, statement: Call, parts: tuple[str, ...], sql: str) -> tuple[str, ...]:
    """The name of a table of the catalog that the procedure is called in.

    Raises:
        AnalysisError: it is a table of another catalog.
    """
    assert statement.catalog is not None
    engine.registry.catalog(statement.catalog)
    if len(parts) > 2 and parts[0] in engine.registry.catalogs and parts[0] != statement.catalog:
        error = AnalysisError(
            f"Cannot run the procedure in catalog '{statement.catalog}': '{'.'.join(parts)}' is in catalog '{parts[0]}'"
        )
        raise pointing(error, sql, statement.span)
    return parts if parts[0] == statement.catalog else (statement.catalog, *parts)


def pointing(error: DmlError, sql: str, span: Span, hint: str | None = None) -> DmlError:
    """An error with its place, and what to do about it."""
    error.point_at(sql, span.start, span.end)
    error.hint = hint
    return error
