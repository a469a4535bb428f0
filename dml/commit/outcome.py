"""What became of a commit whose answer is an error. Driver.

Input: the error that the catalog raised. Output: one of three: the race was lost and it may be tried again, it was
refused for good, or nobody knows: then only the table itself can show it.
"""

from enum import Enum

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Identifier

from dml.commit.window import walk_back
from dml.errors import DmlError
from dml.iceberg import taken_numbers
from dml.options import CommitOptions
from dml.retry import status_checks

__all__ = ["CommitOutcome", "find_commit", "is_another_table", "outcome_of", "was_outrun"]


class CommitOutcome(Enum):
    """What an error says about a commit: another one landed first, the catalog refused it, or it may have landed."""

    LOST = "lost"
    REFUSED = "refused"
    UNKNOWN = "unknown"


# The catalog looked at the request and did not take it; or it was not asked, because its new metadata was not written.
REFUSALS = (
    AuthorizationExpiredError,
    BadRequestError,
    DmlError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TooManyRequestsError,
    UnauthorizedError,
)


def outcome_of(error: Exception) -> CommitOutcome:
    """What an error means; whatever is not known to be harmless may have been raised after the commit."""
    if isinstance(error, CommitFailedException):
        return CommitOutcome.LOST
    return CommitOutcome.REFUSED if isinstance(error, REFUSALS) else CommitOutcome.UNKNOWN


def was_outrun(error: Exception, catalog: Catalog, identifier: Identifier, snapshot: Snapshot) -> bool:
    """Whether a refusal is a race that was lost to another branch.

    A conflict is 409, but many servers answer 400 to a snapshot whose sequence number is taken (apache/iceberg#15001).
    """
    if not isinstance(error, BadRequestError):
        return False
    try:
        metadata = catalog.load_table(identifier).metadata
    except Exception:  # noqa: BLE001 - the refusal stands, whatever the catalog raises now
        return False
    return taken_numbers(metadata, snapshot) is not None


def is_another_table(error: Exception, catalog: Catalog, identifier: Identifier, snapshot_id: int) -> bool:
    """Whether a creation failed because of a table that somebody else made.

    A request that was sent twice gets the same answer because of our own table.
    """
    if not isinstance(error, TableAlreadyExistsError):
        return False
    try:
        return catalog.load_table(identifier).metadata.snapshot_by_id(snapshot_id) is None
    except Exception:  # noqa: BLE001 - as for `find_commit`
        return False


def find_commit(
    catalog: Catalog, identifier: Identifier, snapshot: Snapshot, branch: str | None, options: CommitOptions
) -> tuple[TableMetadata, str] | None:
    """Look for a snapshot whose commit was not answered, more than once where the table does not show it.

    Args:
        catalog: The catalog.
        identifier: The table.
        snapshot: The snapshot.
        branch: The branch that was to move to it; None where it was only to be staged.
        options: How often, and how long.

    Returns:
        The table's metadata that has it, and its location; None if nobody knows.

    Raises:
        CommitFailedException: another snapshot has taken its place, so that it cannot come any more: try again.
    """
    return status_checks(options)(find_commit_once, catalog, identifier, snapshot, branch)


def find_commit_once(
    catalog: Catalog, identifier: Identifier, snapshot: Snapshot, branch: str | None
) -> tuple[TableMetadata, str] | None:
    """Look once; see `find_commit`."""
    try:
        table = catalog.load_table(identifier)
    except Exception:  # noqa: BLE001 - the catalog is in trouble already: whatever it raises, the outcome stays unknown
        return None
    metadata = table.metadata
    if metadata.snapshot_by_id(snapshot.snapshot_id) is not None:
        return metadata, table.metadata_location
    head = metadata.refs.get(branch) if branch is not None else None
    if head is not None and has_passed(metadata, head.snapshot_id, snapshot):
        # The request asked for the old head: it is refused now, whenever it arrives.
        raise CommitFailedException(f"The commit was not answered, and the branch {branch} moved on without it")
    return None


def has_passed(metadata: TableMetadata, head_id: int, snapshot: Snapshot) -> bool:
    """Whether a branch came from a snapshot's parent to where it is now without that snapshot.

    Every step has to be there to be seen: where snapshots were expired, ours may have been among them.
    """
    passed, end_id = walk_back(metadata, head_id, snapshot.parent_snapshot_id)
    return bool(passed) and end_id == snapshot.parent_snapshot_id
