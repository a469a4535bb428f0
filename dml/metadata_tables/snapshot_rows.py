"""Rows from the table metadata: `snapshots`, `history`, `refs`, `metadata_log_entries`. Driver.

Input: a table. Output: rows, as tuples in the order of the schema; times in microseconds.
"""

from collections.abc import Iterator
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.metadata_tables.tables import MetadataTable

__all__ = ["snapshot_rows"]

Row = tuple[Any, ...]


def snapshot_rows(name: MetadataTable, table: Table) -> list[Row]:
    """Return the rows of a metadata table that needs no file besides the table metadata.

    Args:
        name: `snapshots`, `history`, `refs` or `metadata_log_entries`.
        table: The table.
    """
    match name:
        case MetadataTable.SNAPSHOTS:
            return [snapshot_row(snapshot) for snapshot in table.metadata.snapshots]
        case MetadataTable.HISTORY:
            return list(history_rows(table.metadata))
        case MetadataTable.REFS:
            return list(ref_rows(table.metadata))
        case _:
            return list(log_rows(table))


def snapshot_row(snapshot: Snapshot) -> Row:
    summary = snapshot.summary
    return (
        snapshot.timestamp_ms * 1000,
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        None if summary is None else summary.operation.value,
        snapshot.manifest_list,
        None if summary is None else dict(summary.additional_properties),
    )


def history_rows(metadata: TableMetadata) -> Iterator[Row]:
    """Yield the rows of `history`: each current snapshot of the past, and if it is an ancestor of today's."""
    ancestors = ancestor_ids(metadata)
    for entry in metadata.snapshot_log:
        snapshot = metadata.snapshot_by_id(entry.snapshot_id)
        parent_id = None if snapshot is None else snapshot.parent_snapshot_id
        yield entry.timestamp_ms * 1000, entry.snapshot_id, parent_id, entry.snapshot_id in ancestors


def ancestor_ids(metadata: TableMetadata) -> set[int]:
    """Return the ids of the current snapshot and its ancestors."""
    found: set[int] = set()
    snapshot = metadata.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id not in found:
        found.add(snapshot.snapshot_id)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    return found


def ref_rows(metadata: TableMetadata) -> Iterator[Row]:
    for name, ref in metadata.refs.items():
        yield (
            name,
            ref.snapshot_ref_type.value.upper(),
            ref.snapshot_id,
            ref.max_ref_age_ms,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
        )


def log_rows(table: Table) -> Iterator[Row]:
    """Yield the rows of `metadata_log_entries`: each metadata file, and its current snapshot."""
    metadata = table.metadata
    files = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    for timestamp_ms, file in (*files, (metadata.last_updated_ms, table.metadata_location)):
        latest_id = None
        for entry in metadata.snapshot_log:
            if entry.timestamp_ms <= timestamp_ms:
                latest_id = entry.snapshot_id
        snapshot = None if latest_id is None else metadata.snapshot_by_id(latest_id)
        schema_id = None if snapshot is None else snapshot.schema_id
        # Version 1 has no sequence numbers: all of its snapshots have the number 0.
        number = None if snapshot is None else snapshot.sequence_number or 0
        yield timestamp_ms * 1000, file, latest_id, schema_id, number
