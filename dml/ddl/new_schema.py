"""Schemas of new tables, with field ids in the order of Iceberg's Java library. Pure; driver.

Input: fields without ids; or the schema of a Spark query, as the JSON text of a PySpark StructType
(`DataFrame.schema.json()`). Output: the same fields with ids, or a PyIceberg schema with fresh ids. Defaults, comments
and nullability are preserved (PyIceberg's own assignment drops defaults). Order: all fields of a struct before their
nested fields; the element of a list, or key and value of a map, before the fields nested in them. Source:
`AssignFreshIds.java`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dml.ddl.types import parse_type
from dml.errors import AlreadyExistsError
from dml.sqlparse.diagnosis import at
from dml.sqlparse.statements import Span

__all__ = [
    "IdSource",
    "assign_field_ids",
    "counting_ids",
    "ids_by_name",
    "schema_from_json",
    "schema_of",
    "with_field",
]

IdSource = Callable[[str], int]
"""Returns the id for a full name, `address.city` or `tags.element`; called once per new field, in order."""


def with_field(field: NestedField, **changes: Any) -> NestedField:
    """Return a field with some attributes replaced; the others, defaults included, are kept."""
    state: dict[str, Any] = {
        "field_id": field.field_id,
        "name": field.name,
        "field_type": field.field_type,
        "required": field.required,
        "doc": field.doc,
        "initial_default": field.initial_default,
        "write_default": field.write_default,
    }
    return NestedField(**(state | changes))


def assign_field_ids(fields: tuple[NestedField, ...], next_id: IdSource, prefix: str = "") -> tuple[NestedField, ...]:
    """Assign ids to the fields of a struct and to everything nested in them.

    Args:
        fields: The fields.
        next_id: The source of ids.
        prefix: The full name of the struct, with a trailing dot; empty for a schema.
    """
    ids = [next_id(prefix + field.name) for field in fields]
    return tuple(
        with_field(
            field, field_id=field_id, field_type=with_nested_ids(field.field_type, next_id, f"{prefix}{field.name}.")
        )
        for field_id, field in zip(ids, fields, strict=True)
    )


def with_nested_ids(kind: IcebergType, next_id: IdSource, prefix: str) -> IcebergType:
    match kind:
        case StructType():
            return StructType(*assign_field_ids(kind.fields, next_id, prefix))
        case ListType():
            element_id = next_id(prefix + "element")
            return ListType(
                element_id=element_id,
                element=with_nested_ids(kind.element_type, next_id, f"{prefix}element."),
                element_required=kind.element_required,
            )
        case MapType():
            key_id, value_id = next_id(prefix + "key"), next_id(prefix + "value")
            return MapType(
                key_id=key_id,
                key_type=with_nested_ids(kind.key_type, next_id, f"{prefix}key."),
                value_id=value_id,
                value_type=with_nested_ids(kind.value_type, next_id, f"{prefix}value."),
                value_required=kind.value_required,
            )
        case _:
            return kind


def counting_ids(start: int, known: Mapping[str, int] | None = None) -> IdSource:
    """Return a source of ids that count up from `start`; known names keep their ids.

    Args:
        start: The first new id.
        known: Ids by full name, those of the replaced table.
    """
    state = [start]

    def next_id(name: str) -> int:
        if known is not None and name in known:
            return known[name]
        state[0] += 1
        return state[0] - 1

    return next_id


def ids_by_name(fields: tuple[NestedField, ...], prefix: str = "") -> dict[str, int]:
    """Return the ids of fields and nested fields by full name, in the form that `IdSource` takes.

    Args:
        fields: The fields of a schema.
        prefix: The full name of the struct, with a trailing dot; empty for a schema.
    """
    found: dict[str, int] = {}
    for field in fields:
        found[prefix + field.name] = field.field_id
        match field.field_type:
            case StructType(fields=children):
                nested = children
            case ListType() as array:
                nested = (array.element_field,)
            case MapType() as entries:
                nested = (entries.key_field, entries.value_field)
            case _:
                nested = ()
        found.update(ids_by_name(nested, f"{prefix}{field.name}."))
    return found


def schema_from_json(text: str, *, as_nullable: bool = True, case_sensitive: bool = False) -> Schema:
    """Convert a PySpark schema to an Iceberg schema.

    Args:
        text: The text that `StructType.json()` returns.
        as_nullable: Make every field optional, as Spark's CREATE TABLE AS SELECT does. Otherwise non-nullable fields
            become required.
        case_sensitive: Allow columns whose names differ by case alone.

    Raises:
        NotSupportedError: Iceberg cannot store a type.
        AlreadyExistsError: Two columns have the same name.
    """
    fields = tuple(field_from_json(field, as_nullable) for field in json.loads(text)["fields"])
    return schema_of(fields, case_sensitive=case_sensitive)


def schema_of(
    fields: tuple[NestedField, ...], places: tuple[Span, ...] = (), *, case_sensitive: bool = False
) -> Schema:
    """Build a schema, with ids from 1.

    Args:
        fields: The columns, without ids.
        places: The positions of the columns in the statement, for errors.
        case_sensitive: Allow columns whose names differ by case alone.

    Raises:
        AlreadyExistsError: Two columns have the same name.
    """
    names: set[str] = set()
    for index, field in enumerate(fields):
        name = field.name if case_sensitive else field.name.lower()
        if name in names:
            with at(places[index] if places else None):
                raise AlreadyExistsError(
                    f"The column '{field.name}' is defined twice",
                    hint=None if case_sensitive else "Names must differ by more than case",
                    column=field.name,
                )
        names.add(name)
    return Schema(*assign_field_ids(fields, counting_ids(1)))


def field_from_json(field: dict[str, Any], as_nullable: bool) -> NestedField:
    comment = field.get("metadata", {}).get("comment")
    required = not (field["nullable"] or as_nullable)
    return NestedField(0, field["name"], type_from_json(field["type"], as_nullable), required=required, doc=comment)


def type_from_json(kind: str | dict[str, Any], as_nullable: bool) -> IcebergType:
    if isinstance(kind, str):
        return parse_type(kind)
    match kind["type"]:
        case "struct":
            return StructType(*(field_from_json(field, as_nullable) for field in kind["fields"]))
        case "array":
            return ListType(
                element_id=0,
                element=type_from_json(kind["elementType"], as_nullable),
                element_required=not (kind["containsNull"] or as_nullable),
            )
        case "map":
            return MapType(
                key_id=0,
                key_type=type_from_json(kind["keyType"], as_nullable),
                value_id=0,
                value_type=type_from_json(kind["valueType"], as_nullable),
                value_required=not (kind["valueContainsNull"] or as_nullable),
            )
        case "udt":
            return type_from_json(kind["sqlType"], as_nullable)
        case other:
            return parse_type(str(other))
