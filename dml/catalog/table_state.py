"""A table as a commit finds it: as the catalog has it, or as the same commit creates or replaces it. Driver.

Input: made by whoever knows where the table comes from. Output: what the snapshot goes on top of, and what else goes to
the catalog with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

__all__ = ["LoadState", "TableState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table, with changes of its metadata that are not committed yet.

    Attributes:
        table: The table with these changes.
        updates: The changes, for the same commit as the snapshot.
        requirements: What has to be true of the table without them; None leaves that to the snapshot.
    """

    table: Table = field(repr=False)
    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] | None = None


LoadState = Callable[[], TableState]
"""Finds the newest state, for each attempt to commit."""
