"""A change of a table's metadata, made visible. Driver.

Input: a function from the table's metadata to updates and requirements. Output: the catalog's new state. When another
writer was first, the function runs again on the newer state: it never sees an old one twice. Source: Iceberg
specification, "Optimistic Concurrency"; REST catalog, "Commit updates to a table".
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from dml.catalog import translated
from dml.ddl.quoting import quote_name
from dml.ddl.tables import load_table
from dml.errors import CommitConflictError
from dml.iceberg import commit_table
from dml.options import CommitOptions

__all__ = ["MetadataChange", "commit_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """What a statement changes.

    Attributes:
        updates: In order; none is a statement that changes nothing.
        requirements: What must still hold when the catalog applies them.
    """

    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] = ()


def commit_change(
    catalog: Catalog, identifier: tuple[str, ...], change: Callable[[TableMetadata], MetadataChange]
) -> Table:
    """Apply a change to the newest state of a table.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        change: From the table's metadata to what is to change; runs once for each attempt.

    Returns:
        The table as it is after the change.

    Raises:
        NotFoundError: there is no such table.
        CommitConflictError: other writers were first, each time.
        CommitStateUnknownError: the catalog's answer was lost.
    """
    options = CommitOptions.from_properties(load_table(catalog, identifier).properties)
    attempts = Retrying(
        retry=retry_if_exception_type(CommitConflictError),
        stop=stop_after_attempt(options.num_retries + 1),
        wait=wait_random_exponential(
            multiplier=options.min_wait_ms / 1000, max=max(options.min_wait_ms, options.max_wait_ms) / 1000
        ),
    )
    try:
        return attempts(_attempt, catalog, identifier, change)
    except RetryError as error:
        raise CommitConflictError(
            f"The table {quote_name(identifier)} was changed by others {options.num_retries + 1} times in a row",
            hint="Run the statement again",
            table=quote_name(identifier),
        ) from error.last_attempt.exception()


def _attempt(catalog: Catalog, identifier: tuple[str, ...], change: Callable[[TableMetadata], MetadataChange]) -> Table:
    table = load_table(catalog, identifier)
    planned = change(table.metadata)
    if not planned.updates:
        return table
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    with translated(f"Changing the table '{quote_name(identifier)}'", catalog):
        commit_table(catalog, table, (same_table, *planned.requirements), planned.updates)
    return load_table(catalog, identifier)
