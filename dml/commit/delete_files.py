"""DeleteFiles: data files leave the table, none is written. Metadata DELETE, TRUNCATE. Driver.

Input: the action. Output: its `FileChanges`. Rules: operation `delete`, also when nothing is removed; a filter is
evaluated again on the newest state at each attempt, so nothing else is validated.
"""

from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression

from dml.commit.changes import FileChanges, Operation
from dml.model.listing import Listing

__all__ = ["DeleteFiles", "delete_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFiles:
    """Remove data files, by a filter or by path.

    Attributes:
        row_filter: Remove every file all of whose rows match; a file of which some rows match is an error.
        paths: Remove these files; each has to be live.
        listing: Where the files at `paths` were listed, if known.
        case_sensitive: How names in the filter match.
    """

    row_filter: BooleanExpression | None = None
    paths: frozenset[str] = frozenset()
    listing: Listing | None = None
    case_sensitive: bool = False


def delete_changes(action: DeleteFiles) -> FileChanges:
    """The changes of a `DeleteFiles`."""
    return FileChanges(
        operation=Operation.DELETE,
        removed_data_files=action.paths,
        listing=action.listing,
        row_filter=action.row_filter,
        case_sensitive=action.case_sensitive,
        planned_filter=True,
    )
