"""`merge_into(...)`: builds a MERGE in Python, with the method names of PySpark's `DataFrame.mergeInto`. Driver.

Input: names, SQL text, PySpark Columns. Output: the text of a MERGE statement, which runs like any other, so that
builder and SQL have the same semantics.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Generic, Self, TypeVar

from pyspark.sql import Column, DataFrame

from dml.call_text import Argument, CallText
from dml.catalog.registry import ResolvedTable
from dml.commit import CommitKey, IdempotencyKey
from dml.engine.engine import Engine
from dml.errors import AnalysisError, ErrorKind, NotFoundError
from dml.hints import did_you_mean
from dml.result import Result
from dml.spark.bridge.sessions import named_frames
from dml.spark.foreign_data import ArrowStream, foreign_rows, is_foreign_data
from dml.sql_values import StatementRows, column_sql, statement_identity, view_name
from dml.sqlparse import parse
from dml.sqlparse.quoting import quote_name, quote_string, quoted
from dml.sqlparse.statements import DeleteStatement
from dml.tracebacks import short_tracebacks

__all__ = [
    "Condition",
    "MatchedAction",
    "MergeBuilder",
    "MergeClauses",
    "MergeTarget",
    "MergeText",
    "NotMatchedAction",
    "RunStatement",
    "Source",
    "Value",
    "alias_of",
    "assignments_text",
    "columns_of",
    "condition_text",
    "equal_columns",
    "identifier_columns",
    "key_of",
    "merge_rows",
    "name_text",
    "resolve_target",
    "set_argument",
    "source_of",
    "table_argument",
    "where_clause",
]

Condition = str | Column
RunStatement = Callable[[str, CommitKey | None], Result]
"""Runs the text of a MERGE, once under its key if it has one."""
RunOverRows = Callable[[str, CommitKey | None, Mapping[str, StatementRows]], Result]
"""The same, over the rows that the text refers to."""
Value = str | int | float | bool | None | Column
Source = DataFrame | ArrowStream | str
"""Rows: a DataFrame of Spark, pandas or Polars, Arrow data, or SQL text: a table's name or a query in parentheses."""


def condition_text(condition: object) -> str:
    """Convert a condition to SQL text.

    Raises:
        AnalysisError: It is neither SQL text nor a Column.
    """
    if isinstance(condition, Column):
        return column_sql(condition)
    if isinstance(condition, bool):
        return "TRUE" if condition else "FALSE"
    if isinstance(condition, str):
        return condition
    raise AnalysisError(
        f"A condition is SQL text or a PySpark Column, not {type(condition).__name__}",
        kind=ErrorKind.INVALID_CONDITION,
        hint="Write it as \"id = 5\" or col('id') == 5",
    )


def name_text(table: object) -> str:
    """Validate the name of a table.

    Raises:
        AnalysisError: It is not a string.
    """
    if not isinstance(table, str):
        raise AnalysisError(
            f"The name of a table is a text, not {type(table).__name__}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Write it as 'db.t'",
        )
    return table


def source_of(source: object) -> StatementRows | str:
    """Return the rows of a statement's source, or its SQL text.

    Args:
        source: A `Source`.

    Raises:
        AnalysisError: The source is of another type, or Spark has no type for one of its columns.
        DataError: A value does not fit Spark's type for its column.
    """
    if isinstance(source, DataFrame | str):
        return source
    if is_foreign_data(source):
        return foreign_rows(source)
    raise AnalysisError(
        f"The source must be a DataFrame, Arrow data, a table's name or a query in parentheses, "
        f"not {type(source).__name__}",
        kind=ErrorKind.INVALID_VALUE,
        hint="Pass a DataFrame of Spark, pandas or Polars. Collect a lazy one first, and convert Python rows with "
        "spark.createDataFrame(...)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """The table that a call merges rows into.

    Attributes:
        resolved: The table.
        sql: Its full name as SQL text, with its branch and the alias if one was given.
        alias: The name that qualifies its columns.
    """

    resolved: ResolvedTable
    sql: str
    alias: str


def resolve_target(engine: Engine, table: object) -> MergeTarget:
    """Resolve the name of a table, with an alias if it has one.

    Raises:
        AnalysisError: It is not the name of a table.
        NotFoundError: The table does not exist.
    """
    statement = parse(f"DELETE FROM {name_text(table)}")
    assert isinstance(statement, DeleteStatement)
    reference = statement.target
    resolved = engine.registry.resolve(reference.parts)
    if resolved is None:
        raise NotFoundError(
            f"There is no table '{'.'.join(reference.parts)}'", hint=engine.registry.suggestion(reference.parts)
        )
    # The suffix is kept: a branch can be written to, and the statement refuses other suffixes.
    state = (resolved.branch, resolved.tag, resolved.snapshot_id, resolved.timestamp_ms)
    ends = (resolved.metadata_table is not None) + any(part is not None for part in state)
    suffix = reference.parts[len(reference.parts) - ends :]
    full = quote_name((resolved.catalog_name, *resolved.identifier, *suffix))
    return MergeTarget(
        resolved=resolved,
        sql=full if reference.alias is None else f"{full} AS {quoted(reference.alias)}",
        alias=quoted(reference.alias or reference.parts[-1]),
    )


def equal_columns(target: MergeTarget, source_alias: str, names: Sequence[str]) -> str:
    """Return the condition that columns are equal in target and source, as SQL text."""
    return " AND ".join(f"{target.alias}.{quoted(name)} = {quoted(source_alias)}.{quoted(name)}" for name in names)


def identifier_columns(target: MergeTarget) -> list[str]:
    """Return the names of a table's identifier fields.

    Raises:
        AnalysisError: The table has none, or one is a field of a struct.
    """
    schema = target.resolved.table.schema()
    names = [field.name for field in schema.fields if field.field_id in schema.identifier_field_ids]
    if len(names) == len(schema.identifier_field_ids) and names:
        return names
    what = "identifier fields inside of structs" if schema.identifier_field_ids else "no identifier fields"
    raise AnalysisError(
        f"'on' is required, because the table {target.sql} has {what}",
        kind=ErrorKind.INVALID_VALUE,
        hint=f"Name the key columns with on=['id'], or declare them: ALTER TABLE {target.sql} SET IDENTIFIER FIELDS id",
    )


def columns_of(source: StatementRows | str, names: object, argument: str) -> tuple[str, ...]:
    """Return the source columns that an argument names.

    Raises:
        AnalysisError: It names no column or an unknown one, or is neither a name nor a sequence of names.
    """
    if not isinstance(names, Sequence):
        raise AnalysisError(
            f"{argument} expects column names, got {type(names).__name__}",
            kind=ErrorKind.INVALID_VALUE,
            hint=f"Write {argument}=['id'], for example",
        )
    listed = (names,) if isinstance(names, str) else tuple(names)
    columns = listed if isinstance(source, str) else source.columns  # Spark checks the columns of a query
    known = {str(name).lower() for name in columns}
    for name in listed:
        if not isinstance(name, str) or name.lower() not in known:
            raise AnalysisError(
                f"{argument} names the column '{name}', which the source does not have",
                kind=ErrorKind.UNRESOLVED_COLUMN,
                hint=did_you_mean(str(name), columns),
            )
    if not listed:
        raise AnalysisError(f"{argument} names no column", kind=ErrorKind.INVALID_VALUE, hint="Name at least one")
    return listed


def alias_of(alias: object) -> str:
    """Validate the alias of a source.

    Raises:
        AnalysisError: It is not a string, or is empty.
    """
    if isinstance(alias, str) and alias:
        return alias
    given = "empty" if alias == "" else f"a text, not {type(alias).__name__}"
    raise AnalysisError(
        f"source_alias is {given}", kind=ErrorKind.INVALID_VALUE, hint="Give the name that the conditions use"
    )


def where_clause(condition: Condition | None, argument: str) -> tuple[str | Argument, ...]:
    """Return the pieces of a WHERE clause; none without a condition.

    Args:
        condition: The condition.
        argument: The name of the argument that it was passed as.
    """
    if condition is None:
        return ()
    return " WHERE ", Argument(f"the argument '{argument}'", condition_text(condition))


def table_argument(table: object) -> Argument:
    """Return the piece for the name of a table.

    Raises:
        AnalysisError: It is not a string.
    """
    return Argument("the argument 'table'", name_text(table))


def value_sql_text(value: object) -> str:
    """Convert a value to SQL text; a string is an expression.

    Raises:
        AnalysisError: The type is not supported: its text could mean something else (2020-01-31 is a difference).
    """
    if isinstance(value, Column):
        return column_sql(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"CAST({quote_string(repr(float(value)))} AS DOUBLE)"
    if isinstance(value, str | Number):
        return str(value)
    raise AnalysisError(
        f"A value is SQL text, a PySpark Column, a number, a truth value or None, not {type(value).__name__}",
        kind=ErrorKind.INVALID_ASSIGNMENT,
        hint="Give it as a Column, lit(value), or as SQL text such as \"DATE '2020-01-31'\"",
    )


def key_text(key: object) -> str:
    """Convert a column or nested field to SQL text; names other than plain dotted ones must be quoted by the caller.

    Raises:
        AnalysisError: It is not a string.
    """
    if not isinstance(key, str):
        raise AnalysisError(
            f"The name of a column is a text, not {type(key).__name__}",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            hint="Write it as 'column', or 'column.field' for a nested field",
        )
    return ".".join(quoted(part) for part in key.split(".")) if "`" not in key else key


def checked_assignments(assignments: object) -> Mapping[str, Value]:
    """Validate assignments.

    Raises:
        AnalysisError: The assignments are empty or not a mapping.
    """
    if not isinstance(assignments, Mapping):
        raise AnalysisError(
            f"The assignments are a mapping of columns to values, not {type(assignments).__name__}",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            hint="Give them as {'column': value}",
        )
    if not assignments:
        raise AnalysisError(
            "There is no assignment",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            hint="Give at least one, as {'column': value}, or use updateAll() / insertAll()",
        )
    return assignments


def assignments_text(assignments: object) -> str:
    """Convert assignments to a SET list.

    Raises:
        AnalysisError: There is no assignment, or a key or value is invalid.
    """
    checked = checked_assignments(assignments)
    return ", ".join(f"{key_text(key)} = {value_sql_text(value)}" for key, value in checked.items())


def set_argument(assignments: object) -> Argument:
    """Return the piece for the assignments of an UPDATE.

    Raises:
        AnalysisError: As `assignments_text`.
    """
    return Argument("the argument 'set'", assignments_text(assignments))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeText:
    """The text of a MERGE without its source. Picklable.

    Attributes:
        target: The table, as SQL text.
        source_alias: The alias of the source in conditions.
        on: The ON condition, as SQL text.
        clauses: The WHEN clauses so far, as SQL text.
        schema_evolution: Add new columns of the source to the table.
    """

    target: str
    source_alias: str
    on: str
    clauses: tuple[str, ...] = ()
    schema_evolution: bool = False

    def over(self, source: str | Argument) -> CallText:
        """Return the statement over a source: an argument of the call, or a generated name."""
        evolution = " WITH SCHEMA EVOLUTION" if self.schema_evolution else ""
        clauses = [Argument(f"clause {number}", clause) for number, clause in enumerate(self.clauses, 1)]
        return CallText(
            f"MERGE{evolution} INTO ",
            table_argument(self.target),
            " USING ",
            source,
            f" AS {quoted(self.source_alias)}\nON ",
            Argument("the merge condition", self.on),
            *(piece for clause in clauses for piece in ("\n", clause)),
        )


def merge_rows(merge: MergeText, run: RunStatement, rows: DataFrame, key: CommitKey | None) -> Result:
    """Run a MERGE with the rows of a DataFrame as its source.

    Args:
        merge: The MERGE.
        run: Runs the statement, in the session of the rows.
        rows: The rows.
        key: The key under which it is applied only once.

    Raises:
        DmlError: As for the SQL statement.
    """
    view = view_name()
    call = merge.over(view)
    with named_frames(rows.sparkSession, {view: rows}), call.locate_errors():
        return run(call.text, key)


def key_of(value: object, text: str, rows: Mapping[str, StatementRows]) -> IdempotencyKey | None:
    """Bind an idempotency key to its statement; None if there is no key.

    Args:
        value: The key, or None.
        text: The statement.
        rows: The rows that it names, by view.

    Raises:
        AnalysisError: The key is invalid.
    """
    return None if value is None else IdempotencyKey.of(value, statement_identity(text, rows))


@short_tracebacks
class MergeClauses(ABC):
    """The clauses of a MERGE, with the method names of PySpark's `DataFrame.mergeInto`.

    Immutable: each call returns a new object, so several statements can share their first clauses.
    """

    def whenMatched(self, condition: Condition | None = None) -> "MatchedAction[Self]":  # noqa: N802 - PySpark's name
        """Add `WHEN MATCHED [AND condition] THEN` with the action of the next call."""
        return MatchedAction(self._clause("MATCHED", condition), self._named_values)

    def whenNotMatched(self, condition: Condition | None = None) -> "NotMatchedAction[Self]":  # noqa: N802
        """Add `WHEN NOT MATCHED [AND condition] THEN` with the action of the next call."""
        return NotMatchedAction(self._clause("NOT MATCHED", condition), self._named_values)

    def whenNotMatchedBySource(self, condition: Condition | None = None) -> "MatchedAction[Self]":  # noqa: N802
        """Add `WHEN NOT MATCHED BY SOURCE [AND condition] THEN` with the action of the next call."""
        return MatchedAction(self._clause("NOT MATCHED BY SOURCE", condition), self._named_values)

    def withSchemaEvolution(self) -> Self:  # noqa: N802
        """Add columns of the source that the table lacks."""
        return self._with_text(replace(self._text, schema_evolution=True))

    @property
    @abstractmethod
    def _text(self) -> MergeText:
        """The MERGE so far."""

    @abstractmethod
    def _with_text(self, text: MergeText) -> Self:
        """Return the same for another MERGE."""

    def _named_condition(self, condition: Condition) -> Condition:
        """Return a condition with columns of the source as names."""
        return condition

    def _named_values(self, assignments: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return assignments with columns of the source as names."""
        return assignments

    def _clause(self, kind: str, condition: Condition | None) -> "Callable[[str], Self]":
        """Return a function that adds a WHEN clause with an action."""
        head = f"WHEN {kind}"
        if condition is not None:
            head += f" AND ({condition_text(self._named_condition(condition))})"
        merge = self._text
        return lambda action: self._with_text(replace(merge, clauses=(*merge.clauses, f"{head} THEN {action}")))


Clauses = TypeVar("Clauses", bound=MergeClauses)
NamedValues = Callable[[Mapping[str, Value]], Mapping[str, Value]]


@short_tracebacks
class MatchedAction(Generic[Clauses]):
    """The action on target rows, of WHEN MATCHED or WHEN NOT MATCHED BY SOURCE."""

    def __init__(self, add: Callable[[str], Clauses], named_values: NamedValues) -> None:
        self._add = add
        self._named_values = named_values

    def update(self, assignments: Mapping[str, Value]) -> Clauses:
        """Add `UPDATE SET ...`; values are SQL text, Columns, numbers, booleans or None."""
        return self._add(f"UPDATE SET {assignments_text(self._named_values(checked_assignments(assignments)))}")

    def updateAll(self) -> Clauses:  # noqa: N802
        """Add `UPDATE SET *`."""
        return self._add("UPDATE SET *")

    def delete(self) -> Clauses:
        """Add `DELETE`."""
        return self._add("DELETE")


@short_tracebacks
class NotMatchedAction(Generic[Clauses]):
    """The action on source rows that match no target row."""

    def __init__(self, add: Callable[[str], Clauses], named_values: NamedValues) -> None:
        self._add = add
        self._named_values = named_values

    def insert(self, assignments: Mapping[str, Value]) -> Clauses:
        """Add `INSERT (...) VALUES (...)`; values are SQL text, Columns, numbers, booleans or None."""
        named = self._named_values(checked_assignments(assignments))
        columns = ", ".join(key_text(key) for key in named)
        return self._add(f"INSERT ({columns}) VALUES ({', '.join(map(value_sql_text, named.values()))})")

    def insertAll(self) -> Clauses:  # noqa: N802
        """Add `INSERT *`."""
        return self._add("INSERT *")


@short_tracebacks
class MergeBuilder(MergeClauses):
    """Builds a MERGE; nothing runs before `merge()`.

    Args:
        text: The MERGE so far.
        source: The rows, or SQL text of a table or of a query in parentheses.
        run: Runs the statement, given its text, its idempotency key and the rows that it names.
    """

    def __init__(self, text: MergeText, source: StatementRows | str, run: RunOverRows) -> None:
        self._merge = text
        self._source = source
        self._run = run

    @property
    def _text(self) -> MergeText:
        return self._merge

    def _with_text(self, text: MergeText) -> "MergeBuilder":
        return MergeBuilder(text, self._source, self._run)

    def merge(self, *, idempotency_key: str | None = None) -> Result:
        """Run the MERGE.

        Args:
            idempotency_key: Run it only once under this key; see `Session.sql`. A DataFrame is identified by the names
                and types of its columns, not by its rows.

        Raises:
            DmlError: As for the SQL statement.
        """
        source, merge = self._source, self._merge
        if isinstance(source, str):
            call = merge.over(Argument("the argument 'source'", source))
            with call.locate_errors():
                return self._run(call.text, key_of(idempotency_key, call.text, {}), {})
        key = key_of(idempotency_key, merge.over("?").text, {"?": source})
        if isinstance(source, DataFrame):
            return merge_rows(merge, lambda text, key: self._run(text, key, {}), source, key)
        view = view_name()
        call = merge.over(view)
        with call.locate_errors():
            return self._run(call.text, key, {view: source})
