"""Take the lease of a table, so that two maintainers do not do the same work. Driver.

The lease is two table properties: the holder, and the time at which the lease expires if its holder dies. Commits that
change these properties take, renew and release it.

PyIceberg's own catalogs apply a change to the newest metadata, even if it is newer than the base of the change. So two
maintainers could both take the lease. To prevent this, their commits require the lease that they have read
(`AssertLease`). The REST protocol has no requirement on a property: after a commit to a server, the lease is read
again once all earlier commits must have landed, and also before each step. In the worst case, two maintainers run a
step at the same time. Their commits are validated like all others, so only time is lost (decision 053).
"""

import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast
from uuid import uuid4

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from dml import limits
from dml.catalog.tables import load_table
from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import CommitConflictError, DmlError
from dml.maintenance.retention import time_text
from dml.options import (
    MAINTENANCE_LEASE_DURATION,
    MAINTENANCE_LEASE_EXPIRES_AT,
    MAINTENANCE_LEASE_HOLDER,
    MaintenanceOptions,
    integer,
)

__all__ = ["Lease", "LeaseHolder", "lease_of"]

LOG: Final = logging.getLogger(__name__)
MAX_DIGITS: Final = 19
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
    """Return the lease in a table's properties; None if there is none, or if it has expired.

    A lease that lasts longer than twice the table's duration does not count: the clock of its holder was wrong.

    Raises:
        AnalysisError: The table's duration is invalid.
    """
    name, until = properties.get(MAINTENANCE_LEASE_HOLDER), properties.get(MAINTENANCE_LEASE_EXPIRES_AT, "")
    longest_ms = 2 * integer(properties, MAINTENANCE_LEASE_DURATION, MaintenanceOptions().lease_duration_ms, minimum=1)
    if (
        name is None
        or not until.isdecimal()
        or len(until) > MAX_DIGITS
        or not now_ms < int(until) <= now_ms + longest_ms
    ):
        return None
    return LeaseHolder(name=name, expires_at_ms=int(until))


class AssertLease(ValidatableTableRequirement):
    """The table must have the lease that a change of the lease is based on, for catalogs without a server."""

    type: Literal["rowdelta-assert-lease"] = "rowdelta-assert-lease"
    holder: str | None
    expires_at: str | None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise `CommitFailedException` if the lease has changed."""
        known = {} if base_metadata is None else base_metadata.properties
        if (known.get(MAINTENANCE_LEASE_HOLDER), known.get(MAINTENANCE_LEASE_EXPIRES_AT)) != (
            self.holder,
            self.expires_at,
        ):
            raise CommitFailedException("The maintenance lease was changed by another commit")


def new_holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


@dataclass(slots=True, kw_only=True)
class Lease:
    """A lease of one table: `with Lease(...) as lease` takes it, and releases it at the end.

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
        if not self._requires_lease:
            time.sleep(limits.MAINTENANCE_LEASE_SETTLE_SECONDS)
            self._check(load_table(self.catalog, self.identifier))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            commit_change(self.catalog, self.identifier, self._release)
        except DmlError as error:  # the lease expires by itself, and completed work stays
            LOG.warning("The maintenance lease of '%s' was not released: %s", ".".join(self.identifier), error)

    def confirm(self) -> None:
        """Check that the lease is still this holder's, and renew it if half of its time is over.

        An expired lease is renewed unless another maintainer has taken it.

        Raises:
            CommitConflictError: Another maintainer took it, because this one needed longer than the lease lasts.
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
            is_mine = metadata.properties.get(MAINTENANCE_LEASE_HOLDER) == self.holder  # also one that has ended
            if not is_mine and (held is not None or not may_take):
                return MetadataChange()  # `_check` raises: an error here would look like a commit to try again
            values = {MAINTENANCE_LEASE_HOLDER: self.holder, MAINTENANCE_LEASE_EXPIRES_AT: str(expires_at_ms)}
            return self._change(metadata, SetPropertiesUpdate(updates=values))

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
        return self._change(metadata, RemovePropertiesUpdate(removals=removals))

    @property
    def _requires_lease(self) -> bool:
        return isinstance(self.catalog, MetastoreCatalog)

    def _change(self, metadata: TableMetadata, update: TableUpdate) -> MetadataChange:
        if not self._requires_lease:
            return MetadataChange(updates=(update,))
        holder, expires_at = (metadata.properties.get(name) for name in PROPERTIES)
        required = AssertLease(holder=holder, expires_at=expires_at)
        # The union of PyIceberg's requirements is closed, but these catalogs only call `validate`.
        return MetadataChange(updates=(update,), requirements=(cast("TableRequirement", required),))


def milliseconds() -> int:
    return time.time_ns() // 1_000_000
