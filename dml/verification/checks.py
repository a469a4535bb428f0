"""What has to be true of a snapshot, one function for each rule. Pure; driver.

Input: what was read (`Evidence`). Output: the numbers of the snapshot's summary beside those of its files, and
sentences about what is not so. Source: Iceberg specification, "Optional Snapshot Summary Fields";
docs/architecture/06-commit.md for RowDelta's own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.snapshots import Snapshot

from dml.commit.changes import Operation
from dml.model.manifest import FileContent, ManifestEntry
from dml.model.summary_keys import ROWS_CARRIED, ROWS_DELETED, ROWS_INSERTED, ROWS_UPDATED, ROWS_VANISHED, VERSION
from dml.verification.recount import Recounter, SnapshotFiles, deletes_of
from dml.verification.report import Count, FileRole, VerifiedFile

__all__ = ["CHECKS", "Evidence", "counts_of"]


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

    def summary_count(self, name: str) -> int | None:
        """A number of the summary; None where it is not there, or is none.

        Of our own counters one that is not there is 0.
        """
        text = self.summary.get(name)
        if text is None:
            return 0 if VERSION in self.summary and name.startswith(("added-", "deleted-", "removed-")) else None
        return int(text) if len(text) < MAX_DIGITS and text.isascii() and text.isdecimal() else None


def counts_of(evidence: Evidence) -> tuple[Count, ...]:
    """Each number that the files show; those that neither the summary nor the files have are left out."""
    counts = [*totals(evidence), *(changes(evidence) if evidence.complete else ()), *rows(evidence)]
    return tuple(count for count in counts if count.recorded or count.counted)


def totals(evidence: Evidence) -> list[Count]:
    """What the table holds after the snapshot."""
    counted = tally(evidence.after.entries)
    names = ("data-files", "records", "delete-files", "position-deletes", "equality-deletes")
    return [
        Count(name=f"total-{name}", recorded=evidence.summary_count(f"total-{name}"), counted=counted[name])
        for name in names
    ]


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
            counts.append(Count(name=key, recorded=evidence.summary_count(key), counted=total[name]))
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

    Rows that were updated or carried stand on both sides, so the files show sums, not each number alone.
    """
    counts = []
    sides: tuple[tuple[str, str, Callable[[Evidence], int | None]], ...] = (
        (ROWS_DELETED, "rows deleted, updated and carried", rows_gone),
        (ROWS_INSERTED, "rows inserted, updated and carried", rows_written),
    )
    for key, name, counted in sides:
        recorded = evidence.summary_count(key)
        if recorded is not None and (key is ROWS_INSERTED or evidence.complete):
            both = (evidence.summary_count(ROWS_UPDATED) or 0) + (evidence.summary_count(ROWS_CARRIED) or 0)
            vanished = (evidence.summary_count(ROWS_VANISHED) or 0) if key is ROWS_DELETED else 0
            counted_rows = None if key is ROWS_DELETED and is_unknown(evidence) else counted(evidence)
            counts.append(Count(name=name, recorded=recorded + both - vanished, counted=counted_rows))
    return counts


def is_unknown(evidence: Evidence) -> bool:
    """Whether rows vanished that nobody counted."""
    return ROWS_VANISHED in evidence.summary and evidence.summary_count(ROWS_VANISHED) is None


def rows_gone(evidence: Evidence) -> int | None:
    """Live rows that files of the parent have no more; None where they cannot be counted.

    Rows of added files that are deleted in the same snapshot count as well: a concurrent commit deleted them in the
    file that was rewritten, and they were deleted again in the new one.
    """
    old = evidence.of(FileRole.REMOVED, FileRole.DELETED_FROM)
    lost = [difference(file.rows_before, file.rows_after) for file in old]
    again = [difference(file.rows, file.rows_after) for file in evidence.of(FileRole.ADDED)]
    return total([*lost, *again])


def rows_written(evidence: Evidence) -> int | None:
    """Rows of the added files; None where they cannot be counted."""
    return total(file.rows for file in evidence.of(FileRole.ADDED))


def difference(first: int | None, second: int | None) -> int | None:
    """The difference of two numbers that may not be known."""
    return None if first is None or second is None else first - second


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum of numbers that may not be known."""
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)


Check = Callable[[Evidence, Sequence[Count]], Iterator[str]]


def files_are_listed_once(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """A file with two live entries gives its rows twice."""
    for path in evidence.after.listed_twice:
        yield f"The file '{path}' is listed twice"


def deletes_are_unambiguous(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Which delete files apply follows from their entries."""
    yield from dict.fromkeys((*evidence.before.problems, *evidence.after.problems))


def files_can_be_read(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Every file that was opened is there and keeps its format."""
    opened = evidence.recounter
    for found in (*opened.data_files.values(), *opened.delete_files.values()):
        if found.problem is not None:
            yield found.problem


def files_are_what_manifests_say(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Rows and bytes of data files and delete files."""
    listed = {entry.data_file.key: entry for files in (evidence.before, evidence.after) for entry in files.entries}
    opened = evidence.recounter
    found = {(path, None, None): file for path, file in opened.data_files.items()} | opened.delete_files
    for key, file in found.items():
        entry = listed[key].data_file
        if file.rows is not None and file.rows != entry.record_count:
            yield f"The file '{entry.path}' has {file.rows} rows, and its manifest says {entry.record_count}"
        if file.size is not None and file.size != entry.file_size_in_bytes:
            yield f"The file '{entry.path}' has {file.size} bytes, and its manifest says {entry.file_size_in_bytes}"


def positions_lie_in_their_files(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """No delete file names a row that its data file does not have."""
    for file in evidence.files:
        tasks = [
            task for files in (evidence.before, evidence.after) if (task := files.tasks.get(file.path)) is not None
        ]
        for ref in {ref.key: ref for task in tasks for ref in deletes_of(task)}.values():
            positions = evidence.recounter.delete_files[ref.key].positions.get(file.path)
            last = None if positions is None else positions.max()
            if last is not None and file.rows is not None and last >= file.rows:
                yield f"The delete file '{ref.path}' deletes row {last} of '{file.path}', which has {file.rows} rows"


def counts_agree(_: Evidence, counts: Sequence[Count]) -> Iterator[str]:
    """The summary says what the files say."""
    for count in counts:
        if not count.agrees:
            yield f"{count.name}: the summary says {count.recorded}, the files say {count.counted}"


def operation_is_true(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """An append takes nothing away, a delete adds no rows, and a replacement changes none."""
    summary = evidence.snapshot.summary
    if summary is None or not evidence.complete:
        return
    operation, gone = summary.operation.value, rows_gone(evidence)
    added = evidence.of(FileRole.ADDED)
    if operation == Operation.APPEND and (gone or evidence.of(FileRole.REMOVED)):
        yield f"The operation is append, and {gone} rows are gone"
    if operation == Operation.DELETE and added:
        yield f"The operation is delete, and {len(added)} data files were added"
    if operation == Operation.REPLACE:
        before, after = ([getattr(file, name) for file in evidence.files] for name in ("rows_before", "rows_after"))
        if None not in (*before, *after) and sum(before) != sum(after):
            yield f"The operation is replace, and {sum(before)} live rows became {sum(after)}"


CHECKS: Final[tuple[Check, ...]] = (
    files_are_listed_once,
    deletes_are_unambiguous,
    files_can_be_read,
    files_are_what_manifests_say,
    positions_lie_in_their_files,
    counts_agree,
    operation_is_true,
)
