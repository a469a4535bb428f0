"""What a commit can do, each as a frozen dataclass that names files, and what it comes to. Driver.

Input: an action. Output: its `FileChanges`; an action knows nothing of attempts.

=====================  =========================================  =====================================================
action                 who commits it                             operation
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
`RewriteFiles`         compaction                                 `replace`: says to all others that no row changed
=====================  =========================================  =====================================================
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit.changes import FileChanges, Operation, RowLevelChanges, RowProbe, Validation
from dml.commit.validation import check_rewrite_replaces_files
from dml.deletes.delete_file_index import partition_key
from dml.model.manifest import ContentFile, DeleteFileKey, Listing
from dml.model.summary_keys import ROWS_DELETED
from dml.options import Command, IsolationLevel

__all__ = [
    "Action",
    "AppendFiles",
    "DeleteFiles",
    "OverwriteByFilter",
    "OverwriteFiles",
    "ReplacePartitions",
    "RewriteFiles",
    "RowDelta",
    "changes_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """What a row-level statement read of the table: its commit is validated against the changes of others by it.

    Attributes:
        conflict_detection_filter: The rows that it read.
        starting_snapshot_id: The snapshot that it read; None where the table had none.
        rests_on_rows: Whether the result rests on rows of the filter that the statement leaves as they are: under
            serializable isolation no other commit may have taken one away.
        case_sensitive: How names in the filter match.
        row_probe: Asks new data files of others for rows that the statement matches; None goes by their metrics.
    """

    conflict_detection_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    starting_snapshot_id: int | None = None
    rests_on_rows: bool = False
    case_sensitive: bool = False
    row_probe: RowProbe | None = None

    def validation(self, *, serializable: bool) -> Validation:
        """What is validated for all of these statements.

        Args:
            serializable: Whether rows of others that the statement would have met are a conflict.
        """
        return Validation(
            starting_snapshot_id=self.starting_snapshot_id,
            conflict_filter=self.conflict_detection_filter,
            case_sensitive=self.case_sensitive,
            new_data_files=serializable,
            removed_rows=serializable and self.rests_on_rows,
            new_delete_files=serializable and self.rests_on_rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles(RowsRead):
    """Add data files.

    Attributes:
        data_files: The files; may be empty, the snapshot is then as well.
        validate_new_data_files: Fail where a data file that may hold rows of `conflict_detection_filter` was added
            since `starting_snapshot_id`: a MERGE that only inserts must not insert a key twice. Where the files rest on
            rows of the filter, nobody may have taken one away either.
        is_fast: Whether manifests are left as they are: many small appends do not wait for a merge.
    """

    data_files: tuple[ContentFile, ...] = ()
    validate_new_data_files: bool = False
    is_fast: bool = False


def append_changes(action: AppendFiles) -> FileChanges:
    """The changes of an `AppendFiles`."""
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
        removed_data_files: Paths of the files that they replace; each has to be live still.
        removed_delete_files: Keys of delete files that go with them. Deletion vectors of removed data files are
            removed in any case.
        listing: Where all of these were listed, if known: so other manifests need not be opened.
        isolation_level: Of the command.
        row_level: The rows that are changed, to stand beside concurrent deletes of others; None judges by files.
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
        row_filter: Remove every file all of whose rows match; a file of which some rows match is an error.
        starting_snapshot_id: Validate against snapshots after this one; None means all.
        isolation_level: What to validate; None for nothing.
        reads_table: Whether the new rows were made of rows of the table: what is validated then concerns all of it.
        case_sensitive: How names in the filter match.
    """

    data_files: tuple[ContentFile, ...] = ()
    row_filter: BooleanExpression
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel | None = None
    reads_table: bool = False
    case_sensitive: bool = False


def overwrite_changes(action: OverwriteFiles) -> FileChanges:
    """The changes of an `OverwriteFiles`."""
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
    """The changes of an `OverwriteByFilter`."""
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
        isolation_level: What to validate; None for nothing.
        reads_table: Whether the new rows were made of rows of the table: what is validated then concerns all of it.
    """

    data_files: tuple[ContentFile, ...]
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel | None = None
    reads_table: bool = False


def replace_changes(action: ReplacePartitions) -> FileChanges:
    """The changes of a `ReplacePartitions`."""
    found = {partition_key(file.spec_id, file.partition): (file.spec_id, file.partition) for file in action.data_files}
    partitions = tuple(found.values())
    return FileChanges(
        operation=Operation.OVERWRITE,
        added_data_files=action.data_files,
        replaced_partitions=partitions,
        summary=(("replace-partitions", "true"),),
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
        row_filter: Remove every file all of whose rows match; a file of which some rows match is an error.
        paths: Remove these files; each has to be live.
        listing: Where the files at `paths` were listed, if known.
        case_sensitive: How names in the filter match.
        starting_snapshot_id: The snapshot that the statement read.
        rows_deleted: Live rows of the files as they were then; None where metadata does not say.
    """

    row_filter: BooleanExpression | None = None
    paths: frozenset[str] = frozenset()
    listing: Listing | None = None
    case_sensitive: bool = False
    starting_snapshot_id: int | None = None
    rows_deleted: int | None = None


def delete_changes(action: DeleteFiles) -> FileChanges:
    """The changes of a `DeleteFiles`."""
    return FileChanges(
        operation=Operation.DELETE,
        removed_data_files=action.paths,
        listing=action.listing,
        row_filter=action.row_filter,
        case_sensitive=action.case_sensitive,
        planned_filter=True,
        # After a commit of others the filter may meet other files than those that were counted.
        summary_at_start=() if action.rows_deleted is None else ((ROWS_DELETED, str(action.rows_deleted)),),
        validation=Validation(starting_snapshot_id=action.starting_snapshot_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta(RowsRead):
    """Delete rows by position and add rows.

    Attributes:
        command: Which command it is: a DELETE has fewer conflicts than an UPDATE or a MERGE.
        data_files: New data files.
        delete_files: New position delete files or deletion vectors.
        rewritten_delete_files: Keys of delete files that `delete_files` hold merged; they are removed.
        removed_data_files: Paths of data files to remove.
        listing: Where the files that are removed were listed, if known: so other manifests need not be opened.
        referenced_data_files: Paths of the data files that `delete_files` point to.
        isolation_level: Of the command.
        rows_deleted: How many rows are deleted, by data file, if known.
        row_level: The rows that are deleted, to stand beside concurrent deletes of others; None judges by files.
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
    """The changes of a `RowDelta`."""
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
        # Two DELETEs that merged the same old position delete file are both right: what it held is in both new ones.
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


def referenced_by(delete_files: Iterable[ContentFile]) -> frozenset[str]:
    """Paths of the data files that delete files name as theirs alone."""
    return frozenset(file.referenced_data_file for file in delete_files if file.referenced_data_file is not None)


def delta_operation(action: RowDelta) -> Operation:
    if action.data_files and not action.delete_files and not action.removed_data_files:
        return Operation.APPEND
    if action.delete_files and not action.data_files:
        return Operation.DELETE
    return Operation.OVERWRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files by others that hold the same rows, or the same deletes.

    Attributes:
        data_files: New data files: the live rows of the removed ones.
        delete_files: New position delete files or deletion vectors: what the removed delete files deleted.
        removed_data_files: Paths of the data files that they replace; each has to be live still.
        removed_delete_files: Keys of the delete files that they replace, or that nothing needs any more; each has to be
            live still. Deletion vectors of removed data files are removed in any case.
        listing: Where all of these were listed, if known: so other manifests need not be opened.
        data_sequence_number: The data sequence number of the new data files, usually that of the snapshot that was
            read; None for that of the commit: then equality deletes that came since are a conflict.
        starting_snapshot_id: The snapshot whose rows were read.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    data_sequence_number: int | None = None
    starting_snapshot_id: int | None = None


def rewrite_changes(action: RewriteFiles) -> FileChanges:
    """The changes of a `RewriteFiles`.

    Raises:
        ValidationFailedError: files are added that replace none of their kind.
    """
    changes = FileChanges(
        operation=Operation.REPLACE,
        added_data_files=action.data_files,
        added_delete_files=action.delete_files,
        removed_data_files=action.removed_data_files,
        removed_delete_files=action.removed_delete_files,
        listing=action.listing,
        data_sequence_number=action.data_sequence_number,
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            deletes_of_replaced_files=bool(action.removed_data_files),
            referenced_data_files=referenced_by(action.delete_files),
            added_vectors=referenced_by(file for file in action.delete_files if file.is_deletion_vector),
        ),
    )
    check_rewrite_replaces_files(changes)
    return changes


Action = AppendFiles | DeleteFiles | OverwriteFiles | OverwriteByFilter | ReplacePartitions | RewriteFiles | RowDelta
"""What a commit can do."""


def changes_of(action: Action) -> FileChanges:
    """What an action comes to.

    Raises:
        ValidationFailedError: it contradicts itself.
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
        case RowDelta():
            return row_delta_changes(action)
        case _:
            assert_never(action)
