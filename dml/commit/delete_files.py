"""DeleteFiles: data files leave the table, none is written. Metadata DELETE, TRUNCATE. Driver.

Input: the action. Output: its `FileChanges`. Rules: operation `delete`, also when nothing is removed; a filter is
evaluated again on the newest state at each attempt, so nothing else is validated.
"""

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression

from dml.commit.changes import FileChanges, Operation, Validation
from dml.model.listing import Listing
from dml.model.summary_keys import ROWS_DELETED

__all__ = ["DeleteFiles", "delete_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFiles:
    """Remove data files, by a filter or by path.

    Attributes:
        row_filter: Remove every file all of whose rows match; a file of which some rows match is an error.
        paths: Remove these files; each has to be live.
        listing: Where the files at `paths` were listed, if known.
        case_sensitive: How names in the filter match.
        starting_snapshot_id: The snapshot that the statement read.
        rows_deleted: Live rows of the files as they were then; None where metadata does not tell.
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
