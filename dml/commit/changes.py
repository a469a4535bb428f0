"""The file changes of a commit, the common form of all actions. Driver.

`actions` builds `FileChanges` from an action; the engine builds `RowLevelChanges`, the rows that a statement changed.
`attempt` and the checks read both. Without `RowLevelChanges` the checks compare whole files.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.metadata import TableMetadata

from dml.deletes.deletion_vector import decode
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.manifest import ContentFile, DeleteFileKey, Listing, ManifestFile, Partition
from dml.model.scan_task import FileDeletes, ScanTask
from dml.model.write_task import ChangedFile, RowOrigins
from dml.read.applied_deletes import DeleteLoader

__all__ = ["FileChanges", "Operation", "RowLevelChanges", "RowProbe", "Validation", "referenced_by"]


WriteDeletes = Callable[[Sequence[FileDeletes]], tuple[ContentFile, ...]]

RowProbe = Callable[[TableMetadata, int, Sequence[ContentFile]], bool]
"""Returns True if concurrently added data files hold, or may hold, a row that the statement matches.

Its arguments are the table's newest metadata, the id of the snapshot whose live rows count, and the files.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelChanges:
    """The rows that a statement changed or matched.

    Attributes:
        changed: The data files with changed rows, by path.
        tasks: The scan tasks of the data files that were read, by path.
        loader: Reads the positions that delete files delete.
        write_deletes: Writes new delete files: on version 3 a deletion vector for each data file.
        row_origins: The old positions of the rows in rewritten data files, as far as they are known.
    """

    changed: Mapping[str, ChangedFile] = field(repr=False)
    tasks: Mapping[str, ScanTask] = field(repr=False)
    loader: DeleteLoader = field(repr=False)
    write_deletes: WriteDeletes = field(repr=False)
    row_origins: tuple[RowOrigins, ...] = field(default=(), repr=False)

    @property
    def is_known(self) -> bool:
        """True if the positions are known: a statement that changes very many rows does not report them."""
        return all(file.deleted is not None for file in self.changed.values())

    def positions(self, path: str) -> tuple[PositionDeleteIndex, PositionDeleteIndex, PositionDeleteIndex]:
        """Return the positions in a data file that the statement deleted, updated, and matched without a change."""
        file = self.changed[path]
        return decode_positions(file.deleted), decode_positions(file.updated), decode_positions(file.observed)

    def changed_rows(self, path: str) -> PositionDeleteIndex:
        """Return the positions in a data file that the statement deleted or updated."""
        deleted, updated, _ = self.positions(path)
        return deleted.union(updated)

    def observed_rows(self, path: str) -> PositionDeleteIndex:
        """Return the positions in a data file that the statement matched without changing them."""
        return self.positions(path)[2]

    def rows_deleted_before(self, path: str) -> PositionDeleteIndex:
        """Return the positions in a data file that were deleted by position when the statement read it."""
        task = self.tasks[path]
        base = task.position_deletes if task.deletion_vector is None else (task.deletion_vector,)
        return self.loader.positions_in(path, base) if base else PositionDeleteIndex()


def decode_positions(vector: bytes | None) -> PositionDeleteIndex:
    assert vector is not None, "positions are only read if they are known"
    return decode(vector, file="the task's report", cardinality=None)


def referenced_by(delete_files: Iterable[ContentFile]) -> frozenset[str]:
    """Return the paths of the data files to which single delete files are scoped."""
    return frozenset(file.referenced_data_file for file in delete_files if file.referenced_data_file is not None)


class Operation(StrEnum):
    """The `operation` of a snapshot's summary."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The rules for snapshots that were committed since the statement read the table.

    Attributes:
        starting_snapshot_id: The snapshot that the statement read. None if the table had none: then every snapshot
            of the branch is concurrent.
        conflict_filter: Rows that the statement read; files that cannot hold such rows do not conflict.
        partitions: Replaces the filter: exactly these partitions.
        case_sensitive: How names in `conflict_filter` match.
        must_descend: The starting snapshot must be an ancestor of the branch's head.
        new_data_files: No data file that may match was added.
        removed_data_files: No data file that may match was removed.
        removed_rows: No data file that may match was removed by a commit that changes rows.
        new_delete_files: No delete file that may match was added.
        deletes_of_replaced_files: No delete file was added that applies to a data file that this commit replaces.
        referenced_data_files: Paths of the data files that the added delete files point to; they must still exist.
        tolerate_deleted: A referenced file may have been removed by a commit that only deletes.
        added_vectors: Paths of the data files that get a deletion vector; no concurrent commit added one for them.
    """

    starting_snapshot_id: int | None = None
    conflict_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    partitions: tuple[Partition, ...] | None = None
    case_sensitive: bool = False
    must_descend: bool = False
    new_data_files: bool = False
    removed_data_files: bool = False
    removed_rows: bool = False
    new_delete_files: bool = False
    deletes_of_replaced_files: bool = False
    referenced_data_files: frozenset[str] = frozenset()
    tolerate_deleted: bool = False
    added_vectors: frozenset[str] = frozenset()

    @property
    def checks_history(self) -> bool:
        """True if any check examines the snapshots since the start."""
        return (
            self.must_descend
            or self.new_data_files
            or self.removed_data_files
            or self.removed_rows
            or self.new_delete_files
            or self.deletes_of_replaced_files
            or bool(self.referenced_data_files)
            or bool(self.added_vectors)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """The files that a commit adds and removes.

    Attributes:
        operation: The operation for the summary.
        added_data_files: New data files.
        added_delete_files: New delete files.
        removed_data_files: Paths of data files to remove; each must be live.
        removed_delete_files: Keys of delete files to remove.
        listing: The manifests that listed those, if known; others are opened only if files are missing there.
        data_sequence_number: The data sequence number of the added data files; None for that of the commit.
        delete_sequence_numbers: The data sequence numbers of added delete files, by key; others get that of the commit.
        require_removed_delete_files: Each delete file to remove must be live.
        row_filter: Remove the files with rows for which it is TRUE; all rows of such a file must match.
        case_sensitive: How names in `row_filter` match.
        replaced_partitions: Remove all files of these partitions.
        added_manifests: Manifests that list the files of `removed_manifests`, written but not assigned to a snapshot.
        removed_manifests: Manifests to replace; each must be in the branch's head.
        planned_filter: `row_filter` matched whole files when the statement was planned. A partial match is then
            the effect of a concurrent commit.
        merges_manifests: Merge small manifests as the table's properties configure.
        summary: Additional keys for the summary.
        summary_at_start: Keys that are only valid if the snapshot directly follows the one that the statement read.
        rows_deleted: The number of rows that the commit deletes in remaining data files, by path, if known.
        row_level: The changed rows, to reconcile them with concurrent deletes; None compares whole files.
        row_probe: Searches concurrently added data files for rows of the statement. With None, only their metrics
            count.
        validation: The rules for concurrent snapshots.
    """

    operation: Operation
    added_data_files: tuple[ContentFile, ...] = ()
    added_delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    data_sequence_number: int | None = None
    delete_sequence_numbers: Mapping[DeleteFileKey, int] = field(default_factory=dict, repr=False)
    require_removed_delete_files: bool = True
    row_filter: BooleanExpression | None = None
    case_sensitive: bool = False
    replaced_partitions: tuple[Partition, ...] = ()
    added_manifests: tuple[ManifestFile, ...] = ()
    removed_manifests: tuple[ManifestFile, ...] = ()
    planned_filter: bool = False
    merges_manifests: bool = True
    summary: tuple[tuple[str, str], ...] = ()
    summary_at_start: tuple[tuple[str, str], ...] = ()
    rows_deleted: Mapping[str, int] = field(default_factory=dict, repr=False)
    row_level: RowLevelChanges | None = None
    row_probe: RowProbe | None = None
    validation: Validation = field(default_factory=Validation)
