"""Column definitions and changes of CREATE TABLE and ALTER TABLE, and their restrictions. Pure; driver.

Input: `ColumnDefinition`, or ADD, DROP, ALTER COLUMN with the table's metadata; the session's time zone. Output: fields
without ids, or the new schema. Source: Iceberg specification, "Default values" (version 3), "Reserved Field IDs",
"Schema Evolution"; `SchemaUpdate.java`.
"""

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dml.ddl.literals import constant
from dml.ddl.new_schema import assign_field_ids, counting_ids, with_field
from dml.ddl.schema_change import (
    add_field,
    alter_field,
    drop_field,
    find_field,
    is_promotion,
    move_field,
    refuse_identifier,
    subtree,
)
from dml.ddl.terms import term_text
from dml.ddl.types import parse_type, type_text
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind, NotSupportedError
from dml.model.columns import INTERNAL_PREFIX, METADATA_COLUMNS, ROW_OPERATION
from dml.pyiceberg_patch import VariantType
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import AddColumns, AlterColumn, ColumnDefinition, DropColumns

__all__ = [
    "altered_column",
    "check_format_version",
    "field_of",
    "refuse_default",
    "refuse_reserved_name",
    "with_columns",
    "with_replaced_columns",
    "without_columns",
]

DEFAULTS_SINCE = 3
RESERVED = frozenset({*METADATA_COLUMNS, ROW_OPERATION, "_deleted", "_change_type", "_change_ordinal"})


def field_of(definition: ColumnDefinition, *, format_version: int, time_zone: str) -> NestedField:
    """Convert a column definition to a field; its default is both the initial and the write default.

    Args:
        definition: The definition as written.
        format_version: The table's format version.
        time_zone: The session's time zone, for TIMESTAMP defaults.

    Returns:
        The field, with id 0.

    Raises:
        AnalysisError: The type or default is invalid, or the default of a NOT NULL column is NULL.
        NotSupportedError: The format version has no defaults, or the name is reserved.
    """
    name = definition.path[-1]
    if len(definition.path) == 1:
        refuse_reserved_name(name)
    kind = parse_type(definition.data_type)
    default = None
    if definition.default is not None:
        default = constant(definition.default, kind, column=quote_name(definition.path), time_zone=time_zone)
        if default is not None:
            refuse_default(format_version, definition.path)
        elif definition.required:
            raise AnalysisError(
                f"Column {quote_name(definition.path)} is NOT NULL, so its default cannot be NULL",
                kind=ErrorKind.INVALID_VALUE,
                hint="Leave out NOT NULL or the default",
            )
    return NestedField(
        0,
        name,
        kind,
        required=definition.required,
        doc=definition.comment,
        initial_default=default,
        write_default=default,
    )


def refuse_default(format_version: int, path: tuple[str, ...]) -> None:
    """Refuse a default if the format version has none.

    Raises:
        NotSupportedError: The format version is below 3.
    """
    if format_version < DEFAULTS_SINCE:
        raise NotSupportedError(
            f"Column {quote_name(path)} cannot have a default: the table has format version {format_version}",
            hint="Defaults need version 3: SET TBLPROPERTIES ('format-version' = '3')",
        )


def refuse_reserved_name(name: str) -> None:
    """Refuse a column name of a metadata column or of an internal column.

    Raises:
        NotSupportedError: the name is reserved.
    """
    if name.lower() in RESERVED or name.lower().startswith(INTERNAL_PREFIX):
        raise NotSupportedError(f"The name '{name}' is reserved for metadata", hint="Choose another name")


def check_format_version(schema: Schema, format_version: int) -> None:
    """Refuse types that the format version does not support.

    Raises:
        NotSupportedError: a type needs a later version.
    """
    try:
        schema.check_format_version_compatibility(format_version)
    except ValueError as error:
        raise NotSupportedError(
            f"The table has format version {format_version}: {error}",
            hint="Set 'format-version' to a later version in TBLPROPERTIES, or choose another type",
        ) from None


def with_columns(action: AddColumns, metadata: TableMetadata, time_zone: str) -> Schema:
    """Return the schema after ADD COLUMNS.

    Raises:
        AnalysisError: A type, default or position is invalid, or a name is taken.
        NotSupportedError: NOT NULL without a default, or a default below format version 3.
    """
    schema, last_column_id = metadata.schema(), metadata.last_column_id
    for definition in action.columns:
        with at(definition.span):
            schema = with_column(definition, schema, last_column_id, metadata.format_version, time_zone)
        last_column_id = max(last_column_id, schema.highest_field_id)
    return schema


def with_column(
    definition: ColumnDefinition, schema: Schema, last_column_id: int, format_version: int, time_zone: str
) -> Schema:
    field = field_of(definition, format_version=format_version, time_zone=time_zone)
    if field.required and field.initial_default is None:
        raise NotSupportedError(
            f"Column {quote_name(definition.path)} cannot be added as NOT NULL: existing rows have no value",
            hint="Leave NOT NULL out, or give it a DEFAULT (format version 3)",
        )
    return add_field(schema, definition.path, field, last_column_id=last_column_id, move=definition.position)


def without_columns(action: DropColumns, metadata: TableMetadata) -> Schema:
    """Return the schema after DROP COLUMNS.

    Raises:
        AnalysisError: A column does not exist or is the last one.
        NotSupportedError: The table is partitioned or sorted by a column.
    """
    schema = metadata.schema()
    for path, span in zip(action.columns, action.spans, strict=True):
        if action.if_exists and not has_column(schema, path):
            continue
        with at(span):
            refuse_used(find_field(schema, path), path, metadata)
            schema = drop_field(schema, path)
    return schema


def has_column(schema: Schema, path: tuple[str, ...]) -> bool:
    try:
        find_field(schema, path)
    except AnalysisError as error:
        if error.kind is ErrorKind.UNRESOLVED_COLUMN:
            return False
        raise
    return True


def refuse_used(dropped: NestedField, path: tuple[str, ...], metadata: TableMetadata) -> None:
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
    # The reference allows this, but can then no longer read the table's metadata tables.
    past = [field for spec in metadata.partition_specs for field in spec.fields if field.source_id in ids]
    if metadata.snapshots and any(not isinstance(field.transform, VoidTransform) for field in past):
        raise NotSupportedError(
            f"Column {column} partitioned the table before, and files of that time may still exist",
            hint="Keep the column, or copy the rows into a new table without it",
        )
    if any(field.source_id in ids for field in metadata.sort_order().fields):
        raise NotSupportedError(
            f"Column {quote_name(path)} is in the table's sort order", hint="First: ALTER TABLE ... WRITE UNORDERED"
        )


def altered_column(action: AlterColumn, schema: Schema, format_version: int, time_zone: str) -> Schema:
    """Return the schema after ALTER COLUMN of one column.

    Raises:
        AnalysisError: The column does not exist, or the default does not fit.
        NotSupportedError: The format does not allow the change.
    """
    path = action.column
    field = find_field(schema, path)
    changes: dict[str, object] = {}
    if action.data_type is not None:
        changes["field_type"] = promoted_type(field, action, action.data_type)
    if action.required is not None and action.required != field.required:
        changes["required"] = check_optional(path, required=action.required)
        refuse_identifier(schema, field, path)
    if action.comment is not None or action.drop_comment:
        changes["doc"] = action.comment
    if action.drop_default:
        changes["write_default"] = None
    if action.default is not None:
        changes["write_default"] = write_default(action, action.default, format_version, field, time_zone)
    if len(path) > 1:
        refuse_lost(find_field(schema, path[:-1]), path, changes)
    if changes:
        schema = alter_field(schema, path, **changes)
    return schema if action.position is None else move_field(schema, path, action.position)


def promoted_type(field: NestedField, action: AlterColumn, data_type: str) -> IcebergType:
    old, new = field.field_type, parse_type(data_type)
    change = f"The type of {quote_name(action.column)} cannot change from {type_text(old)} to {type_text(new)}"
    if any(isinstance(kind, StructType | ListType | MapType) for kind in (old, new)):
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


def check_optional(path: tuple[str, ...], *, required: bool) -> bool:
    if required:
        raise NotSupportedError(
            f"Column {quote_name(path)} cannot become NOT NULL: rows may have no value there",
            hint="Create a new table with the column NOT NULL, and insert the rows",
            column=quote_name(path),
        )
    return False


def write_default(action: AlterColumn, text: str, format_version: int, field: NestedField, time_zone: str) -> object:
    kind = field.field_type if action.data_type is None else parse_type(action.data_type)
    value = constant(text, kind, column=quote_name(action.column), time_zone=time_zone)
    if value is not None:
        refuse_default(format_version, action.column)
    elif field.required and action.required is not False:
        raise AnalysisError(
            f"Column {quote_name(action.column)} is NOT NULL, so its default cannot be NULL",
            kind=ErrorKind.INVALID_VALUE,
            hint="Use DROP DEFAULT to remove the default",
            column=quote_name(action.column),
        )
    return value


def refuse_lost(parent: NestedField, path: tuple[str, ...], changes: Mapping[str, object]) -> None:
    # Iceberg stores only a type and a nullability for array elements and map values.
    if not isinstance(parent.field_type, StructType) and not {"doc", "write_default"}.isdisjoint(changes):
        raise NotSupportedError(
            f"{quote_name(path)} is part of {type_text(parent.field_type)}: it has no comment and no default",
            hint=f"Give them to {quote_name(path[:-1])}",
            column=quote_name(path),
        )


def with_replaced_columns(metadata: TableMetadata, columns: Schema, *, case_sensitive: bool) -> Schema:
    """Return the schema with all columns replaced.

    Raises:
        NotSupportedError: The table is partitioned, sorted or identified by a removed column, or a name is reserved.
        AlreadyExistsError: Two columns have the same name.
    """
    schema = metadata.schema()
    by_name = {fold_case(field.name, case_sensitive=case_sensitive): field for field in schema.fields}
    next_id = counting_ids(metadata.last_column_id + 1)
    fields: list[NestedField] = []
    for field in columns.fields:
        name = fold_case(field.name, case_sensitive=case_sensitive)
        if any(fold_case(other.name, case_sensitive=case_sensitive) == name for other in fields):
            raise AlreadyExistsError(f"Two of the columns are called '{field.name}'", hint="Give each its own name")
        refuse_reserved_name(field.name)
        old = by_name.get(name)
        kind = None if old is None else widen_type(old.field_type, field.field_type)
        if old is None or kind is None:
            fields.extend(assign_field_ids((field,), next_id))
        else:
            fields.append(with_field(old, field_type=kind))
    kept = {field.field_id for field in fields}
    for field in schema.fields:
        if field.field_id not in kept:
            refuse_used(field, (field.name,), metadata)
            refuse_identifier(schema, field, (field.name,))
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def widen_type(old: IcebergType, new: IcebergType) -> IcebergType | None:
    """Return the new type with the ids of the old one if the old one can be widened to it, else None."""
    if old.is_primitive and new.is_primitive:
        return new if is_promotion(old, new) else None
    match old, new:
        case VariantType(), VariantType():
            return old
        case ListType(), ListType():
            element = widen_type(old.element_type, new.element_type)
            if element is not None:
                return ListType(old.element_id, element, old.element_required)
        case MapType(), MapType():
            value = widen_type(old.value_type, new.value_type)
            if value is not None and widen_type(old.key_type, new.key_type) == old.key_type:
                return MapType(old.key_id, old.key_type, old.value_id, value, old.value_required)
        case StructType(), StructType():
            pairs = list(zip(old.fields, new.fields, strict=False))
            kinds = [widen_type(of.field_type, to.field_type) for of, to in pairs if of.name == to.name]
            if len(kinds) == len(old.fields) == len(new.fields) and None not in kinds:
                fields = zip(old.fields, kinds, strict=True)
                return StructType(*(with_field(field, field_type=kind) for field, kind in fields))
    return None


def fold_case(name: str, *, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()
