"""Schema changes of ALTER TABLE: add, drop, rename, retype and move columns. Pure; driver.

Input: a schema and one change. Output: a new schema in which remaining fields keep their ids, and an update of the
table's name mapping, if it has one. Files without field ids are read by name, so the mapping keeps the old names of a
column and gets the new ones. Names are matched case-insensitively. A path goes through structs, `element` of an array
and `value` of a map. Source: Iceberg specification, "Schema Evolution", "Column Projection"; `SchemaUpdate.java`,
`MappingUtil.update`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from dml.ddl.new_schema import assign_field_ids, counting_ids, with_field
from dml.ddl.types import type_text
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind, NotSupportedError
from dml.hints import did_you_mean
from dml.options import DEFAULT_NAME_MAPPING
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import ColumnPosition

__all__ = [
    "add_field",
    "alter_field",
    "children_of",
    "drop_field",
    "find_field",
    "is_promotion",
    "move_field",
    "name_mapping_updates",
    "refuse_identifier",
    "rename_field",
    "subtree",
]

Fields = tuple[NestedField, ...]
Path = tuple[str, ...]
FieldsChange = Callable[[Fields, int], Fields]


def find_field(schema: Schema, path: Path) -> NestedField:
    """Return the column or nested field at a path.

    Args:
        schema: The schema.
        path: Names, outermost first, in any case.

    Raises:
        AnalysisError: There is no such field, or several differ only by case; the hint lists similar names.
    """
    fields: Fields = schema.fields
    for depth in range(len(path)):
        found = fields[index_of(fields, path, depth)]
        fields = children_of(found.field_type)
    return found


def is_promotion(old: IcebergType, new: IcebergType) -> bool:
    """Return True if Iceberg allows promoting the old type to the new one, or they are equal."""
    match old, new:
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return old.scale == new.scale and old.precision <= new.precision
        case _:
            return old == new


def add_field(
    schema: Schema, path: Path, field: NestedField, *, last_column_id: int, move: ColumnPosition | None
) -> Schema:
    """Return a schema with an additional field.

    Args:
        schema: The schema.
        path: The path of the field; its parent is an existing struct, array of structs or map to structs.
        field: The field, ids unset.
        last_column_id: The highest id that the table ever assigned.
        move: The position of the field; None for the end.

    Raises:
        AlreadyExistsError: The name is taken.
        AnalysisError: The parent does not exist or has no fields.
    """
    (added,) = assign_field_ids((field,), counting_ids(last_column_id + 1))

    def change(fields: Fields) -> Fields:
        refuse_taken(fields, path)
        grown = (*fields, with_field(added, name=path[-1]))
        return grown if move is None else move_within(grown, len(fields), path, move)

    return with_fields(schema, in_struct(schema.fields, path, 0, change))


def drop_field(schema: Schema, path: Path) -> Schema:
    """Return a schema without a field.

    Raises:
        AnalysisError: The field does not exist, or is the last of its struct.
        NotSupportedError: It is an identifier field, or has one.
    """
    refuse_identifier(schema, find_field(schema, path), path)

    def change(fields: Fields, index: int) -> Fields:
        if len(fields) == 1:
            raise AnalysisError(
                f"{quote_name(path)} is the only field of its parent",
                hint="Drop the table, or the struct that holds it" if len(path) > 1 else "Drop the table instead",
            )
        return fields[:index] + fields[index + 1 :]

    return with_fields(schema, change_siblings(schema.fields, path, 0, change))


def refuse_identifier(schema: Schema, field: NestedField, path: Path) -> None:
    """Refuse to drop an identifier field or to make it optional, alone or with the struct around it.

    Raises:
        NotSupportedError: The field is an identifier field, or has one.
    """
    ids = {inner.field_id for inner in subtree(field)}.intersection(schema.identifier_field_ids)
    if ids:
        names = sorted(quote_name((schema.find_column_name(found) or "").split(".")) for found in ids)
        raise NotSupportedError(
            f"Column {quote_name(path)} is an identifier field, or has one",
            hint=f"First: ALTER TABLE ... DROP IDENTIFIER FIELDS {', '.join(names)}",
        )


def rename_field(schema: Schema, path: Path, new_name: str) -> Schema:
    """Return a schema with a field renamed.

    Raises:
        AnalysisError: The field does not exist, or is not a field of a struct.
        AlreadyExistsError: The new name is taken.
    """

    def change(fields: Fields, index: int) -> Fields:
        others = fields[:index] + fields[index + 1 :]
        refuse_taken(others, (*path[:-1], new_name))
        return (*fields[:index], with_field(fields[index], name=new_name), *fields[index + 1 :])

    return with_fields(schema, change_siblings(schema.fields, path, 0, change))


def move_field(schema: Schema, path: Path, move: ColumnPosition) -> Schema:
    """Return a schema with a field moved within its struct.

    Raises:
        AnalysisError: The field or its new predecessor does not exist.
    """
    return with_fields(
        schema, change_siblings(schema.fields, path, 0, lambda fields, index: move_within(fields, index, path, move))
    )


def alter_field(schema: Schema, path: Path, **changes: Any) -> Schema:
    """Return a schema with attributes of a field changed; the caller has validated the changes.

    Args:
        schema: The schema.
        path: The path of the field; `element` and `value` name the element of an array and the value of a map.
        **changes: As for `with_field`.

    Raises:
        AnalysisError: The field does not exist.
    """

    def change(fields: Fields, index: int) -> Fields:
        return (*fields[:index], with_field(fields[index], **changes), *fields[index + 1 :])

    return with_fields(schema, change_siblings(schema.fields, path, 0, change, inside=True))


def with_fields(schema: Schema, fields: Fields) -> Schema:
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def children_of(kind: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields directly nested in a type: fields, an element, or a key and a value."""
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return (kind.key_field, kind.value_field)
        case _:
            return ()


def rebuild_type(kind: IcebergType, children: Fields) -> IcebergType:
    match kind:
        case StructType():
            return StructType(*children)
        case ListType():
            (element,) = children
            return ListType(element_id=kind.element_id, element=element.field_type, element_required=element.required)
        case MapType():
            key, value = children
            return MapType(
                key_id=kind.key_id,
                key_type=key.field_type,
                value_id=kind.value_id,
                value_type=value.field_type,
                value_required=value.required,
            )
        case _:
            return kind


def index_of(fields: Fields, path: Path, depth: int) -> int:
    name = path[depth]
    found = [index for index, field in enumerate(fields) if field.name.lower() == name.lower()]
    if len(found) > 1:
        exact = [index for index in found if fields[index].name == name]
        if len(exact) != 1:
            raise AnalysisError(
                f"Column {quote_name(path)} can be any of {', '.join(fields[index].name for index in found)}",
                kind=ErrorKind.AMBIGUOUS_COLUMN,
                hint="Write it in the case that it has",
                column=name,
            )
        return exact[0]
    if not found:
        where = f"{quote_name(path[:depth])} has no field" if depth else "There is no column"
        raise AnalysisError(
            f"{where} '{name}'",
            kind=ErrorKind.UNRESOLVED_COLUMN,
            hint=did_you_mean(name, (field.name for field in fields)) if fields else "It has no fields at all",
            column=".".join(path),
        )
    return found[0]


def change_siblings(fields: Fields, path: Path, depth: int, change: FieldsChange, *, inside: bool = False) -> Fields:
    # Changes the siblings of the last field of the path; `inside` allows the element of an array.
    index = index_of(fields, path, depth)
    found = fields[index]
    if depth == len(path) - 1:
        return change(fields, index)
    refuse_map_key(found, path, depth)
    last = depth == len(path) - 2
    if last and not inside and isinstance(found.field_type, ListType | MapType):
        raise NotSupportedError(
            f"{quote_name(path)} is the inside of {type_text(found.field_type)}, no field of a struct",
            hint="Only its type and its comment can change",
            column=quote_name(path),
        )
    children = change_siblings(children_of(found.field_type), path, depth + 1, change, inside=inside)
    changed = with_field(found, field_type=rebuild_type(found.field_type, children))
    return (*fields[:index], changed, *fields[index + 1 :])


def in_struct(fields: Fields, path: Path, depth: int, change: Callable[[Fields], Fields]) -> Fields:
    # Changes the fields of the parent struct of the path.
    if depth == len(path) - 1:
        return change(fields)
    index = index_of(fields, path, depth)
    found = fields[index]
    refuse_map_key(found, path, depth)
    if depth == len(path) - 2:
        kind = with_child(found.field_type, path, change)
    else:
        children = in_struct(children_of(found.field_type), path, depth + 1, change)
        kind = rebuild_type(found.field_type, children)
    return (*fields[:index], with_field(found, field_type=kind), *fields[index + 1 :])


def with_child(kind: IcebergType, path: Path, change: Callable[[Fields], Fields]) -> IcebergType:
    # `tags.x` may abbreviate `tags.element.x`, and `m.x` may abbreviate `m.value.x`, as in Iceberg's API.
    match kind:
        case StructType():
            return StructType(*change(kind.fields))
        case ListType() if isinstance(kind.element_type, StructType):
            grown = with_field(kind.element_field, field_type=with_child(kind.element_type, path, change))
            return rebuild_type(kind, (grown,))
        case MapType() if isinstance(kind.value_type, StructType):
            grown = with_field(kind.value_field, field_type=with_child(kind.value_type, path, change))
            return rebuild_type(kind, (kind.key_field, grown))
        case _:
            raise AnalysisError(
                f"{quote_name(path[:-1])} of type {type_text(kind)} has no fields, so '{path[-1]}' cannot be added",
                kind=ErrorKind.TYPE_MISMATCH,
                column=quote_name(path),
            )


def refuse_map_key(found: NestedField, path: Path, depth: int) -> None:
    if isinstance(found.field_type, MapType) and path[depth + 1].lower() == "key":
        raise NotSupportedError(
            f"{quote_name(path)} is in the key of a map",
            hint="The type of a key cannot change: add a new column",
            column=quote_name(path),
        )


def refuse_taken(fields: Fields, path: Path) -> None:
    for field in fields:
        if field.name.lower() == path[-1].lower():
            raise AlreadyExistsError(
                f"Column {quote_name((*path[:-1], field.name))} already exists",
                hint="Choose another name",
                column=".".join(path),
            )


def move_within(fields: Fields, index: int, path: Path, move: ColumnPosition) -> Fields:
    field = fields[index]
    others = fields[:index] + fields[index + 1 :]
    if move.after is None:
        return (field, *others)
    if move.after.lower() == field.name.lower():
        raise AnalysisError(
            f"Column {quote_name(path)} cannot go after itself", hint="Name another column", column=move.after
        )
    behind = index_of(others, (*path[:-1], move.after), len(path) - 1) + 1
    return (*others[:behind], field, *others[behind:])


def subtree(field: NestedField) -> Iterable[NestedField]:
    """Yield a field and all fields nested in it."""
    yield field
    for child in children_of(field.field_type):
        yield from subtree(child)


ROOT = -1
"""PyIceberg's parent id of top-level columns."""


def name_mapping_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the update that syncs the name mapping with a new schema; none if the table has no mapping."""
    text = metadata.properties.get(DEFAULT_NAME_MAPPING)
    if text is None:
        return ()
    old, new = with_parents(metadata.schema().fields), with_parents(schema.fields)
    renamed = {
        field_id: field
        for field_id, (field, _) in new.items()
        if field_id in old and old[field_id][0].name != field.name
    }
    added: dict[int, list[NestedField]] = {}
    for field_id, (field, parent) in new.items():
        if field_id not in old and (parent == ROOT or parent in old):
            added.setdefault(parent, []).append(field)
    mapping = update_mapping(parse_mapping_from_json(text), renamed, added)
    return (SetPropertiesUpdate(updates={DEFAULT_NAME_MAPPING: mapping.model_dump_json()}),)


def with_parents(fields: tuple[NestedField, ...], parent: int = ROOT) -> dict[int, tuple[NestedField, int]]:
    found: dict[int, tuple[NestedField, int]] = {}
    for field in fields:
        found[field.field_id] = (field, parent)
        found.update(with_parents(children_of(field.field_type), field.field_id))
    return found
