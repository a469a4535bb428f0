"""Write statistics files, and register them in a table's metadata. Driver.

A snapshot has at most one statistics file of each kind. Setting another one replaces the entry. As in Iceberg's Java
library, the old file stays until `remove_orphan_files` deletes it. The update only requires that the table still has
the snapshot, so it never conflicts with other commits. Source: Iceberg specification, "Table
Statistics", "Partition Statistics"; `UpdateStatistics`.
"""

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetStatisticsUpdate

from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import CommitConflictError, NotFoundError
from dml.files.file_io import delete_files
from dml.write.output_files import write_errors

__all__ = ["register_statistics", "schema_of", "snapshot_with", "write_statistics_file"]

Update = SetStatisticsUpdate | SetPartitionStatisticsUpdate


def snapshot_with(metadata: TableMetadata, snapshot_id: int | None) -> Snapshot | None:
    """Return the snapshot whose statistics to compute.

    Args:
        metadata: The table's metadata.
        snapshot_id: The snapshot; None for the current one.

    Returns:
        None for a table without a current snapshot.

    Raises:
        NotFoundError: The table does not have the snapshot.
    """
    if snapshot_id is None:
        return metadata.current_snapshot()
    found = metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise NotFoundError(
            f"Snapshot not found: {snapshot_id}",
            hint="Take one from the table's metadata table 'snapshots'; it may have been expired",
            snapshot_id=snapshot_id,
        )
    return found


def schema_of(table: Table, snapshot: Snapshot) -> Schema:
    """Return the schema of a snapshot; the current one if the snapshot does not name one."""
    return table.schema() if snapshot.schema_id is None else table.schemas().get(snapshot.schema_id, table.schema())


def write_statistics_file(table: Table, name: str, write: Callable[[pa.NativeFile], None]) -> tuple[str, int]:
    """Write a file into the table's folder of metadata files.

    Args:
        table: The table.
        name: The name of the new file.
        write: Writes its content to an open stream.

    Returns:
        Its location, and its size in bytes.

    Raises:
        DmlError: The file could not be written; no partial file is left.
    """
    location = table.location_provider().new_metadata_location(name)
    try:
        with write_errors(location, table.io.properties):
            stream = table.io.new_output(location).create(overwrite=True)
            with stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="w") as native:
                write(native)
                size = int(native.tell())
    except BaseException:
        delete_files(table.io, [location])
        raise
    return location, size


def register_statistics(catalog: Catalog, table: Table, location: str, update: Update, snapshot_id: int) -> None:
    """Register the statistics file of a snapshot, or delete the file if it was certainly not registered.

    Args:
        catalog: The table's catalog.
        table: The table.
        location: The file.
        update: The update that registers it.
        snapshot_id: Its snapshot.

    Raises:
        NotFoundError: The table or the snapshot was removed meanwhile.
        CommitConflictError: Other commits landed first on every attempt.
        CommitStateUnknownError: The commit may have landed; the file stays.
    """

    def change(metadata: TableMetadata) -> MetadataChange:
        snapshot_with(metadata, snapshot_id)
        return MetadataChange(updates=(update,))

    try:
        commit_change(catalog, table.name(), change)
    except (CommitConflictError, NotFoundError):  # other errors may come after the commit landed
        delete_files(table.io, [location])
        raise
