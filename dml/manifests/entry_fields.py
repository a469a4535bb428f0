"""Field ids of a manifest entry, and the field types as records and as arrays. Worker-safe.

Spec: "Manifests".
"""

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


def metrics(field_id: int, name: str, key_id: int, kind: IcebergType) -> NestedField:
    metric_map = MapType(key_id, IntegerType(), key_id + 1, kind, value_required=True)
    return NestedField(field_id, name, metric_map, required=False)


DATA_FILE_TYPE: Final = StructType(
    NestedField(CONTENT, "content", IntegerType(), required=False, initial_default=0),
    NestedField(FILE_PATH, "file_path", StringType(), required=True),
    NestedField(FILE_FORMAT, "file_format", StringType(), required=True),
    # Without fields, so that the partition is read with the fields of the file.
    NestedField(PARTITION, "partition", StructType(), required=True),
    NestedField(RECORD_COUNT, "record_count", LongType(), required=True),
    NestedField(FILE_SIZE, "file_size_in_bytes", LongType(), required=True),
    metrics(COLUMN_SIZES, "column_sizes", 117, LongType()),
    metrics(VALUE_COUNTS, "value_counts", 119, LongType()),
    metrics(NULL_VALUE_COUNTS, "null_value_counts", 121, LongType()),
    metrics(NAN_VALUE_COUNTS, "nan_value_counts", 138, LongType()),
    metrics(LOWER_BOUNDS, "lower_bounds", 126, BinaryType()),
    metrics(UPPER_BOUNDS, "upper_bounds", 129, BinaryType()),
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

ENTRY_FIELDS: Final = (STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER)
FILE_FIELDS: Final = tuple(field.field_id for field in DATA_FILE_TYPE.fields)
"""The field ids of entries and of files, in the order of their records."""

ENTRY_READ_SCHEMA: Final = Schema(
    NestedField(STATUS, "status", IntegerType(), required=True),
    NestedField(SNAPSHOT_ID, "snapshot_id", LongType(), required=False),
    NestedField(SEQUENCE_NUMBER, "sequence_number", LongType(), required=False),
    NestedField(FILE_SEQUENCE_NUMBER, "file_sequence_number", LongType(), required=False),
    NestedField(DATA_FILE, "data_file", DATA_FILE_TYPE, required=True),
)
"""A manifest entry of any format version; fields that an older version lacks are read as null."""

COUNT_MAPS: Final = (COLUMN_SIZES, VALUE_COUNTS, NULL_VALUE_COUNTS, NAN_VALUE_COUNTS)
BOUND_MAPS: Final = (LOWER_BOUNDS, UPPER_BOUNDS)
MAP_TYPES: Final = {**dict.fromkeys(COUNT_MAPS, pa.int64()), **dict.fromkeys(BOUND_MAPS, pa.large_binary())}
"""The field ids of the metrics, and the array types of their values."""

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
"""The array types of the other fields."""

NUMBER_LISTS: Final = (SPLIT_OFFSETS, EQUALITY_IDS)
KNOWN: Final = frozenset(COLUMN_TYPES) | frozenset(MAP_TYPES) | {PARTITION}

__all__ = [name for name in dict(globals()) if name.isupper()]
