"""Row conservation: accounts for every row before anything is published. Pure; driver.

Input: the row counts of tasks, the manifest entries of the data files that were read, and the files that were written.
Output: the counts for the snapshot's summary, or an error that names the file.

For each data file: rows before = carried + updated + deleted (copy-on-write), positions newly deleted = deleted +
updated (merge-on-read). For the statement: rows added = carried + updated + inserted. The two sides of each equation
come from different places: the delta that Spark computed, the rows that were read, the files' own footers, and the
manifests of the snapshot that was read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dml.errors import RowConservationError
from dml.model.manifest import ContentFile
from dml.model.scan_task import ScanTask
from dml.model.summary_keys import ROWS_CARRIED, ROWS_DELETED, ROWS_INSERTED, ROWS_UPDATED
from dml.model.write_task import ChangedFile

__all__ = [
    "RowCounts",
    "check_changed_files",
    "check_rows_added",
    "conservation_summary",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """The row counts of a statement.

    Attributes:
        deleted: Rows deleted.
        updated: Rows updated.
        inserted: Rows inserted.
        carried: Rows copied unchanged.
    """

    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    carried: int = 0


def check_changed_files(
    changed: Iterable[ChangedFile],
    tasks: Mapping[str, ScanTask],
    delete_files: Iterable[ContentFile],
    counts: RowCounts,
) -> None:
    """Check each data file, and the sum of all files against the statement's counts.

    Args:
        changed: The changes of each data file, as tasks reported them.
        tasks: The data files that were scanned, by path.
        delete_files: New delete files.
        counts: The row counts of the whole statement.

    Raises:
        RowConservationError: Rows were lost or duplicated; the context names the file.
    """
    vectors = {file.referenced_data_file: file.record_count for file in delete_files if file.is_deletion_vector}
    deleted = updated = 0
    for file in changed:
        task = tasks.get(file.path)
        if task is None:
            raise not_conserved(f"'{file.path}' was changed, and the statement did not read it", file.path)
        if file.rows_before is not None:
            check_rewritten(file, task)
        else:
            check_marked(file, task, vectors.get(file.path))
        deleted += file.rows_deleted
        updated += file.rows_updated
    if (deleted, updated) != (counts.deleted, counts.updated):
        raise not_conserved(
            f"{counts.deleted} rows were to be deleted and {counts.updated} updated; in the data files these are "
            f"{deleted} and {updated}",
            None,
        )


def check_rewritten(file: ChangedFile, task: ScanTask) -> None:
    before, carried = file.rows_before or 0, file.rows_carried or 0
    if before != carried + file.rows_updated + file.rows_deleted:
        raise not_conserved(
            f"'{file.path}' had {before} rows; {carried} were carried, {file.rows_updated} updated and "
            f"{file.rows_deleted} deleted",
            file.path,
        )
    vector = task.deletion_vector
    expected = task.record_count - (0 if vector is None else vector.record_count)
    exact = not task.position_deletes and not task.equality_deletes  # delete files may name a row twice
    if before > expected or (exact and before != expected):
        raise not_conserved(f"'{file.path}' has {expected} rows by its manifest, and {before} were read", file.path)


def check_marked(file: ChangedFile, task: ScanTask, vector_rows: int | None) -> None:
    before, after = file.deletes_before or 0, file.deletes_after or 0
    if after - before != file.rows_deleted + file.rows_updated:
        raise not_conserved(
            f"{file.rows_deleted} rows of '{file.path}' were deleted and {file.rows_updated} updated, but its delete "
            f"files grew from {before} to {after} positions",
            file.path,
        )
    if vector_rows is not None and vector_rows != after:
        raise not_conserved(
            f"The deletion vector of '{file.path}' has {vector_rows} positions, {after} expected", file.path
        )
    if task.deletion_vector is not None and task.deletion_vector.record_count != before:
        raise not_conserved(
            f"The old deletion vector of '{file.path}' has {task.deletion_vector.record_count} positions by its "
            f"manifest, and {before} were read",
            file.path,
        )
    if after > task.record_count:
        raise not_conserved(f"{after} rows of '{file.path}' are deleted, and it has {task.record_count}", file.path)


def check_rows_added(data_files: Iterable[ContentFile], counts: RowCounts) -> None:
    """Check that new data files hold the expected number of rows.

    Raises:
        RowConservationError: They hold more or fewer rows.
    """
    files = tuple(data_files)
    added = sum(file.record_count for file in files)
    expected = counts.carried + counts.updated + counts.inserted
    if added != expected:
        raise not_conserved(
            f"The new data files hold {added} rows; {counts.carried} were carried, {counts.updated} updated and "
            f"{counts.inserted} inserted, which makes {expected}",
            files[0].path if len(files) == 1 else None,
        )


def conservation_summary(counts: RowCounts) -> dict[str, str]:
    """Return the counts as keys of the snapshot's summary."""
    return {
        ROWS_DELETED: str(counts.deleted),
        ROWS_UPDATED: str(counts.updated),
        ROWS_INSERTED: str(counts.inserted),
        ROWS_CARRIED: str(counts.carried),
    }


def not_conserved(message: str, file: str | None) -> RowConservationError:
    return RowConservationError(
        f"Rows do not add up: {message}",
        hint="Nothing was published, the table is unchanged. The files that were written are kept, for a report",
        file=file,
    )
