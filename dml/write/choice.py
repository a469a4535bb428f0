"""The strategy for one changed data file, chosen from row counts alone. Pure; worker.

Input: the rows of the file, how many of them are deleted already, and what the statement does to the others. Output: a
`Choice`. Copy-on-write and merge-on-read are the constant functions `always_rewrite` and `always_mark`;
`choose_by_counts` is the one of the adaptive mode. The share of deleted rows that it allows is a table property; its
two thresholds, which say when new columns next to copied ones are cheaper than marked and new rows, are estimates
(docs/decisions/029-a-mode-that-chooses-by-file.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from dml import limits

__all__ = [
    "Choice",
    "Choose",
    "FileCounts",
    "always_mark",
    "always_rewrite",
    "choose_by_counts",
    "may_be_spliced",
    "rows_to_mark",
]


class Choice(StrEnum):
    """How the changes of a data file are written."""

    REMOVE = "remove"
    """All live rows are deleted: the file leaves the table unread."""

    REWRITE = "rewrite"
    """A new file replaces it; whatever can be copied undecoded is spliced."""

    MARK = "mark"
    """Deleted and updated rows are marked, new values go to a new file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """A data file and its changes.

    Attributes:
        rows: All rows in the file, deleted ones included.
        dead: Rows that earlier position deletes mark.
        is_dead_exact: False if equality deletes may delete more rows: only reading the file would tell.
        deleted: Live rows that the statement deletes.
        updated: Live rows that the statement updates.
        is_all: False if the file has more changes than were counted.
        new_bytes_ratio: The share of the file's bytes that splicing would encode; None if it cannot be spliced.
    """

    rows: int
    dead: int = 0
    is_dead_exact: bool = True
    deleted: int = 0
    updated: int = 0
    is_all: bool = True
    new_bytes_ratio: float | None = None


Choose = Callable[[Callable[[], FileCounts]], Choice]
"""Chooses for one file. Counting holds changes in memory, so counts come as a function that constants never call."""


def always_rewrite(_count: Callable[[], FileCounts]) -> Choice:
    """Copy-on-write."""
    return Choice.REWRITE


def always_mark(_count: Callable[[], FileCounts]) -> Choice:
    """Merge-on-read."""
    return Choice.MARK


def rows_to_mark(rows: int, dead: int, max_deleted_ratio: float) -> int:
    """Return how many more rows of a data file may be marked; at least one row always stays live.

    Args:
        rows: All rows in the file.
        dead: Rows that are deleted already.
        max_deleted_ratio: The greatest share of deleted rows.
    """
    return min(int(rows * max_deleted_ratio), rows - 1) - dead


def may_be_spliced(counts: FileCounts) -> bool:
    """Return whether splicing may be cheaper than marking, so that reading the file's footer is worthwhile.

    It is only if every row keeps its position: none is deleted, before or now.
    """
    unmoved = counts.is_all and counts.is_dead_exact and not counts.dead and not counts.deleted
    return unmoved and counts.updated > 0 and counts.updated >= limits.MIN_SPLICED_ROW_RATIO * counts.rows


def choose_by_counts(counts: FileCounts, max_deleted_ratio: float) -> Choice:
    """Return the cheapest choice for one data file.

    The first matching rule applies:

    1. no live row is left: `REMOVE`;
    2. enough rows of few enough columns are updated: `REWRITE`, which splices the file;
    3. the file stays within `max_deleted_ratio`: `MARK`;
    4. `REWRITE`.
    """
    changed = counts.deleted + counts.updated
    if counts.is_all and counts.is_dead_exact and counts.deleted and counts.deleted == counts.rows - counts.dead:
        return Choice.REMOVE
    cheap = counts.new_bytes_ratio is not None and counts.new_bytes_ratio <= limits.MAX_SPLICED_BYTES_RATIO
    if cheap and may_be_spliced(counts):
        return Choice.REWRITE
    if counts.is_all and changed <= rows_to_mark(counts.rows, counts.dead, max_deleted_ratio):
        return Choice.MARK
    return Choice.REWRITE
