"""Field ids for new types, as Iceberg's Java library gives them out. Pure; driver.

Input: fields whose ids mean nothing yet. Output: the same fields with ids; defaults, comments and nullability stay
(PyIceberg's own assignment drops defaults). Order: the fields of a struct first, then what is nested in each; the
element of a list, or key and value of a map, before what is nested in them. Source: `AssignFreshIds.java`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

__all__ = ["IdSource", "assign_field_ids", "counting_ids", "ids_by_name", "with_field"]

IdSource = Callable[[str], int]
"""The id for a full name, `address.city` or `tags.element`; called once for each new field, in order."""


def with_field(field: NestedField, **changes: Any) -> NestedField:
    """A field with some attributes changed; the others, defaults included, stay."""
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
    """Give ids to the fields of one struct and to everything nested in them.

    Args:
        fields: The fields.
        next_id: Where ids come from.
        prefix: The full name of the struct, with a dot at its end; empty for a schema.

    Returns:
        New fields.
    """
    ids = [next_id(prefix + field.name) for field in fields]
    return tuple(
        with_field(field, field_id=field_id, field_type=_nested(field.field_type, next_id, f"{prefix}{field.name}."))
        for field_id, field in zip(ids, fields, strict=True)
    )


def _nested(kind: IcebergType, next_id: IdSource, prefix: str) -> IcebergType:
    match kind:
        case StructType():
            return StructType(*assign_field_ids(kind.fields, next_id, prefix))
        case ListType():
            element_id = next_id(prefix + "element")
            return ListType(
                element_id=element_id,
                element=_nested(kind.element_type, next_id, f"{prefix}element."),
                element_required=kind.element_required,
            )
        case MapType():
            key_id, value_id = next_id(prefix + "key"), next_id(prefix + "value")
            return MapType(
                key_id=key_id,
                key_type=_nested(kind.key_type, next_id, f"{prefix}key."),
                value_id=value_id,
                value_type=_nested(kind.value_type, next_id, f"{prefix}value."),
                value_required=kind.value_required,
            )
        case _:
            return kind


def counting_ids(start: int, known: Mapping[str, int] | None = None) -> IdSource:
    """Ids counted up from `start`, except that a name that is known keeps its id.

    Args:
        start: The first new id.
        known: Full names with their ids, those of the table that is replaced.

    Returns:
        The source.
    """
    state = [start]

    def next_id(name: str) -> int:
        if known is not None and name in known:
            return known[name]
        state[0] += 1
        return state[0] - 1

    return next_id


def ids_by_name(fields: tuple[NestedField, ...], prefix: str = "") -> dict[str, int]:
    """The ids of fields and of all that is nested in them, by full name, as `IdSource` asks for them.

    Args:
        fields: The fields of a schema.
        prefix: The full name of the struct, with a dot at its end; empty for a schema.

    Returns:
        Full names with ids.
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
