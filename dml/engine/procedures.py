"""Run CALL: the procedures, their parameters, and the arguments of a call. Driver.

    CALL system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '2026-01-01 00:00:00', dry_run => true)

Values are constant expressions, which Spark evaluates. Source: Iceberg's Spark procedures (`ProcedureInput`,
`RemoveOrphanFilesProcedure`), which define the names and order of the parameters of `remove_orphan_files`; `verify` is
RowDelta's own.
"""

from collections.abc import Callable, Mapping
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

from dml.catalog.translation import translate_errors
from dml.engine.engine import Engine
from dml.errors import AnalysisError, DmlError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.maintenance import RemoveOrphanFiles, remove_orphan_files
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quoted, string_value
from dml.sqlparse.statements import CallArgument, CallStatement, Span, TableReference
from dml.sqlparse.tokens import TokenKind, read_source
from dml.verification import Verification, verify

__all__ = ["PROCEDURES", "Parameter", "Procedure", "remove_orphans", "run_call", "table_of_call", "verify_table"]


def remove_orphans(engine: Engine, parts: tuple[str, ...], call: RemoveOrphanFiles) -> tuple[str, ...]:
    """Remove the orphan files of a table.

    Args:
        engine: The session and its catalogs.
        parts: The table's name.
        call: The options of the removal.

    Returns:
        The locations of the orphans.

    Raises:
        NotFoundError: no such table.
        DmlError: an error of `dml.maintenance.remove_orphan_files`.
    """
    name = ".".join(parts)
    resolved = engine.registry.resolve(parts)
    if resolved is None:
        raise NotFoundError(f"There is no table '{name}'", hint=engine.registry.suggestion(parts), parts=parts)
    if resolved.is_part:
        raise NotSupportedError(
            f"'{name}' is a part of the table '{resolved.name}': orphan files are those of the whole table",
            hint=f"Name the table: '{resolved.name}'",
            table=name,
        )
    return remove_orphan_files(resolved.catalog, resolved.identifier, call)


def verify_table(
    engine: Engine, parts: tuple[str, ...], snapshot_id: int | None = None, *, every_file: bool = False
) -> Verification:
    """Recount a snapshot of a table from its files.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, with a branch or tag at its end to select that one's snapshot.
        snapshot_id: The snapshot; None for the current one of the table, branch or tag.
        every_file: Open all data files, not only those that the snapshot touched.

    Raises:
        NotFoundError: no such table, branch, tag or snapshot.
        DmlError: an error of `dml.verification.verify`.
    """
    name = ".".join(parts)
    resolved = engine.registry.resolve(parts)
    if resolved is None:
        raise NotFoundError(f"There is no table '{name}'", hint=engine.registry.suggestion(parts), parts=parts)
    if resolved.metadata_table or resolved.timestamp_ms is not None:
        what = "a metadata table" if resolved.metadata_table else "the table at a time"
        raise NotSupportedError(f"'{name}' is {what}", hint=f"Name the table: '{resolved.name}'", table=name)
    snapshot_id = resolved.snapshot_id if snapshot_id is None else snapshot_id
    table, reference = resolved.table, resolved.branch or resolved.tag
    if snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
    else:
        snapshot = table.current_snapshot() if reference is None else table.snapshot_by_name(reference)
    if snapshot is None and (snapshot_id is not None or reference is not None):
        missing = f"branch or tag '{reference}'" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise NotFoundError(
            f"The table '{resolved.name}' has no {missing}",
            hint="A snapshot may have been expired",
            table=resolved.name,
        )
    with translate_errors(f"Verifying the table '{resolved.name}'", resolved.catalog):
        return verify(table, snapshot, resolved.name, every_file=every_file)


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Its name.
        kind: Its type, as messages call it.
        accepts: The Spark types that it accepts.
        conversion: SQL that converts the argument `{}`, so that the value in Python does not depend on Python's time
            zone. It is NULL if the argument is not a valid value.
        rejection: The reason why RowDelta rejects the parameter; None if it accepts it.
    """

    name: str
    kind: str
    accepts: tuple[type[DataType], ...]
    conversion: str = "{}"
    rejection: str | None = None


TEXT: Final = (StringType,)
WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
MOMENT: Final = (TimestampType, TimestampNTZType, DateType, StringType)
STRINGS: Final = "map_filter(CAST({} AS MAP<STRING, STRING>), (name, one) -> one IS NOT NULL)"
TABLE: Final = Parameter(name="table", kind="a string", accepts=TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure on a table.

    Attributes:
        name: Its name in the namespace `system`.
        parameters: In their order; the first one is the table.
        run: The function that runs it: takes the session, the table's name, and the values of the other arguments.
    """

    name: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Engine, tuple[str, ...], Mapping[str, Any]], DataFrame]


ORPHAN_PARAMETERS: Final = (
    TABLE,
    Parameter(
        name="older_than", kind="a timestamp", accepts=MOMENT, conversion="unix_micros(try_cast({} AS TIMESTAMP))"
    ),
    Parameter(name="location", kind="a string", accepts=TEXT),
    Parameter(name="dry_run", kind="true or false", accepts=(BooleanType,)),
    Parameter(name="max_concurrent_deletes", kind="a whole number", accepts=WHOLE),
    Parameter(
        name="file_list_view",
        kind="a string",
        accepts=TEXT,
        rejection="RowDelta always lists the files itself, so that it never deletes files of an outdated list",
    ),
    Parameter(name="equal_schemes", kind="a map of strings", accepts=(MapType,), conversion=STRINGS),
    Parameter(name="equal_authorities", kind="a map of strings", accepts=(MapType,), conversion=STRINGS),
    Parameter(name="prefix_mismatch_mode", kind="a string", accepts=TEXT),
    Parameter(
        name="prefix_listing",
        kind="true or false",
        accepts=(BooleanType,),
        rejection="RowDelta always selects the way to list files by their storage",
    ),
)

VERIFY_PARAMETERS: Final = (
    TABLE,
    Parameter(name="snapshot_id", kind="a whole number", accepts=WHOLE),
    Parameter(name="every_file", kind="true or false", accepts=(BooleanType,)),
)


def run_remove_orphan_files(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> DataFrame:
    """Return one row for each orphan file, with its location."""
    given = dict(values)
    if "older_than" in given:
        given["older_than"] = EPOCH + timedelta(microseconds=given["older_than"])
    locations = remove_orphans(engine, parts, RemoveOrphanFiles.of(**given))
    return engine.spark.createDataFrame([(location,) for location in locations], "orphan_file_location string")


def run_verify(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> DataFrame:
    """Return one row for each number of the snapshot's summary, and one for each problem."""
    found = verify_table(engine, parts, **values)
    counts = [(count.name, count.recorded, count.counted, None) for count in found.counts]
    problems = [(None, None, None, problem) for problem in found.problems]
    return engine.spark.createDataFrame(
        [*counts, *problems], "name string, recorded bigint, counted bigint, problem string"
    )


PROCEDURES: Final = {
    procedure.name: procedure
    for procedure in (
        Procedure(name="remove_orphan_files", parameters=ORPHAN_PARAMETERS, run=run_remove_orphan_files),
        Procedure(name="verify", parameters=VERIFY_PARAMETERS, run=run_verify),
    )
}


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
    if "table" not in values:
        given = arguments.get("table")
        error = AnalysisError(f"The argument 'table' is {'missing' if given is None else 'NULL'}")
        raise point_error(error, sql, statement.span if given is None else given.span, "Write table => 'db.t'")
    parts = name_parts(values["table"])
    if not parts:
        error = AnalysisError(f"'{values['table']}' is not a valid table name", kind=ErrorKind.INVALID_VALUE)
        raise point_error(error, sql, arguments["table"].span)
    if statement.catalog is not None:
        parts = in_catalog(engine, statement, parts, sql)
    return procedure.run(engine, parts, {name: value for name, value in values.items() if name != "table"})


def table_of_call(statement: CallStatement) -> TableReference | None:
    """Return the table that a procedure is called for, if it can be found without evaluating anything."""
    first = statement.arguments[:1]
    named = (given for given in statement.arguments if given.name == "table")
    argument = first[0] if first and first[0].name is None else next(named, None)
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
    known = {parameter.name for parameter in procedure.parameters}
    found: dict[str, CallArgument] = {}
    for place, argument in enumerate(statement.arguments):
        if argument.name is None and place >= len(procedure.parameters):
            error = AnalysisError(f"{procedure.name} takes {len(procedure.parameters)} arguments")
            raise point_error(error, sql, argument.span)
        name = argument.name or procedure.parameters[place].name
        if name not in known:
            error = AnalysisError(f"{procedure.name} has no parameter '{name}'")
            raise point_error(error, sql, argument.span, did_you_mean(name, known))
        if name in found:
            raise point_error(AnalysisError(f"The argument '{name}' is given twice"), sql, argument.span)
        if argument.value.has_subquery:
            raise point_error(AnalysisError(f"The argument '{name}' is not a constant"), sql, argument.value.span)
        found[name] = argument
    return found


def evaluate_arguments(
    engine: Engine, procedure: Procedure, arguments: Mapping[str, CallArgument], sql: str
) -> dict[str, Any]:
    """Evaluate the arguments; NULLs are left out, like absent arguments.

    Raises:
        AnalysisError: a value has another type than its parameter.
        NotSupportedError: a parameter that RowDelta rejects has a value.
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
            raise point_error(error, sql, given.value.span, f"It must be {known[name].kind}")
    converted = (f"{known[name].conversion.format(quoted(name))} AS {quoted(name)}" for name in arguments)
    absent = ", ".join(f"{quoted(name)} IS NULL" for name in arguments)
    row = frame.selectExpr(*converted, f"array({absent}) AS absent").first()
    assert row is not None
    *found, nulls = row
    for (name, given), value, null in zip(arguments.items(), found, nulls, strict=True):
        if value is None and not null:
            error = AnalysisError(f"The argument '{name}' is {given.value.text}", kind=ErrorKind.INVALID_VALUE)
            raise point_error(error, sql, given.value.span, f"It must be {known[name].kind}")
    values = {name: value for name, value in zip(arguments, found, strict=True) if value is not None}
    for name in values:
        reason = known[name].rejection
        if reason is not None:
            error = NotSupportedError(f"{procedure.name} does not take '{name}'")
            raise point_error(error, sql, arguments[name].span, reason)
    return values


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
        raise point_error(error, sql, statement.span)
    return parts if parts[0] == statement.catalog else (statement.catalog, *parts)


def point_error(error: DmlError, sql: str, span: Span, hint: str | None = None) -> DmlError:
    """Add a place and a hint to an error, and return it."""
    error.point_at(sql, span.start, span.end)
    error.hint = hint
    return error
