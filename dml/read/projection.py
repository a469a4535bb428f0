"""Columns of a file as columns of the table: types, renames, new order, promotions, defaults, nesting. Worker-safe.

Input: an Arrow array as a file holds it. Output: the array that the table's schema asks for: in a form that loses
nothing on the way from file to file, or in the one that Spark takes (see `pyspark.sql.pandas.types`). Every Arrow
field is nullable: what a table requires is checked where rows are written.
Spec: "Column Projection", "Schema Evolution", "Default Values".
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    FixedType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
    UnknownType,
    UUIDType,
)

from dml.errors import CorruptFileError, ErrorKind, NotSupportedError
from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, primitive_arrow_type
from dml.model.type_names import primitive_name
from dml.model.variants import METADATA, VALUE, VARIANT_FOR_SPARK
from dml.pyiceberg_patch import VariantType
from dml.read.data_file import FileField
from dml.read.variant_values import whole_variants

__all__ = ["Projector", "arrow_field", "arrow_type", "constant_array", "projector"]

FOR_SPARK: dict[type[IcebergType], pa.DataType | None] = {
    UUIDType: pa.string(),
    FixedType: pa.binary(),
    TimeType: pa.time64("ns"),
    TimestampNanoType: None,
    TimestamptzNanoType: None,
    GeometryType: None,
    GeographyType: None,
    VariantType: VARIANT_FOR_SPARK,
}
"""Where Spark takes another form than files have, or none."""


def arrow_type(iceberg_type: IcebergType, *, spark: bool) -> pa.DataType:
    """The Arrow type of a column's values.

    Args:
        iceberg_type: The column's type.
        spark: True for the form that Spark takes (a uuid as a string, a fixed as binary, a time in nanoseconds);
            False for the form that loses nothing on the way from file to file.

    Raises:
        NotSupportedError: there is no such form.
    """
    return arrow_type_of(iceberg_type, partial(readable, spark=spark), partial(arrow_field, spark=spark))


def readable(primitive: IcebergType, *, spark: bool) -> pa.DataType:
    """The Arrow type of a primitive type.

    Raises:
        NotSupportedError: there is no such form.
    """
    if isinstance(primitive, UnknownType):
        return pa.null()
    differs = spark and type(primitive) in FOR_SPARK
    found = FOR_SPARK[type(primitive)] if differs else primitive_arrow_type(primitive)
    if found is None:
        raise NotSupportedError(
            f"Columns of the type {primitive_name(primitive)} cannot be read",
            kind=ErrorKind.NOT_SUPPORTED,
            hint="Leave the column out of the statement: columns that a statement does not name are copied as they are",
        )
    return found


def arrow_field(field: NestedField, *, spark: bool) -> pa.Field:
    """The Arrow field of a column, with its id as Parquet writers expect it.

    Raises:
        NotSupportedError: its type has no such form.
    """
    metadata = None if spark else {PARQUET_FIELD_ID: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type(field.field_type, spark=spark), metadata=metadata)


Projector = Callable[[pa.Array], pa.Array]


def projector(field: NestedField, source: FileField, *, spark: bool) -> Projector | None:
    """How to turn a file's column into the table's; None where it is the same already.

    Args:
        field: The table's field.
        source: The file's field with the same id.
        spark: The form of the result; see `arrow_type`.
    """
    target = arrow_type(field.field_type, spark=spark)
    if is_same(field.field_type, source, target):
        return None
    match field.field_type:
        case StructType():
            return struct_projector(field.field_type, source, target, spark=spark)
        case ListType():
            return list_projector(field.field_type, source, target, spark=spark)
        case MapType():
            return map_projector(field.field_type, source, target, spark=spark)
        case VariantType():
            return variant_projector(field, source, target)
    return primitive_projector(field, source, target)


def is_same(field_type: IcebergType, source: FileField, target: pa.DataType) -> bool:
    """Whether a file's values need no change, field ids inside nested types included."""
    return bool(source.type == target) and ids_agree(field_type, source)


def ids_agree(field_type: IcebergType, source: FileField) -> bool:
    """Whether the fields inside have the ids of the table, in its order."""
    children = nested_fields(field_type)
    return len(children) == len(source.children) and all(
        child.field_id == held.field_id and ids_agree(child.field_type, held)
        for child, held in zip(children, source.children, strict=True)
    )


def nested_fields(field_type: IcebergType) -> tuple[NestedField, ...]:
    """The fields inside a type."""
    match field_type:
        case StructType():
            return field_type.fields
        case ListType():
            return (field_type.element_field,)
        case MapType():
            return field_type.key_field, field_type.value_field
    return ()


def apply(projection: Projector | None, array: pa.Array) -> pa.Array:
    """An array through a projector that may be missing."""
    return array if projection is None else projection(array)


def struct_projector(struct: StructType, source: FileField, target: pa.DataType, *, spark: bool) -> Projector:
    """Fields by id: those that the file lacks have their initial default."""
    places = {held.field_id: place for place, held in enumerate(source.children)}
    steps: list[tuple[int | None, Any]] = []
    for child in struct.fields:
        place = places.get(child.field_id)
        if place is None:
            steps.append((None, default_scalar(child, spark=spark)))
        else:
            steps.append((place, projector(child, source.children[place], spark=spark)))

    def project(array: pa.Array) -> pa.Array:
        rows = len(array)
        children = [
            pa.repeat(step, rows) if place is None else apply(step, array.field(place)) for place, step in steps
        ]
        fields = [target.field(place) for place in range(target.num_fields)]
        mask = array.is_null() if array.null_count else None
        if not fields:
            return pa.array([{}] * rows, target, mask=None if mask is None else np.asarray(mask))
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return project


def list_projector(field: ListType, source: FileField, target: pa.DataType, *, spark: bool) -> Projector:
    """Lists by their elements."""
    inner = projector(field.element_field, source.children[0], spark=spark)

    def project(array: pa.Array) -> pa.Array:
        plain = compact(array)
        mask = plain.is_null() if plain.null_count else None
        offsets = plain.offsets.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, apply(inner, plain.values), type=target, mask=mask)

    return project


def map_projector(field: MapType, source: FileField, target: pa.DataType, *, spark: bool) -> Projector:
    """Maps by their keys and values."""
    keys = projector(field.key_field, source.children[0], spark=spark)
    values = projector(field.value_field, source.children[1], spark=spark)

    def project(array: pa.Array) -> pa.Array:
        plain = compact(array)
        mask = plain.is_null() if plain.null_count else None
        return pa.MapArray.from_arrays(
            plain.offsets, apply(keys, plain.keys), apply(values, plain.items), type=target, mask=mask
        )

    return project


def compact(array: pa.Array) -> pa.Array:
    """The array with offsets that start at its buffers' beginning: Arrow makes no list of a slice with a mask."""
    return array if array.offset == 0 else array.take(pa.array(np.arange(len(array))))


def primitive_projector(field: NestedField, source: FileField, target: pa.DataType) -> Projector:
    """Promotions, and the forms that other writers give a type."""
    if isinstance(field.field_type, UUIDType):
        return uuid_projector(target)
    if pa.types.is_struct(source.type) or source.children:
        raise CorruptFileError(
            f"The column '{field.name}' is of the type {primitive_name(field.field_type)}, but the file holds "
            f"{source.type} for it"
        )
    return lambda array: cast(array, target)


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array in a wider or equal type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == target:
        return array
    if pa.types.is_time64(target) and pa.types.is_int64(array.type):  # ORC has no times, but a long of microseconds
        array = array.cast(pa.time64("us"))
    if pa.types.is_fixed_size_binary(target) and pa.types.is_binary(array.type):
        return array.cast(target)
    # A file's nanoseconds end as the table's microseconds, and instants keep their value whatever zone the file names.
    return pc.cast(array, target, safe=not pa.types.is_timestamp(target))


def variant_projector(field: NestedField, source: FileField, target: pa.DataType) -> Projector:
    """Variants as their metadata and value, whatever is shredded in the file."""
    if not pa.types.is_struct(source.type):
        raise CorruptFileError(
            f"The column '{field.name}' is of the type variant, but the file holds {source.type} for it"
        )
    fields = [target.field(place) for place in range(target.num_fields)]

    def project(array: pa.Array) -> pa.Array:
        metadata, value = whole_variants(array)
        parts = {METADATA: metadata, VALUE: value}
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays([parts[part.name] for part in fields], fields=fields, mask=mask)

    return project


def uuid_projector(target: pa.DataType) -> Projector:
    """UUIDs as 16 bytes in Arrow's own type, or as text."""

    def project(array: pa.Array) -> pa.Array:
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        if pa.types.is_string(target):
            return storage if pa.types.is_string(storage.type) else uuid_text(storage.cast(pa.binary(16)))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage.cast(pa.binary(16)))

    return project


def uuid_text(array: pa.Array) -> pa.Array:
    """16-byte values as `8-4-4-4-12` hexadecimal text, all rows at once."""
    rows = len(array)
    filled = pc.fill_null(array, pa.scalar(bytes(16), array.type)) if array.null_count else compact(array)
    raw = np.frombuffer(filled.buffers()[1], np.uint8, rows * 16, filled.offset * 16).reshape(rows, 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((rows, 36), ord("-"), np.uint8)
    places = [place for place in range(36) if place not in {8, 13, 18, 23}]
    text[:, places[0::2]] = digits[raw >> 4]
    text[:, places[1::2]] = digits[raw & 15]
    offsets = np.arange(0, (rows + 1) * 36, 36, dtype=np.int32)
    result = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), result) if array.null_count else result


def default_scalar(field: NestedField, *, spark: bool) -> pa.Scalar:
    """The value that rows of older files have in a field which the file lacks: its initial default, or NULL."""
    return constant_scalar(field.initial_default, field.field_type, spark=spark)


def constant_scalar(value: Any, field_type: IcebergType, *, spark: bool) -> pa.Scalar:
    """A value in Iceberg's internal form (days, microseconds ...) as an Arrow scalar."""
    return constant_array(value, field_type, 1, spark=spark)[0]


def constant_array(value: Any, field_type: IcebergType, rows: int, *, spark: bool) -> pa.Array:
    """A column with one value, given in Iceberg's internal form."""
    target = arrow_type(field_type, spark=spark)
    if value is None:
        return pa.nulls(rows, target)
    if isinstance(field_type, UUIDType):
        raw = value if isinstance(value, bytes) else value.bytes
        storage = pa.repeat(pa.scalar(raw, pa.binary(16)), rows)
        projected = uuid_projector(target)(storage)
        assert isinstance(projected, pa.Array)
        return projected
    if pa.types.is_time(target) and isinstance(value, int):
        return pa.repeat(pa.scalar(value, pa.time64("us")), rows).cast(target)
    return pa.repeat(pa.scalar(value, target), rows)
