"""Rows of `partitions`: the totals of the live files per partition. Driver.

Input: manifests. Output: rows, as tuples in the order of the schema. Files of different specs share a partition if
the fields of all specs have equal values. As in the reference, its spec is that of the file that was added last.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.types import StructType

from dml.deletes.delete_file_index import partition_key
from dml.manifests.entries import EntryArrays
from dml.manifests.entry_fields import CONTENT, FILE_SIZE, PARTITION, RECORD_COUNT, SNAPSHOT_ID, STATUS
from dml.manifests.read_arrays import read_arrays
from dml.metadata_tables.entry_scan import PartitionTest, transpose_partitions
from dml.model.manifest import EntryStatus, FileContent, ManifestFile

__all__ = ["partition_rows"]

Row = tuple[Any, ...]

PLAIN: Final = (STATUS, CONTENT, SNAPSHOT_ID, RECORD_COUNT, FILE_SIZE)
READ: Final = (*PLAIN, PARTITION)


@dataclass(slots=True)
class Totals:
    """The running totals of a partition.

    Attributes:
        partition: The partition values, in the fields of all specs.
        spec_id: The spec of the file that was added last.
        records: Row counts, indexed by file content.
        files: File counts, indexed by file content.
        data_bytes: Total size of data files.
        updated_ms: The commit time of the newest known snapshot that added a file.
        snapshot_id: The id of that snapshot.
    """

    partition: tuple[Any, ...]
    records: list[int]
    files: list[int]
    spec_id: int = 0
    data_bytes: int = 0
    updated_ms: int | None = None
    snapshot_id: int | None = None


def partition_rows(
    manifests: Iterable[ManifestFile],
    io: FileIO,
    partition: StructType,
    times_ms: Mapping[int, int],
    tests: PartitionTest,
) -> list[Row]:
    """Return the rows of the table, one per partition.

    Args:
        manifests: The manifests of a snapshot.
        io: The table's FileIO.
        partition: The partition fields of all specs.
        times_ms: The commit times of unexpired snapshots, by snapshot id.
        tests: The filter of the query.

    Raises:
        CorruptFileError: a manifest is missing or damaged.
        ExecutionError: the storage failed.
    """
    found: dict[Hashable, Totals] = {}
    for entries in read_arrays(manifests, lambda _: io, READ):
        add_entries(entries, partition, times_ms, tests, found)
    return [row_of(totals, partitioned=bool(partition.fields)) for totals in found.values()]


def add_entries(
    entries: EntryArrays,
    partition: StructType,
    times_ms: Mapping[int, int],
    tests: PartitionTest,
    found: dict[Hashable, Totals],
) -> None:
    """Add live files to the totals of their partitions."""
    columns = transpose_partitions(entries.partitions, entries.partition_type, partition)
    tuples = list(zip(*columns, strict=True)) if columns else [()] * len(entries.partitions)
    plain = (entries.values(field_id) for field_id in PLAIN)
    for code, status, content, snapshot_id, records, size in zip(entries.partition_of.tolist(), *plain, strict=True):
        if status == EntryStatus.DELETED:
            continue
        values, own = tuples[code], entries.partitions[code]
        if tests.prunes and not tests.may_match(own, entries.partition_type, entries.spec_id, content):
            continue
        key = partition_key(0, values)
        totals = found.get(key)
        if totals is None:
            totals = found[key] = Totals(values, [0, 0, 0], [0, 0, 0])
        time_ms = times_ms.get(snapshot_id)
        if time_ms is not None and (totals.updated_ms is None or time_ms > totals.updated_ms):
            totals.spec_id, totals.updated_ms = entries.spec_id, time_ms
            totals.snapshot_id = snapshot_id
        totals.records[content] += records
        totals.files[content] += 1
        if content == FileContent.DATA:
            totals.data_bytes += size


def row_of(totals: Totals, *, partitioned: bool) -> Row:
    """Return the totals as a row, without partition and spec if the table was never partitioned."""
    data, positions, equality = zip(totals.records, totals.files, strict=True)
    return (
        *((totals.partition, totals.spec_id) if partitioned else ()),
        *data,
        totals.data_bytes,
        *positions,
        *equality,
        None if totals.updated_ms is None else totals.updated_ms * 1000,
        totals.snapshot_id,
    )
