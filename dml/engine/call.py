"""CALL: a procedure, its arguments and its rows. Driver.

    CALL system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '2026-01-01 00:00:00', dry_run => true)

Values are constant expressions, and Spark evaluates them. Source: Iceberg's Spark procedures
(`RemoveOrphanFilesProcedure`, `ProcedureInput`), whose names and order of parameters these are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dml.engine.engine import Engine
from dml.engine.orphan_files import remove_orphans
from dml.errors import AnalysisError, DmlError, ErrorKind, NotSupportedError
from dml.maintenance import RemoveOrphanFiles, prefix_mismatch_mode
from dml.spark.types import quoted
from dml.sqlparse.names import name_parts
from dml.sqlparse.statements import Call, CallArgument, Span, TableReference
from dml.sqlparse.tokens import Kind, read_source, string_value
from dml.suggestions import did_you_mean

__all__ = ["run_call", "table_of_call"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Its name.
        kind: Its type, as messages call it.
        accepts: Types of Spark that are taken for it.
        conversion: The value in SQL, `{}` being the argument: what Python gets does not depend on its time zone.
        refused: Why it is not taken; None where it is.
    """

    name: str
    kind: str
    accepts: tuple[type[DataType], ...]
    conversion: str = "{}"
    refused: str | None = None


TEXT: Final = (StringType,)
WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
MOMENT: Final = (TimestampType, TimestampNTZType, DateType, StringType)
STRINGS: Final = "map_filter(CAST({} AS MAP<STRING, STRING>), (name, one) -> one IS NOT NULL)"
PARAMETERS: Final = (
    Parameter(name="table", kind="a string", accepts=TEXT),
    Parameter(name="older_than", kind="a timestamp", accepts=MOMENT, conversion="unix_micros(CAST({} AS TIMESTAMP))"),
    Parameter(name="location", kind="a string", accepts=TEXT),
    Parameter(name="dry_run", kind="true or false", accepts=(BooleanType,)),
    Parameter(name="max_concurrent_deletes", kind="a whole number", accepts=WHOLE),
    Parameter(
        name="file_list_view",
        kind="a string",
        accepts=TEXT,
        refused="Files are listed anew each time: what is deleted is not left to a list made elsewhere",
    ),
    Parameter(name="equal_schemes", kind="a map of strings", accepts=(MapType,), conversion=STRINGS),
    Parameter(name="equal_authorities", kind="a map of strings", accepts=(MapType,), conversion=STRINGS),
    Parameter(name="prefix_mismatch_mode", kind="a string", accepts=TEXT),
    Parameter(
        name="prefix_listing",
        kind="true or false",
        accepts=(BooleanType,),
        refused="Folders are always listed in the way that suits their storage",
    ),
)
"""Of `remove_orphan_files`, in the reference's order."""

BY_NAME: Final = {parameter.name: parameter for parameter in PARAMETERS}


def run_call(engine: Engine, statement: Call, sql: str) -> DataFrame:
    """Run a procedure.

    Args:
        engine: The session's means.
        statement: The statement.
        sql: Its text.

    Returns:
        One row for each orphan file, with its location.

    Raises:
        DmlError: an argument does not fit, or the procedure failed.
    """
    arguments = bound(statement, sql)
    values = evaluated(engine, arguments, sql)
    if "table" not in values:
        raise pointing(AnalysisError("The argument 'table' is missing"), sql, statement.span, "Write table => 'db.t'")
    parts = name_parts(values["table"])
    if not parts:
        error = AnalysisError(f"'{values['table']}' is no name of a table", kind=ErrorKind.INVALID_VALUE)
        raise pointing(error, sql, arguments["table"].span)
    if statement.catalog is not None:
        parts = in_catalog(engine, statement, parts, sql)
    locations = remove_orphans(engine, parts, asked_for(values))
    return engine.spark.createDataFrame([(location,) for location in locations], "orphan_file_location string")


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


def bound(statement: Call, sql: str) -> dict[str, CallArgument]:
    """The arguments by the names of their parameters.

    Raises:
        AnalysisError: there is no such parameter, there are too many arguments, or one is given twice.
        NotSupportedError: a parameter that is not taken.
    """
    found: dict[str, CallArgument] = {}
    for place, argument in enumerate(statement.arguments):
        if argument.name is None and place >= len(PARAMETERS):
            error = AnalysisError(f"remove_orphan_files takes {len(PARAMETERS)} arguments")
            raise pointing(error, sql, argument.span)
        name = argument.name or PARAMETERS[place].name
        if name not in BY_NAME:
            error = AnalysisError(f"remove_orphan_files has no parameter '{name}'")
            raise pointing(error, sql, argument.span, did_you_mean(name, BY_NAME))
        if name in found:
            raise pointing(AnalysisError(f"The argument '{name}' is given twice"), sql, argument.span)
        if argument.value.has_subquery:
            raise pointing(AnalysisError(f"The argument '{name}' is no constant"), sql, argument.value.span)
        found[name] = argument
    return found


def evaluated(engine: Engine, arguments: Mapping[str, CallArgument], sql: str) -> dict[str, Any]:
    """The values of the arguments; those that are NULL are left out, like those that are not given.

    Raises:
        AnalysisError: a value has another type than its parameter.
        NotSupportedError: a parameter that is not taken has a value.
    """
    if not arguments:
        return {}
    columns = (f"({given.value.text}) AS {quoted(name)}" for name, given in arguments.items())
    frame = engine.spark.sql(f"SELECT {', '.join(columns)}")
    for name, given in arguments.items():
        kind = frame.schema[name].dataType
        if not isinstance(kind, (*BY_NAME[name].accepts, NullType)):
            error = AnalysisError(
                f"The argument '{name}' has the type {kind.simpleString()}", kind=ErrorKind.TYPE_MISMATCH
            )
            raise pointing(error, sql, given.value.span, f"It must be {BY_NAME[name].kind}")
    converted = (f"{BY_NAME[name].conversion.format(quoted(name))} AS {quoted(name)}" for name in arguments)
    row = frame.selectExpr(*converted).first()
    assert row is not None
    values = {name: value for name, value in row.asDict().items() if value is not None}
    for name in values:
        reason = BY_NAME[name].refused
        if reason is not None:
            error = NotSupportedError(f"remove_orphan_files does not take '{name}'")
            raise pointing(error, sql, arguments[name].span, reason)
    return values


def asked_for(values: Mapping[str, Any]) -> RemoveOrphanFiles:
    """What a call asks for.

    Raises:
        AnalysisError: a value does not fit.
    """
    given = {name: value for name, value in values.items() if name != "table"}
    if "older_than" in given:
        given["older_than"] = EPOCH + timedelta(microseconds=given["older_than"])
    if "prefix_mismatch_mode" in given:
        given["prefix_mismatch_mode"] = prefix_mismatch_mode(given["prefix_mismatch_mode"])
    return RemoveOrphanFiles(**given)


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
