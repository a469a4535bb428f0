"""Plan INSERT: map the query's columns to the table's, and replace DEFAULT in VALUES. Driver.

Input: an `InsertStatement`, the table's schema, the names of the query's columns. Output: an `InsertPlan` whose value
columns read the query's columns by position, under the names `__r0`, `__r1`, ..., so that duplicate names do not
matter.

Source: Spark SQL reference, "INSERT TABLE"; Iceberg documentation, "Spark Writes".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.types import NestedField

from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.plan.names import TargetNames
from dml.plan.row_delta_plan import DefaultValue, RawValue, ValueSource, raw_name
from dml.sqlparse import defaults_in_values
from dml.sqlparse.statements import InsertStatement, PartitionValue, Span

__all__ = ["ADD_COLUMNS_HINT", "InsertPlan", "plan_insert", "query_with_defaults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertPlan:
    """The source of each table column's value.

    Attributes:
        columns: Table columns in the table's order, each with its source.
        statics: Static values of the PARTITION clause by raw column name. They follow the query's columns.
        by_name: True if struct fields are matched by name.
    """

    columns: tuple[tuple[NestedField, ValueSource], ...]
    statics: tuple[tuple[str, PartitionValue], ...]
    by_name: bool


def plan_insert(statement: InsertStatement, names: TargetNames, query_columns: Sequence[str]) -> InsertPlan:
    """Match the query's columns with the table's.

    Args:
        statement: The statement.
        names: The table's columns.
        query_columns: Names of the query's columns, in order.

    Raises:
        AnalysisError: too many or too few columns, an unknown or repeated column, a missing required column.
    """
    statics = static_columns(statement, names)
    given = {field.field_id for field, _ in statics}
    if statement.by_name:
        targets = columns_by_name(statement, names, query_columns)
    elif statement.columns:
        targets = listed_columns(statement, names)
        check_arity(statement, names, targets, query_columns)
    else:
        targets = [field for field in names.schema.fields if field.field_id not in given]
        check_arity(statement, names, targets, query_columns)
    sources: dict[int, ValueSource] = {
        field.field_id: RawValue(raw=raw_name(index), span=value_span(statement, index))
        for index, field in enumerate(targets)
    }
    static_values = []
    for index, (field, value) in enumerate(statics, start=len(query_columns)):
        sources[field.field_id] = RawValue(raw=raw_name(index), span=value.span)
        static_values.append((raw_name(index), value))
    return InsertPlan(
        columns=tuple((field, value_source(field, sources, names, statement)) for field in names.schema.fields),
        statics=tuple(static_values),
        by_name=statement.by_name,
    )


def value_source(
    field: NestedField, sources: Mapping[int, ValueSource], names: TargetNames, statement: InsertStatement
) -> ValueSource:
    """Return a column's source; missing columns get their default."""
    source = sources.get(field.field_id)
    if source is not None:
        return source
    if field.required and field.write_default is None:
        raise names.error(
            f"No value for '{field.name}', which is required and has no default",
            statement.target.span,
            "Add it to the query and the column list",
            ErrorKind.INVALID_ASSIGNMENT,
        )
    return DefaultValue()


def value_span(statement: InsertStatement, index: int) -> Span:
    """Return the span that errors about a column's value point at: its name in the column list, or the query."""
    return statement.column_spans[index] if statement.columns else statement.query.span


ADD_COLUMNS_HINT: Final = "The option 'merge-schema' adds new columns"


def column_of(name: str, span: Span, names: TargetNames, *, hint: str = "") -> NestedField:
    """Find a table column by name.

    Raises:
        AnalysisError: the table has no such column.
    """
    field = names.column(name)
    if field is None:
        found = did_you_mean(name, (column.name for column in names.schema.fields))
        separator = "" if not hint else " " if found.endswith("?") else ". "
        raise names.error(f"There is no column '{name}' in the table", span, found + separator + hint)
    return field


def static_columns(statement: InsertStatement, names: TargetNames) -> list[tuple[NestedField, PartitionValue]]:
    """Return the columns that the PARTITION clause gives a value."""
    return [
        (column_of(entry.column, entry.span, names), entry) for entry in statement.partition if entry.value is not None
    ]


def listed_columns(statement: InsertStatement, names: TargetNames) -> list[NestedField]:
    """Resolve the column list and reject repeated columns."""
    fields: list[NestedField] = []
    for name, span in zip(statement.columns, statement.column_spans, strict=True):
        field = column_of(name, span, names)
        if field in fields:
            raise names.error(
                f"The column '{name}' is listed twice",
                span,
                "Name it once",
                ErrorKind.INVALID_ASSIGNMENT,
            )
        fields.append(field)
    return fields


def columns_by_name(statement: InsertStatement, names: TargetNames, query_columns: Sequence[str]) -> list[NestedField]:
    """Return the table column for each query column, by name."""
    fields: list[NestedField] = []
    for name in query_columns:
        field = column_of(name, statement.query.span, names, hint=ADD_COLUMNS_HINT)
        if field in fields:
            raise names.error(
                f"The query has two columns '{name}'",
                statement.query.span,
                "Give each column of the query a name of its own",
                ErrorKind.INVALID_ASSIGNMENT,
            )
        fields.append(field)
    return fields


def check_arity(
    statement: InsertStatement, names: TargetNames, targets: Sequence[NestedField], query_columns: Sequence[str]
) -> None:
    """Reject a query whose number of columns differs from the number of columns to fill."""
    if len(targets) == len(query_columns):
        return
    wanted = ", ".join(field.name for field in targets)
    few = len(query_columns) < len(targets)
    raise AnalysisError(
        f"The query has {'too few' if few else 'too many'} columns: {len(query_columns)} for the "
        f"{len(targets)} columns {wanted}",
        sql=names.sql,
        position=statement.query.span.start,
        length=statement.query.span.end - statement.query.span.start,
        kind=ErrorKind.INVALID_ASSIGNMENT,
        hint="Name the columns after the table, or use INSERT ... BY NAME",
    )


def query_with_defaults(
    statement: InsertStatement, names: TargetNames, rendered: str, default_sql: Callable[[NestedField], str]
) -> str:
    """Replace DEFAULT in the query's text: `(1, DEFAULT)` -> `(1, CAST(NULL AS int))`.

    Spark resolves DEFAULT against the table that it inserts into. Here the table is not Spark's, so the column's
    default replaces the word before Spark parses the query.

    Args:
        statement: The statement.
        names: The target's columns.
        rendered: The query's text with its tables replaced.
        default_sql: Returns the SQL of a column's default.
    """
    places = list(defaults_in_values(rendered))
    if not places:
        return rendered
    given = {names.folded(entry.column) for entry in statement.partition if entry.value is not None}
    columns = (
        [names.column(name) for name in statement.columns]
        if statement.columns
        else [field for field in names.schema.fields if names.folded(field.name) not in given]
    )
    for span, index in sorted(places, key=lambda place: place[0], reverse=True):
        column = columns[index] if index < len(columns) else None
        if column is not None:
            rendered = rendered[: span.start] + default_sql(column) + rendered[span.end :]
    return rendered
