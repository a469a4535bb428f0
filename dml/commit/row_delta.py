"""RowDelta: delete files and data files in one snapshot. Merge-on-read DELETE, UPDATE, MERGE. Driver.

Input: the action. Output: its `FileChanges`. Rules: `append` where only data is added, `delete` where only delete files
are added, otherwise `overwrite`, also when nothing changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit.changes import FileChanges, Operation, Validation
from dml.commit.row_level_changes import RowLevelChanges, RowProbe
from dml.model.content_file import ContentFile
from dml.model.listing import DeleteFileKey, Listing
from dml.options import Command, IsolationLevel

__all__ = ["RowDelta", "row_delta_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta:
    """Delete rows by position and add rows.

    Attributes:
        command: Which command it is: a DELETE has fewer conflicts than an UPDATE or a MERGE.
        data_files: New data files.
        delete_files: New position delete files or deletion vectors.
        rewritten_delete_files: Keys of delete files that `delete_files` hold merged; they are removed.
        removed_data_files: Paths of data files to remove.
        listing: Where the files that are removed were listed, if known: so other manifests need not be opened.
        referenced_data_files: Paths of the data files that `delete_files` point to.
        conflict_detection_filter: Rows that the statement read.
        starting_snapshot_id: The snapshot that it read; None where the table had none.
        isolation_level: Of the command.
        rests_on_rows: Whether the result rests on rows of the filter that the statement leaves as they are: under
            serializable isolation no other commit may have taken one away.
        case_sensitive: How names in the filter match.
        rows_deleted: How many rows are deleted, by data file, if known.
        row_level: The rows that are deleted, to stand beside concurrent deletes of others; None judges by files.
        row_probe: Asks new data files of others for rows that the statement matches; None goes by their metrics.
    """

    command: Command
    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    rewritten_delete_files: frozenset[DeleteFileKey] = frozenset()
    removed_data_files: frozenset[str] = frozenset()
    listing: Listing | None = None
    referenced_data_files: frozenset[str] = frozenset()
    conflict_detection_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel = IsolationLevel.SERIALIZABLE
    rests_on_rows: bool = False
    case_sensitive: bool = False
    rows_deleted: Mapping[str, int] = field(default_factory=dict, repr=False)
    row_level: RowLevelChanges | None = None
    row_probe: RowProbe | None = None


def row_delta_changes(action: RowDelta) -> FileChanges:
    """The changes of a `RowDelta`."""
    serializable = action.isolation_level is IsolationLevel.SERIALIZABLE
    only_deletes = action.command is Command.DELETE
    referenced = action.referenced_data_files | {
        file.referenced_data_file for file in action.delete_files if file.referenced_data_file is not None
    }
    return FileChanges(
        operation=_operation(action),
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
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            conflict_filter=action.conflict_detection_filter,
            case_sensitive=action.case_sensitive,
            must_descend=True,
            new_data_files=serializable,
            removed_rows=serializable and action.rests_on_rows,
            new_delete_files=not only_deletes or (serializable and action.rests_on_rows),
            referenced_data_files=frozenset(referenced),
            tolerate_deleted=only_deletes,
            deletes_of_replaced_files=bool(action.removed_data_files),
            added_vectors=frozenset(
                file.referenced_data_file
                for file in action.delete_files
                if file.is_deletion_vector and file.referenced_data_file is not None
            ),
        ),
    )


def _operation(action: RowDelta) -> Operation:
    if action.data_files and not action.delete_files and not action.removed_data_files:
        return Operation.APPEND
    if action.delete_files and not action.data_files:
        return Operation.DELETE
    return Operation.OVERWRITE
