"""Metadata tables as Spark DataFrames. Driver.

Input: a table, a snapshot and the columns and filter of a query. Output: a DataFrame. The driver reads small metadata
without a Spark job; Spark tasks read many or large manifests. Only the DataFrame API is used, so that this works on
both Spark Classic and Spark Connect.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import ListType, MapType, NestedField, StructType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from dml import limits
from dml.catalog.credentials import storage_properties
from dml.manifests.read import entries_of
from dml.manifests.write import partition_type
from dml.metadata_tables.deleted_positions import DeleteFile, PositionScan, PositionsTask
from dml.metadata_tables.entry_scan import EntriesTask, EntryReader, EntryScan, PartitionTest, transpose_partitions
from dml.metadata_tables.manifest_rows import all_manifest_rows, manifest_rows, manifests_to_read
from dml.metadata_tables.partition_rows import partition_rows
from dml.metadata_tables.snapshot_rows import snapshot_rows
from dml.metadata_tables.tables import READABLE_METRICS, MetadataTable, metric_fields, table_schema, unified_partition
from dml.model.manifest import FileContent, ManifestEntry, ManifestFile
from dml.model.scan_task import DeleteFileRef
from dml.read.projection import arrow_type
from dml.spark.bridge.sessions import empty_frame
from dml.spark.task_frames import task_frame, value_size
from dml.spark.types import spark_type
from dml.spark.versions import frame_of_table
from dml.spark.workers import check_reads
from dml.tasks.task_input import TaskInput

__all__ = ["METADATA_ROWS", "MetadataRead", "metadata_frame", "spark_schema"]

File = TypeVar("File")


METADATA_ROWS = "rows: read from the table's metadata; no data file is opened"
"""The line of EXPLAIN for a metadata table."""

ROWS_ONLY = "__rows"
"""The only column of a DataFrame that is merely counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRead:
    """The part of a metadata table that a query reads.

    Attributes:
        columns: Column names, in schema order; empty if the query only counts rows.
        row_filter: Rows for which it is not TRUE may be left out.
        case_sensitive: How names in the filter match.
        parallelism: The number of Spark tasks that run at once.
    """

    columns: tuple[str, ...]
    row_filter: BooleanExpression
    case_sensitive: bool
    parallelism: int


def metadata_frame(
    spark: SparkSession, name: MetadataTable, table: Table, snapshot: Snapshot | None, read: MetadataRead
) -> DataFrame:
    """Return a metadata table as a DataFrame.

    Args:
        spark: The session, classic or Connect.
        name: The metadata table.
        table: The table that it describes.
        snapshot: The snapshot to show, for metadata tables of one snapshot.
        read: The columns and rows to read.

    Raises:
        CorruptFileError: a metadata file is missing or damaged.
        ExecutionError: the storage failed.
    """
    schema = table_schema(name, table.metadata)
    match name:
        case MetadataTable.MANIFESTS:
            return frame_of_rows(spark, schema, list(manifest_rows(table, snapshot)))
        case MetadataTable.ALL_MANIFESTS:
            return frame_of_rows(spark, schema, list(all_manifest_rows(table)))
        case MetadataTable.SNAPSHOTS | MetadataTable.HISTORY | MetadataTable.REFS | MetadataTable.METADATA_LOG_ENTRIES:
            return frame_of_rows(spark, schema, snapshot_rows(name, table))
        case MetadataTable.PARTITIONS:
            manifests = manifests_to_read(name, table, snapshot)
            return frame_of_rows(spark, schema, partition_totals(table, manifests, schema, read))
        case MetadataTable.POSITION_DELETES:
            return positions_frame(spark, table, manifests_to_read(name, table, snapshot), schema, read)
    return entries_frame(spark, name, table, manifests_to_read(name, table, snapshot), schema, read)


def prune_manifests(
    table: Table, manifests: Sequence[ManifestFile], tests: PartitionTest, *, live_only: bool
) -> list[ManifestFile]:
    """Return the manifests that may list files matching the filter."""
    types = {spec_id: partition_type(spec, table.metadata) for spec_id, spec in table.specs().items()}
    return [
        manifest
        for manifest in manifests
        if (not live_only or manifest.has_live_files)
        and tests.may_list_matches(manifest, types[manifest.partition_spec_id])
    ]


def partition_totals(
    table: Table, manifests: Sequence[ManifestFile], schema: Schema, read: MetadataRead
) -> list[tuple[Any, ...]]:
    """Compute the rows of `partitions`."""
    tests = PartitionTest(schema, read.row_filter, case_sensitive=read.case_sensitive)
    times_ms = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    wanted = prune_manifests(table, manifests, tests, live_only=True)
    return partition_rows(wanted, table.io, unified_partition(table.metadata), times_ms, tests)


def positions_frame(
    spark: SparkSession, table: Table, manifests: Sequence[ManifestFile], schema: Schema, read: MetadataRead
) -> DataFrame:
    """Return `position_deletes`: the driver finds the delete files, Spark tasks read them."""
    tests = PartitionTest(schema, read.row_filter, case_sensitive=read.case_sensitive)
    chosen = [found for found in schema.fields if found.name in read.columns] or [schema.fields[1]]
    files = delete_files(table, prune_manifests(table, manifests, tests, live_only=True), tests)
    target = spark_schema(chosen)
    if not files:
        return empty_frame(spark, target)
    sizes = [file.ref.content_size_in_bytes or file.ref.file_size_in_bytes for file in files]
    scan = PositionScan(
        schema_json=Schema(*chosen).model_dump_json(), io_properties=storage_properties(table.io.properties)
    )
    task = PositionsTask(input=TaskInput.of(group_by_size(files, sizes, read.parallelism), scan))
    rows = sum(file.ref.record_count for file in files)
    check_reads(spark, table)
    return task_frame(spark, len(task.input.packed_groups), task, target, rows * value_size(target))


def delete_files(table: Table, manifests: Sequence[ManifestFile], tests: PartitionTest) -> list[DeleteFile]:
    """Return the live position delete files and deletion vectors."""
    target = unified_partition(table.metadata)
    types = {spec_id: partition_type(spec, table.metadata) for spec_id, spec in table.specs().items()}
    found = []
    for manifest in manifests:
        own = types[manifest.partition_spec_id]
        for entry in entries_of(manifest, table.io, live_only=True):
            file = entry.data_file
            if file.content is not FileContent.POSITION_DELETES:
                continue
            if tests.may_match(file.partition, own, file.spec_id, file.content):
                values = tuple(column[0] for column in transpose_partitions([file.partition], own, target))
                found.append(DeleteFile(ref=delete_ref(entry), spec_id=file.spec_id, partition=values))
    return found


def delete_ref(entry: ManifestEntry) -> DeleteFileRef:
    file = entry.data_file
    return DeleteFileRef.of(
        file, referenced_data_file=file.referenced_data_file, data_sequence_number=entry.data_sequence_number or 0
    )


def entries_frame(
    spark: SparkSession,
    name: MetadataTable,
    table: Table,
    manifests: Sequence[ManifestFile],
    schema: Schema,
    read: MetadataRead,
) -> DataFrame:
    """Return a table of entries, or of the files of live entries."""
    live_only = name not in {MetadataTable.ENTRIES, MetadataTable.ALL_ENTRIES}
    filtered = not isinstance(read.row_filter, AlwaysTrue)
    if not read.columns and not filtered:
        counts = [entry_count(manifest, live_only=live_only) for manifest in manifests]
        known = [count for count in counts if count is not None]
        if len(known) == len(counts):
            return spark.range(0, sum(known), 1, 1).withColumnRenamed("id", ROWS_ONLY)
    chosen = [found for found in schema.fields if found.name in read.columns] or [schema.fields[0]]
    scan = EntryScan(
        schema_json=schema.model_dump_json(),
        columns=tuple(found.name for found in chosen),
        metrics_json=StructType(
            *(metric_fields(table.schema()) if any(found.name == READABLE_METRICS for found in chosen) else ())
        ).model_dump_json(),
        live_only=live_only,
        row_filter=read.row_filter if filtered else None,
        case_sensitive=read.case_sensitive,
        io_properties=storage_properties(table.io.properties),
    )
    tests = PartitionTest(schema, scan.row_filter, case_sensitive=scan.case_sensitive)
    read_ones = prune_manifests(table, manifests, tests, live_only=live_only)
    target = spark_schema(chosen)
    if sum(manifest.manifest_length for manifest in read_ones) <= limits.MAX_DRIVER_MANIFEST_BYTES:
        reader = EntryReader(scan, lambda _: table.io)
        rows = list(reader.batches(read_ones))
        return frame_of_table(
            spark,
            # Spark stops reading at an empty chunk and rejects a table without chunks.
            reader.schema.empty_table() if not rows else pa.Table.from_batches([pa.concat_batches(rows)]),
            target,
        )
    sizes = [manifest.manifest_length for manifest in read_ones]
    task = EntriesTask(input=TaskInput.of(group_by_size(read_ones, sizes, read.parallelism), scan))
    entries = sum(entry_count(manifest, live_only=live_only) or 0 for manifest in read_ones)
    check_reads(spark, table)
    return task_frame(spark, len(task.input.packed_groups), task, target, entries * value_size(target))


def entry_count(manifest: ManifestFile, *, live_only: bool) -> int | None:
    """Return the row count of a manifest, or None if the manifest list has no counts."""
    counts = [manifest.added_files_count, manifest.existing_files_count]
    if not live_only:
        counts.append(manifest.deleted_files_count)
    known = [count for count in counts if count is not None and count >= 0]
    return sum(known) if len(known) == len(counts) else None


def group_by_size(files: Sequence[File], sizes: Sequence[int], parallelism: int) -> list[list[File]]:
    """Distribute files over Spark tasks by size, largest first.

    Two tasks per core keep one slow task from delaying the rest.
    """
    heap = [(0, number) for number in range(min(len(files), max(1, 2 * parallelism)))]
    groups: list[list[File]] = [[] for _ in heap]
    for size, file in sorted(zip(sizes, files, strict=True), key=lambda weighed: -weighed[0]):
        total, number = heapq.heappop(heap)
        groups[number].append(file)
        heapq.heappush(heap, (total + size, number))
    return groups


def frame_of_rows(spark: SparkSession, schema: Schema, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Convert rows from the driver to a DataFrame."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema.fields)
    arrays = [
        pa.array([list(value.items()) if isinstance(value, dict) else value for value in column], arrow_of(found))
        for column, found in zip(columns, schema.fields, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, names=[found.name for found in schema.fields])
    return frame_of_table(spark, table, spark_schema(schema.fields))


def arrow_of(found: NestedField) -> pa.DataType:
    return arrow_type(found.field_type, spark=True)


def spark_schema(fields: Sequence[NestedField]) -> spark_types.StructType:
    """Convert fields to Spark's, keeping required fields non-nullable."""
    return spark_types.StructType([spark_field(found) for found in fields])


def spark_field(found: NestedField) -> spark_types.StructField:
    comment = {"comment": found.doc} if found.doc else None
    return spark_types.StructField(found.name, nested_type(found.field_type), not found.required, comment)


def nested_type(kind: Any) -> spark_types.DataType:
    """Convert a type to Spark's, keeping required nested fields non-nullable."""
    match kind:
        case StructType():
            return spark_schema(kind.fields)
        case ListType():
            return spark_types.ArrayType(nested_type(kind.element_type), not kind.element_required)
        case MapType():
            return spark_types.MapType(
                nested_type(kind.key_type), nested_type(kind.value_type), not kind.value_required
            )
    return spark_type(kind)
