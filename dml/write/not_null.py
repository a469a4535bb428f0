"""No NULL where the table requires a value. Worker.

Input: the table's columns and their arrays. Output: none, or an error that names the field. Spec: "Schemas and Data
Types" (required fields).

A field inside a struct, list or map must have a value wherever what holds it has one.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dml.write.conversion import required_but_null

__all__ = ["NullCheck", "null_check"]

NullCheck = Callable[[pa.Array], None]


def null_check(field: NestedField) -> NullCheck | None:
    """The check of a column.

    Args:
        field: The column.

    Returns:
        A function that raises a `DataError` for an array with a NULL that must not be; None where any value may be.
    """
    return _field_check(field, field.name)


def _field_check(field: NestedField, path: str) -> NullCheck | None:
    inner = _type_check(field.field_type, path)
    if not field.required:
        return inner

    def check(array: pa.Array) -> None:
        if array.null_count:
            raise required_but_null(path)
        if inner is not None:
            inner(array)

    return check


def _type_check(field_type: IcebergType, path: str) -> NullCheck | None:
    match field_type:
        case StructType():
            return _struct_check(field_type, path)
        case ListType():
            element = _field_check(field_type.element_field, f"{path}.element")
            return None if element is None else lambda array: element(array.flatten())
        case MapType():
            return _map_check(field_type, path)
    return None


def _struct_check(struct: StructType, path: str) -> NullCheck | None:
    checks = [
        (place, check)
        for place, field in enumerate(struct.fields)
        if (check := _field_check(field, f"{path}.{field.name}")) is not None
    ]
    if not checks:
        return None

    def check_struct(array: pa.StructArray) -> None:
        valid = array.is_valid() if array.null_count else None
        for place, check in checks:
            child = array.field(place)
            if child.null_count or pa.types.is_nested(child.type):
                check(child if valid is None else child.filter(valid))

    return check_struct


def _map_check(field_type: MapType, path: str) -> NullCheck | None:
    value = _field_check(field_type.value_field, f"{path}.value")
    if value is None:
        return None

    def check_map(array: pa.MapArray) -> None:
        present = array.filter(array.is_valid()) if array.null_count else array
        # The entries of all maps, without those of other slices of the same buffers.
        entries = pc.list_flatten(present.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))))
        value(entries.field(1))

    return check_map
