"""AppendFiles: new data files beside all that is there. INSERT, and MERGE that only inserts. Driver.

Input: the action. Output: its `FileChanges`. Rules: operation `append`, nothing is validated unless asked for.
"""

from dataclasses import dataclass, field

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit.changes import FileChanges, Operation, Validation
from dml.commit.row_level_changes import RowProbe
from dml.model.content_file import ContentFile

__all__ = ["AppendFiles", "append_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add data files.

    Attributes:
        data_files: The files; may be empty, the snapshot is then as well.
        validate_new_data_files: Fail where a data file that may hold rows of `conflict_detection_filter` was added
            since `starting_snapshot_id`: a MERGE that only inserts must not insert a key twice.
        rests_on_rows: Whether the files rest on rows of the filter: if so, nobody may have taken one away either.
        conflict_detection_filter: What the statement read.
        starting_snapshot_id: The snapshot that it read.
        case_sensitive: How names in the filter match.
        row_probe: Asks new data files of others for rows that the statement matches; None goes by their metrics.
    """

    data_files: tuple[ContentFile, ...] = ()
    validate_new_data_files: bool = False
    rests_on_rows: bool = False
    conflict_detection_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    starting_snapshot_id: int | None = None
    case_sensitive: bool = False
    row_probe: RowProbe | None = None


def append_changes(action: AppendFiles) -> FileChanges:
    """The changes of an `AppendFiles`."""
    return FileChanges(
        operation=Operation.APPEND,
        added_data_files=action.data_files,
        row_probe=action.row_probe,
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            conflict_filter=action.conflict_detection_filter,
            case_sensitive=action.case_sensitive,
            new_data_files=action.validate_new_data_files,
            removed_rows=action.validate_new_data_files and action.rests_on_rows,
            new_delete_files=action.validate_new_data_files and action.rests_on_rows,
        ),
    )
