"""Compute the statistics of partitions: files and rows of each partition, in a file of the table's format. Driver.

Input: a snapshot. Output: a file with a row for each spec and partition, sorted by partition, registered in the table's
metadata. If an ancestor of the snapshot has such a file, its rows are updated from the manifests that newer snapshots
added. Otherwise, or if the file is damaged, all manifests of the snapshot are read.

As in Iceberg's Java library, a partition whose files were all deleted keeps its row, with counts of 0, and
`total_record_count` is NULL (decision 049). Source: Iceberg specification, "Partition Statistics File";
`PartitionStatsHandler`.
"""

import logging
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from dml import limits
from dml.commit import ancestors
from dml.deletes.delete_file_index import partition_key
from dml.errors import CorruptFileError, ErrorKind, ValidationFailedError
from dml.maintenance.statistics_files import register_statistics, snapshot_with, write_statistics_file
from dml.manifests.entries import EntryArrays
from dml.manifests.entry_fields import CONTENT, FILE_FORMAT, FILE_SIZE, PARTITION, RECORD_COUNT, SNAPSHOT_ID, STATUS
from dml.manifests.read import manifests_of
from dml.manifests.read_arrays import read_arrays
from dml.metadata_tables.entry_scan import transpose_partitions
from dml.metadata_tables.tables import unified_partition
from dml.model.manifest import EntryStatus, FileContent, ManifestFile
from dml.options import WriteOptions
from dml.read.open_data_file import open_data_file
from dml.read.projection import constant_array, default_scalar, projector
from dml.write.file_layout import FileLayout, schema_layout
from dml.write.partitioning import WRITERS

__all__ = ["compute_partition_statistics", "statistics_schema"]

LOG: Final = logging.getLogger(__name__)

COUNTS: Final = (
    ("data_record_count", 3, LongType()),
    ("data_file_count", 4, IntegerType()),
    ("total_data_file_size_in_bytes", 5, LongType()),
    ("position_delete_record_count", 6, LongType()),
    ("position_delete_file_count", 7, IntegerType()),
    ("equality_delete_record_count", 8, LongType()),
    ("equality_delete_file_count", 9, IntegerType()),
)
DATA_COUNTS: Final = 3
"""The number of leading counts that are also required in version 2."""

PARTITION_ID, SPEC_ID, TOTAL_RECORDS, UPDATED_AT, UPDATED_BY, VECTORS = 1, 2, 10, 11, 12, 13


def statistics_schema(partition: StructType, format_version: int) -> Schema:
    """Return the columns of the file.

    Args:
        partition: The partition fields of all specs.
        format_version: The table's format version. From version 3 on, all counts are required, and deletion vectors are
            counted separately.
    """
    counts = [
        NestedField(field_id, name, kind, required=format_version >= 3 or number < DATA_COUNTS)
        for number, (name, field_id, kind) in enumerate(COUNTS)
    ]
    vectors = NestedField(VECTORS, "dv_count", IntegerType(), required=True, initial_default=0, write_default=0)
    return Schema(
        NestedField(PARTITION_ID, "partition", partition, required=True),
        NestedField(SPEC_ID, "spec_id", IntegerType(), required=True),
        *counts,
        NestedField(TOTAL_RECORDS, "total_record_count", LongType(), required=False),
        NestedField(UPDATED_AT, "last_updated_at", LongType(), required=False),
        NestedField(UPDATED_BY, "last_updated_snapshot_id", LongType(), required=False),
        *([vectors] if format_version >= 3 else []),
    )


def compute_partition_statistics(
    catalog: Catalog, table: Table, snapshot_id: int | None = None, name: str | None = None
) -> str | None:
    """Compute the partition statistics of a snapshot, and register them.

    Args:
        catalog: The table's catalog.
        table: The table.
        snapshot_id: The snapshot; None for the current one.
        name: The table's name for messages.

    Returns:
        The location of the file, which may be the snapshot's existing one; None for a table without a current snapshot
        and for a snapshot without files.

    Raises:
        NotFoundError: There is no such snapshot.
        ValidationFailedError: The table was never partitioned.
        DmlError: Reading, writing or the commit failed; no file is left.
    """
    metadata = table.metadata
    snapshot = snapshot_with(metadata, snapshot_id)
    if snapshot is None:
        return None
    partition = unified_partition(metadata)
    if not partition.fields:
        raise ValidationFailedError(
            f"Table must be partitioned: '{name or '.'.join(table.name())}' has no partition fields",
            kind=ErrorKind.INVALID_VALUE,
            hint="compute_table_stats computes statistics of the columns of any table",
        )
    schema = statistics_schema(partition, metadata.format_version)
    base = newest_file(metadata, snapshot)
    found = None if base is None else known_statistics(table, base, schema)
    if base is not None and found is not None and base.snapshot_id == snapshot.snapshot_id:
        return base.statistics_path
    statistics = Statistics(partition, {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots})
    if base is not None and found is not None:
        statistics.groups = found
        statistics.add(table.io, added_manifests(table, snapshot, base.snapshot_id), changes_only=True)
        if not statistics.is_consistent:
            LOG.warning("'%s' does not match the table's manifests: all are read", base.statistics_path)
            found = None
    if found is None:
        statistics.groups = {}
        statistics.add(table.io, manifests_of(table.io, snapshot), changes_only=False)
    if not statistics.groups:
        return None
    options = WriteOptions.from_properties(table.properties)
    layout = schema_layout(schema)
    batch = statistics.batch(schema, layout)

    def write(stream: pa.NativeFile) -> None:
        writer = WRITERS[options.file_format](stream, layout, options)
        writer.write(batch)
        writer.close()

    file_name = f"partition-stats-{snapshot.snapshot_id}-{uuid4()}.{options.file_format}"
    location, size = write_statistics_file(table, file_name, write)
    file = PartitionStatisticsFile(snapshot_id=snapshot.snapshot_id, statistics_path=location, file_size_in_bytes=size)
    update = SetPartitionStatisticsUpdate(partition_statistics=file)
    register_statistics(catalog, table, location, update, snapshot.snapshot_id)
    return location


# ---- the files of ancestors -----------------------------------------------------------------------------------


def newest_file(metadata: TableMetadata, snapshot: Snapshot) -> PartitionStatisticsFile | None:
    """Return the statistics file of the snapshot, or else of its newest ancestor with one."""
    known = {file.snapshot_id: file for file in metadata.partition_statistics}
    history = ancestors(metadata, snapshot.snapshot_id)
    return next((known[one.snapshot_id] for one in history if one.snapshot_id in known), None)


def added_manifests(table: Table, snapshot: Snapshot, base_id: int) -> Iterator[ManifestFile]:
    """Yield the manifests that a snapshot and its ancestors since `base_id` added."""
    for one in ancestors(table.metadata, snapshot.snapshot_id):
        if one.snapshot_id == base_id:
            return
        for manifest in manifests_of(table.io, one):
            if manifest.added_snapshot_id == one.snapshot_id:
                yield manifest


def known_statistics(
    table: Table, file: PartitionStatisticsFile, schema: Schema
) -> "dict[Hashable, PartitionTotals] | None":
    """Read a statistics file; None if it is missing or damaged, or has two rows for one partition.

    Raises:
        ExecutionError: The storage failed.
    """
    try:
        rows = [totals for batch in read_batches(table.io, file, schema) for totals in totals_of(batch)]
    except CorruptFileError as error:
        LOG.warning("All manifests are read for partition statistics: %s", error)
        return None
    found = {totals.key: totals for totals in rows}
    if len(found) < len(rows):
        LOG.warning("All manifests are read: '%s' has two rows for one partition", file.statistics_path)
        return None
    return found


def read_batches(io: FileIO, file: PartitionStatisticsFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Read a file with the columns of a schema. Missing columns and partition fields get their defaults."""
    location = file.statistics_path
    file_format = location.rpartition(".")[2].lower()
    if file_format not in WRITERS:
        raise CorruptFileError(f"'{location}' does not end with the name of a file format", file=location)
    with open_data_file(io, location, file_format, None, size=file.file_size_in_bytes) as opened:
        places = {found.field_id: place for place, found in enumerate(opened.fields)}
        present = [column for column in schema.fields if column.field_id in places]
        lacking = [column for column in schema.fields[: DATA_COUNTS + 2] if column.field_id not in places]
        if lacking:
            raise CorruptFileError(f"'{location}' lacks the column '{lacking[0].name}'", file=location)
        projections = [projector(column, opened.fields[places[column.field_id]], spark=False) for column in present]
        wanted = [places[column.field_id] for column in present]
        for batch in opened.batches(opened.pieces, wanted, limits.NARROW_BATCH_ROWS):
            arrays = {
                column.field_id: array if projection is None else projection(array)
                for column, array, projection in zip(present, batch.columns, projections, strict=True)
            }
            yield pa.RecordBatch.from_arrays(
                [
                    arrays.get(column.field_id, pa.repeat(default_scalar(column, spark=False), batch.num_rows))
                    for column in schema.fields
                ],
                names=[column.name for column in schema.fields],
            )


# ---- totals ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartitionTotals:
    """The totals of a partition under one spec.

    Attributes:
        spec_id: The spec.
        partition: The values of the fields of all specs.
        counts: The counts, in the order of `COUNTS`.
        vectors: The number of deletion vectors.
        updated_ms: The commit time of the newest known snapshot that added or deleted a file.
        snapshot_id: The id of that snapshot.
    """

    spec_id: int
    partition: tuple[Any, ...]
    counts: list[int] = field(default_factory=lambda: [0] * len(COUNTS))
    vectors: int = 0
    updated_ms: int | None = None
    snapshot_id: int | None = None

    @property
    def key(self) -> Hashable:
        """The key by which rows of one spec and partition are found."""
        return partition_key(self.spec_id, tuple(map(plain_value, self.partition)))

    def touch(self, snapshot_id: int, time_ms: int) -> None:
        """Note a snapshot that added or deleted a file."""
        if self.updated_ms is None or time_ms > self.updated_ms:
            self.updated_ms, self.snapshot_id = time_ms, snapshot_id


def plain_value(value: Any) -> Any:
    """Return a value in one form: manifests have UUIDs where files have bytes."""
    return value.bytes if isinstance(value, UUID) else value


PLAIN: Final = (STATUS, CONTENT, FILE_FORMAT, SNAPSHOT_ID, RECORD_COUNT, FILE_SIZE)

Sums = npt.NDArray[np.int64]


class Statistics:
    """The totals of all partitions.

    Args:
        partition: The partition fields of all specs.
        times_ms: The commit times of unexpired snapshots, by snapshot id.

    Attributes:
        groups: The totals by key.
    """

    def __init__(self, partition: StructType, times_ms: Mapping[int, int]) -> None:
        self.groups: dict[Hashable, PartitionTotals] = {}
        self._partition = partition
        self._times_ms = times_ms

    @property
    def is_consistent(self) -> bool:
        """Whether no count is negative."""
        return all(min(*totals.counts, totals.vectors) >= 0 for totals in self.groups.values())

    def add(self, io: FileIO, manifests: Iterable[ManifestFile], *, changes_only: bool) -> None:
        """Add the files of manifests.

        Args:
            io: The table's FileIO.
            manifests: The manifests.
            changes_only: Add and subtract the files that a manifest lists as added and deleted, because others are
                known. False adds the live files.

        Raises:
            CorruptFileError: A manifest is missing or damaged.
            ExecutionError: The storage failed.
        """
        for entries in read_arrays(manifests, lambda _: io, (*PLAIN, PARTITION)):
            self._add_entries(entries, changes_only=changes_only)

    def _add_entries(self, entries: EntryArrays, *, changes_only: bool) -> None:
        status, content = entries.numbers(STATUS), entries.numbers(CONTENT)
        deleted = status == EntryStatus.DELETED
        if changes_only:
            signs = np.where(deleted, -1, 1)
            touched = deleted | (status == EntryStatus.ADDED)
        else:
            signs = np.where(deleted, 0, 1)
            touched = np.ones(entries.size, bool)
        codes, signs, content = entries.partition_of[touched], signs[touched], content[touched]
        records, sizes = (signs * entries.numbers(one)[touched] for one in (RECORD_COUNT, FILE_SIZE))
        formats = np.array([text.lower() == "puffin" for text in entries.values(FILE_FORMAT)], bool)[touched]
        data, positions = content == FileContent.DATA, content == FileContent.POSITION_DELETES
        equality = content == FileContent.EQUALITY_DELETES

        def sums(values: Sums, chosen: npt.NDArray[np.bool_]) -> list[int]:
            found = np.zeros(len(entries.partitions), np.int64)
            np.add.at(found, codes[chosen], values[chosen])
            return list(found.tolist())

        counts = (
            sums(records, data),
            sums(signs, data),
            sums(sizes, data),
            sums(records, positions),
            sums(signs, positions & ~formats),
            sums(records, equality),
            sums(signs, equality),
        )
        vectors = sums(signs, positions & formats)
        columns = transpose_partitions(entries.partitions, entries.partition_type, self._partition)
        tuples = list(zip(*columns, strict=True))
        totals_by_code = {code: self._group(entries.spec_id, tuples[code]) for code in np.unique(codes).tolist()}
        for code, totals in totals_by_code.items():
            totals.counts = [old + added[code] for old, added in zip(totals.counts, counts, strict=True)]
            totals.vectors += vectors[code]
        ids = np.array(entries.values(SNAPSHOT_ID), dtype=object)[touched].tolist()
        known = {pair for pair in zip(codes.tolist(), ids, strict=True) if pair[1] in self._times_ms}
        for code, snapshot_id in sorted(known):
            totals_by_code[code].touch(snapshot_id, self._times_ms[snapshot_id])

    def _group(self, spec_id: int, values: tuple[Any, ...]) -> PartitionTotals:
        totals = PartitionTotals(spec_id, values)
        return self.groups.setdefault(totals.key, totals)

    def batch(self, schema: Schema, layout: FileLayout) -> pa.RecordBatch:
        """Return the rows of a file, sorted by partition."""
        rows = sorted(self.groups.values(), key=order_of)
        parts = zip(*(totals.partition for totals in rows), strict=True)
        partition = pa.StructArray.from_arrays(
            [
                pa.concat_arrays([constant_array(value, found.field_type, 1, spark=False) for value in values])
                for values, found in zip(parts, self._partition.fields, strict=True)
            ],
            names=[found.name for found in self._partition.fields],
        )
        columns: list[Any] = [
            partition,
            [totals.spec_id for totals in rows],
            *([totals.counts[number] for totals in rows] for number in range(len(COUNTS))),
            [None] * len(rows),
            [totals.updated_ms for totals in rows],
            [totals.snapshot_id for totals in rows],
            [totals.vectors for totals in rows],
        ][: len(schema.fields)]
        return layout.batch(
            [
                values if isinstance(values, pa.Array) else pa.array(values, found.type)
                for values, found in zip(columns, layout.arrow, strict=True)
            ]
        )


def order_of(totals: PartitionTotals) -> tuple[Any, ...]:
    return (*map(value_order, totals.partition), totals.spec_id)


def value_order(value: Any) -> tuple[Any, ...]:
    """Return a key that sorts NULL first and NaN last, and -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return (1, plain_value(value))


def totals_of(batch: pa.RecordBatch) -> Iterator[PartitionTotals]:
    """Return the rows of a file."""
    fields = [batch.column(0).field(place) for place in range(batch.column(0).type.num_fields)]
    partitions = list(zip(*map(internal_values, fields), strict=True))
    rest = [batch.column(place).to_pylist() for place in range(1, batch.num_columns)]
    for partition, spec_id, *values in zip(partitions, *rest, strict=True):
        counts, (_, updated_ms, snapshot_id, *vectors) = values[: len(COUNTS)], values[len(COUNTS) :]
        yield PartitionTotals(
            spec_id=spec_id,
            partition=partition,
            counts=[count or 0 for count in counts],
            vectors=(vectors or [0])[0] or 0,
            updated_ms=updated_ms,
            snapshot_id=snapshot_id,
        )


def internal_values(array: pa.Array) -> list[Any]:
    """Return the values of a partition field in Iceberg's internal form: numbers for dates and times."""
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    kind = array.type
    if pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_temporal(kind):
        array = array.cast(pa.int64())
    return list(array.to_pylist())
