"""The numbers of a snapshot's summary beside those of its files. Pure; driver.

Source: Iceberg specification, "Optional Snapshot Summary Fields"; docs/architecture/06-commit.md for RowDelta's own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.snapshots import Snapshot

from dml.model.content_file import FileContent
from dml.model.manifest import ManifestEntry
from dml.model.summary_keys import ROWS_CARRIED, ROWS_DELETED, ROWS_INSERTED, ROWS_UPDATED, ROWS_VANISHED, VERSION
from dml.verification.recount import Recounter, SnapshotFiles
from dml.verification.report import Count, FileRole, VerifiedFile

__all__ = ["Evidence", "counts_of", "rows_gone"]


MAX_DIGITS: Final = 20
"""Of a 64-bit number; a longer text is none that an engine counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was read.

    Attributes:
        snapshot: The snapshot.
        summary: Its summary, without the operation.
        before: The files of its parent.
        after: Its files.
        complete: Whether the parent was there to be read.
        files: The data files that were opened.
        recounter: What was found in them, and in their delete files.
    """

    snapshot: Snapshot
    summary: Mapping[str, str]
    before: SnapshotFiles
    after: SnapshotFiles
    complete: bool
    files: tuple[VerifiedFile, ...]
    recounter: Recounter

    def of(self, *roles: FileRole) -> tuple[VerifiedFile, ...]:
        """The files that were opened for one of some reasons."""
        return tuple(file for file in self.files if file.role in roles)

    def said(self, name: str) -> int | None:
        """A number of the summary; None where it is not there, or is none.

        Of our own counters one that is not there is 0.
        """
        text = self.summary.get(name)
        if text is None:
            return 0 if VERSION in self.summary and name.startswith(("added-", "deleted-", "removed-")) else None
        return int(text) if len(text) < MAX_DIGITS and text.isascii() and text.isdecimal() else None


def counts_of(evidence: Evidence) -> tuple[Count, ...]:
    """Each number that the files tell; those that neither the summary nor the files have are left out."""
    counts = [*totals(evidence), *(changes(evidence) if evidence.complete else ()), *rows(evidence)]
    return tuple(count for count in counts if count.said or count.counted)


def totals(evidence: Evidence) -> list[Count]:
    """What the table holds after the snapshot."""
    counted = tally(evidence.after.entries)
    names = ("data-files", "records", "delete-files", "position-deletes", "equality-deletes")
    return [Count(name=f"total-{name}", said=evidence.said(f"total-{name}"), counted=counted[name]) for name in names]


def changes(evidence: Evidence) -> list[Count]:
    """What the snapshot added and removed: its files without the parent's, and the other way round."""
    old = {entry.data_file.key for entry in evidence.before.entries}
    new = {entry.data_file.key for entry in evidence.after.entries}
    added = tally(entry for entry in evidence.after.entries if entry.data_file.key not in old)
    removed = tally(entry for entry in evidence.before.entries if entry.data_file.key not in new)
    gone = {"data-files": "deleted-data-files", "records": "deleted-records"}
    counts = []
    for name in added:
        for total, key in ((added, f"added-{name}"), (removed, gone.get(name, f"removed-{name}"))):
            counts.append(Count(name=key, said=evidence.said(key), counted=total[name]))
    return counts


def tally(entries: Iterable[ManifestEntry]) -> dict[str, int]:
    """Files and rows by kind, as manifests have them."""
    counted = dict.fromkeys(("data-files", "records", "delete-files", "position-deletes", "equality-deletes"), 0)
    for entry in entries:
        file = entry.data_file
        match file.content:
            case FileContent.DATA:
                names = ("data-files", "records")
            case FileContent.POSITION_DELETES:
                names = ("delete-files", "position-deletes")
            case FileContent.EQUALITY_DELETES:
                names = ("delete-files", "equality-deletes")
        counted[names[0]] += 1
        counted[names[1]] += file.record_count
    return counted


def rows(evidence: Evidence) -> list[Count]:
    """The rows of a statement: those that it took away and those that it wrote, as the files have them.

    Rows that were updated or carried stand on both sides, so the files tell sums, not each number alone.
    """
    counts = []
    sides: tuple[tuple[str, str, Callable[[Evidence], int | None]], ...] = (
        (ROWS_DELETED, "rows deleted, updated and carried", rows_gone),
        (ROWS_INSERTED, "rows inserted, updated and carried", rows_written),
    )
    for key, name, counted in sides:
        said = evidence.said(key)
        if said is not None and (key is ROWS_INSERTED or evidence.complete):
            both = (evidence.said(ROWS_UPDATED) or 0) + (evidence.said(ROWS_CARRIED) or 0)
            vanished = (evidence.said(ROWS_VANISHED) or 0) if key is ROWS_DELETED else 0
            counted_rows = None if key is ROWS_DELETED and is_unknown(evidence) else counted(evidence)
            counts.append(Count(name=name, said=said + both - vanished, counted=counted_rows))
    return counts


def is_unknown(evidence: Evidence) -> bool:
    """Whether rows vanished that nobody counted."""
    return ROWS_VANISHED in evidence.summary and evidence.said(ROWS_VANISHED) is None


def rows_gone(evidence: Evidence) -> int | None:
    """Live rows that files of the parent have no more; None where they cannot be told.

    Rows of added files that are deleted in the same snapshot count as well: a concurrent commit deleted them in the
    file that was rewritten, and they were deleted again in the new one.
    """
    old = evidence.of(FileRole.REMOVED, FileRole.DELETED_FROM)
    lost = [difference(file.rows_before, file.rows_after) for file in old]
    again = [difference(file.rows, file.rows_after) for file in evidence.of(FileRole.ADDED)]
    return total([*lost, *again])


def rows_written(evidence: Evidence) -> int | None:
    """Rows of the added files; None where they cannot be told."""
    return total(file.rows for file in evidence.of(FileRole.ADDED))


def difference(first: int | None, second: int | None) -> int | None:
    """The difference of two numbers that may not be known."""
    return None if first is None or second is None else first - second


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum of numbers that may not be known."""
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)
