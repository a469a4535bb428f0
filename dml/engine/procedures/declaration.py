"""Declare procedures: a name, parameters with types, result columns and a function. Driver.

    Procedure(
        name="rollback_to_snapshot",
        parameters=(TABLE, Parameter(name="snapshot_id", type=BIGINT, required=True)),
        columns="previous_snapshot_id bigint, current_snapshot_id bigint",
        run=rollback_to_snapshot,
        changes_table=True,
    )

The binding of `CALL` (`binding`), the method `Session.call` and the command of the shell are derived from it. A type
converts an argument in SQL, so its value does not depend on Python's time zone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from dml.catalog.registry import ResolvedTable
from dml.engine.engine import Engine
from dml.errors import NotSupportedError
from dml.plan.comparisons import timestamp_micros
from dml.result import dry_run_rows
from dml.sqlparse.constants import Kind, TimeZone, constant

__all__ = [
    "BIGINT",
    "BIGINT_ARRAY",
    "BOOLEAN",
    "BRANCH",
    "DRY_RUN",
    "STRING",
    "STRING_ARRAY",
    "STRING_MAP",
    "TABLE",
    "TIMESTAMP",
    "ArgumentType",
    "Parameter",
    "Procedure",
    "dry_run_rows",
    "table_of_branch",
    "whole_table",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_BIGINT: Final = 2**63 - 1


def unchanged(value: Any) -> Any:
    return value


def instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentType:
    """A type of arguments.

    Attributes:
        text: Its name in messages.
        python: The type of its values in the shell; times are text.
        accepts: The Spark types that are accepted.
        conversion: SQL that converts the argument `{}` (or `{0}`); it is NULL if the argument is not a valid value.
        decode: Converts the result to the value that the procedure gets.
        read: Returns the same result for sqlglot's tree of a constant, or None where Spark has to evaluate it.
    """

    text: str
    python: Any
    accepts: tuple[type[DataType], ...]
    conversion: str = "{}"
    decode: Callable[[Any], Any] = unchanged
    read: Callable[[exp.Expression, TimeZone], Any]


def read_constant(kind: Kind) -> Callable[[exp.Expression, TimeZone], Any]:
    """Return a function that reads a constant of a kind."""

    def read(tree: exp.Expression, zone: TimeZone) -> Any:
        found = constant(tree, zone)
        return found.value if found is not None and found.kind is kind else None

    return read


read_text, read_whole = read_constant(Kind.STRING), read_constant(Kind.INTEGER)


def read_bigint(tree: exp.Expression, zone: TimeZone) -> int | None:
    found: int | None = read_whole(tree, zone)
    return found if found is not None and -MAX_BIGINT <= found <= MAX_BIGINT else None


def read_micros(tree: exp.Expression, zone: TimeZone) -> int | None:
    found = constant(tree, zone)
    return None if found is None else timestamp_micros(found, zone, instant=True)


def read_array(member: Callable[[exp.Expression, TimeZone], Any]) -> Callable[[exp.Expression, TimeZone], Any]:
    """Return a function that reads an array of constants without NULL."""

    def read(tree: exp.Expression, zone: TimeZone) -> list[Any] | None:
        # sqlglot also reads brackets, `[1, 2]`, which are an error in Spark.
        is_call = isinstance(tree, exp.Array) and "value_constructor" not in tree.args
        found = [member(one, zone) for one in tree.expressions] if is_call else []
        return None if not found or None in found else found

    return read


def read_map(tree: exp.Expression, zone: TimeZone) -> dict[str, str] | None:
    """Read a map of strings without NULL and without two equal keys."""
    if not isinstance(tree, exp.VarMap):
        return None
    read = read_array(read_text)
    keys, values = read(tree.args["keys"], zone), read(tree.args["values"], zone)
    is_map = keys is not None and values is not None and len(set(keys)) == len(keys) == len(values)
    return dict(zip(keys, values, strict=True)) if is_map else None


STRING: Final = ArgumentType(text="a string", python=str, accepts=(StringType,), read=read_text)
BIGINT: Final = ArgumentType(
    text="a whole number", python=int, accepts=(ByteType, ShortType, IntegerType, LongType), read=read_bigint
)
BIGINT_ARRAY: Final = ArgumentType(
    text="an array of whole numbers",
    python=list[int],
    accepts=(ArrayType,),
    conversion="IF(exists(try_cast({0} AS ARRAY<BIGINT>), one -> one IS NULL), NULL, try_cast({0} AS ARRAY<BIGINT>))",
    decode=tuple,
    read=read_array(read_bigint),
)
BOOLEAN: Final = ArgumentType(
    text="true or false", python=bool, accepts=(BooleanType,), read=read_constant(Kind.BOOLEAN)
)
TIMESTAMP: Final = ArgumentType(
    text="a timestamp, such as '2026-01-31 12:00:00'",
    python=str,
    accepts=(TimestampType, TimestampNTZType, DateType, StringType),
    conversion="unix_micros(try_cast({} AS TIMESTAMP))",
    decode=instant,
    read=read_micros,
)
STRING_ARRAY: Final = ArgumentType(
    text="an array of strings",
    python=list[str],
    accepts=(ArrayType,),
    conversion="IF(exists({0}, one -> one IS NULL), NULL, CAST({0} AS ARRAY<STRING>))",
    read=read_array(read_text),
)
STRING_MAP: Final = ArgumentType(
    text="a map of strings",
    python=dict,
    accepts=(MapType,),
    conversion="map_filter(CAST({} AS MAP<STRING, STRING>), (name, one) -> one IS NOT NULL)",
    read=read_map,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Its name.
        type: Its type.
        required: True if it must have a value.
        doc: What it means, for the help of the shell.
        is_on: True for a flag that is true by default.
        rejection: The reason why RowDelta rejects the parameter; None if it accepts it.
    """

    name: str
    type: ArgumentType
    required: bool = False
    doc: str = ""
    is_on: bool = False
    rejection: str | None = None


TABLE: Final = Parameter(name="table", type=STRING, required=True, doc="The table, such as db.t")
BRANCH: Final = Parameter(name="branch", type=STRING, doc="The branch to change; main by default")
DRY_RUN: Final = Parameter(name="dry_run", type=BOOLEAN, doc="Change nothing, and show each decision with its reason")

DECISION_COLUMNS: Final = "decision string, object string, reason string"
"""The columns of a dry run in addition to those of the procedure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure.

    Attributes:
        name: Its name in the namespace `system`.
        summary: What it does, one sentence in the imperative, for the shell.
        parameters: In their order; one of them is `TABLE`. The table need not exist.
        columns: The columns of its rows, as Spark DDL.
        run: Runs it: takes the session, the parts of the table's name with the catalog of the call in front, and the
            values of the other arguments that are not NULL. Returns the rows.
        changes_table: True if plans that Spark has cached of the table must be invalidated.
        in_session: True if its effect ends with the session, so the shell has no command for it.
        has_decisions: True if the rows of a dry run also have `DECISION_COLUMNS`; see `dry_run_rows`.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    columns: str
    run: Callable[[Engine, tuple[str, ...], Mapping[str, Any]], Iterable[tuple[Any, ...]]]
    changes_table: bool = False
    in_session: bool = False
    has_decisions: bool = False

    def columns_of(self, values: Mapping[str, Any]) -> str:
        """Return the columns of a call's rows, as Spark DDL."""
        if not (self.has_decisions and values.get("dry_run")):
            return self.columns
        return f"{self.columns.replace(' NOT NULL', '')}, {DECISION_COLUMNS}"


def whole_table(engine: Engine, parts: tuple[str, ...], reason: str) -> ResolvedTable:
    """Resolve the table of a procedure that takes no branch, tag, snapshot or metadata table.

    Args:
        engine: The session and its catalogs.
        parts: The table's name.
        reason: Why, to follow "'db.t.branch_x' is a part of the table 'db.t':".

    Raises:
        NotFoundError: There is no such table.
        NotSupportedError: The name is that of a part of a table.
    """
    name = ".".join(parts)
    resolved = engine.registry.find(parts)
    if resolved.is_part:
        raise NotSupportedError(
            f"'{name}' is a part of the table '{resolved.name}': {reason}",
            hint=f"Name the table: '{resolved.name}'",
            table=name,
        )
    return resolved


def table_of_branch(engine: Engine, parts: tuple[str, ...], branch: str | None) -> tuple[ResolvedTable, str | None]:
    """Resolve the table of a procedure that works on a branch.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, with or without a branch.
        branch: The branch argument; it overrides the branch in the name.

    Returns:
        The table, and the branch; None for main.

    Raises:
        NotFoundError: There is no such table.
        NotSupportedError: The name is that of another part of a table.
    """
    resolved = engine.registry.resolve(parts)
    if resolved is not None and resolved.branch is not None:
        return resolved, resolved.branch if branch is None else branch
    return whole_table(engine, parts, "the procedure writes to a branch"), branch
