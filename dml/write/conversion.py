"""Arrow arrays to exactly the type that a file has, copying nothing that fits already, and no NULL in them. Worker.

Input: arrays as Spark or the reader gives them. Output: arrays of the file's types, or an error that names the field.

Spark sends a uuid as a string, a fixed as binary, strings as small or large, timestamps with the session's time zone,
nested types with every field nullable. Where only names, nullability or a time zone differ, the buffers are reused.

A column that the table requires must have a value; a field inside a struct, list or map must have one wherever what
holds it has one. Spec: "Schemas and Data Types" (required fields).
"""

import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dml.errors import DataError, ErrorKind
from dml.model.variants import is_variant

__all__ = ["NullCheck", "converted", "null_check", "required_but_null"]

UUID_CHARACTERS = 36
UUID_DASHES = (8, 13, 18, 23)
NO_NIBBLE = 255
NIBBLES = np.full(256, NO_NIBBLE, dtype=np.uint8)
for digit, character in enumerate("0123456789abcdef"):
    NIBBLES[ord(character)] = NIBBLES[ord(character.upper())] = digit


def converted(array: pa.Array, target: pa.DataType, column: str) -> pa.Array:
    """An array as another type.

    Args:
        array: The values.
        target: The type, nullability of nested fields included.
        column: The table's column, for messages.

    Raises:
        DataError: a value does not fit the type.
    """
    if array.type.equals(target) and not holds_variant(target):
        return array
    if pa.types.is_dictionary(array.type):
        return converted(array.dictionary_decode(), target, column)
    if is_variant(target):
        array = variant(array, target)
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        return struct(array, target, column)
    if pa.types.is_list(target) and is_list_type(array.type):
        return list_array(array, target, column)
    if pa.types.is_map(target) and pa.types.is_map(array.type):
        return map_array(array, target, column)
    if target == pa.uuid():
        return uuid_array(array, column)
    return cast_array(array, target, column)


def required_but_null(path: str) -> DataError:
    """The error for a NULL where a value is required."""
    return DataError(
        f"The column '{path}' requires a value, but a row has NULL",
        kind=ErrorKind.NOT_NULL_VIOLATION,
        hint=f"Give every row a value, or run ALTER TABLE ... ALTER COLUMN {path} DROP NOT NULL",
        column=path,
    )


def struct(array: pa.StructArray, target: pa.StructType, column: str) -> pa.Array:
    """Fields by place: their names were matched when the statement was planned."""
    if array.type.num_fields != target.num_fields:
        raise DataError(
            f"The column '{column}' has {target.num_fields} fields in a struct, but its values have "
            f"{array.type.num_fields}",
            column=column,
        )
    fields = [target.field(place) for place in range(target.num_fields)]
    children = [converted(array.field(place), field.type, column) for place, field in enumerate(fields)]
    mask = array.is_null() if array.null_count else None
    if not fields:
        return (
            pa.StructArray.from_buffers(target, len(array), [None])
            if mask is None
            else cast_array(array, target, column)
        )
    for place, field in enumerate(fields):
        if not field.nullable and children[place].null_count:
            children[place] = required(children[place], array, f"{column}.{field.name}")
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def required(child: pa.Array, parent: pa.StructArray, path: str) -> pa.Array:
    """A required field's values: NULL only where the whole struct is, and there Arrow and Parquet want no NULL."""
    live = child.filter(parent.is_valid()) if parent.null_count else child
    if live.null_count:
        raise required_but_null(path)
    if pa.types.is_struct(child.type):
        fields = [child.type.field(place) for place in range(child.type.num_fields)]
        return pa.StructArray.from_arrays([child.field(place) for place in range(len(fields))], fields=fields)
    nested = [child.values] if is_list_type(child.type) or pa.types.is_map(child.type) else None
    buffers = [None, *(child.buffers()[1:2] if nested else child.buffers()[1:])]
    return pa.Array.from_buffers(child.type, len(child), buffers, null_count=0, offset=child.offset, children=nested)


def holds_variant(kind: pa.DataType) -> bool:
    """Whether values are, or hold, variants: readers leave NULLs in the parts of those that are NULL."""
    if not pa.types.is_nested(kind):
        return False
    return is_variant(kind) or any(holds_variant(kind.field(place).type) for place in range(kind.num_fields))


def variant(array: pa.Array, target: pa.StructType) -> pa.Array:
    """A variant's parts in the order of the target; Spark has another one. NULLs may come without a type."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if not pa.types.is_struct(array.type) or array.type.num_fields != target.num_fields:
        return array
    parts = [array.type.field(target.field(place).name) for place in range(target.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([array.field(part.name) for part in parts], fields=parts, mask=mask)


def is_list_type(source: pa.DataType) -> bool:
    return bool(pa.types.is_list(source) or pa.types.is_large_list(source))


def list_array(array: pa.Array, target: pa.ListType, column: str) -> pa.Array:
    if pa.types.is_large_list(array.type):
        array = cast_array(array, pa.list_(array.type.value_field), column)
    values = converted(array.values, target.value_type, column)
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, offset=array.offset, children=[values]
    )


def map_array(array: pa.MapArray, target: pa.MapType, column: str) -> pa.Array:
    keys = converted(array.keys, target.key_type, column)
    items = converted(array.items, target.item_type, column)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, offset=array.offset, children=[entries]
    )


def cast_array(array: pa.Array, target: pa.DataType, column: str) -> pa.Array:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    try:
        if pa.types.is_time64(target):
            return time(storage, target)
        return storage.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).split("\n", 1)[0]
        raise DataError(
            f"A value of the column '{column}' does not fit its type {target}: {reason}",
            kind=ErrorKind.OVERFLOW,
            hint="Nothing was written",
            column=column,
        ) from error


def time(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64()).cast(target)  # microseconds of the day, Iceberg's own form
    return array.cast(target, safe=False)  # Spark's times are in nanoseconds: what is finer than a microsecond goes


def uuid_array(array: pa.Array, column: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_null(array.type):
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.nulls(len(array), pa.binary(16)))
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return pa.ExtensionArray.from_storage(pa.uuid(), cast_array(array, pa.binary(16), column))
    valid = array.drop_null() if array.null_count else array
    values = parse_canonical(valid)
    if values is None:
        values = parse_each(valid, column)
    if array.null_count:
        values = spread(values, array)
    return pa.ExtensionArray.from_storage(pa.uuid(), values)


def spread(values: pa.Array, nulls: pa.Array) -> pa.Array:
    """Values at the places where another array is not null."""
    valid = nulls.is_valid().to_numpy(zero_copy_only=False)
    places = np.cumsum(valid) - 1
    return values.take(pa.array(places, mask=~valid))


def parse_canonical(array: pa.Array) -> pa.Array | None:
    """Texts of 36 characters, all at once; None where one has another form."""
    rows = len(array)
    if not rows:
        return pa.array([], pa.binary(16))
    lengths = pc.min_max(pc.binary_length(array)).as_py()
    if lengths != {"min": UUID_CHARACTERS, "max": UUID_CHARACTERS}:
        return None
    text = np.frombuffer(array.cast(pa.binary()).cast(pa.binary(UUID_CHARACTERS)).buffers()[1], np.uint8)
    grid = text[: rows * UUID_CHARACTERS].reshape(rows, UUID_CHARACTERS)
    if not (grid[:, UUID_DASHES] == ord("-")).all():
        return None
    nibbles = NIBBLES[np.delete(grid, UUID_DASHES, axis=1)]
    if (nibbles == NO_NIBBLE).any():
        return None
    packed = np.ascontiguousarray((nibbles[:, 0::2] << 4) | nibbles[:, 1::2])
    return pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(packed)])


def parse_each(array: pa.Array, column: str) -> pa.Array:
    try:
        return pa.array([uuid.UUID(text).bytes for text in array.to_pylist()], pa.binary(16))
    except ValueError as error:
        raise DataError(
            f"A value of the column '{column}' is no UUID: {error}",
            hint="A UUID is written like 01234567-89ab-cdef-0123-456789abcdef",
            column=column,
        ) from error


NullCheck = Callable[[pa.Array], None]


def null_check(field: NestedField) -> NullCheck | None:
    """The check of a column.

    Args:
        field: The column.

    Returns:
        A function that raises a `DataError` for an array with a NULL that must not be; None where any value may be.
    """
    return field_check(field, field.name)


def field_check(field: NestedField, path: str) -> NullCheck | None:
    inner = type_check(field.field_type, path)
    if not field.required:
        return inner

    def check(array: pa.Array) -> None:
        if array.null_count:
            raise required_but_null(path)
        if inner is not None:
            inner(array)

    return check


def type_check(field_type: IcebergType, path: str) -> NullCheck | None:
    match field_type:
        case StructType():
            return struct_check(field_type, path)
        case ListType():
            element = field_check(field_type.element_field, f"{path}.element")
            return None if element is None else lambda array: element(array.flatten())
        case MapType():
            return map_check(field_type, path)
    return None


def struct_check(struct: StructType, path: str) -> NullCheck | None:
    checks = [
        (place, check)
        for place, field in enumerate(struct.fields)
        if (check := field_check(field, f"{path}.{field.name}")) is not None
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


def map_check(field_type: MapType, path: str) -> NullCheck | None:
    value = field_check(field_type.value_field, f"{path}.value")
    if value is None:
        return None

    def check_map(array: pa.MapArray) -> None:
        present = array.filter(array.is_valid()) if array.null_count else array
        # The entries of all maps, without those of other slices of the same buffers.
        entries = pc.list_flatten(present.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))))
        value(entries.field(1))

    return check_map
