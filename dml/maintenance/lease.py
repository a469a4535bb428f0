"""Take the lease of a table, so that two maintainers do not do the same work. Driver.

The lease is two table properties: the holder, and the time at which the lease ends if its holder died. It is taken,
renewed and given back by commits that change these properties.

A commit takes the lease from the newest metadata, and catalogs that compare the metadata's location accept it only if
that is still the newest. A REST catalog may apply the change to even newer metadata, and Iceberg has no requirement on
a property, so the lease is read again before each step. In the worst case two maintainers run one step at once: their
commits are checked like all others, so only time is lost (decision 053).
"""

import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

from dml.catalog.tables import load_table
from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import CommitConflictError, DmlError
from dml.maintenance.retention import time_text
from dml.options import MAINTENANCE_LEASE_EXPIRES_AT, MAINTENANCE_LEASE_HOLDER

__all__ = ["Lease", "LeaseHolder", "lease_of"]

LOG: Final = logging.getLogger(__name__)
PROPERTIES: Final = (MAINTENANCE_LEASE_HOLDER, MAINTENANCE_LEASE_EXPIRES_AT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A lease in a table's properties.

    Attributes:
        name: The holder: host, process and a random part.
        expires_at_ms: When the lease ends, in milliseconds since 1970.
    """

    name: str
    expires_at_ms: int


def lease_of(properties: Mapping[str, str], now_ms: int) -> LeaseHolder | None:
    """Return the lease in a table's properties; None if there is none, or if it has ended."""
    name, until = properties.get(MAINTENANCE_LEASE_HOLDER), properties.get(MAINTENANCE_LEASE_EXPIRES_AT, "")
    if name is None or not until.isdecimal() or int(until) <= now_ms:
        return None
    return LeaseHolder(name=name, expires_at_ms=int(until))


def new_holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


@dataclass(slots=True, kw_only=True)
class Lease:
    """A lease of one table: `with Lease(...) as lease` takes it, and gives it back at the end.

    Attributes:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        duration_ms: How long the lease lasts after it was taken or renewed, in milliseconds.
        holder: The name of this holder.
        expires_at_ms: When it ends, in milliseconds since 1970.
    """

    catalog: Catalog = field(repr=False)
    identifier: tuple[str, ...]
    duration_ms: int
    holder: str = field(default_factory=new_holder)
    expires_at_ms: int = 0

    def __enter__(self) -> "Lease":
        """Take the lease.

        Raises:
            CommitConflictError: Another maintainer holds it.
            DmlError: The commit failed.
        """
        self._commit(may_take=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            commit_change(self.catalog, self.identifier, self._release)
        except DmlError as error:  # the lease ends by itself, and what was done stays
            LOG.warning("The maintenance lease of '%s' was not given back: %s", ".".join(self.identifier), error)

    def confirm(self) -> None:
        """Check that the lease is still this holder's, and renew it if half of its time is over.

        Raises:
            CommitConflictError: Another maintainer holds it, because this one needed longer than the lease lasts.
            DmlError: The table cannot be loaded, or the commit failed.
        """
        if self.expires_at_ms - milliseconds() < self.duration_ms / 2:
            self._commit(may_take=False)
        else:
            self._check(load_table(self.catalog, self.identifier))

    def _commit(self, *, may_take: bool) -> None:
        expires_at_ms = milliseconds() + self.duration_ms

        def change(metadata: TableMetadata) -> MetadataChange:
            held = lease_of(metadata.properties, milliseconds())
            is_mine = held is not None and held.name == self.holder
            if not is_mine and (held is not None or not may_take):
                return MetadataChange()  # `_check` raises: an error here would look like a commit to try again
            values = {MAINTENANCE_LEASE_HOLDER: self.holder, MAINTENANCE_LEASE_EXPIRES_AT: str(expires_at_ms)}
            return MetadataChange(updates=(SetPropertiesUpdate(updates=values),))

        self._check(commit_change(self.catalog, self.identifier, change))
        self.expires_at_ms = expires_at_ms

    def _check(self, table: Table) -> None:
        held = lease_of(table.properties, milliseconds())
        if held is not None and held.name == self.holder:
            return
        name = ".".join(self.identifier)
        if held is None:
            raise CommitConflictError(
                f"The maintenance lease of '{name}' ended before this run did",
                hint="What was committed stays. Run it again for the rest; a smaller budget ends earlier",
                table=name,
            )
        raise CommitConflictError(
            f"'{name}' is being maintained by {held.name}, whose lease lasts until {time_text(held.expires_at_ms)}",
            hint=f"Wait for its end. If that process is dead, the lease ends by itself, or unset {PROPERTIES[0]}",
            table=name,
            holder=held.name,
        )

    def _release(self, metadata: TableMetadata) -> MetadataChange:
        if metadata.properties.get(MAINTENANCE_LEASE_HOLDER) != self.holder:
            return MetadataChange()
        removals = [name for name in PROPERTIES if name in metadata.properties]
        return MetadataChange(updates=(RemovePropertiesUpdate(removals=removals),))


def milliseconds() -> int:
    return time.time_ns() // 1_000_000
