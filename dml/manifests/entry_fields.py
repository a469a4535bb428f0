"""The fields of a manifest entry: ids, types, and what a manifest's own schema must look like. Worker-safe.

Input: the schema of a manifest. Output: checks of it, and the ids and types by which every reader and the writer go.
Spec: "Manifests".
"""

from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from dml import limits
from dml.manifests.record_reader import fits

__all__ = [
    "BOUND_MAPS",
    "COLUMN_SIZES",
    "COLUMN_TYPES",
    "CONTENT",
    "CONTENT_OFFSET",
    "CONTENT_SIZE",
    "COUNT_MAPS",
    "DATA_FILE",
    "ENTRY_READ_SCHEMA",
    "EQUALITY_IDS",
    "FILE_FIELDS",
    "FILE_FORMAT",
    "FILE_PATH",
    "FILE_SEQUENCE_NUMBER",
    "FILE_SIZE",
    "FIRST_ROW_ID",
    "KEY_METADATA",
    "KNOWN",
    "LOWER_BOUNDS",
    "MAP_TYPES",
    "NAN_VALUE_COUNTS",
    "NULL_VALUE_COUNTS",
    "NUMBER_LISTS",
    "PARTITION",
    "RECORD_COUNT",
    "REFERENCED_DATA_FILE",
    "SEQUENCE_NUMBER",
    "SNAPSHOT_ID",
    "SORT_ORDER_ID",
    "SPLIT_OFFSETS",
    "STATUS",
    "UPPER_BOUNDS",
    "VALUE_COUNTS",
    "check_entry_type",
    "check_type",
    "partition_of",
]

STATUS: Final = 0
SNAPSHOT_ID: Final = 1
DATA_FILE: Final = 2
SEQUENCE_NUMBER: Final = 3
FILE_SEQUENCE_NUMBER: Final = 4
FILE_PATH: Final = 100
FILE_FORMAT: Final = 101
PARTITION: Final = 102
RECORD_COUNT: Final = 103
FILE_SIZE: Final = 104
COLUMN_SIZES: Final = 108
VALUE_COUNTS: Final = 109
NULL_VALUE_COUNTS: Final = 110
LOWER_BOUNDS: Final = 125
UPPER_BOUNDS: Final = 128
KEY_METADATA: Final = 131
SPLIT_OFFSETS: Final = 132
CONTENT: Final = 134
EQUALITY_IDS: Final = 135
NAN_VALUE_COUNTS: Final = 137
SORT_ORDER_ID: Final = 140
FIRST_ROW_ID: Final = 142
REFERENCED_DATA_FILE: Final = 143
CONTENT_OFFSET: Final = 144
CONTENT_SIZE: Final = 145


def counts(field_id: int, name: str, key_id: int) -> NestedField:
    return NestedField(
        field_id, name, MapType(key_id, IntegerType(), key_id + 1, LongType(), value_required=True), required=False
    )


def bounds(field_id: int, name: str, key_id: int) -> NestedField:
    return NestedField(
        field_id, name, MapType(key_id, IntegerType(), key_id + 1, BinaryType(), value_required=True), required=False
    )


DATA_FILE_TYPE: Final = StructType(
    NestedField(CONTENT, "content", IntegerType(), required=False, initial_default=0),
    NestedField(FILE_PATH, "file_path", StringType(), required=True),
    NestedField(FILE_FORMAT, "file_format", StringType(), required=True),
    # Without fields: the partition is then read as the file has it.
    NestedField(PARTITION, "partition", StructType(), required=True),
    NestedField(RECORD_COUNT, "record_count", LongType(), required=True),
    NestedField(FILE_SIZE, "file_size_in_bytes", LongType(), required=True),
    counts(COLUMN_SIZES, "column_sizes", 117),
    counts(VALUE_COUNTS, "value_counts", 119),
    counts(NULL_VALUE_COUNTS, "null_value_counts", 121),
    counts(NAN_VALUE_COUNTS, "nan_value_counts", 138),
    bounds(LOWER_BOUNDS, "lower_bounds", 126),
    bounds(UPPER_BOUNDS, "upper_bounds", 129),
    NestedField(KEY_METADATA, "key_metadata", BinaryType(), required=False),
    NestedField(SPLIT_OFFSETS, "split_offsets", ListType(133, LongType(), element_required=True), required=False),
    # The specification says int; PyIceberg writes long, and an int is read as a long.
    NestedField(EQUALITY_IDS, "equality_ids", ListType(136, LongType(), element_required=True), required=False),
    NestedField(SORT_ORDER_ID, "sort_order_id", IntegerType(), required=False),
    NestedField(FIRST_ROW_ID, "first_row_id", LongType(), required=False),
    NestedField(REFERENCED_DATA_FILE, "referenced_data_file", StringType(), required=False),
    NestedField(CONTENT_OFFSET, "content_offset", LongType(), required=False),
    NestedField(CONTENT_SIZE, "content_size_in_bytes", LongType(), required=False),
)

FILE_FIELDS: Final = tuple(field.field_id for field in DATA_FILE_TYPE.fields)
"""The ids of a file's fields, in the order in which records have them."""

ENTRY_READ_SCHEMA: Final = Schema(
    NestedField(STATUS, "status", IntegerType(), required=True),
    NestedField(SNAPSHOT_ID, "snapshot_id", LongType(), required=False),
    NestedField(SEQUENCE_NUMBER, "sequence_number", LongType(), required=False),
    NestedField(FILE_SEQUENCE_NUMBER, "file_sequence_number", LongType(), required=False),
    NestedField(DATA_FILE, "data_file", DATA_FILE_TYPE, required=True),
)
"""A manifest entry of every format version; what an older one lacks is read as null."""

MAP_TYPES: Final = {
    COLUMN_SIZES: pa.int64(),
    VALUE_COUNTS: pa.int64(),
    NULL_VALUE_COUNTS: pa.int64(),
    NAN_VALUE_COUNTS: pa.int64(),
    LOWER_BOUNDS: pa.large_binary(),
    UPPER_BOUNDS: pa.large_binary(),
}
"""The metrics, and the types of their values as arrays."""

COLUMN_TYPES: Final = {
    STATUS: pa.int8(),
    SNAPSHOT_ID: pa.int64(),
    SEQUENCE_NUMBER: pa.int64(),
    FILE_SEQUENCE_NUMBER: pa.int64(),
    CONTENT: pa.int8(),
    FILE_PATH: pa.large_string(),
    FILE_FORMAT: pa.dictionary(pa.int32(), pa.string()),
    RECORD_COUNT: pa.int64(),
    FILE_SIZE: pa.int64(),
    KEY_METADATA: pa.large_binary(),
    SPLIT_OFFSETS: pa.large_list(pa.int64()),
    EQUALITY_IDS: pa.large_list(pa.int64()),
    SORT_ORDER_ID: pa.int32(),
    FIRST_ROW_ID: pa.int64(),
    REFERENCED_DATA_FILE: pa.large_string(),
    CONTENT_OFFSET: pa.int64(),
    CONTENT_SIZE: pa.int64(),
}
"""The other fields, and their types as arrays."""

COUNT_MAPS: Final = frozenset({COLUMN_SIZES, VALUE_COUNTS, NULL_VALUE_COUNTS, NAN_VALUE_COUNTS})
BOUND_MAPS: Final = frozenset({LOWER_BOUNDS, UPPER_BOUNDS})
NUMBER_LISTS: Final = frozenset({SPLIT_OFFSETS, EQUALITY_IDS})
KNOWN: Final = frozenset(COLUMN_TYPES) | frozenset(MAP_TYPES) | {PARTITION}

SPECIFIED: Final = {field.field_id: field.field_type for field in (*ENTRY_READ_SCHEMA.fields, *DATA_FILE_TYPE.fields)}


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def check_entry_type(file_type: StructType) -> None:
    """Check that a manifest's schema has each field once, and those that are required as the specification has them.

    Raises:
        ValueError: It does not. Entries without required fields could take no bytes, so that there could be any number.
    """
    entry = {field.field_id: field for field in file_type.fields}
    found = entry.get(DATA_FILE)
    if found is None or not found.required or not isinstance(found.field_type, StructType):
        raise ValueError("its entries have no file")
    fields = (*file_type.fields, *found.field_type.fields)
    required = {field.field_id for field in fields if field.required}
    if missing := {STATUS, FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE} - required:
        raise ValueError(f"its entries lack the fields with the ids {sorted(missing)}")
    known = [field.field_id for field in fields if field.field_id in KNOWN]
    if twice := {field_id for field_id in known if known.count(field_id) > 1}:
        raise ValueError(f"it has the fields with the ids {sorted(twice)} twice")
    for field in fields:
        check_type(field.field_id, field.field_type)


def check_type(field_id: int, kind: IcebergType) -> None:
    """Refuse a field of another type than the specification gives it: its bytes would be read as something else."""
    if field_id in SPECIFIED and not fits(kind, SPECIFIED[field_id]):
        raise ValueError(f"the field with the id {field_id} is of the type {kind}")


def partition_of(file_type: StructType) -> StructType:
    """Return the type of the partition tuples of a manifest."""
    for field_id in (DATA_FILE, PARTITION):
        inner = next((field.field_type for field in file_type.fields if field.field_id == field_id), None)
        if not isinstance(inner, StructType):
            return StructType()
        file_type = inner
    return file_type
