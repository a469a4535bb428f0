"""Spark's table definitions and changes as RowDelta statements: CREATE TABLE, ALTER TABLE. Driver, classic Spark only.

Input: columns, transforms, properties and changes, as Spark's connector API has them. Output: statements of
`dml.sqlparse`, which `dml.ddl` runs and checks. This module only translates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.values import java_error, simple_name
from dml.sqlparse.statements import (
    AddColumns,
    AlterAction,
    AlterColumn,
    AlterColumns,
    ColumnDefinition,
    ColumnPosition,
    CreateTable,
    DropColumns,
    RenameColumn,
    SetProperties,
    Span,
    TableReference,
    TransformTerm,
    UnsetProperties,
)

__all__ = ["NOWHERE", "RESERVED_PROPERTIES", "alter_actions", "create_statement", "reference_of"]

NOWHERE: Final = Span(0, 0)
"""The span of names that are not in any SQL text."""

SINGULAR: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}

PARQUET: Final = "parquet"
"""Spark's provider for a writer without a format. Iceberg takes it for the file format, and Parquet is the default."""

RESERVED_PROPERTIES: Final = frozenset(
    {"comment", "external", "is_managed_location", "location", "owner", "path", "provider"}
)
"""Properties that Spark adds, or that a statement has clauses for."""


def reference_of(parts: Sequence[str]) -> TableReference:
    """Build the reference to a table that is not named in any SQL text."""
    return TableReference(parts=tuple(parts), span=NOWHERE)


def create_statement(
    parts: Sequence[str], columns: Iterable[JavaObject], partitions: Iterable[JavaObject], properties: Mapping[str, str]
) -> CreateTable:
    """Build a CREATE TABLE statement.

    Args:
        parts: The table's name, catalog first.
        columns: `Column`s.
        partitions: `Transform`s.
        properties: Spark's properties, which include the clauses of the statement.
    """
    given = {str(key): str(value) for key, value in properties.items()}
    return CreateTable(
        table=reference_of(parts),
        columns=tuple(column_definition(column) for column in columns),
        provider=None if given.get("provider", "").lower() == PARQUET else given.get("provider"),
        partitioning=tuple(term(partition) for partition in partitions),
        properties=tuple(
            (key, value)
            for key, value in given.items()
            if key not in RESERVED_PROPERTIES and key.lower() != "option.path"
        ),
        comment=given.get("comment"),
        location=given.get("location"),
    )


def column_definition(column: JavaObject) -> ColumnDefinition:
    """Convert a column of a new table."""
    return ColumnDefinition(
        path=(str(column.name()),),
        data_type=str(column.dataType().sql()),
        span=NOWHERE,
        required=not column.nullable(),
        default=default_text(column.defaultValue()),
        comment=column.comment(),
    )


def default_text(default: JavaObject | None) -> str | None:
    """Return the SQL text of a DEFAULT, or None if there is none."""
    return None if default is None else str(default.getSql())


def term(transform: JavaObject) -> TransformTerm:
    """Convert a partition transform."""
    name = str(transform.name()).lower()
    references = list(transform.references())
    numbers = [
        int(argument.value()) for argument in transform.arguments() if simple_name(argument).startswith("Literal")
    ]
    if len(references) != 1 or len(numbers) > 1:
        raise java_error(
            "java.lang.UnsupportedOperationException", f"Iceberg has no partition transform {transform.describe()}"
        )
    return TransformTerm(
        transform=SINGULAR.get(name, name),
        column=tuple(map(str, references[0].fieldNames())),
        argument=numbers[0] if numbers else None,
        span=NOWHERE,
    )


def alter_actions(changes: Iterable[JavaObject]) -> Iterator[AlterAction]:
    """Convert the changes of an ALTER TABLE. Neighbors of one kind become one action, applied atomically."""
    run: list[Any] = []
    for change in changes:
        action = alter_action(change)
        if run and type(run[0]) is not type(action):
            yield merge_actions(run)
            run = []
        run.append(action)
    if run:
        yield merge_actions(run)


def alter_action(change: JavaObject) -> AlterAction | AlterColumn:
    """Convert one change."""
    kind = simple_name(change)
    match kind:
        case "SetProperty":
            return SetProperties(properties=((str(change.property()), str(change.value())),))
        case "RemoveProperty":
            return UnsetProperties(keys=(str(change.property()),))
        case "AddColumn":
            return AddColumns(columns=(added_column(change),))
        case "DeleteColumn":
            return DropColumns(columns=(path(change),), spans=(NOWHERE,), if_exists=bool(change.ifExists()))
        case "RenameColumn":
            return RenameColumn(column=path(change), new_name=str(change.newName()), span=NOWHERE)
        case "UpdateColumnType":
            return AlterColumn(column=path(change), span=NOWHERE, data_type=str(change.newDataType().sql()))
        case "UpdateColumnComment":
            return AlterColumn(column=path(change), span=NOWHERE, comment=str(change.newComment() or ""))
        case "UpdateColumnNullability":
            return AlterColumn(column=path(change), span=NOWHERE, required=not change.nullable())
        case "UpdateColumnPosition":
            return AlterColumn(column=path(change), span=NOWHERE, position=position(change.position()))
        case "UpdateColumnDefaultValue":
            default = str(change.newDefaultValue() or "")
            return AlterColumn(column=path(change), span=NOWHERE, default=default or None, drop_default=not default)
        case _:
            raise java_error("java.lang.UnsupportedOperationException", f"Iceberg tables cannot be changed by {kind}")


def merge_actions(run: list[Any]) -> AlterAction:
    """Merge actions of one kind into one. Spark never sends two renames in one statement."""
    first = run[0]
    match first:
        case SetProperties():
            return SetProperties(properties=tuple(pair for action in run for pair in action.properties))
        case UnsetProperties():
            return UnsetProperties(keys=tuple(key for action in run for key in action.keys))
        case AddColumns():
            return AddColumns(columns=tuple(column for action in run for column in action.columns))
        case DropColumns():
            columns = tuple(column for action in run for column in action.columns)
            return DropColumns(columns=columns, spans=(NOWHERE,) * len(columns), if_exists=first.if_exists)
        case AlterColumn():
            return AlterColumns(columns=tuple(run))
    if len(run) > 1:
        raise java_error("java.lang.UnsupportedOperationException", "Rename one column at a time")
    return first  # type: ignore[no-any-return]


def added_column(change: JavaObject) -> ColumnDefinition:
    """Convert a column of ADD COLUMNS."""
    return ColumnDefinition(
        path=path(change),
        data_type=str(change.dataType().sql()),
        span=NOWHERE,
        required=not change.isNullable(),
        default=default_text(change.defaultValue()),
        comment=change.comment(),
        position=None if change.position() is None else position(change.position()),
    )


def path(change: JavaObject) -> tuple[str, ...]:
    """Return the path of the changed column, outermost first."""
    return tuple(map(str, change.fieldNames()))


def position(place: JavaObject) -> ColumnPosition:
    """Convert FIRST or AFTER."""
    return ColumnPosition(after=str(place.column()) if simple_name(place) == "After" else None)
