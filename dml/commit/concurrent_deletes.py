"""Deletes that other commits made in the data files in which this commit deletes rows: row against row. Driver.

Input: the changes, with the rows that they are about, and the delete files that came since the statement read the
table. Output: changes that keep both sides' deletes; or a conflict that names the file and the rows.

Each side's own rows are what its delete file holds beyond the delete files that were there at the start, so that rows
deleted before count for neither. On version 3 the two vectors of a data file become one, which replaces the other's; on
version 2 both position delete files stand. Rows that the statement matched and left as they are count as well under
serializable isolation: without them it might have inserted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dml.commit.changes import FileChanges, Operation
from dml.commit.file_filter import FileFilter
from dml.commit.row_level_changes import RowLevelChanges
from dml.commit.validation import only_data_file, row_conflict
from dml.commit.window import CommitWindow
from dml.deletes.delete_file_index import partition_key
from dml.deletes.position_delete_file import FILE_PATH_ID
from dml.model.content_file import ContentFile, FileContent
from dml.model.file_deletes import FileDeletes
from dml.model.listing import DeleteFileKey
from dml.model.manifest import EntryStatus, ManifestContent, ManifestEntry
from dml.model.scan_task import DeleteFileRef, ScanTask

__all__ = ["ConcurrentDeletes", "Reconciled"]

_ALL = frozenset(Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Changes that stand beside what others did.

    Attributes:
        changes: The changes.
        settled: Keys of the delete files of others that were looked at row by row: they are no conflict.
    """

    changes: FileChanges
    settled: frozenset[DeleteFileKey] = frozenset()


@dataclass(slots=True)
class ConcurrentDeletes:
    """Reconciles the attempts of one commit.

    Attributes:
        written: Locations of the delete files that were written on the way.
    """

    written: set[str] = field(default_factory=set)
    _merged: dict[tuple[str, frozenset[DeleteFileKey]], ContentFile] = field(default_factory=dict)

    def reconcile(self, changes: FileChanges, window: CommitWindow, wanted: FileFilter) -> Reconciled:
        """Look at the deletes of others row by row, if that is possible.

        Args:
            changes: What the commit does.
            window: The snapshots since the statement read the table.
            wanted: The files that hold rows which the statement read.

        Raises:
            CommitConflictError: another commit deleted a row that this one changes.
            CorruptFileError: a delete file cannot be read.
        """
        rows = changes.row_level
        if rows is None or not window.snapshots or not rows.is_known:
            return Reconciled(changes=changes)
        gone = {
            entry.data_file.key for entry in window.entries(ManifestContent.DELETES, EntryStatus.DELETED, _ALL, wanted)
        }
        added = [
            entry
            for entry in window.entries(ManifestContent.DELETES, EntryStatus.ADDED, _ALL, wanted)
            if entry.data_file.content is FileContent.POSITION_DELETES
        ]
        # What one of them took away again lives on in the delete file that replaced it.
        theirs = [entry for entry in added if entry.data_file.key not in gone]
        found = {path: deletes_of(rows.tasks[path], theirs) for path in rows.changed if path in rows.tasks}
        conflicting = {path: entries for path, entries in found.items() if entries}
        unions: dict[str, FileDeletes] = {}
        for path, entries in conflicting.items():
            union = _union(rows, path, entries, serializable=changes.validation.new_data_files)
            if any(entry.data_file.is_deletion_vector for entry in entries):
                unions[path] = union
        return Reconciled(
            changes=self._with_unions(changes, rows, conflicting, unions, gone),
            settled=frozenset(entry.data_file.key for entry in added),
        )

    def _with_unions(
        self,
        changes: FileChanges,
        rows: RowLevelChanges,
        theirs: Mapping[str, Sequence[ManifestEntry]],
        unions: Mapping[str, FileDeletes],
        gone: set[DeleteFileKey],
    ) -> FileChanges:
        keys = {path: frozenset(entry.data_file.key for entry in theirs[path]) for path in unions}
        missing = [path for path in unions if (path, keys[path]) not in self._merged]
        for path, file in zip(missing, rows.deletes.write([unions[path] for path in missing]), strict=True):
            self.written.add(file.path)
            self._merged[path, keys[path]] = file
        kept = tuple(file for file in changes.added_delete_files if file.referenced_data_file not in unions)
        replaced = frozenset(key for path in unions for key in keys[path])
        return replace(
            changes,
            added_delete_files=(*kept, *(self._merged[path, keys[path]] for path in unions)),
            # What another commit took away before us, its own delete files hold.
            removed_delete_files=(changes.removed_delete_files - gone) | replaced,
        )


def deletes_of(task: ScanTask, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The entries of position deletes that may hold rows of a data file."""
    key = partition_key(task.spec_id, task.partition)
    return [entry for entry in entries if _may_cover(entry.data_file, task.path, key)]


def _may_cover(delete: ContentFile, path: str, key: object) -> bool:
    scope = only_data_file(delete)
    if scope is not None:
        return scope == path
    lower, upper = delete.lower_bounds.get(FILE_PATH_ID), delete.upper_bounds.get(FILE_PATH_ID)
    within = (lower is None or lower <= path.encode()) and (upper is None or path.encode()[: len(upper)] <= upper)
    return within and partition_key(delete.spec_id, delete.partition) == key


def _union(rows: RowLevelChanges, path: str, entries: Sequence[ManifestEntry], *, serializable: bool) -> FileDeletes:
    """Both sides' deletes of a data file, and those before them.

    Raises:
        CommitConflictError: the two have a row in common.
    """
    task = rows.tasks[path]
    before = rows.rows_deleted_before(path)
    now = rows.deletes.read(path, [reference(entry) for entry in entries])
    theirs, mine = now.difference(before), rows.changed_rows(path)
    read = mine.union(rows.observed_rows(path)) if serializable else mine
    both = theirs.intersection(read)
    if both:
        raise row_conflict(path, both, [entry.snapshot_id for entry in entries])
    return FileDeletes(
        path=path, spec_id=task.spec_id, partition=task.partition, positions=now.union(before).union(mine)
    )


def reference(entry: ManifestEntry) -> DeleteFileRef:
    """A delete file as a reader takes it."""
    file = entry.data_file
    return DeleteFileRef(
        path=file.path,
        file_format=file.file_format,
        content_offset=file.content_offset,
        content_size_in_bytes=file.content_size_in_bytes,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        referenced_data_file=only_data_file(file),
        equality_ids=file.equality_ids,
        data_sequence_number=entry.data_sequence_number or 0,
    )
