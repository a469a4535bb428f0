"""What has to be true of a snapshot, one function for each rule. Pure; driver.

Input: what was read. Output: sentences about what is not so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dml.commit.changes import Operation
from dml.verification.evidence import Evidence, rows_gone
from dml.verification.recount import deletes_of
from dml.verification.report import Count, FileRole

__all__ = ["CHECKS"]

Check = Callable[[Evidence, Sequence[Count]], Iterator[str]]


def files_are_listed_once(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """A file with two live entries gives its rows twice."""
    for path in evidence.after.listed_twice:
        yield f"The file '{path}' is listed twice"


def deletes_are_unambiguous(evidence: Evidence, _: Sequence[Count]) -> Iterator[str]:
    """Which delete files apply is told by their entries."""
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
        said = listed[key].data_file
        if file.rows is not None and file.rows != said.record_count:
            yield f"The file '{said.path}' has {file.rows} rows, and its manifest says {said.record_count}"
        if file.size is not None and file.size != said.file_size_in_bytes:
            yield f"The file '{said.path}' has {file.size} bytes, and its manifest says {said.file_size_in_bytes}"


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
            yield f"{count.name}: the summary says {count.said}, the files say {count.counted}"


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
