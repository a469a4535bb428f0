"""ADD, DROP and ALTER COLUMN: what may change in a schema, and what rows or settings forbid. Pure; driver.

Input: the action and the table's metadata. Output: the new schema. Source: Iceberg specification, "Schema Evolution",
"Default values"; `SchemaUpdate.java`.
"""

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField, StructType

from dml.ddl.columns import field_of, refuse_default
from dml.ddl.literals import constant
from dml.ddl.quoting import quote_name
from dml.ddl.schema_change import add_field, alter_field, drop_field, find_field, is_promotion, move_field, subtree
from dml.ddl.transforms import term_text
from dml.ddl.types import parse_type, type_text
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.sqlparse.places import at
from dml.sqlparse.statements import AddColumns, AlterColumn, ColumnDefinition, DropColumns

__all__ = ["altered_column", "with_columns", "without_columns"]


def with_columns(action: AddColumns, metadata: TableMetadata, time_zone: str) -> Schema:
    """The schema after ADD COLUMNS.

    Raises:
        AnalysisError: a type, a default or a place does not fit, or a name is taken.
        NotSupportedError: NOT NULL without a default, or a default below format version 3.
    """
    schema, last_column_id = metadata.schema(), metadata.last_column_id
    for definition in action.columns:
        with at(definition.span):
            schema = _with_column(definition, schema, last_column_id, metadata.format_version, time_zone)
        last_column_id = max(last_column_id, schema.highest_field_id)
    return schema


def _with_column(
    definition: ColumnDefinition, schema: Schema, last_column_id: int, format_version: int, time_zone: str
) -> Schema:
    field = field_of(definition, format_version=format_version, time_zone=time_zone)
    if field.required and field.initial_default is None:
        raise NotSupportedError(
            f"Column {quote_name(definition.path)} cannot be added as NOT NULL: rows that are there have no value",
            hint="Leave NOT NULL out, or give it a DEFAULT (format version 3)",
        )
    return add_field(schema, definition.path, field, last_column_id=last_column_id, move=definition.position)


def without_columns(action: DropColumns, metadata: TableMetadata) -> Schema:
    """The schema after DROP COLUMNS.

    Raises:
        AnalysisError: a column is not there, or is the last one.
        NotSupportedError: the table is partitioned or sorted by a column.
    """
    schema = metadata.schema()
    for path, span in zip(action.columns, action.spans, strict=True):
        if action.if_exists and not _has_column(schema, path):
            continue
        with at(span):
            _refuse_used(find_field(schema, path), path, metadata)
            schema = drop_field(schema, path)
    return schema


def _has_column(schema: Schema, path: tuple[str, ...]) -> bool:
    try:
        find_field(schema, path)
    except AnalysisError as error:
        if error.kind is ErrorKind.UNRESOLVED_COLUMN:
            return False
        raise
    return True


def _refuse_used(dropped: NestedField, path: tuple[str, ...], metadata: TableMetadata) -> None:
    ids = {field.field_id for field in subtree(dropped)}
    column = quote_name(path)
    for field in metadata.spec().fields:
        if field.source_id in ids:
            upgrade = isinstance(field.transform, VoidTransform) and metadata.format_version == 1
            first = "SET TBLPROPERTIES ('format-version' = '2'), then " if upgrade else ""
            raise NotSupportedError(
                f"Column {column} partitions the table, by {term_text(field, metadata.schema())}",
                hint=f"First: ALTER TABLE ... {first}DROP PARTITION FIELD {quote_name((field.name,))}",
            )
    # The reference allows this one, and then fails to read the table's metadata tables.
    past = [field for spec in metadata.partition_specs for field in spec.fields if field.source_id in ids]
    if metadata.snapshots and any(not isinstance(field.transform, VoidTransform) for field in past):
        raise NotSupportedError(
            f"Column {column} partitioned the table before, and files of that time may be there still",
            hint="Keep the column, or copy the rows into a new table without it",
        )
    if any(field.source_id in ids for field in metadata.sort_order().fields):
        raise NotSupportedError(
            f"Column {quote_name(path)} is in the table's sort order", hint="First: ALTER TABLE ... WRITE UNORDERED"
        )


def altered_column(action: AlterColumn, schema: Schema, format_version: int, time_zone: str) -> Schema:
    """The schema after ALTER COLUMN of one column.

    Raises:
        AnalysisError: the column is not there, or the default does not fit.
        NotSupportedError: the format does not allow the change.
    """
    path = action.column
    field = find_field(schema, path)
    changes: dict[str, object] = {}
    if action.data_type is not None:
        changes["field_type"] = _promoted(field, action, action.data_type)
    if action.required is not None and action.required != field.required:
        changes["required"] = _made_optional(path, required=action.required)
    if action.comment is not None:
        changes["doc"] = action.comment
    if action.drop_default:
        changes["write_default"] = None
    if action.default is not None:
        changes["write_default"] = _write_default(action, action.default, format_version, field, time_zone)
    if len(path) > 1:
        _refuse_lost(find_field(schema, path[:-1]), path, changes)
    if changes:
        schema = alter_field(schema, path, **changes)
    return schema if action.position is None else move_field(schema, path, action.position)


def _promoted(field: NestedField, action: AlterColumn, data_type: str) -> IcebergType:
    old, new = field.field_type, parse_type(data_type)
    change = f"The type of {quote_name(action.column)} cannot change from {type_text(old)} to {type_text(new)}"
    if not (old.is_primitive and new.is_primitive):
        raise NotSupportedError(
            change,
            hint="Add, drop or alter the fields inside it one by one",
            type=data_type,
        )
    if not is_promotion(old, new):
        raise NotSupportedError(
            change,
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Possible are int to bigint, float to double, and a decimal of more digits and the same scale",
            type=data_type,
        )
    return new


def _made_optional(path: tuple[str, ...], *, required: bool) -> bool:
    if required:
        raise NotSupportedError(
            f"Column {quote_name(path)} cannot become NOT NULL: rows may have no value there",
            hint="Create a new table with the column NOT NULL, and insert the rows",
            column=quote_name(path),
        )
    return False


def _write_default(action: AlterColumn, text: str, format_version: int, field: NestedField, time_zone: str) -> object:
    kind = field.field_type if action.data_type is None else parse_type(action.data_type)
    value = constant(text, kind, column=quote_name(action.column), time_zone=time_zone)
    if value is not None:
        refuse_default(format_version, action.column)
    elif field.required and action.required is not False:
        raise AnalysisError(
            f"Column {quote_name(action.column)} is NOT NULL, so its default cannot be NULL",
            kind=ErrorKind.INVALID_VALUE,
            hint="DROP DEFAULT takes the default away",
            column=quote_name(action.column),
        )
    return value


def _refuse_lost(parent: NestedField, path: tuple[str, ...], changes: Mapping[str, object]) -> None:
    # The inside of an array or a map has a type and a nullability, but no place for the rest.
    if not isinstance(parent.field_type, StructType) and not {"doc", "write_default"}.isdisjoint(changes):
        raise NotSupportedError(
            f"{quote_name(path)} is the inside of {type_text(parent.field_type)}: it has no comment and no default",
            hint=f"Give them to {quote_name(path[:-1])}",
            column=quote_name(path),
        )
