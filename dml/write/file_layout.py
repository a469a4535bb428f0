"""The columns and types of one write's data files, the conversion of rows to them, and what all formats share. Worker.

Input: the write's context with the table's Iceberg schema and properties; arrays from Spark or the reader.
Output: columns, Arrow schema with field ids and nullability, metrics modes and bloom filters of new data files; arrays
of exactly these types, or an error that names the field. Spec: "Reserved Field IDs", "Appendix A: Parquet", "Schemas
and Data Types" (required fields); `write.parquet.bloom-filter-*` in Iceberg's documentation.

Spark sends a uuid as a string, a fixed as binary, strings as small or large, timestamps with the session's time zone,
nested types with every field nullable. Where only names, nullability or a time zone differ, the buffers are reused.

A required column must have a value in every row. A required field inside a struct, list or map must have one wherever
its parent is not NULL.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    BooleanType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from dml.errors import AnalysisError, DataError, ErrorKind, NotSupportedError
from dml.model import columns
from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, is_variant, primitive_arrow_type, primitive_name
from dml.model.write_task import WriteContext
from dml.options import BLOOM_FILTER_ENABLED_PREFIX, BLOOM_FILTER_FPP_PREFIX
from dml.pyiceberg_patch import VariantType
from dml.write.column_metrics import ColumnMetrics, Leaf, MetricsMode, leaves, metrics_modes

__all__ = [
    "DataFileWriter",
    "FileLayout",
    "FileStatistics",
    "arrow_field",
    "arrow_type",
    "bloom_filters",
    "codec_of",
    "convert_array",
    "file_layout",
    "null_check",
    "schema_layout",
]

UUID_CHARACTERS = 36
UUID_DASHES = (8, 13, 18, 23)
NO_NIBBLE = 255
NIBBLES = np.full(256, NO_NIBBLE, dtype=np.uint8)
for digit, character in enumerate("0123456789abcdef"):
    NIBBLES[ord(character)] = NIBBLES[ord(character.upper())] = digit


def convert_array(array: pa.Array, target: pa.DataType, column: str) -> pa.Array:
    """Convert an array to another type.

    Args:
        array: The values.
        target: The type, including the nullability of nested fields.
        column: The table's column, for messages.

    Raises:
        DataError: A value does not fit the type.
    """
    if array.type.equals(target) and not holds_variant(target):
        return array
    if pa.types.is_dictionary(array.type):
        return convert_array(array.dictionary_decode(), target, column)
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
    """Return the error for a NULL where a value is required."""
    return DataError(
        f"The column '{path}' requires a value, but a row has NULL",
        kind=ErrorKind.NOT_NULL_VIOLATION,
        hint=f"Give every row a value, or run ALTER TABLE ... ALTER COLUMN {path} DROP NOT NULL",
        column=path,
    )


def struct(array: pa.StructArray, target: pa.StructType, column: str) -> pa.Array:
    """Convert fields by index: their names were matched when the statement was planned."""
    if array.type.num_fields != target.num_fields:
        raise DataError(
            f"The column '{column}' has {target.num_fields} fields in a struct, but its values have "
            f"{array.type.num_fields}",
            column=column,
        )
    fields = [target.field(place) for place in range(target.num_fields)]
    children = [convert_array(array.field(place), field.type, column) for place, field in enumerate(fields)]
    mask = array.is_null() if array.null_count else None
    if not fields:
        return (
            pa.StructArray.from_buffers(target, len(array), [None])
            if mask is None
            else cast_array(array, target, column)
        )
    for place, child in enumerate(fields):
        if not child.nullable and children[place].null_count:
            children[place] = drop_validity(children[place], array, f"{column}.{child.name}")
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def drop_validity(child: pa.Array, parent: pa.StructArray, path: str) -> pa.Array:
    """Return a required field's values without a validity bitmap.

    They may be NULL only where the whole struct is, and there Arrow and Parquet do not accept NULLs.
    """
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
    """Return True if a type is a variant or contains one.

    Variants are always converted, because readers leave NULLs in the parts of a NULL variant.
    """
    if not pa.types.is_nested(kind):
        return False
    return is_variant(kind) or any(holds_variant(kind.field(place).type) for place in range(kind.num_fields))


def variant(array: pa.Array, target: pa.StructType) -> pa.Array:
    """Reorder a variant's parts to those of the target, as Spark's order differs. NULLs may come without a type."""
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
    values = convert_array(array.values, target.value_type, column)
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, offset=array.offset, children=[values]
    )


def map_array(array: pa.MapArray, target: pa.MapType, column: str) -> pa.Array:
    keys = convert_array(array.keys, target.key_type, column)
    items = convert_array(array.items, target.item_type, column)
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
    return array.cast(target, safe=False)  # Spark's times are in nanoseconds, which are truncated to microseconds


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
        values = insert_nulls(values, array)
    return pa.ExtensionArray.from_storage(pa.uuid(), values)


def insert_nulls(values: pa.Array, nulls: pa.Array) -> pa.Array:
    """Insert NULLs where another array has them."""
    valid = nulls.is_valid().to_numpy(zero_copy_only=False)
    places = np.cumsum(valid) - 1
    return values.take(pa.array(places, mask=~valid))


def parse_canonical(array: pa.Array) -> pa.Array | None:
    """Parse texts of 36 characters, all at once. Return None if one has another form."""
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
            f"A value of the column '{column}' is not a UUID: {error}",
            hint="A UUID is written like 01234567-89ab-cdef-0123-456789abcdef",
            column=column,
        ) from error


NullCheck = Callable[[pa.Array], None]


def null_check(field: NestedField) -> NullCheck | None:
    """Return the NULL check of a column.

    Args:
        field: The column.

    Returns:
        A function that raises a `DataError` for an array with a forbidden NULL; None if every value may be NULL.
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
        # Flattening the list drops the entries of other slices of the same buffers.
        entries = pc.list_flatten(present.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))))
        value(entries.field(1))

    return check_map


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """The properties of a finished file that its manifest entry records.

    Attributes:
        record_count: The number of rows.
        file_size_in_bytes: The size in bytes.
        split_offsets: The start of each row group or block of rows; empty if the format does not expose it.
        metrics: The metrics of its columns.
    """

    record_count: int
    file_size_in_bytes: int
    split_offsets: tuple[int, ...]
    metrics: ColumnMetrics


class DataFileWriter(Protocol):
    """Write one data file into a stream that the caller opens and closes."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of buffered rows."""

    @property
    def estimated_size(self) -> int:
        """Bytes written, and the estimated bytes of the buffered rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def flush(self) -> None:
        """Write the buffered rows, to free their memory."""

    def close(self, row_map: str | None = None) -> FileStatistics:
        """Write the buffered rows and the footer. The stream stays open.

        Args:
            row_map: The file's row map for its footer (`dml.model.row_map`); only Parquet files have one.
        """

    def abort(self) -> None:
        """Stop writing. The bytes written so far are no valid file."""


def codec_of(table_property: str, name: str, codecs: Mapping[str, str]) -> str:
    """Return a library's name of the table's compression codec.

    Args:
        table_property: The table property.
        name: The property's value.
        codecs: The library's name by valid value.

    Raises:
        AnalysisError: The codec does not exist.
    """
    codec = codecs.get(name)
    if codec is None:
        raise AnalysisError(
            f"The table property '{table_property}' is '{name}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"It must be one of {', '.join(map(repr, codecs))}",
            property=table_property,
        )
    return codec


LINEAGE_FIELDS = (
    NestedField(columns.ROW_ID_ID, columns.ROW_ID, LongType(), required=False),
    NestedField(
        columns.LAST_UPDATED_SEQUENCE_NUMBER_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER, LongType(), required=False
    ),
)
"""The row lineage columns in files of updated or carried rows."""


def arrow_type(iceberg_type: IcebergType, column: str) -> pa.DataType:
    """Return the Arrow type that holds a column without loss.

    Raises:
        NotSupportedError: Values of the type cannot be written.
    """
    return arrow_type_of(iceberg_type, partial(writable, column=column), partial(arrow_field, column=column))


def writable(primitive: IcebergType, column: str) -> pa.DataType:
    found = primitive_arrow_type(primitive)
    if found is None:
        raise NotSupportedError(
            f"Rows cannot be written into the column '{column}': "
            f"it holds values of the type {primitive_name(primitive)}",
            hint="DELETE in merge-on-read mode works, as it writes no rows",
            column=column,
        )
    return found


def arrow_field(field: NestedField, column: str | None = None) -> pa.Field:
    """Return the Arrow field of a column or of a field inside one.

    Args:
        field: The field.
        column: The name of the enclosing column, for messages; None if the field is a column itself.

    Raises:
        NotSupportedError: Values of its type cannot be written.
    """
    metadata = {PARQUET_FIELD_ID: str(field.field_id).encode()}
    target = arrow_type(field.field_type, column or field.name)
    return pa.field(field.name, target, nullable=not field.required, metadata=metadata)


def stored_columns(schema: Schema) -> tuple[NestedField, ...]:
    """Return the columns that data files hold. Columns of type `unknown` are always NULL and not stored."""
    return tuple(field for field in schema.fields if not isinstance(field.field_type, UnknownType))


def lineage_columns(*, row_lineage: bool) -> tuple[NestedField, ...]:
    return LINEAGE_FIELDS if row_lineage else ()


DEFAULT_PROBABILITY: Final = 0.01


def bloom_filters(properties: Mapping[str, str], columns: frozenset[str]) -> dict[str, float]:
    """Return the false-positive probability of each physical column with a bloom filter.

    Args:
        properties: The table's properties.
        columns: Dotted names of the physical columns. Properties of other columns have no effect.

    Raises:
        AnalysisError: A probability is invalid.
    """
    return {
        column: probability(properties, BLOOM_FILTER_FPP_PREFIX + column)
        for key, text in properties.items()
        if key.startswith(BLOOM_FILTER_ENABLED_PREFIX)
        and text.strip().lower() == "true"
        and (column := key.removeprefix(BLOOM_FILTER_ENABLED_PREFIX)) in columns
    }


def probability(properties: Mapping[str, str], key: str) -> float:
    """Parse a probability, which is above 0 and below 1.

    Raises:
        AnalysisError: The value is not a probability.
    """
    text = properties.get(key)
    if text is None:
        return DEFAULT_PROBABILITY
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be a number between 0 and 1, both excluded",
            property=key,
        )
    return value


def variant_ids(physical: Iterable[Leaf]) -> frozenset[int]:
    """Return the field ids of the variants among physical columns."""
    return frozenset(leaf.field.field_id for leaf in physical if isinstance(leaf.field.field_type, VariantType))


UNSORTED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The columns of new data files.

    Attributes:
        columns: The table's stored columns in schema order, then those of row lineage.
        arrow: The Arrow schema of the columns.
        checks: The NULL check of each column.
        leaves: The physical columns of a file.
        modes: Metrics modes by field id.
        schema_json: The Iceberg schema of the file, for its footer.
        sort_order_id: The sort order that rows follow.
        bloom_filters: False-positive probabilities of the physical columns that have a bloom filter.
        has_geometries: True if a physical column is a geometry or geography.
        variant_ids: The field ids of variants, including those inside other types.
    """

    columns: tuple[NestedField, ...]
    arrow: pa.Schema
    checks: tuple[NullCheck | None, ...]
    leaves: tuple[Leaf, ...]
    modes: dict[int, MetricsMode] = field(repr=False)
    schema_json: str = field(repr=False)
    sort_order_id: int = UNSORTED
    bloom_filters: dict[str, float] = field(default_factory=dict)
    has_geometries: bool = False
    variant_ids: frozenset[int] = frozenset()

    def batch(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """Build a batch in the form that files hold.

        Args:
            arrays: A value for each of `columns`, of types that can be converted.

        Raises:
            DataError: A value does not fit its column, or is NULL in a required field.
        """
        fitting = [
            convert_array(array, target.type, target.name) for array, target in zip(arrays, self.arrow, strict=True)
        ]
        for check, array in zip(self.checks, fitting, strict=True):
            if check is not None:
                check(array)
        return pa.RecordBatch.from_arrays(fitting, schema=self.arrow)


def file_layout(context: WriteContext, *, row_lineage: bool) -> FileLayout:
    """Return the layout of a write's data files.

    Args:
        context: The write.
        row_lineage: True if files hold the row lineage columns.

    Raises:
        NotSupportedError: A column's values cannot be written.
        AnalysisError: A table property has an invalid value.
    """
    schema = Schema.model_validate_json(context.schema_json)
    columns = (*stored_columns(schema), *lineage_columns(row_lineage=row_lineage))
    order = SortOrder.model_validate_json(context.sort_order_json)
    file_schema = Schema(*columns, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    physical = leaves(columns)
    filterable = frozenset(
        file_schema.find_column_name(leaf.field.field_id) or ""
        for leaf in physical
        if not leaf.repeated and not isinstance(leaf.field.field_type, BooleanType | VariantType)
    )
    return replace(
        schema_layout(file_schema),
        modes=metrics_modes(schema, context.properties, [field.source_id for field in order.fields]),
        sort_order_id=order.order_id if context.sorted_by_table_order else UNSORTED,
        bloom_filters=bloom_filters(context.properties, filterable),
    )


def schema_layout(schema: Schema) -> FileLayout:
    """Return the layout of a file with exactly the columns of a schema, and default metrics."""
    physical = leaves(schema.fields)
    return FileLayout(
        columns=schema.fields,
        arrow=pa.schema([arrow_field(column) for column in schema.fields]),
        checks=tuple(null_check(column) for column in schema.fields),
        leaves=physical,
        modes=metrics_modes(schema, {}, []),
        schema_json=schema.model_dump_json(),
        has_geometries=any(isinstance(leaf.field.field_type, GeometryType | GeographyType) for leaf in physical),
        variant_ids=variant_ids(physical),
    )
