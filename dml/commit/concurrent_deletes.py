"""Reconciles this commit's changes with concurrent deletes in the same data files, row by row. Driver.

Input: the changes with their rows, and the delete files that were added since the statement read the table. Output:
changes that keep both sides' deletes, or a conflict that names the file and the rows.

Each side's own rows are the positions in its delete file that were not deleted at the start. Merge-on-read: on version
3 the two vectors of a data file become one, which replaces the concurrent one; on version 2 both position delete files
remain. Copy-on-write: concurrent deletes are applied to the new data files too. Under serializable isolation, rows that
the statement matched without changing them count as well: without them it might have inserted.

Rows that a rewrite has moved are found by the origins that its tasks reported, and in format version 3 by their row ids
where tasks reported none, because there are too many runs of rows (a sort).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.io import FileIO

from dml.commit.changes import FileChanges, Operation, RowLevelChanges
from dml.commit.new_manifests import CommitFiles
from dml.commit.row_ids import find_rows_once
from dml.commit.validation import only_data_file, row_conflict
from dml.commit.window import CommitWindow
from dml.deletes.delete_file_index import partition_key
from dml.deletes.position_delete_file import FILE_PATH_ID
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.manifest import ContentFile, DeleteFileKey, EntryStatus, FileContent, ManifestContent, ManifestEntry
from dml.model.scan_task import DeleteFileRef, FileDeletes, ScanTask
from dml.model.summary_keys import DELETES_REAPPLIED, ROW_ID, ROWS_FOLLOWED
from dml.model.write_task import RowOrigins
from dml.pruning.pruner import FileFilter

__all__ = ["Reconciled", "reconcile"]


ALL = frozenset(Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """Changes that are compatible with concurrent deletes.

    Attributes:
        changes: The changes.
        compared_files: Keys of concurrent delete files that were compared row by row: later checks pass over them.
    """

    changes: FileChanges
    compared_files: frozenset[DeleteFileKey] = frozenset()


def reconcile(
    changes: FileChanges, window: CommitWindow, wanted: FileFilter, files: CommitFiles, io: FileIO
) -> Reconciled:
    """Compare concurrent deletes row by row, if possible.

    Args:
        changes: The changes of this commit.
        window: The snapshots since the statement read the table.
        wanted: The files that may hold rows that the statement read.
        files: The files that the commit has written; new delete files are added.
        io: The table's FileIO.

    Raises:
        CommitConflictError: Another commit deleted a row that this one changes.
        CorruptFileError: A delete file cannot be read.
    """
    rows = changes.row_level
    if rows is None or not window.snapshots or not rows.is_known or changes.removed_data_files - rows.changed.keys():
        return Reconciled(changes=changes)
    removed_keys = {
        entry.data_file.key for entry in window.entries(ManifestContent.DELETES, EntryStatus.DELETED, ALL, wanted)
    }
    added = [
        entry
        for entry in window.entries(ManifestContent.DELETES, EntryStatus.ADDED, ALL, wanted)
        if entry.data_file.content is FileContent.POSITION_DELETES
    ]
    # Deletes of a delete file that was replaced meanwhile are in its replacement.
    theirs = [entry for entry in added if entry.data_file.key not in removed_keys]
    found = {path: deletes_of(rows.tasks[path], theirs) for path in rows.changed if path in rows.tasks}
    conflicting = {path: entries for path, entries in found.items() if entries}
    unions: dict[str, FileDeletes] = {}
    moved: dict[str, PositionDeleteIndex] = {}
    for path, entries in conflicting.items():
        deletes = compare_deletes(rows, path, entries, serializable=changes.validation.new_data_files)
        if path in changes.removed_data_files:
            moved[path] = deletes.theirs
        elif any(entry.data_file.is_deletion_vector for entry in entries):
            unions[path] = deletes.union(rows.tasks[path])
    late = map_late_deletes(moved, rows.tasks, changes.added_data_files, rows.row_origins)
    if late is None:
        by_row_id = origins_by_row_id(moved, rows, changes.added_data_files, files, io)
        late = map_late_deletes(moved, rows.tasks, changes.added_data_files, (*rows.row_origins, *by_row_id))
        if late is None:
            return Reconciled(changes=changes)
        changes = replace(changes, summary=(*changes.summary, (ROWS_FOLLOWED, ROW_ID)))
    if late:
        keys = frozenset(entry.data_file.key for path in moved for entry in conflicting[path])
        changes = with_late_deletes(changes, rows, keys, late, files)
    return Reconciled(
        changes=with_unions(changes, rows, conflicting, unions, removed_keys, files),
        compared_files=frozenset(entry.data_file.key for entry in added),
    )


def origins_by_row_id(
    deleted: Mapping[str, PositionDeleteIndex],
    rows: RowLevelChanges,
    data_files: Sequence[ContentFile],
    files: CommitFiles,
    io: FileIO,
) -> Collection[RowOrigins]:
    """Find concurrently deleted rows in those new files whose row origins are unknown.

    Args:
        deleted: The rows that others deleted, by old data file.
        rows: The rows of this commit.
        data_files: Its new data files.
        files: Caches the result.
        io: The table's FileIO.

    Returns:
        The origins of the rows by their row ids; none in format version 2, which has no row ids.
    """
    known = {origins.data_file for origins in rows.row_origins}
    unknown = [ScanTask.of_file(file) for file in data_files if file.path not in known]
    tasks = [rows.tasks[path] for path in deleted]
    if not unknown or any(task.first_row_id is None for task in tasks):
        return ()
    wanted = [(task, deleted[task.path].to_numpy()) for task in tasks]
    return find_rows_once(wanted, unknown, io, files.found_rows).origins.values()


def with_late_deletes(
    changes: FileChanges,
    rows: RowLevelChanges,
    theirs: frozenset[DeleteFileKey],
    late: Sequence[FileDeletes],
    files: CommitFiles,
) -> FileChanges:
    # The new data files may have deletion vectors of this commit already, and may have one each.
    paths = {file.path for file in late}
    own = {
        file.referenced_data_file: file
        for file in changes.added_delete_files
        if file.is_deletion_vector and file.referenced_data_file in paths
    }
    every = [with_own(file, rows, own[file.path]) if file.path in own else file for file in late]
    new = write_delete_files(rows, {file.path: (file, theirs) for file in every}, files)
    replaced = {file.key for file in own.values()}
    kept = tuple(file for file in changes.added_delete_files if file.key not in replaced)
    return replace(
        changes,
        added_delete_files=(*kept, *new),
        summary=(*changes.summary, (DELETES_REAPPLIED, str(sum(len(file.positions) for file in late)))),
    )


def with_own(late: FileDeletes, rows: RowLevelChanges, own: ContentFile) -> FileDeletes:
    """Return late deletes of a new data file together with those of its new deletion vector."""
    ref = DeleteFileRef.of(own, referenced_data_file=late.path, data_sequence_number=0)
    return replace(late, positions=late.positions.union(rows.loader.positions_in(late.path, [ref])))


def write_delete_files(
    rows: RowLevelChanges,
    wanted: Mapping[str, tuple[FileDeletes, frozenset[DeleteFileKey]]],
    files: CommitFiles,
) -> tuple[ContentFile, ...]:
    """Return delete files for the paths; each is written once per set of concurrent deletes."""
    missing = {path: key for path, (_, key) in wanted.items() if (path, key) not in files.delete_files}
    new = rows.write_deletes([wanted[path][0] for path in missing])
    files.delete_files.update(zip(missing.items(), new, strict=True))
    return tuple(files.delete_files[path, key] for path, (_, key) in wanted.items())


def with_unions(
    changes: FileChanges,
    rows: RowLevelChanges,
    theirs: Mapping[str, Sequence[ManifestEntry]],
    unions: Mapping[str, FileDeletes],
    removed_keys: set[DeleteFileKey],
    files: CommitFiles,
) -> FileChanges:
    keys = {path: frozenset(entry.data_file.key for entry in theirs[path]) for path in unions}
    new = write_delete_files(rows, {path: (union, keys[path]) for path, union in unions.items()}, files)
    kept = tuple(file for file in changes.added_delete_files if file.referenced_data_file not in unions)
    replaced = frozenset(key for path in unions for key in keys[path])
    return replace(
        changes,
        added_delete_files=(*kept, *new),
        # Delete files that another commit already removed: its own delete files contain their deletes.
        removed_delete_files=(changes.removed_delete_files - removed_keys) | replaced,
    )


def deletes_of(task: ScanTask, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return the position delete entries that may delete rows of a data file."""
    key = partition_key(task.spec_id, task.partition)
    return [entry for entry in entries if may_cover(entry.data_file, task.path, key)]


def may_cover(delete: ContentFile, path: str, key: object) -> bool:
    scope = only_data_file(delete)
    if scope is not None:
        return scope == path
    lower, upper = delete.lower_bounds.get(FILE_PATH_ID), delete.upper_bounds.get(FILE_PATH_ID)
    within = (lower is None or lower <= path.encode()) and (upper is None or path.encode()[: len(upper)] <= upper)
    return within and partition_key(delete.spec_id, delete.partition) == key


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """Deleted rows of a data file.

    Attributes:
        theirs: Rows that others deleted since the statement read the file.
        mine: Rows that this commit deletes or updates.
        others: `theirs`, and rows deleted before.
    """

    theirs: PositionDeleteIndex
    mine: PositionDeleteIndex
    others: PositionDeleteIndex

    def union(self, task: ScanTask) -> FileDeletes:
        """Return all deletes of the file."""
        positions = self.others.union(self.mine)
        return FileDeletes(path=task.path, spec_id=task.spec_id, partition=task.partition, positions=positions)


def compare_deletes(
    rows: RowLevelChanges, path: str, entries: Sequence[ManifestEntry], *, serializable: bool
) -> Deletes:
    """Return both sides' deletes of a data file.

    Raises:
        CommitConflictError: Both sides deleted the same row.
    """
    before = rows.rows_deleted_before(path)
    now = rows.loader.positions_in(path, [delete_file_ref(entry) for entry in entries])
    theirs, mine = now.difference(before), rows.changed_rows(path)
    read = mine.union(rows.observed_rows(path)) if serializable else mine
    both = theirs.intersection(read)
    if both:
        raise row_conflict(path, both, [entry.snapshot_id for entry in entries])
    return Deletes(theirs=theirs, mine=mine, others=now.union(before))


def delete_file_ref(entry: ManifestEntry) -> DeleteFileRef:
    file = entry.data_file
    return DeleteFileRef.of(
        file, referenced_data_file=only_data_file(file), data_sequence_number=entry.data_sequence_number or 0
    )


def map_late_deletes(
    deleted: Mapping[str, PositionDeleteIndex],
    tasks: Mapping[str, ScanTask],
    data_files: Iterable[ContentFile],
    row_origins: Iterable[RowOrigins],
) -> tuple[FileDeletes, ...] | None:
    """Map concurrently deleted rows to their positions in the new files.

    Args:
        deleted: The rows that others deleted, by old data file; disjoint from those that this commit deletes.
        tasks: The old data files, by path.
        data_files: The new data files.
        row_origins: The old positions of their rows.

    Returns:
        The deletes of each new file that has any; None if a row was not found.
    """
    by_path = {origins.data_file: origins for origins in row_origins}
    missing = {path: positions.to_numpy() for path, positions in deleted.items()}
    result = []
    for file in data_files:
        origins = by_path.get(file.path)
        if origins is None:
            continue
        places = PositionDeleteIndex()
        for path, positions in missing.items():
            found, there = origins.find(tasks[path].file_ordinal, positions)
            places.add_many(there)
            missing[path] = positions[~found]
        if places:
            result.append(FileDeletes(path=file.path, spec_id=file.spec_id, partition=file.partition, positions=places))
    return tuple(result) if all(not np.size(left) for left in missing.values()) else None
