"""Verifies a snapshot: compares its summary and manifests with a recount of its files. Driver.

Input: a table and a snapshot. Output: a `Verification` with the counts of the snapshot's summary next to those of its
files, and one sentence per problem.

`dml.verification.recount` reads the manifests of the snapshot and its parent, and the data files that the snapshot
touched, each with the delete files that apply before and after. Each rule for this `Evidence` is one function. Source:
Iceberg specification, "Optional Snapshot Summary Fields"; docs/architecture/06-commit.md for RowDelta's own.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.commit.changes import Operation
from dml.errors import CorruptFileError
from dml.model.manifest import EntryStatus, FileContent, ManifestEntry
from dml.model.summary_keys import (
    ROWS_CARRIED,
    ROWS_DELETED,
    ROWS_INSERTED,
    ROWS_UPDATED,
    ROWS_VANISHED,
    UNKNOWN,
    VERSION,
)
from dml.verification.recount import FileKey, Recounter, SnapshotFiles, deletes_of, files_of

__all__ = ["CHECKS", "Count", "FileRole", "Verification", "VerifiedFile", "counts_of", "verify"]

SHOWN = 20
"""The maximum number of files, and of problems, to print."""


class FileRole(StrEnum):
    """The effect of a snapshot on a data file."""

    ADDED = "added"
    REMOVED = "removed"
    DELETED_FROM = "deleted from"
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A data file that was opened.

    Attributes:
        path: The location of the file.
        role: The effect of the snapshot on it.
        rows_by_manifest: The number of rows according to its manifest.
        rows: The number of rows counted in the file; None if it cannot be read.
        rows_before: The live rows in the parent snapshot; None if they cannot be counted, 0 for an added file.
        rows_after: The live rows in the snapshot; None if they cannot be counted, 0 for a removed file.
    """

    path: str
    role: FileRole
    rows_by_manifest: int
    rows: int | None
    rows_before: int | None
    rows_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A count of a snapshot's summary.

    Attributes:
        name: The name of the count, usually a key of the summary.
        recorded: The number in the summary; None if it has none.
        counted: The number counted in the files; None if they do not determine it.
    """

    name: str
    recorded: int | None
    counted: int | None

    @property
    def agrees(self) -> bool:
        """True if both numbers are equal, or one is unknown."""
        return self.recorded is None or self.counted is None or self.recorded == self.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of verifying a snapshot.

    Attributes:
        table: The full name of the table.
        snapshot_id: The snapshot; None for a table without snapshots.
        parent_snapshot_id: The parent of the snapshot; None for the first snapshot, or if expiring removed the id.
        operation: `append`, `delete`, `overwrite` or `replace`.
        counts: The counts of the summary next to those of the files.
        files: The data files that were opened: those that the snapshot touched, or all.
        problems: The contradictions, one sentence each, with the file or the count.
        unverified: The checks that were not possible, with reasons.
    """

    table: str
    snapshot_id: int | None
    parent_snapshot_id: int | None = None
    operation: str | None = None
    counts: tuple[Count, ...] = ()
    files: tuple[VerifiedFile, ...] = ()
    problems: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no check found a problem."""
        return not self.problems

    def raise_for_problems(self) -> "Verification":
        """Return the verification itself if it has no problems.

        Raises:
            CorruptFileError: There are problems; `context["problems"]` lists them.
        """
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise CorruptFileError(
                f"Snapshot {self.snapshot_id} of {self.table} does not agree with its files: {self.problems[0]}{more}",
                hint="Roll the table back to a snapshot that verifies, or restore its files",
                snapshot_id=self.snapshot_id,
                problems=self.problems,
            )
        return self

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def lines(self) -> list[str]:
        """Return the printed form, line by line."""
        if self.snapshot_id is None:
            return [f"{self.table} has no snapshot: there is nothing to verify"]
        after = "" if self.parent_snapshot_id is None else f", after {self.parent_snapshot_id}"
        found = "all agrees" if self.ok else plural(len(self.problems), "problem")
        lines = [f"Snapshot {self.snapshot_id} of {self.table} ({self.operation}{after}): {found}"]
        width = max([len(count.name) for count in self.counts], default=0)
        for count in self.counts:
            recorded = "-" if count.recorded is None else f"{count.recorded:,}"
            counted = "not known from the files" if count.counted is None else f"{count.counted:,} counted"
            lines.append(
                f"  {count.name:<{width}}  {recorded:>12} recorded  {counted}" + ("" if count.agrees else "  <--")
            )
        lines += [f"  {file_line(file)}" for file in self.files[:SHOWN]]
        if len(self.files) > SHOWN:
            lines.append(f"  and {plural(len(self.files) - SHOWN, 'more data file')}: see .files")
        lines += [f"  problem: {problem}" for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  and {plural(len(self.problems) - SHOWN, 'more problem')}: see .problems")
        lines += [f"  not verified: {reason}" for reason in self.unverified]
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values, for logs and programs."""

        def plain(value: Any) -> Any:
            if isinstance(value, Count | VerifiedFile):
                return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
            if isinstance(value, tuple):
                return [plain(item) for item in value]
            return str(value) if isinstance(value, FileRole) else value

        return {"ok": self.ok, **{one.name: plain(getattr(self, one.name)) for one in fields(self)}}


def plural(number: int, name: str) -> str:
    return f"{number:,} {name}" + ("" if number == 1 else "s")


def file_line(file: VerifiedFile) -> str:
    before, after = ("?" if rows is None else f"{rows:,}" for rows in (file.rows_before, file.rows_after))
    return f"{file.role}: {file.path}, live rows {before} -> {after}"


MAX_DIGITS: Final = 20
"""The maximum number of digits of a 64-bit number; engines do not write longer counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The input of all checks.

    Attributes:
        snapshot: The snapshot.
        summary: Its summary, without the operation.
        before: The files of its parent.
        after: Its files.
        complete: True if the parent could be read, or there is none.
        files: The data files that were opened.
        recounter: The counts of those files and their delete files.
    """

    snapshot: Snapshot
    summary: Mapping[str, str]
    before: SnapshotFiles
    after: SnapshotFiles
    complete: bool
    files: tuple[VerifiedFile, ...]
    recounter: Recounter

    def of(self, *roles: FileRole) -> tuple[VerifiedFile, ...]:
        """Return the opened files with one of the roles."""
        return tuple(file for file in self.files if file.role in roles)

    def summary_count(self, name: str) -> int | None:
        """Return a number of the summary, or None if it is missing or invalid.

        Missing counters in a summary of RowDelta are 0.
        """
        text = self.summary.get(name)
        if text is None:
            return 0 if VERSION in self.summary and name.startswith(("added-", "deleted-", "removed-")) else None
        return int(text) if len(text) < MAX_DIGITS and text.isascii() and text.isdecimal() else None


def counts_of(evidence: Evidence) -> tuple[Count, ...]:
    """Return the counts of a snapshot, without those that are 0 or unknown in both summary and files."""
    counts = [*total_counts(evidence), *(change_counts(evidence) if evidence.complete else ()), *row_counts(evidence)]
    return tuple(count for count in counts if count.recorded or count.counted)


def total_counts(evidence: Evidence) -> list[Count]:
    """Return the totals of the table after the snapshot."""
    counted = tally(evidence.after.entries)
    names = ("data-files", "records", "delete-files", "position-deletes", "equality-deletes")
    return [
        Count(name=f"total-{name}", recorded=evidence.summary_count(f"total-{name}"), counted=counted[name])
        for name in names
    ]


def change_counts(evidence: Evidence) -> list[Count]:
    """Return the counts of added and removed files: the differences between the snapshot and its parent."""
    old = {entry.data_file.key for entry in evidence.before.entries}
    new = {entry.data_file.key for entry in evidence.after.entries}
    added = tally(entry for entry in evidence.after.entries if entry.data_file.key not in old)
    removed = tally(entry for entry in evidence.before.entries if entry.data_file.key not in new)
    removed_keys = {"data-files": "deleted-data-files", "records": "deleted-records"}
    counts = []
    for name in added:
        for total, key in ((added, f"added-{name}"), (removed, removed_keys.get(name, f"removed-{name}"))):
            counts.append(Count(name=key, recorded=evidence.summary_count(key), counted=total[name]))
    return counts


def tally(entries: Iterable[ManifestEntry]) -> dict[str, int]:
    """Count files and rows by kind, as recorded in manifests."""
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


def row_counts(evidence: Evidence) -> list[Count]:
    """Return the row counts of a statement: rows in removed and in written files.

    Updated and carried rows are part of both, so the files only determine sums.
    """
    counts = []
    sides: tuple[tuple[str, str, Callable[[Evidence], int | None]], ...] = (
        (ROWS_DELETED, "rows deleted, updated and carried", rows_lost),
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
    """Return True if an unknown number of rows vanished with files that another commit removed."""
    return ROWS_VANISHED in evidence.summary and evidence.summary_count(ROWS_VANISHED) is None


def rows_lost(evidence: Evidence) -> int | None:
    """Return how many live rows files of the parent lost, or None if they cannot be counted.

    This includes deleted rows of added files: a concurrent commit deleted them in the rewritten file, and they were
    deleted again in the new one.
    """
    old = evidence.of(FileRole.REMOVED, FileRole.DELETED_FROM)
    lost = [known_difference(file.rows_before, file.rows_after) for file in old]
    again = [known_difference(file.rows, file.rows_after) for file in evidence.of(FileRole.ADDED)]
    return known_sum([*lost, *again])


def rows_written(evidence: Evidence) -> int | None:
    """Return the number of rows in added files, or None if they cannot be counted."""
    return known_sum(file.rows for file in evidence.of(FileRole.ADDED))


def known_difference(first: int | None, second: int | None) -> int | None:
    """Return the difference of two numbers, or None if one is unknown."""
    return None if first is None or second is None else first - second


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of numbers, or None if one is unknown."""
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)


Check = Callable[[Evidence, Sequence[Count]], Iterator[str]]


def files_are_listed_once(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Check that no file has two live entries, which would duplicate its rows."""
    for path in evidence.after.listed_twice:
        yield f"The file '{path}' is listed twice"


def deletes_are_unambiguous(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Check that the entries determine the delete files of each data file."""
    yield from dict.fromkeys((*evidence.before.problems, *evidence.after.problems))


def files_can_be_read(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Check that every opened file exists and is valid."""
    opened = evidence.recounter
    for found in (*opened.data_files.values(), *opened.delete_files.values()):
        if found.problem is not None:
            yield found.problem


def files_are_what_manifests_say(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Check row counts and sizes of data files and delete files."""
    listed = {entry.data_file.key: entry for files in (evidence.before, evidence.after) for entry in files.entries}
    opened = evidence.recounter
    found = {(path, None, None): file for path, file in opened.data_files.items()} | opened.delete_files
    for key, file in found.items():
        entry = listed[key].data_file
        if file.rows is not None and file.rows != entry.record_count:
            yield f"The file '{entry.path}' has {file.rows} rows, but its manifest records {entry.record_count}"
        if file.size is not None and file.size != entry.file_size_in_bytes:
            yield f"The file '{entry.path}' has {file.size} bytes, but its manifest records {entry.file_size_in_bytes}"


def positions_lie_in_their_files(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Check that no delete file names a position beyond the end of its data file."""
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
    """Check that the summary agrees with the files."""
    for count in counts:
        if not count.agrees:
            yield f"{count.name}: the summary has {count.recorded}, the files have {count.counted}"


def operation_is_true(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Check that an append removes no rows, a delete adds no files, and a replacement keeps the row count."""
    summary = evidence.snapshot.summary
    if summary is None or not evidence.complete:
        return
    operation, lost = summary.operation.value, rows_lost(evidence)
    added = evidence.of(FileRole.ADDED)
    if operation == Operation.APPEND and (lost or evidence.of(FileRole.REMOVED)):
        yield f"The operation is append, but {lost} rows were removed"
    if operation == Operation.DELETE and added:
        yield f"The operation is delete, but {len(added)} data files were added"
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


def verify(table: Table, snapshot: Snapshot | None, name: str, *, every_file: bool = False) -> Verification:
    """Verify a snapshot.

    Args:
        table: The table.
        snapshot: The snapshot; None if the table has none.
        name: The table's name in the report.
        every_file: Open all data files of the snapshot, not only those that it touched.

    Raises:
        CorruptFileError: A manifest is missing or damaged, so that the files are unknown.
        ExecutionError: The storage failed.
    """
    if snapshot is None:
        return Verification(table=name, snapshot_id=None)
    parent = parent_of(table.metadata, snapshot)
    after, before = files_of(table, snapshot), files_of(table, parent)
    # Expiring a snapshot may also remove its id from its child.
    complete = parent is not None or (snapshot.parent_snapshot_id is None and not after.inherits)
    roles = roles_of(before, after) if complete else roles_without_parent(after, snapshot)
    opened = {path: role for path, role in roles.items() if every_file or role is not FileRole.UNTOUCHED}
    recounter = Recounter(table)
    entries = {**before.data_files, **after.data_files}
    recounter.open_data_files(entries[path] for path in opened)
    tasks = [files.tasks[path] for files in (before, after) for path in opened if path in files.tasks]
    recounter.open_delete_files(ref for task in tasks for ref in deletes_of(task))
    files = tuple(
        VerifiedFile(
            path=path,
            role=role,
            rows_by_manifest=entries[path].data_file.record_count,
            rows=recounter.data_files[path].rows,
            rows_before=live_rows(recounter, before, path) if complete else None,
            rows_after=live_rows(recounter, after, path),
        )
        for path, role in opened.items()
    )
    summary = {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)
    evidence = Evidence(
        snapshot=snapshot,
        summary=summary,
        before=before,
        after=after,
        complete=complete,
        files=files,
        recounter=recounter,
    )
    counts = counts_of(evidence)
    return Verification(
        table=name,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        operation=None if snapshot.summary is None else snapshot.summary.operation.value,
        counts=counts,
        files=files,
        problems=tuple(problem for check in CHECKS for problem in check(evidence, counts)),
        unverified=tuple(unverified(evidence)),
    )


def parent_of(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    """Return the parent of a snapshot, or None if there is none or it has expired."""
    parent_id = snapshot.parent_snapshot_id
    return None if parent_id is None else metadata.snapshot_by_id(parent_id)


def roles_of(before: SnapshotFiles, after: SnapshotFiles) -> dict[str, FileRole]:
    """Determine the role of each data file of a snapshot and its parent."""
    old, new = before.data_files, after.data_files
    roles = {}
    for path in {**old, **new}:
        if path not in old:
            roles[path] = FileRole.ADDED
        elif path not in new:
            roles[path] = FileRole.REMOVED
        elif deletes_at(before, path) != deletes_at(after, path):
            roles[path] = FileRole.DELETED_FROM
        else:
            roles[path] = FileRole.UNTOUCHED
    return roles


def roles_without_parent(after: SnapshotFiles, snapshot: Snapshot) -> dict[str, FileRole]:
    """Determine the roles from the snapshot alone, if its parent has expired."""
    added = {
        path
        for path, entry in after.data_files.items()
        if entry.status is EntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
    }
    return {path: FileRole.ADDED if path in added else FileRole.UNTOUCHED for path in after.data_files}


def deletes_at(files: SnapshotFiles, path: str) -> frozenset[FileKey]:
    """Return the keys of the delete files that apply to a data file."""
    task = files.tasks.get(path)
    return frozenset() if task is None else frozenset(ref.key for ref in deletes_of(task))


def live_rows(recounter: Recounter, files: SnapshotFiles, path: str) -> int | None:
    """Return the live rows of a data file in a snapshot: 0 if it is not part of it, None if unknown."""
    task = files.tasks.get(path)
    if task is None:
        return 0 if path not in files.data_files else None
    return recounter.live_rows(task)


def unverified(evidence: Evidence) -> Iterator[str]:
    """Yield the checks that were not possible, with reasons."""
    if not evidence.complete:
        yield "The parent snapshot has expired: its removed files and deleted rows are unknown"
    if ROWS_INSERTED not in evidence.summary and ROWS_DELETED not in evidence.summary:
        yield "The summary has no counts of rows deleted, updated, inserted and carried: another engine wrote it"
    if evidence.summary.get(ROWS_VANISHED) == UNKNOWN:
        yield "Another commit removed files with rows that this one deleted, and their number is unknown"
