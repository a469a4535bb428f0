"""The metadata tables and their schemas. Driver.

Input: a table's metadata. Output: Iceberg schemas with the names, order, types and nullability of the reference
implementation. Source: Iceberg 1.10, `MetadataTableType` and the tables it names; documentation, "Spark Queries:
Inspecting tables".
"""

from enum import StrEnum
from itertools import count
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
)

from dml.pyiceberg_patch import VariantType
from dml.read.projection import partition_fields

__all__ = ["READABLE_METRICS", "MetadataTable", "metric_fields", "table_schema", "unified_partition"]

READABLE_METRICS: Final = "readable_metrics"

FIRST_FREE_ID: Final = 1_000_000
"""Above the ids of partition fields, which start at 1000."""


class MetadataTable(StrEnum):
    """The metadata tables."""

    ENTRIES = "entries"
    FILES = "files"
    DATA_FILES = "data_files"
    DELETE_FILES = "delete_files"
    MANIFESTS = "manifests"
    PARTITIONS = "partitions"
    POSITION_DELETES = "position_deletes"
    SNAPSHOTS = "snapshots"
    HISTORY = "history"
    REFS = "refs"
    METADATA_LOG_ENTRIES = "metadata_log_entries"
    ALL_DATA_FILES = "all_data_files"
    ALL_DELETE_FILES = "all_delete_files"
    ALL_FILES = "all_files"
    ALL_MANIFESTS = "all_manifests"
    ALL_ENTRIES = "all_entries"

    @property
    def is_of_one_snapshot(self) -> bool:
        """True if the table shows one snapshot, so that time travel applies."""
        return self in ONE_SNAPSHOT

    @property
    def of_all_snapshots(self) -> bool:
        """True if the table combines all snapshots."""
        return self.value.startswith("all_")


ONE_SNAPSHOT: Final = frozenset(
    {
        MetadataTable.ENTRIES,
        MetadataTable.FILES,
        MetadataTable.DATA_FILES,
        MetadataTable.DELETE_FILES,
        MetadataTable.MANIFESTS,
        MetadataTable.PARTITIONS,
        MetadataTable.POSITION_DELETES,
    }
)


def table_schema(table: MetadataTable, metadata: TableMetadata) -> Schema:
    """Return the schema of a metadata table.

    Args:
        table: The metadata table.
        metadata: The table's metadata: supplies the current schema and all partition specs.
    """
    match table:
        case MetadataTable.SNAPSHOTS:
            return SNAPSHOTS
        case MetadataTable.HISTORY:
            return HISTORY
        case MetadataTable.REFS:
            return REFS
        case MetadataTable.METADATA_LOG_ENTRIES:
            return METADATA_LOG_ENTRIES
        case MetadataTable.MANIFESTS:
            return Schema(*MANIFEST_HEAD, *MANIFEST_COUNTS, SUMMARIES)
        case MetadataTable.ALL_MANIFESTS:
            counts = [as_optional(found) if found.field_id < 15 else found for found in MANIFEST_COUNTS]
            head = [as_optional(found) if found.field_id in {3, 4} else found for found in MANIFEST_HEAD]
            return Schema(*head, *counts, as_optional(SUMMARIES), REFERENCE_SNAPSHOT)
        case MetadataTable.PARTITIONS:
            return partitions_schema(unified_partition(metadata))
        case MetadataTable.POSITION_DELETES:
            return position_deletes_schema(metadata)
        case MetadataTable.ENTRIES | MetadataTable.ALL_ENTRIES:
            data_file = NestedField(2, "data_file", StructType(*file_fields(metadata)), required=True)
            return Schema(*ENTRY_HEAD, data_file, readable_metrics(metadata))
        case _:
            return Schema(*file_fields(metadata), readable_metrics(metadata))


def as_optional(found: NestedField) -> NestedField:
    return NestedField(found.field_id, found.name, found.field_type, required=False)


def unified_partition(metadata: TableMetadata) -> StructType:
    """Return the union of the partition fields of all specs.

    Files have null in fields that their own spec lacks. If a source column was dropped, its type comes from the
    newest schema that has it.
    """
    schemas = [metadata.schema(), *sorted(metadata.schemas, key=lambda schema: -schema.schema_id)]
    sources: dict[int, NestedField] = {}
    for spec in metadata.partition_specs:
        for term in spec.fields:
            known = next((schema for schema in schemas if term.source_id in schema.field_ids), None)
            if known is not None:
                kind = known.find_type(term.source_id)
                sources[term.source_id] = NestedField(term.source_id, f"c{term.source_id}", kind, required=False)
    usable = {
        spec.spec_id: spec
        for spec in metadata.partition_specs
        if all(term.source_id in sources for term in spec.fields)
    }
    return StructType(*partition_fields(usable, Schema(*sources.values())))


def required_field(field_id: int, name: str, kind: IcebergType, doc: str | None = None) -> NestedField:
    return NestedField(field_id, name, kind, required=True, doc=doc)


def optional_field(field_id: int, name: str, kind: IcebergType, doc: str | None = None) -> NestedField:
    return NestedField(field_id, name, kind, required=False, doc=doc)


def counts_by_column(field_id: int, name: str, key_id: int, doc: str) -> NestedField:
    """Build a map field from column ids to counts."""
    kind = MapType(key_id, IntegerType(), key_id + 1, LongType(), value_required=True)
    return optional_field(field_id, name, kind, doc)


def bounds_by_column(field_id: int, name: str, key_id: int, doc: str) -> NestedField:
    """Build a map field from column ids to bounds."""
    kind = MapType(key_id, IntegerType(), key_id + 1, BinaryType(), value_required=True)
    return optional_field(field_id, name, kind, doc)


ENTRY_HEAD: Final = (
    required_field(0, "status", IntegerType()),
    optional_field(1, "snapshot_id", LongType()),
    optional_field(3, "sequence_number", LongType()),
    optional_field(4, "file_sequence_number", LongType()),
)

FILE_HEAD: Final = (
    optional_field(
        134, "content", IntegerType(), "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"
    ),
    required_field(100, "file_path", StringType(), "Location URI with FS scheme"),
    required_field(101, "file_format", StringType(), "File format name: avro, orc, or parquet"),
    optional_field(141, "spec_id", IntegerType(), "Partition spec ID"),
)

FILE_TAIL: Final = (
    required_field(103, "record_count", LongType(), "Number of records in the file"),
    required_field(104, "file_size_in_bytes", LongType(), "Total file size in bytes"),
    counts_by_column(108, "column_sizes", 117, "Map of column id to total size on disk"),
    counts_by_column(109, "value_counts", 119, "Map of column id to total count, including null and NaN"),
    counts_by_column(110, "null_value_counts", 121, "Map of column id to null value count"),
    counts_by_column(137, "nan_value_counts", 138, "Map of column id to number of NaN values in the column"),
    bounds_by_column(125, "lower_bounds", 126, "Map of column id to lower bound"),
    bounds_by_column(128, "upper_bounds", 129, "Map of column id to upper bound"),
    optional_field(131, "key_metadata", BinaryType(), "Encryption key metadata blob"),
    optional_field(132, "split_offsets", ListType(133, LongType(), element_required=True), "Splittable offsets"),
    optional_field(
        135, "equality_ids", ListType(136, IntegerType(), element_required=True), "Equality comparison field IDs"
    ),
    optional_field(140, "sort_order_id", IntegerType(), "Sort order ID"),
    optional_field(142, "first_row_id", LongType(), "The first row ID assigned to the first row in the data file"),
    optional_field(
        143,
        "referenced_data_file",
        StringType(),
        "Fully qualified location (URI with FS scheme) of a data file that all deletes reference",
    ),
    optional_field(144, "content_offset", LongType(), "The offset in the file where the content starts"),
    optional_field(145, "content_size_in_bytes", LongType(), "The length of referenced content stored in the file"),
)


def file_fields(metadata: TableMetadata) -> tuple[NestedField, ...]:
    """Return the fields of a file, without `partition` if the table was never partitioned."""
    partition = unified_partition(metadata)
    doc = "Partition data tuple, schema based on the partition spec"
    middle = [required_field(102, "partition", partition, doc)] if partition.fields else []
    return *FILE_HEAD, *middle, *FILE_TAIL


def metric_fields(schema: Schema) -> tuple[NestedField, ...]:
    """Return the primitive columns, nested ones included, that have readable metrics, sorted by full name."""
    names = {field_id: schema.find_column_name(field_id) for field_id in schema.field_ids}
    found = [
        NestedField(field_id, name, kind, required=False)
        for field_id, name in names.items()
        if name is not None and isinstance(kind := schema.find_type(field_id), PrimitiveType) and is_shown(kind)
    ]
    return tuple(sorted(found, key=lambda column: column.name))


def is_shown(kind: IcebergType) -> bool:
    """Return True if Spark has a type for bounds of this type.

    It has none for nanoseconds or the bounds of geometries. Bounds of a variant are those of its fields, and Spark 3.5
    has no variant type.
    """
    return not isinstance(kind, TimestampNanoType | TimestamptzNanoType | GeometryType | GeographyType | VariantType)


def readable_metrics(metadata: TableMetadata) -> NestedField:
    """Build the column `readable_metrics`."""
    ids = count(FIRST_FREE_ID)
    columns = []
    for column in metric_fields(metadata.schema()):
        metrics = StructType(
            optional_field(next(ids), "column_size", LongType(), "Total size on disk"),
            optional_field(next(ids), "value_count", LongType(), "Total count, including null and NaN"),
            optional_field(next(ids), "null_value_count", LongType(), "Null value count"),
            optional_field(next(ids), "nan_value_count", LongType(), "NaN value count"),
            optional_field(next(ids), "lower_bound", column.field_type, "Lower bound"),
            optional_field(next(ids), "upper_bound", column.field_type, "Upper bound"),
        )
        columns.append(optional_field(next(ids), column.name, metrics, f"Metrics for column {column.name}"))
    return optional_field(next(ids), READABLE_METRICS, StructType(*columns), "Column metrics in readable form")


def partitions_schema(partition: StructType) -> Schema:
    """Return the schema of `partitions`; a table that was never partitioned has one row without a partition."""
    head = [required_field(102, "partition", partition), required_field(4, "spec_id", IntegerType())]
    return Schema(
        *(head if partition.fields else []),
        required_field(2, "record_count", LongType(), "Count of records in data files"),
        required_field(3, "file_count", IntegerType(), "Count of data files"),
        required_field(11, "total_data_file_size_in_bytes", LongType(), "Total size in bytes of data files"),
        required_field(5, "position_delete_record_count", LongType(), "Count of records in position delete files"),
        required_field(6, "position_delete_file_count", IntegerType(), "Count of position delete files"),
        required_field(7, "equality_delete_record_count", LongType(), "Count of records in equality delete files"),
        required_field(8, "equality_delete_file_count", IntegerType(), "Count of equality delete files"),
        optional_field(
            9, "last_updated_at", TimestamptzType(), "Commit time of snapshot that last updated this partition"
        ),
        optional_field(10, "last_updated_snapshot_id", LongType(), "Id of snapshot that last updated this partition"),
    )


def position_deletes_schema(metadata: TableMetadata) -> Schema:
    """Return the schema of `position_deletes`.

    The fields of the deleted row keep their ids. New fields get ids above `FIRST_FREE_ID`.
    """
    ids = count(FIRST_FREE_ID)
    partition = unified_partition(metadata)
    described = "Partition that position delete row belongs to"
    vectors = (
        optional_field(next(ids), "content_offset", LongType(), "The offset in the DV where the content starts"),
        optional_field(next(ids), "content_size_in_bytes", LongType(), "The length in bytes of the DV blob"),
    )
    # The row's own columns may have the same ids as the fields around them: filters bind by name.
    row = StructType(*metadata.schema().fields)
    return Schema(
        required_field(next(ids), "file_path", StringType(), "Path of a file in which a deleted row is stored"),
        required_field(next(ids), "pos", LongType(), "Ordinal position of a deleted row in the data file"),
        optional_field(next(ids), "row", row, "Deleted row values"),
        *([required_field(102, "partition", partition, described)] if partition.fields else []),
        required_field(141, "spec_id", IntegerType(), "Spec ID used to track the file containing a row"),
        required_field(next(ids), "delete_file_path", StringType(), "Path of the file in which a row is stored"),
        *(vectors if metadata.format_version >= 3 else ()),
    )


SNAPSHOTS: Final = Schema(
    required_field(1, "committed_at", TimestamptzType()),
    required_field(2, "snapshot_id", LongType()),
    optional_field(3, "parent_id", LongType()),
    optional_field(4, "operation", StringType()),
    optional_field(5, "manifest_list", StringType()),
    optional_field(6, "summary", MapType(7, StringType(), 8, StringType(), value_required=True)),
)

HISTORY: Final = Schema(
    required_field(1, "made_current_at", TimestamptzType()),
    required_field(2, "snapshot_id", LongType()),
    optional_field(3, "parent_id", LongType()),
    required_field(4, "is_current_ancestor", BooleanType()),
)

REFS: Final = Schema(
    required_field(1, "name", StringType()),
    required_field(2, "type", StringType()),
    required_field(3, "snapshot_id", LongType()),
    optional_field(4, "max_reference_age_in_ms", LongType()),
    optional_field(5, "min_snapshots_to_keep", IntegerType()),
    optional_field(6, "max_snapshot_age_in_ms", LongType()),
)

METADATA_LOG_ENTRIES: Final = Schema(
    required_field(1, "timestamp", TimestamptzType()),
    required_field(2, "file", StringType()),
    optional_field(3, "latest_snapshot_id", LongType()),
    optional_field(4, "latest_schema_id", IntegerType()),
    optional_field(5, "latest_sequence_number", LongType()),
)

MANIFEST_HEAD: Final = (
    required_field(14, "content", IntegerType()),
    required_field(1, "path", StringType()),
    required_field(2, "length", LongType()),
    required_field(3, "partition_spec_id", IntegerType()),
    required_field(4, "added_snapshot_id", LongType()),
)

MANIFEST_COUNTS: Final = (
    required_field(5, "added_data_files_count", IntegerType()),
    required_field(6, "existing_data_files_count", IntegerType()),
    required_field(7, "deleted_data_files_count", IntegerType()),
    required_field(15, "added_delete_files_count", IntegerType()),
    required_field(16, "existing_delete_files_count", IntegerType()),
    required_field(17, "deleted_delete_files_count", IntegerType()),
)

# The reference requires `contains_nan` in `all_manifests`, though a manifest list may leave it out.
SUMMARIES: Final = required_field(
    8,
    "partition_summaries",
    ListType(
        9,
        StructType(
            required_field(10, "contains_null", BooleanType()),
            optional_field(11, "contains_nan", BooleanType()),
            optional_field(12, "lower_bound", StringType()),
            optional_field(13, "upper_bound", StringType()),
        ),
        element_required=True,
    ),
)

REFERENCE_SNAPSHOT: Final = required_field(18, "reference_snapshot_id", LongType())
