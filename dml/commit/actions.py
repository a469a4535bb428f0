"""The actions of a commit, frozen dataclasses that name files, and their file changes. Driver.

Input: an action. Output: its `FileChanges`, which are the same for all attempts.

=====================  =========================================  =====================================================
action                 committed by                               operation
=====================  =========================================  =====================================================
`AppendFiles`          INSERT, MERGE that only inserts, streams   `append`
`OverwriteFiles`       copy-on-write DELETE, UPDATE, MERGE        `append` where files are only added, `delete` where
                                                                  they are only removed, otherwise `overwrite`
`OverwriteByFilter`    static INSERT OVERWRITE                    likewise
`ReplacePartitions`    dynamic INSERT OVERWRITE                   `overwrite`; a partition is a spec id and a tuple, so
                                                                  files of other specs stay
`DeleteFiles`          metadata DELETE, TRUNCATE                  `delete`, also when nothing is removed; a filter is
                                                                  evaluated again at each attempt
`RowDelta`             merge-on-read DELETE, UPDATE, MERGE        `append` where only data is added, `delete` where only
                                                                  delete files are added, otherwise `overwrite`
`RewriteFiles`         compaction, conversion of deletes          `replace`: tells other writers that no row changed; a
                                                                  conversion that adds delete files is a `delete`
`RewriteManifests`     rewrite_manifests                          `replace`
=====================  =========================================  =====================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit.changes import FileChanges, Operation, RowLevelChanges, RowProbe, Validation, referenced_by
from dml.commit.validation import check_manifests_list_the_same, check_rewrite_replaces_files
from dml.deletes.delete_file_index import partition_key
from dml.model.manifest import ContentFile, DeleteFileKey, Listing, ManifestFile
from dml.model.summary_keys import REPLACE_PARTITIONS, ROW_MAPS, ROWS_DELETED
from dml.options import Command, IsolationLevel

__all__ = [
    "Action",
    "AppendFiles",
    "DeleteFiles",
    "OverwriteByFilter",
    "OverwriteFiles",
    "ReplacePartitions",
    "RewriteFiles",
    "RewriteManifests",
    "RowDelta",
    "changes_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """The rows that a row-level statement read; the commit is validated against concurrent changes of them.

    Attributes:
        conflict_detection_filter: The rows that the statement read.
        starting_snapshot_id: The snapshot that it read; None if the table had none.
        depends_on_rows: True if the result depends on rows of the filter that the statement does not change: under
            serializable isolation, a concurrent removal of such a row is a conflict.
        case_sensitive: How names in the filter match.
        row_probe: Searches concurrently added data files for rows that the statement matches. With None, only their
            metrics count.
    """

    conflict_detection_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    starting_snapshot_id: int | None = None
    depends_on_rows: bool = False
    case_sensitive: bool = False
    row_probe: RowProbe | None = None

    def validation(self, *, serializable: bool) -> Validation:
        """Return the checks that all row-level statements share.

        Args:
            serializable: Concurrent rows that the statement would have matched are a conflict.
        """
        return Validation(
            starting_snapshot_id=self.starting_snapshot_id,
            conflict_filter=self.conflict_detection_filter,
            case_sensitive=self.case_sensitive,
            new_data_files=serializable,
            removed_rows=serializable and self.depends_on_rows,
            new_delete_files=serializable and self.depends_on_rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles(RowsRead):
    """Add data files.

    Attributes:
        data_files: The files. Without any, the snapshot is empty.
        validate_new_data_files: Fail if a data file that may hold rows of `conflict_detection_filter` was added since
            `starting_snapshot_id`: a MERGE that only inserts must not insert a key twice. With `depends_on_rows`,
            concurrent removals of such rows fail too.
        is_fast: Do not merge manifests, so that many small appends stay cheap.
    """

    data_files: tuple[ContentFile, ...] = ()
    validate_new_data_files: bool = False
    is_fast: bool = False


def append_changes(action: AppendFiles) -> FileChanges:
    return FileChanges(
        operation=Operation.APPEND,
        added_data_files=action.data_files,
        merges_manifests=not action.is_fast,
        row_probe=action.row_probe,
        validation=action.validation(serializable=action.validate_new_data_files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteFiles(RowsRead):
    """Replace data files that a statement has read.

    Attributes:
        data_files: New data files.
        removed_data_files: Paths of the files that they replace; each must still be live.
        removed_delete_files: Keys of delete files to remove with them. Deletion vectors of removed data files are
            always removed.
        listing: The manifests that listed all of these, if known; other manifests are then not opened.
        isolation_level: The isolation level of the command.
        row_level: The changed rows, to reconcile them with concurrent deletes; None compares whole files.
    """

    data_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    isolation_level: IsolationLevel = IsolationLevel.SERIALIZABLE
    row_level: RowLevelChanges | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteByFilter:
    """Replace all rows of a filter.

    Attributes:
        data_files: New data files.
        row_filter: Remove the files whose rows all match; a file of which only some rows match is an error.
        starting_snapshot_id: Validate against snapshots after this one; None means all.
        isolation_level: The isolation level to validate for; None skips validation.
        reads_table: True if the new rows derive from rows of the table: validation then covers the whole table.
        case_sensitive: How names in the filter match.
    """

    data_files: tuple[ContentFile, ...] = ()
    row_filter: BooleanExpression
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel | None = None
    reads_table: bool = False
    case_sensitive: bool = False


def overwrite_changes(action: OverwriteFiles) -> FileChanges:
    serializable = action.isolation_level is IsolationLevel.SERIALIZABLE
    return FileChanges(
        operation=operation_of(adds=bool(action.data_files), removes=bool(action.removed_data_files)),
        added_data_files=action.data_files,
        removed_data_files=action.removed_data_files,
        removed_delete_files=action.removed_delete_files,
        listing=action.listing,
        row_level=action.row_level,
        row_probe=action.row_probe,
        validation=replace(
            action.validation(serializable=serializable),
            deletes_of_replaced_files=bool(action.removed_data_files),
        ),
    )


def overwrite_by_filter_changes(action: OverwriteByFilter) -> FileChanges:
    return FileChanges(
        operation=operation_of(adds=bool(action.data_files), removes=True),
        added_data_files=action.data_files,
        row_filter=action.row_filter,
        case_sensitive=action.case_sensitive,
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            conflict_filter=AlwaysTrue() if action.reads_table else action.row_filter,
            case_sensitive=action.case_sensitive,
            new_data_files=action.isolation_level is IsolationLevel.SERIALIZABLE,
            new_delete_files=action.isolation_level is not None,
            removed_data_files=action.isolation_level is not None,
        ),
    )


def operation_of(*, adds: bool, removes: bool) -> Operation:
    if adds and not removes:
        return Operation.APPEND
    return Operation.DELETE if removes and not adds else Operation.OVERWRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePartitions:
    """Replace the partitions of the new files.

    Attributes:
        data_files: New data files; without any there is nothing to commit.
        starting_snapshot_id: Validate against snapshots after this one; None means all.
        isolation_level: The isolation level to validate for; None skips validation.
        reads_table: True if the new rows derive from rows of the table: validation then covers the whole table.
    """

    data_files: tuple[ContentFile, ...]
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel | None = None
    reads_table: bool = False


def replace_changes(action: ReplacePartitions) -> FileChanges:
    found = {partition_key(file.spec_id, file.partition): (file.spec_id, file.partition) for file in action.data_files}
    partitions = tuple(found.values())
    return FileChanges(
        operation=Operation.OVERWRITE,
        added_data_files=action.data_files,
        replaced_partitions=partitions,
        summary=((REPLACE_PARTITIONS, "true"),),
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            partitions=None if action.reads_table else partitions,
            new_data_files=action.isolation_level is IsolationLevel.SERIALIZABLE,
            new_delete_files=action.isolation_level is not None,
            removed_data_files=action.isolation_level is not None,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFiles:
    """Remove data files, by a filter or by path.

    Attributes:
        row_filter: Remove the files whose rows all match; a file of which only some rows match is an error.
        paths: Remove these files; each must be live.
        listing: The manifests that listed the files at `paths`, if known.
        case_sensitive: How names in the filter match.
        starting_snapshot_id: The snapshot that the statement read.
        rows_deleted: The live rows of the files at that snapshot; None if metadata does not determine it.
    """

    row_filter: BooleanExpression | None = None
    paths: frozenset[str] = frozenset()
    listing: Listing | None = None
    case_sensitive: bool = False
    starting_snapshot_id: int | None = None
    rows_deleted: int | None = None


def delete_changes(action: DeleteFiles) -> FileChanges:
    return FileChanges(
        operation=Operation.DELETE,
        removed_data_files=action.paths,
        listing=action.listing,
        row_filter=action.row_filter,
        case_sensitive=action.case_sensitive,
        planned_filter=True,
        # Only at the start: after a concurrent commit the filter may match other files than those that were counted.
        summary_at_start=() if action.rows_deleted is None else ((ROWS_DELETED, str(action.rows_deleted)),),
        validation=Validation(starting_snapshot_id=action.starting_snapshot_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta(RowsRead):
    """Delete rows by position and add rows.

    Attributes:
        command: The command: a DELETE has fewer conflicts than an UPDATE or a MERGE.
        data_files: New data files.
        delete_files: New position delete files or deletion vectors.
        rewritten_delete_files: Keys of delete files to remove because their deletes are merged into `delete_files`.
        removed_data_files: Paths of data files to remove.
        listing: The manifests that listed the removed files, if known; other manifests are then not opened.
        referenced_data_files: Paths of the data files that `delete_files` point to.
        isolation_level: The isolation level of the command.
        rows_deleted: The number of deleted rows per data file, if known.
        row_level: The deleted rows, to reconcile them with concurrent deletes; None compares whole files.
    """

    command: Command
    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    rewritten_delete_files: frozenset[DeleteFileKey] = frozenset()
    removed_data_files: frozenset[str] = frozenset()
    listing: Listing | None = None
    referenced_data_files: frozenset[str] = frozenset()
    isolation_level: IsolationLevel = IsolationLevel.SERIALIZABLE
    rows_deleted: Mapping[str, int] = field(default_factory=dict, repr=False)
    row_level: RowLevelChanges | None = None


def row_delta_changes(action: RowDelta) -> FileChanges:
    serializable = action.isolation_level is IsolationLevel.SERIALIZABLE
    only_deletes = action.command is Command.DELETE
    validation = action.validation(serializable=serializable)
    return FileChanges(
        operation=delta_operation(action),
        added_data_files=action.data_files,
        added_delete_files=action.delete_files,
        removed_data_files=action.removed_data_files,
        removed_delete_files=action.rewritten_delete_files,
        listing=action.listing,
        # Two DELETEs may merge the same old position delete file: both new files contain its deletes.
        require_removed_delete_files=not only_deletes,
        rows_deleted=action.rows_deleted,
        row_level=action.row_level,
        row_probe=action.row_probe,
        validation=replace(
            validation,
            must_descend=True,
            new_delete_files=validation.new_delete_files or not only_deletes,
            referenced_data_files=action.referenced_data_files | referenced_by(action.delete_files),
            tolerate_deleted=only_deletes,
            deletes_of_replaced_files=bool(action.removed_data_files),
            added_vectors=referenced_by(file for file in action.delete_files if file.is_deletion_vector),
        ),
    )


def delta_operation(action: RowDelta) -> Operation:
    if action.data_files and not action.delete_files and not action.removed_data_files:
        return Operation.APPEND
    if action.delete_files and not action.data_files:
        return Operation.DELETE
    return Operation.OVERWRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files with others that hold the same rows or the same deletes.

    Attributes:
        data_files: New data files: the live rows of the removed ones.
        delete_files: New position delete files or deletion vectors: the deletes of the removed delete files, and those
            in the removed data files that the new ones still hold.
        removed_data_files: Paths of the data files that they replace; each must still be live.
        removed_delete_files: Keys of delete files that are replaced or no longer needed; each must still be live.
            Deletion vectors of removed data files are always removed.
        listing: The manifests that listed all of these, if known; other manifests are then not opened.
        data_sequence_number: The data sequence number of the new data files, usually that of the snapshot that was
            read. With None they get that of the commit, and concurrent equality deletes are a conflict.
        delete_sequence_numbers: The data sequence numbers of new delete files, by key; others get that of the commit.
        starting_snapshot_id: The snapshot whose rows were read.
        row_level: The removed data files, without changed rows, and the origins of the rows of the new ones: rows that
            others have deleted meanwhile are then deleted in the new files. With None, such a delete is a conflict.
        has_row_maps: True if the new data files have row maps in their footers.
        referenced_data_files: Paths of the data files that `delete_files` point to, if a delete file covers several.
        operation: The operation. A conversion of equality deletes is a `delete`: a compaction of another engine that
            began before counts on the equality deletes, and looks for new delete files in such snapshots only.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    data_sequence_number: int | None = None
    delete_sequence_numbers: Mapping[DeleteFileKey, int] = field(default_factory=dict, repr=False)
    starting_snapshot_id: int | None = None
    row_level: RowLevelChanges | None = None
    has_row_maps: bool = False
    referenced_data_files: frozenset[str] = frozenset()
    operation: Operation = Operation.REPLACE


def rewrite_changes(action: RewriteFiles) -> FileChanges:
    """Check a rewrite and return its changes.

    Raises:
        ValidationFailedError: The rewrite adds data or delete files but removes none.
    """
    new = {file.path for file in action.data_files}
    changes = FileChanges(
        operation=action.operation,
        added_data_files=action.data_files,
        added_delete_files=action.delete_files,
        removed_data_files=action.removed_data_files,
        removed_delete_files=action.removed_delete_files,
        listing=action.listing,
        data_sequence_number=action.data_sequence_number,
        row_level=action.row_level,
        summary=((ROW_MAPS, "footer"),) if action.has_row_maps else (),
        delete_sequence_numbers=action.delete_sequence_numbers,
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            # If the branch was set back, delete files that are not needed in the newer snapshot may be needed again.
            must_descend=not action.removed_data_files and action.starting_snapshot_id is not None,
            deletes_of_replaced_files=bool(action.removed_data_files),
            referenced_data_files=(action.referenced_data_files | referenced_by(action.delete_files)) - new,
            added_vectors=referenced_by(file for file in action.delete_files if file.is_deletion_vector) - new,
        ),
    )
    check_rewrite_replaces_files(changes)
    return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteManifests:
    """Replace manifests with others that list the same files, with the same sequence numbers and row ids.

    Attributes:
        manifests: The new manifests, as `ManifestWriter.write_existing` returns them. The caller deletes them if the
            commit fails.
        removed_manifests: The manifests that they replace. Manifests that others add meanwhile stay.
    """

    manifests: tuple[ManifestFile, ...]
    removed_manifests: tuple[ManifestFile, ...]


def manifest_changes(action: RewriteManifests) -> FileChanges:
    """Check a rewrite of manifests and return its changes.

    Raises:
        ValidationFailedError: The new manifests list more or fewer files or rows.
    """
    check_manifests_list_the_same(action.manifests, action.removed_manifests)
    return FileChanges(
        operation=Operation.REPLACE,
        added_manifests=action.manifests,
        removed_manifests=action.removed_manifests,
        merges_manifests=False,
    )


Action = (
    AppendFiles
    | DeleteFiles
    | OverwriteFiles
    | OverwriteByFilter
    | ReplacePartitions
    | RewriteFiles
    | RewriteManifests
    | RowDelta
)
"""An action that `commit` takes."""


def changes_of(action: Action) -> FileChanges:
    """Return the file changes of an action.

    Raises:
        ValidationFailedError: The action contradicts itself.
    """
    match action:
        case AppendFiles():
            return append_changes(action)
        case DeleteFiles():
            return delete_changes(action)
        case OverwriteFiles():
            return overwrite_changes(action)
        case OverwriteByFilter():
            return overwrite_by_filter_changes(action)
        case ReplacePartitions():
            return replace_changes(action)
        case RewriteFiles():
            return rewrite_changes(action)
        case RewriteManifests():
            return manifest_changes(action)
        case RowDelta():
            return row_delta_changes(action)
        case _:
            assert_never(action)
