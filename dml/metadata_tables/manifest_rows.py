"""Rows of `manifests` and `all_manifests`, and the manifests that other metadata tables read. Driver.

Input: a table, a snapshot. Output: rows, as tuples in the order of the schema; manifests.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import PrimitiveType, StructType

from dml.manifests.entry_fields import STATUS
from dml.manifests.read import manifests_of
from dml.manifests.read_arrays import read_arrays
from dml.manifests.write import partition_type
from dml.metadata_tables.tables import MetadataTable
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile, PartitionSummary
from dml.model.transforms import partition_value_text

__all__ = ["all_manifest_rows", "manifest_rows", "manifests_to_read"]

Row = tuple[Any, ...]

NULL_TEXT = "null"
"""The text that the reference shows for a missing bound."""


def manifests_to_read(name: MetadataTable, table: Table, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
    """Return the manifests whose entries a metadata table shows, each manifest once.

    Args:
        name: A metadata table of entries, files, partitions or position deletes.
        table: The table.
        snapshot: The snapshot to show; ignored by tables of all snapshots.

    Raises:
        CorruptFileError: a manifest list is missing or is no manifest list.
        ExecutionError: the storage failed.
    """
    snapshots = table.metadata.snapshots if name.of_all_snapshots else [snapshot]
    by_path = {found.manifest_path: found for each in snapshots for found in manifests_of(table.io, each)}
    contents = CONTENTS.get(name, frozenset(ManifestContent))
    return tuple(found for found in by_path.values() if found.content in contents)


CONTENTS = {
    MetadataTable.DATA_FILES: frozenset({ManifestContent.DATA}),
    MetadataTable.ALL_DATA_FILES: frozenset({ManifestContent.DATA}),
    MetadataTable.DELETE_FILES: frozenset({ManifestContent.DELETES}),
    MetadataTable.ALL_DELETE_FILES: frozenset({ManifestContent.DELETES}),
    MetadataTable.POSITION_DELETES: frozenset({ManifestContent.DELETES}),
}
"""The manifest contents that a table reads, if not all."""


def manifest_rows(table: Table, snapshot: Snapshot | None) -> Iterator[Row]:
    """Yield the rows of `manifests`.

    Raises:
        CorruptFileError: a metadata file is missing or damaged.
        ExecutionError: the storage failed.
    """
    for manifest in manifests_of(table.io, snapshot):
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        known = count_entries(manifest, table) if None in counts else counts
        yield manifest_row(manifest, known, summary_rows(manifest, table) or [])


def all_manifest_rows(table: Table) -> Iterator[Row]:
    """Yield the rows of `all_manifests`: one per snapshot and manifest, shared manifests repeated.

    Raises:
        CorruptFileError: a manifest list is missing or is no manifest list.
        ExecutionError: the storage failed.
    """
    for snapshot in table.metadata.snapshots:
        for manifest in manifests_of(table.io, snapshot):
            counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
            yield *manifest_row(manifest, counts, summary_rows(manifest, table)), snapshot.snapshot_id


def count_entries(manifest: ManifestFile, table: Table) -> tuple[int, int, int]:
    """Count the added, existing and deleted entries; lists of version 1 may leave out these numbers."""
    statuses = Counter(
        status for entries in read_arrays([manifest], lambda _: table.io, ()) for status in entries.values(STATUS)
    )
    return statuses[EntryStatus.ADDED], statuses[EntryStatus.EXISTING], statuses[EntryStatus.DELETED]


def manifest_row(manifest: ManifestFile, counts: tuple[int | None, ...], summaries: list[Row] | None) -> Row:
    """Return the row of a manifest, with its counts in the columns of data files or of delete files."""
    none = (0, 0, 0)
    data = manifest.content is ManifestContent.DATA
    return (
        int(manifest.content),
        manifest.manifest_path,
        manifest.manifest_length,
        manifest.partition_spec_id,
        manifest.added_snapshot_id,
        *(counts if data else none),
        *(none if data else counts),
        summaries,
    )


def summary_rows(manifest: ManifestFile, table: Table) -> list[Row] | None:
    if manifest.partitions is None:
        return None
    spec = table.specs()[manifest.partition_spec_id]
    kinds = partition_type(spec, table.metadata)
    return [
        summary_row(summary, spec, kinds, place)
        for place, summary in enumerate(manifest.partitions[: len(spec.fields)])
    ]


def summary_row(summary: PartitionSummary, spec: PartitionSpec, kinds: StructType, place: int) -> Row:
    """Convert a partition summary to a row, with its bounds as text."""
    kind, transform = kinds.fields[place].field_type, spec.fields[place].transform

    def text(bound: bytes | None) -> str:
        if bound is None or not isinstance(kind, PrimitiveType):
            return NULL_TEXT
        return partition_value_text(transform, kind, from_bytes(kind, bound))

    return summary.contains_null, summary.contains_nan, text(summary.lower_bound), text(summary.upper_bound)
