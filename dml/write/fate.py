"""What becomes of a data file that a statement changes, by counts alone. Pure; worker.

Input: how many rows the file has, how many of them are dead, what the statement does to the others. Output: one of four
ways. Its three numbers: the share of dead rows that a table allows is the table's property; the two that tell when new
columns beside copied ones are cheaper than marked rows and new ones were measured (docs/decisions/029).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Fate", "FileCounts", "fate_of", "may_be_spliced", "rows_to_mark"]

MIN_UPDATED_RATIO: Final = 0.01
"""Of fewer updated rows a file is not spliced, if they can be marked: all rows of their columns would be new."""

MAX_NEW_BYTES_RATIO: Final = 0.5
"""Nor if more of its bytes would be new."""


class Fate(StrEnum):
    """What becomes of a data file."""

    REMOVED = "removed"
    SPLICED = "spliced"
    MARKED = "marked"
    REWRITTEN = "rewritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """A data file and its changes.

    Attributes:
        rows: Its rows, dead ones included.
        dead: Those that are deleted by position.
        is_dead_exact: Whether no others are dead: which equality deletes delete, only reading the file tells.
        deleted: Live rows that the statement deletes.
        updated: Live rows that it updates.
        is_all: Whether it changes no more than these.
        new_bytes_ratio: The share of the file's bytes that would be new if it were spliced; None where it cannot be.
    """

    rows: int
    dead: int = 0
    is_dead_exact: bool = True
    deleted: int = 0
    updated: int = 0
    is_all: bool = True
    new_bytes_ratio: float | None = None


def rows_to_mark(rows: int, dead: int, max_deleted_ratio: float) -> int:
    """How many more rows of a data file may be marked; a file without any live row is never kept.

    Args:
        rows: Its rows.
        dead: Those that are deleted already.
        max_deleted_ratio: The greatest share that may be.
    """
    return min(int(rows * max_deleted_ratio), rows - 1) - dead


def may_be_spliced(counts: FileCounts) -> bool:
    """Whether splicing may be cheaper than marking, so that it is worth a look at the file's footer.

    Rows stay in their places then: none is dead, none is deleted.
    """
    unmoved = counts.is_all and counts.is_dead_exact and not counts.dead and not counts.deleted
    return unmoved and counts.updated > 0 and counts.updated >= MIN_UPDATED_RATIO * counts.rows


def fate_of(counts: FileCounts, max_deleted_ratio: float) -> Fate:
    """The cheapest way for one data file.

    Args:
        counts: The file and its changes.
        max_deleted_ratio: The greatest share of a file's rows that may be dead afterwards.

    Returns:
        `REMOVED` where no row is left; `SPLICED` where not too few rows are updated, in few columns; `MARKED` where the
        file keeps no more dead rows than it may; else `REWRITTEN`.
    """
    changed = counts.deleted + counts.updated
    if counts.is_all and counts.is_dead_exact and counts.deleted and counts.deleted == counts.rows - counts.dead:
        return Fate.REMOVED
    cheap = counts.new_bytes_ratio is not None and counts.new_bytes_ratio <= MAX_NEW_BYTES_RATIO
    if cheap and may_be_spliced(counts):
        return Fate.SPLICED
    if counts.is_all and changed <= rows_to_mark(counts.rows, counts.dead, max_deleted_ratio):
        return Fate.MARKED
    return Fate.REWRITTEN
