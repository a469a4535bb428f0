"""OverwriteFiles and OverwriteByFilter: data files replace data files. Copy-on-write, static INSERT OVERWRITE. Driver.

Input: the action. Output: its `FileChanges`. Rules: `append` where files are only added, `delete` where they are only
removed, otherwise `overwrite`, also when nothing changes.
"""

from dataclasses import dataclass, field

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit.changes import FileChanges, Operation, Validation
from dml.commit.row_level_changes import RowLevelChanges, RowProbe
from dml.model.content_file import ContentFile
from dml.model.listing import DeleteFileKey, Listing
from dml.options import IsolationLevel

__all__ = ["OverwriteByFilter", "OverwriteFiles", "overwrite_by_filter_changes", "overwrite_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteFiles:
    """Replace data files that a statement has read.

    Attributes:
        data_files: New data files.
        removed_data_files: Paths of the files that they replace; each has to be live still.
        removed_delete_files: Keys of delete files that go with them. Deletion vectors of removed data files are
            removed in any case.
        listing: Where all of these were listed, if known: so other manifests need not be opened.
        conflict_detection_filter: Rows that the statement read.
        starting_snapshot_id: The snapshot that it read; None where the table had none.
        isolation_level: Of the command.
        rests_on_rows: Whether the result rests on rows of the filter that the statement leaves as they are: under
            serializable isolation no other commit may have taken one away.
        case_sensitive: How names in the filter match.
        row_level: The rows that are changed, to stand beside concurrent deletes of others; None judges by files.
        row_probe: Asks new data files of others for rows that the statement matches; None goes by their metrics.
    """

    data_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    conflict_detection_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel = IsolationLevel.SERIALIZABLE
    rests_on_rows: bool = False
    case_sensitive: bool = False
    row_level: RowLevelChanges | None = None
    row_probe: RowProbe | None = None


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
        operation=_operation(adds=bool(action.data_files), removes=bool(action.removed_data_files)),
        added_data_files=action.data_files,
        removed_data_files=action.removed_data_files,
        removed_delete_files=action.removed_delete_files,
        listing=action.listing,
        row_level=action.row_level,
        row_probe=action.row_probe,
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            conflict_filter=action.conflict_detection_filter,
            case_sensitive=action.case_sensitive,
            new_data_files=serializable,
            removed_rows=serializable and action.rests_on_rows,
            new_delete_files=serializable and action.rests_on_rows,
            deletes_of_replaced_files=bool(action.removed_data_files),
        ),
    )


def overwrite_by_filter_changes(action: OverwriteByFilter) -> FileChanges:
    """The changes of an `OverwriteByFilter`."""
    return FileChanges(
        operation=_operation(adds=bool(action.data_files), removes=True),
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


def _operation(*, adds: bool, removes: bool) -> Operation:
    if adds and not removes:
        return Operation.APPEND
    return Operation.DELETE if removes and not adds else Operation.OVERWRITE
