"""Project file columns to table columns, and compute the columns that no file holds. Worker-safe.

Input: an Arrow array as a file holds it. Output: the array of the table's schema (types, renames, order, promotions,
defaults, nesting), either in the lossless form for copying from file to file or in the form that Spark takes (see
`pyspark.sql.pandas.types`). Every Arrow field is nullable: required columns are checked where rows are written.
Spec: "Column Projection", "Schema Evolution", "Default Values".

`MetadataColumns` computes `_file`, `_pos`, `_spec_id`, `_partition` and row lineage from a scan task, row positions
and stored lineage. Spec: "Reserved Field IDs", "Row Lineage". `_partition` has the type of Java's
`Partitioning.partitionType`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
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
from dml.model import columns
from dml.model.arrow_types import (
    METADATA,
    PARQUET_FIELD_ID,
    VALUE,
    VARIANT_FOR_SPARK,
    arrow_type_of,
    primitive_arrow_type,
    primitive_name,
)
from dml.model.scan_task import ScanTask
from dml.pyiceberg_patch import VariantType
from dml.read.data_file import FileField
from dml.read.variant_values import whole_variants

__all__ = [
    "LINEAGE_IDS",
    "MetadataColumns",
    "Projector",
    "arrow_field",
    "arrow_type",
    "constant_array",
    "partition_fields",
    "projector",
]

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
"""The types for which Spark takes another form than files have, or none (None)."""


def arrow_type(iceberg_type: IcebergType, *, spark: bool) -> pa.DataType:
    """Return the Arrow type of a column's values.

    Args:
        iceberg_type: The column's type.
        spark: True for the form that Spark takes (a uuid as a string, a fixed as binary, a time in nanoseconds);
            False for the lossless form for copying from file to file.

    Raises:
        NotSupportedError: Spark has no such type.
    """
    return arrow_type_of(iceberg_type, partial(readable, spark=spark), partial(arrow_field, spark=spark))


def readable(primitive: IcebergType, *, spark: bool) -> pa.DataType:
    """Return the Arrow type of a primitive type.

    Raises:
        NotSupportedError: Spark has no such type.
    """
    if isinstance(primitive, UnknownType):
        return pa.null()
    differs = spark and type(primitive) in FOR_SPARK
    found = FOR_SPARK[type(primitive)] if differs else primitive_arrow_type(primitive)
    if found is None:
        raise NotSupportedError(
            f"Columns of the type {primitive_name(primitive)} cannot be read",
            kind=ErrorKind.NOT_SUPPORTED,
            hint="Leave the column out of the statement: columns that a statement does not name are copied unchanged",
        )
    return found


def arrow_field(field: NestedField, *, spark: bool) -> pa.Field:
    """Return the Arrow field of a column, with the field id as Parquet writers expect it unless it is for Spark.

    Raises:
        NotSupportedError: Spark has no such type.
    """
    metadata = None if spark else {PARQUET_FIELD_ID: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type(field.field_type, spark=spark), metadata=metadata)


Projector = Callable[[pa.Array], pa.Array]


def projector(field: NestedField, source: FileField, *, spark: bool) -> Projector | None:
    """Return a function that turns a file's column into the table's, or None if the two are the same.

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
    """Return True if a file's values need no change, including the field ids inside nested types."""
    return bool(source.type == target) and ids_agree(field_type, source)


def ids_agree(field_type: IcebergType, source: FileField) -> bool:
    """Return True if the nested fields have the table's ids, in the table's order."""
    children = nested_fields(field_type)
    return len(children) == len(source.children) and all(
        child.field_id == held.field_id and ids_agree(child.field_type, held)
        for child, held in zip(children, source.children, strict=True)
    )


def nested_fields(field_type: IcebergType) -> tuple[NestedField, ...]:
    match field_type:
        case StructType():
            return field_type.fields
        case ListType():
            return (field_type.element_field,)
        case MapType():
            return field_type.key_field, field_type.value_field
    return ()


def apply(projection: Projector | None, array: pa.Array) -> pa.Array:
    return array if projection is None else projection(array)


def struct_projector(struct: StructType, source: FileField, target: pa.DataType, *, spark: bool) -> Projector:
    """Project fields by id. Fields that the file lacks get their initial default."""
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
    inner = projector(field.element_field, source.children[0], spark=spark)

    def project(array: pa.Array) -> pa.Array:
        plain = compact(array)
        mask = plain.is_null() if plain.null_count else None
        offsets = plain.offsets.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, apply(inner, plain.values), type=target, mask=mask)

    return project


def map_projector(field: MapType, source: FileField, target: pa.DataType, *, spark: bool) -> Projector:
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
    """Return the array without an offset: Arrow cannot build a list array from a sliced array and a mask."""
    return array if array.offset == 0 else array.take(pa.array(np.arange(len(array))))


def primitive_projector(field: NestedField, source: FileField, target: pa.DataType) -> Projector:
    """Return a function that promotes types and accepts the forms of other writers."""
    if isinstance(field.field_type, UUIDType):
        return uuid_projector(target)
    if pa.types.is_struct(source.type) or source.children:
        raise CorruptFileError(
            f"The column '{field.name}' is of the type {primitive_name(field.field_type)}, but the file holds "
            f"{source.type} for it"
        )
    return lambda array: cast(array, target)


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast an array to a wider or equal type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == target:
        return array
    if pa.types.is_time64(target) and pa.types.is_int64(array.type):  # ORC stores times as longs of microseconds
        array = array.cast(pa.time64("us"))
    if pa.types.is_fixed_size_binary(target) and pa.types.is_binary(array.type):
        return array.cast(target)
    # Unsafe, to truncate nanoseconds to microseconds. Instants keep their value whatever time zone the file names.
    return pc.cast(array, target, safe=not pa.types.is_timestamp(target))


def variant_projector(field: NestedField, source: FileField, target: pa.DataType) -> Projector:
    """Return a function that reduces variants to metadata and value, shredded or not."""
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
    """Return a function that converts UUIDs to Arrow's UUID type or to text."""

    def project(array: pa.Array) -> pa.Array:
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        if pa.types.is_string(target):
            return storage if pa.types.is_string(storage.type) else uuid_text(storage.cast(pa.binary(16)))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage.cast(pa.binary(16)))

    return project


def uuid_text(array: pa.Array) -> pa.Array:
    """Format 16-byte values as `8-4-4-4-12` hexadecimal text, all rows at once."""
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
    """Return the value of a field that a file lacks: its initial default, or NULL."""
    return constant_scalar(field.initial_default, field.field_type, spark=spark)


def constant_scalar(value: Any, field_type: IcebergType, *, spark: bool) -> pa.Scalar:
    """Return a value in Iceberg's internal form (days, microseconds ...) as an Arrow scalar."""
    return constant_array(value, field_type, 1, spark=spark)[0]


def constant_array(value: Any, field_type: IcebergType, rows: int, *, spark: bool) -> pa.Array:
    """Return a column that repeats one value, given in Iceberg's internal form."""
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


Positions = npt.NDArray[np.int64]

LINEAGE_IDS = {
    columns.ROW_ID: columns.ROW_ID_ID,
    columns.LAST_UPDATED_SEQUENCE_NUMBER: columns.LAST_UPDATED_SEQUENCE_NUMBER_ID,
}
"""The field ids of the lineage columns, which files may hold."""

PLAIN_TYPES = {
    columns.FILE: pa.string(),
    columns.POS: pa.int64(),
    columns.SPEC_ID: pa.int32(),
    columns.ROW_ID: pa.int64(),
    columns.LAST_UPDATED_SEQUENCE_NUMBER: pa.int64(),
    columns.FILE_ORDINAL: pa.int32(),
}


def partition_fields(specs: Mapping[int, PartitionSpec], schema: Schema) -> tuple[NestedField, ...]:
    """Return the fields of `_partition`: those of all specs, by id, under their latest names.

    Fields whose source column was dropped are omitted, because their type is unknown.
    """
    fields: dict[int, NestedField] = {}
    voids: set[int] = set()
    sources = (schema.find_field(field_id) for field_id in schema.field_ids)
    known = {
        field.field_id
        for field in sources
        if field.field_type.is_primitive and not field.name.startswith(columns.DROPPED_PREFIX)
    }
    for spec_id in sorted(specs, reverse=True):
        types = specs[spec_id].partition_type(schema).fields
        for field, typed in zip(specs[spec_id].fields, types, strict=True):
            if field.source_id not in known:
                continue
            void = isinstance(field.transform, VoidTransform)
            if field.field_id not in fields:
                fields[field.field_id] = NestedField(field.field_id, field.name, typed.field_type, required=False)
                if void:
                    voids.add(field.field_id)
            elif field.field_id in voids and not void:
                name = fields[field.field_id].name
                fields[field.field_id] = NestedField(field.field_id, name, typed.field_type, required=False)
                voids.discard(field.field_id)
    return tuple(fields[field_id] for field_id in sorted(fields))


class MetadataColumns:
    """Compute the metadata columns of a scan.

    Args:
        names: The columns, in output order.
        schema: The table's schema.
        specs: The table's partition specs.
        spark: The form of partition values; see `arrow_type`.
    """

    def __init__(
        self, names: tuple[str, ...], schema: Schema, specs: Mapping[int, PartitionSpec], *, spark: bool
    ) -> None:
        self.names = names
        self.specs = specs
        self.spark = spark
        self.partition = partition_fields(specs, schema) if columns.PARTITION in names else ()

    def fields(self) -> list[pa.Field]:
        """Return the Arrow fields of the columns."""
        return [pa.field(name, self._type(name)) for name in self.names]

    def _type(self, name: str) -> pa.DataType:
        if name == columns.PARTITION:
            return pa.struct([arrow_field(field, spark=self.spark) for field in self.partition])
        return PLAIN_TYPES[name]

    def arrays(self, task: ScanTask, positions: Positions, stored: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return the columns for some rows of one file.

        Args:
            task: The scan task of the file.
            positions: The rows' positions in the file.
            stored: Lineage columns as the file holds them, by name.
        """
        return [self._array(name, task, positions, stored.get(name)) for name in self.names]

    def _array(self, name: str, task: ScanTask, positions: Positions, stored: pa.Array | None) -> pa.Array:
        rows = len(positions)
        match name:
            case columns.POS:
                return pa.array(positions, pa.int64())
            case columns.ROW_ID:
                return row_ids(task, positions, stored)
            case columns.LAST_UPDATED_SEQUENCE_NUMBER:
                return sequence_numbers(task, rows, stored)
            case columns.PARTITION:
                return self._partition(task, rows)
            case columns.FILE:
                return pa.repeat(pa.scalar(task.path), rows)
        value = task.spec_id if name == columns.SPEC_ID else task.file_ordinal
        return pa.repeat(pa.scalar(value, pa.int32()), rows)

    def _partition(self, task: ScanTask, rows: int) -> pa.Array:
        values: dict[int, Any] = {
            field.field_id: value for field, value in zip(self.specs[task.spec_id].fields, task.partition, strict=True)
        }
        target = self._type(columns.PARTITION)
        if not self.partition:
            return pa.array([{}] * rows, target)
        children = [
            constant_array(values.get(field.field_id), field.field_type, rows, spark=self.spark)
            for field in self.partition
        ]
        return pa.StructArray.from_arrays(children, fields=[target.field(place) for place in range(len(children))])


def row_ids(task: ScanTask, positions: Positions, stored: pa.Array | None) -> pa.Array:
    """Return `_row_id`: the stored id, else the file's first row id plus the position; NULL in a file without ids."""
    if task.first_row_id is None:
        return pa.nulls(len(positions), pa.int64())
    if stored is not None and not stored.null_count:
        return stored
    assigned = pa.array(positions + np.int64(task.first_row_id), pa.int64())
    return assigned if stored is None else pc.coalesce(stored, assigned)


def sequence_numbers(task: ScanTask, rows: int, stored: pa.Array | None) -> pa.Array:
    """Return `_last_updated_sequence_number`: the stored number, else the file's.

    It is NULL in a file without row ids.
    """
    if task.first_row_id is None:
        return pa.nulls(rows, pa.int64())
    if stored is not None and not stored.null_count:
        return stored
    inherited = pa.repeat(pa.scalar(task.data_sequence_number, pa.int64()), rows)
    return inherited if stored is None else pc.coalesce(stored, inherited)
