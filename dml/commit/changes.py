"""What a commit does to a table's files, whatever the statement: the common denominator of all actions. Driver.

Input: made of an action; `RowLevelChanges`, the single rows that a statement changed, by the engine. Output: read by
the snapshot producer and the checks. Without `RowLevelChanges` a commit follows the rules for whole files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.metadata import TableMetadata

from dml.deletes.deletion_vector import decode
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.manifest import ContentFile, DeleteFileKey, Listing, Partition
from dml.model.scan_task import FileDeletes, ScanTask
from dml.model.write_task import ChangedFile, RowOrigins
from dml.read.applied_deletes import DeleteLoader

__all__ = ["FileChanges", "Operation", "RowLevelChanges", "RowProbe", "Validation"]


WriteDeletes = Callable[[Sequence[FileDeletes]], tuple[ContentFile, ...]]

RowProbe = Callable[[TableMetadata, int, Sequence[ContentFile]], bool]
"""Whether data files that others added hold a row that the statement matches.

From the table as it is now, the snapshot whose live rows count, and the files; True also where it is not known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelChanges:
    """The rows that a statement changed and looked at.

    Attributes:
        changed: The data files with changed rows, by path.
        tasks: The data files that were read, by path, with the delete files that applied.
        loader: Reads the positions that delete files delete.
        write_deletes: Writes new delete files: on version 3 a deletion vector for each data file.
        row_origins: Where the rows of new data files that replace others were, as far as that is known.
    """

    changed: Mapping[str, ChangedFile] = field(repr=False)
    tasks: Mapping[str, ScanTask] = field(repr=False)
    loader: DeleteLoader = field(repr=False)
    write_deletes: WriteDeletes = field(repr=False)
    row_origins: tuple[RowOrigins, ...] = field(default=(), repr=False)

    @property
    def is_known(self) -> bool:
        """Whether the positions are known: a statement that changes very many rows does not report them."""
        return all(file.deleted is not None for file in self.changed.values())

    def changed_rows(self, path: str) -> PositionDeleteIndex:
        """The rows of a data file that the statement deleted or updated."""
        file = self.changed[path]
        return decoded(file.deleted).union(decoded(file.updated))

    def observed_rows(self, path: str) -> PositionDeleteIndex:
        """The rows of a data file that it matched and left alone."""
        return decoded(self.changed[path].observed)

    def rows_deleted_before(self, path: str) -> PositionDeleteIndex:
        """The rows of a data file that were deleted by position when the statement read it."""
        task = self.tasks[path]
        base = task.position_deletes if task.deletion_vector is None else (task.deletion_vector,)
        return self.loader.positions_in(path, base) if base else PositionDeleteIndex()


def decoded(vector: bytes | None) -> PositionDeleteIndex:
    assert vector is not None, "positions are asked for only where they are known"
    return decode(vector, file="the task's report", cardinality=None)


class Operation(StrEnum):
    """`operation` of a snapshot's summary."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What has to hold of the snapshots that were committed since the statement read the table.

    Attributes:
        starting_snapshot_id: The snapshot that the statement read; None where the table had none: then every snapshot
            of the branch is a concurrent one.
        conflict_filter: Rows that the statement read; files that cannot hold such rows do not conflict.
        partitions: Instead of the filter: exactly these partitions.
        case_sensitive: How names in `conflict_filter` match.
        must_descend: The starting snapshot has to be an ancestor of the branch's head.
        new_data_files: No data file that may match was added.
        removed_data_files: No data file that may match was removed.
        removed_rows: No data file that may match was removed by a commit that changes rows.
        new_delete_files: No delete file that may match was added.
        deletes_of_replaced_files: No delete file was added that applies to a data file which this commit replaces.
        referenced_data_files: Paths of the data files that the added delete files point to; they have to be there.
        tolerate_deleted: A referenced file may have been removed by a commit that only deletes.
        added_vectors: Paths of the data files that get a deletion vector; no other one was added for them.
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
        """Whether any check looks at the snapshots since the start."""
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
    """Files to add and to remove.

    Attributes:
        operation: Value for the summary.
        added_data_files: New data files.
        added_delete_files: New delete files.
        removed_data_files: Paths of data files to remove; each has to be live.
        removed_delete_files: Keys of delete files to remove.
        listing: Where those were listed, if known: other manifests are opened only if files are not there any more.
        data_sequence_number: Of the added data files; None for that of the commit.
        require_removed_delete_files: Whether each of those has to be live.
        row_filter: Remove all files of rows for which it is true; every row of such a file has to match.
        case_sensitive: How names in `row_filter` match.
        replaced_partitions: Remove all files of these partitions.
        planned_filter: Whether `row_filter` matched whole files when the statement was planned: where it does not any
            more, another commit came first.
        merges_manifests: Whether small manifests are merged, as the table's properties say.
        summary: Further keys for the summary.
        summary_at_start: Those that are true only where the snapshot follows the one that the statement read.
        rows_deleted: How many rows the commit deletes in data files that stay, by path, if known.
        row_level: The single rows that the commit is about; None judges the deletes of others by whole files.
        row_probe: Asks new data files of others for rows of the statement; None judges them by their metrics.
        validation: What has to hold.
    """

    operation: Operation
    added_data_files: tuple[ContentFile, ...] = ()
    added_delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    data_sequence_number: int | None = None
    require_removed_delete_files: bool = True
    row_filter: BooleanExpression | None = None
    case_sensitive: bool = False
    replaced_partitions: tuple[Partition, ...] = ()
    planned_filter: bool = False
    merges_manifests: bool = True
    summary: tuple[tuple[str, str], ...] = ()
    summary_at_start: tuple[tuple[str, str], ...] = ()
    rows_deleted: Mapping[str, int] = field(default_factory=dict, repr=False)
    row_level: RowLevelChanges | None = None
    row_probe: RowProbe | None = None
    validation: Validation = field(default_factory=Validation)
