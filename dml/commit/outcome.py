"""What became of a commit whose answer is an error. Driver.

Input: the error that the catalog raised. Output: one of three: the race was lost and it may be tried again, it was
refused for good, or nobody knows: then only the table itself can tell.
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

from dml.iceberg import taken_numbers

__all__ = ["Outcome", "has_landed", "is_another_table", "outcome_of", "was_outrun"]


class Outcome(Enum):
    """What an error of a commit means."""

    LOST = "lost"
    REFUSED = "refused"
    UNKNOWN = "unknown"


# The catalog looked at the request and did not take it.
_REFUSALS = (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TooManyRequestsError,
    UnauthorizedError,
)


def outcome_of(error: Exception) -> Outcome:
    """What an error means; whatever is not known to be harmless may have been raised after the commit."""
    if isinstance(error, CommitFailedException):
        return Outcome.LOST
    return Outcome.REFUSED if isinstance(error, _REFUSALS) else Outcome.UNKNOWN


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

    A request that was sent twice is told the same of our own table.
    """
    if not isinstance(error, TableAlreadyExistsError):
        return False
    try:
        return catalog.load_table(identifier).metadata.snapshot_by_id(snapshot_id) is None
    except Exception:  # noqa: BLE001 - as for `has_landed`
        return False


def has_landed(catalog: Catalog, identifier: Identifier, snapshot_id: int) -> tuple[TableMetadata, str] | None:
    """The table's metadata and its location, if it has the snapshot; None if not, or if the table cannot be loaded."""
    try:
        table = catalog.load_table(identifier)
    except Exception:  # noqa: BLE001 - the catalog is in trouble already: whatever it raises, the outcome stays unknown
        return None
    if table.metadata.snapshot_by_id(snapshot_id) is None:
        return None
    return table.metadata, table.metadata_location
