"""Bind the arguments of a CALL to the parameters of its procedure, and run it. Driver.

    CALL system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '2026-01-01 00:00:00', dry_run => true)

Values are constant expressions, which Spark evaluates. Source: Iceberg's Spark procedures (`ProcedureInput`).
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import NullType
from sqlglot import exp

from dml.engine.engine import Engine, StatementSettings
from dml.engine.procedures.changelog import CHANGELOG
from dml.engine.procedures.declaration import Parameter, Procedure
from dml.engine.procedures.history import HISTORY
from dml.engine.procedures.imports import IMPORTS
from dml.engine.procedures.rewrites import REWRITES
from dml.engine.procedures.statistics import STATISTICS
from dml.engine.procedures.upkeep import UPKEEP
from dml.errors import AnalysisError, DmlError, ErrorKind, NotSupportedError
from dml.hints import did_you_mean
from dml.sqlparse.constants import TimeZone
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quoted, string_value
from dml.sqlparse.spellings import is_surely_spark
from dml.sqlparse.statements import CallArgument, CallStatement, Span, TableReference
from dml.sqlparse.tokens import TokenKind, read_source

__all__ = ["PROCEDURES", "run_call", "table_of_call"]

PROCEDURES: Final = {
    procedure.name: procedure for procedure in (*HISTORY, *IMPORTS, *STATISTICS, *UPKEEP, *CHANGELOG, *REWRITES)
}
"""The procedures by name."""


def run_call(engine: Engine, statement: CallStatement, sql: str) -> DataFrame:
    """Run a procedure.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        sql: Its text.

    Returns:
        The procedure's rows.

    Raises:
        DmlError: an argument is invalid, or the procedure failed.
    """
    procedure = PROCEDURES[statement.procedure]
    arguments = bind_arguments(procedure, statement, sql)
    values = evaluate_arguments(engine, procedure, arguments, sql)
    for parameter in procedure.parameters:
        if parameter.required and parameter.name not in values:
            given = arguments.get(parameter.name)
            error = AnalysisError(f"The argument '{parameter.name}' is {'missing' if given is None else 'NULL'}")
            place = statement.span if given is None else given.span
            raise point_error(error, sql, place, f"{procedure.name} needs {parameter.name} => {parameter.type.text}")
    table = values.pop("table")
    parts = name_parts(table)
    if not parts:
        error = AnalysisError(f"'{table}' is not a valid table name", kind=ErrorKind.INVALID_VALUE)
        raise point_error(error, sql, arguments["table"].span, "Write the name as in a query, such as 'db.t'")
    if statement.catalog is not None:
        parts = in_catalog(engine, statement, parts, sql)
    return engine.spark.createDataFrame(list(procedure.run(engine, parts, values)), procedure.columns_of(values))


def table_of_call(statement: CallStatement) -> TableReference | None:
    """Return the table that a procedure is called for, if it can be found without evaluating anything."""
    place = [parameter.name for parameter in PROCEDURES[statement.procedure].parameters].index("table")
    by_place = (given for given in statement.arguments[place : place + 1] if given.name is None)
    argument = next((given for given in statement.arguments if given.name == "table"), next(by_place, None))
    if argument is None:
        return None
    source = read_source(argument.value.text)
    if source.end != 1 or source.tokens[0].kind is not TokenKind.STRING:
        return None
    parts = name_parts(string_value(argument.value.text))
    prefix = () if statement.catalog is None or parts[:1] == (statement.catalog,) else (statement.catalog,)
    return TableReference(parts=(*prefix, *parts), span=argument.value.span) if parts else None


def bind_arguments(procedure: Procedure, statement: CallStatement, sql: str) -> dict[str, CallArgument]:
    """Bind the arguments of a call to parameter names.

    Raises:
        AnalysisError: there is no such parameter, there are too many arguments, or one is given twice.
    """
    known = [parameter.name for parameter in procedure.parameters]
    found: dict[str, CallArgument] = {}
    for place, argument in enumerate(statement.arguments):
        if argument.name is None and place >= len(procedure.parameters):
            error = AnalysisError(f"{procedure.name} takes {len(procedure.parameters)} arguments")
            names = ", ".join(parameter.name for parameter in procedure.parameters)
            raise point_error(error, sql, argument.span, f"They are {names}")
        name = argument.name or procedure.parameters[place].name
        if name not in known:
            error = AnalysisError(f"{procedure.name} has no parameter '{name}'")
            raise point_error(error, sql, argument.span, did_you_mean(name, known))
        if name in found:
            error = AnalysisError(f"The argument '{name}' is given twice")
            raise point_error(error, sql, argument.span, "Remove one of them")
        if argument.value.has_subquery:
            error = AnalysisError(f"The argument '{name}' is not a constant")
            raise point_error(error, sql, argument.value.span, "Run the subquery first, and write its value")
        found[name] = argument
    return found


def evaluate_arguments(
    engine: Engine, procedure: Procedure, arguments: Mapping[str, CallArgument], sql: str
) -> dict[str, Any]:
    """Evaluate the arguments; NULLs are left out, like absent arguments. Spark evaluates what is not a plain constant.

    Raises:
        AnalysisError: a value has another type than its parameter.
        NotSupportedError: a parameter that RowDelta rejects has a value.
    """
    known = {parameter.name: parameter for parameter in procedure.parameters}
    read = read_constants(engine, known, arguments, sql)
    found = evaluate_by_spark(engine, known, arguments, sql) if read is None else read
    values = {name: known[name].type.decode(value) for name, value in found.items() if value is not None}
    for name in values:
        reason = known[name].rejection
        if reason is not None:
            error = NotSupportedError(f"{procedure.name} does not take '{name}'")
            raise point_error(error, sql, arguments[name].span, reason)
    return values


def read_constants(
    engine: Engine, known: Mapping[str, Parameter], arguments: Mapping[str, CallArgument], sql: str
) -> dict[str, Any] | None:
    """Return the values of arguments that are plain constants of their types; None if one is not."""
    if not arguments:
        return {}
    if not is_surely_spark(sql):
        return None
    rules = StatementSettings.of(engine, sql).rules
    zone, found = TimeZone.of(rules.time_zone), {}
    for name, given in arguments.items():
        tree = given.value.ast
        if tree is None or not rules.trees.holds(tree):
            return None
        found[name] = None if isinstance(tree, exp.Null) else known[name].type.read(tree, zone)
        if found[name] is None and not isinstance(tree, exp.Null):
            return None
    return found


def evaluate_by_spark(
    engine: Engine, known: Mapping[str, Parameter], arguments: Mapping[str, CallArgument], sql: str
) -> dict[str, Any]:
    """Evaluate arguments by a query.

    Raises:
        AnalysisError: a value has another type than its parameter.
    """
    columns = (f"({given.value.text}) AS {quoted(name)}" for name, given in arguments.items())
    frame = engine.spark.sql(f"SELECT {', '.join(columns)}")
    for name, given in arguments.items():
        kind = frame.schema[name].dataType
        if not isinstance(kind, (*known[name].type.accepts, NullType)):
            error = AnalysisError(
                f"The argument '{name}' has the type {kind.simpleString()}", kind=ErrorKind.TYPE_MISMATCH
            )
            raise point_error(error, sql, given.value.span, f"It must be {known[name].type.text}")
    converted = (f"{known[name].type.conversion.format(quoted(name))} AS {quoted(name)}" for name in arguments)
    absent = ", ".join(f"{quoted(name)} IS NULL" for name in arguments)
    row = frame.selectExpr(*converted, f"array({absent}) AS absent").first()
    assert row is not None
    *found, nulls = row
    for (name, given), value, null in zip(arguments.items(), found, nulls, strict=True):
        if value is None and not null:
            error = AnalysisError(f"The argument '{name}' is {given.value.text}", kind=ErrorKind.INVALID_VALUE)
            raise point_error(error, sql, given.value.span, f"It must be {known[name].type.text}")
    return dict(zip(arguments, found, strict=True))


def in_catalog(engine: Engine, statement: CallStatement, parts: tuple[str, ...], sql: str) -> tuple[str, ...]:
    """Put the catalog that the procedure is called in before the table's name.

    Raises:
        AnalysisError: the table is in another catalog.
    """
    assert statement.catalog is not None
    engine.registry.catalog(statement.catalog)
    if len(parts) > 2 and parts[0] in engine.registry.catalogs and parts[0] != statement.catalog:
        error = AnalysisError(
            f"Cannot run the procedure in catalog '{statement.catalog}': '{'.'.join(parts)}' is in catalog '{parts[0]}'"
        )
        hint = f"CALL {quoted(parts[0])}.system.{statement.procedure}(...)"
        raise point_error(error, sql, statement.span, hint)
    return parts if parts[0] == statement.catalog else (statement.catalog, *parts)


def point_error(error: DmlError, sql: str, span: Span, hint: str | None) -> DmlError:
    """Add a place and a hint to an error, and return it."""
    error.point_at(sql, span.start, span.end)
    error.hint = hint
    return error
