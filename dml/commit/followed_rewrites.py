"""Move the deletes of this commit from compacted data files to the files that replace them. Driver.

Input: the changes with their rows, and the compactions since the statement read the table. Output: changes that delete
the same rows in the new files. RowDelta's compaction stores the origins of all rows in the footers of its files
(`dml.model.row_map`). In format version 3, rows of other files are found by their row ids (`row_ids`), whichever engine
rewrote them. Several compactions are followed one after the other, oldest first. Changes of a file whose rows are in
neither are kept unchanged, and validation reports the removed file.

Only marked rows move (merge-on-read). Copy-on-write has rewritten the old file, so its rows are in two new files.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.commit.changes import FileChanges, Operation, RowLevelChanges, referenced_by
from dml.commit.concurrent_deletes import deletes_of, may_cover, write_delete_files
from dml.commit.new_manifests import CommitFiles
from dml.commit.row_ids import find_rows_once
from dml.commit.validation import row_conflict
from dml.commit.window import CommitWindow
from dml.deletes.delete_file_index import partition_key
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError
from dml.files.file_io import file_errors, open_file
from dml.model.manifest import ContentFile, EntryStatus, ManifestContent
from dml.model.row_map import ROW_MAP_KEY, RowMap
from dml.model.scan_task import FileDeletes, ScanTask
from dml.model.summary_keys import ROW_ID, ROW_MAP, ROW_MAPS, ROWS_FOLLOWED
from dml.model.write_task import ChangedFile
from dml.pruning.pruner import Pruner

__all__ = ["follow_rewrites"]

REPLACING: Final = frozenset({Operation.REPLACE})
ALL: Final = frozenset(Operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Rows of one data file that the statement changed or matched.

    Attributes:
        task: The data file.
        deleted: The positions of deleted rows.
        updated: The positions of updated rows.
        observed: The positions of rows that it matched without changing them.
    """

    task: ScanTask
    deleted: PositionDeleteIndex
    updated: PositionDeleteIndex
    observed: PositionDeleteIndex

    @property
    def changed(self) -> PositionDeleteIndex:
        """The positions of the deleted and updated rows."""
        return self.deleted.union(self.updated)

    @property
    def all_rows(self) -> PositionDeleteIndex:
        """The positions of all these rows."""
        return self.changed.union(self.observed)

    def move(self, row_map: RowMap, file: ScanTask) -> "tuple[Marks, Marks]":
        """Split the rows into those that moved to a new file, at their new positions, and the others."""
        pairs = [row_map.find(self.task.path, rows) for rows in (self.deleted, self.updated, self.observed)]
        (deleted, updated, observed), (*others,) = zip(*pairs, strict=True)
        there = Marks(task=file, deleted=deleted, updated=updated, observed=observed)
        return there, Marks(task=self.task, deleted=others[0], updated=others[1], observed=others[2])

    def union(self, other: "Marks") -> "Marks":
        """Return the rows of two marks of the same file."""
        return Marks(
            task=self.task,
            deleted=self.deleted.union(other.deleted),
            updated=self.updated.union(other.updated),
            observed=self.observed.union(other.observed),
        )

    def changed_file(self) -> ChangedFile:
        """Return the rows in the form of a task's report."""
        return ChangedFile(
            path=self.task.path,
            rows_deleted=len(self.deleted),
            rows_updated=len(self.updated),
            deleted=encode(self.deleted),
            updated=encode(self.updated),
            observed=encode(self.observed),
        )

    def file_deletes(self, before: PositionDeleteIndex | None = None) -> FileDeletes:
        """Return the deletes of the file: the changed rows, and those of `before`."""
        positions = self.changed if before is None else self.changed.union(before)
        return FileDeletes(
            path=self.task.path, spec_id=self.task.spec_id, partition=self.task.partition, positions=positions
        )


def follow_rewrites(
    changes: FileChanges, window: CommitWindow, metadata: TableMetadata, files: CommitFiles, io: FileIO
) -> FileChanges:
    """Move the deletes of compacted data files to the files that replace them.

    Args:
        changes: The changes of this commit.
        window: The snapshots since the statement read the table.
        metadata: The table's newest metadata.
        files: The files that the commit has written; new delete files are added.
        io: The table's FileIO.

    Raises:
        CommitConflictError: A row that this commit changes was deleted before its file was compacted.
        ExecutionError: The storage failed.
    """
    compactions = [snapshot for snapshot in reversed(window.snapshots) if may_be_followed(snapshot)]
    rows = changes.row_level
    if rows is None or not compactions or not rows.is_known:
        return changes
    before = {
        path: marks_of(rows, path)
        for path in rows.changed
        if path in rows.tasks and path not in changes.removed_data_files
    }
    marks = dict(before)
    ways: set[str] = set()
    counts_observed = changes.validation.new_data_files
    start_id = changes.validation.starting_snapshot_id
    start = None if start_id is None else metadata.snapshot_by_id(start_id)
    newest = 0 if start is None else start.sequence_number or 0
    for snapshot in compactions:
        compaction = CommitWindow(snapshots=(snapshot,), reader=window.reader)
        found = row_maps_of(compaction, metadata, marks, files, io, newest)
        for path, row_maps in found.by_source.items():
            rest, arrived = marks[path], []
            for file, row_map in row_maps:
                there, rest = rest.move(row_map, file)
                if there.changed or there.observed:
                    arrived.append(there)
            lost = rest.changed.union(rest.observed) if counts_observed else rest.changed
            if lost and not found.are_complete:
                continue
            if lost:
                deleting = deleting_snapshots(rest.task, window, metadata)
                raise row_conflict(path, lost, deleting or [snapshot.snapshot_id])
            del marks[path]
            for there in arrived:
                known = marks.get(there.task.path)
                marks[there.task.path] = there if known is None else known.union(there)
            ways.update(found.ways)
    moved = before.keys() - marks.keys()
    return with_moved_deletes(changes, rows, before, marks, ways, files) if moved else changes


def may_be_followed(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    is_rewrite = summary is not None and summary.operation.value == Operation.REPLACE
    return has_row_maps(snapshot) or (is_rewrite and snapshot.first_row_id is not None)


def has_row_maps(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and ROW_MAPS in snapshot.summary.additional_properties


def marks_of(rows: RowLevelChanges, path: str) -> Marks:
    deleted, updated, observed = rows.positions(path)
    return Marks(task=rows.tasks[path], deleted=deleted, updated=updated, observed=observed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMaps:
    """The row maps of one compaction.

    Attributes:
        by_source: For each old data file, the new files with its rows and their maps; empty if it had no live row.
        are_complete: True if a row that is in none of the new files was certainly deleted before.
        ways: How rows were found: `ROW_MAP`, `ROW_ID`.
    """

    by_source: Mapping[str, Sequence[tuple[ScanTask, RowMap]]]
    are_complete: bool
    ways: frozenset[str] = frozenset()


def row_maps_of(
    compaction: CommitWindow,
    metadata: TableMetadata,
    marks: Mapping[str, Marks],
    files: CommitFiles,
    io: FileIO,
    newest: int,
) -> RowMaps:
    """Return the row maps of a compaction for some old files.

    Args:
        compaction: The snapshot of the compaction.
        metadata: The table's newest metadata.
        marks: The rows to find, by old file. Files that the compaction did not replace are missing from the result.
        files: Caches the maps.
        io: The table's FileIO.
        newest: The sequence number of the snapshot that the statement read.
    """
    every = Pruner(metadata.specs(), metadata.schema(), AlwaysTrue(), case_sensitive=True)
    removed = compaction.entries(ManifestContent.DATA, EntryStatus.DELETED, REPLACING, every)
    replaced = {entry.data_file.path: entry.data_file for entry in removed if entry.data_file.path in marks}
    if not replaced:
        return RowMaps(by_source={}, are_complete=True)
    entries = compaction.entries(ManifestContent.DATA, EntryStatus.ADDED, REPLACING, every)
    added = [
        replace(
            ScanTask.of_file(entry.data_file),
            first_row_id=entry.first_row_id,
            data_sequence_number=entry.data_sequence_number or 0,
        )
        for entry in entries
    ]
    if len({file.spec_id for file in replaced.values()} | {file.spec_id for file in added}) == 1:
        # Rows stay in their partition, so footers of other partitions need not be read.
        partitions = {partition_key(file.spec_id, file.partition) for file in replaced.values()}
        added = [file for file in added if partition_key(file.spec_id, file.partition) in partitions]
    (snapshot,) = compaction.snapshots
    row_maps = read_row_maps(added, files, io) if has_row_maps(snapshot) else {}
    by_source: dict[str, list[tuple[ScanTask, RowMap]]] = {path: [] for path in replaced}
    for file in added:
        row_map = row_maps.get(file.path)
        if row_map is not None:
            for path in replaced.keys() & set(row_map.sources):
                by_source[path].append((file, row_map))
    unmapped = [file for file in added if row_maps.get(file.path) is None]
    ways = frozenset({ROW_MAP} if len(unmapped) < len(added) else ())
    if not unmapped or snapshot.first_row_id is None:
        return RowMaps(by_source=by_source, are_complete=not unmapped, ways=ways)
    wanted = {path: marks[path].all_rows for path in replaced}
    for path, known in by_source.items():
        for _, row_map in known:
            _, wanted[path] = row_map.find(path, wanted[path])
    sources = tuple(path for path, rows in wanted.items() if rows)
    searched = [
        (replace(marks[path].task, file_ordinal=ordinal), wanted[path].to_numpy())
        for ordinal, path in enumerate(sources)
    ]
    found = find_rows_once(searched, unmapped, io, files.found_rows, snapshot.first_row_id, newest)
    for file in unmapped:
        if file.path in found.origins:
            row_map = RowMap(sources=sources, origins=found.origins[file.path])
            for path in sources:
                by_source[path].append((file, row_map))
    return RowMaps(
        by_source=by_source,
        are_complete=found.are_complete,
        ways=ways | ({ROW_ID} if found.origins else frozenset()),
    )


def read_row_maps(added: Sequence[ScanTask], files: CommitFiles, io: FileIO) -> Mapping[str, RowMap | None]:
    """Return the row maps in the footers of data files, by path."""
    unknown = [file for file in added if file.path not in files.row_maps]
    with ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="row-maps") as pool:
        read = tuple(pool.map(partial(read_row_map, io), unknown))
    files.row_maps.update(zip((file.path for file in unknown), read, strict=True))
    return files.row_maps


def read_row_map(io: FileIO, file: ScanTask) -> RowMap | None:
    """Read the row map of a data file; None if the file has no map or does not exist."""
    if file.file_format != "parquet":
        return None
    try:
        with file_errors(file.path), open_file(io, file.path) as stream:
            text = (pq.read_metadata(stream).metadata or {}).get(ROW_MAP_KEY.encode())
    except (CorruptFileError, pa.ArrowException):
        return None
    return None if text is None else RowMap.from_text(text, file.path, file.record_count)


def deleting_snapshots(task: ScanTask, window: CommitWindow, metadata: TableMetadata) -> list[int | None]:
    """Return the snapshots of the window that may have deleted rows of a data file."""
    every = Pruner(metadata.specs(), metadata.schema(), AlwaysTrue(), case_sensitive=True)
    added = window.entries(ManifestContent.DELETES, EntryStatus.ADDED, ALL, every)
    return [entry.snapshot_id for entry in deletes_of(task, added)]


def with_moved_deletes(
    changes: FileChanges,
    rows: RowLevelChanges,
    before: Mapping[str, Marks],
    now: Mapping[str, Marks],
    ways: Iterable[str],
    files: CommitFiles,
) -> FileChanges:
    """Return the changes with the deletes of old files replaced by those of new ones.

    Args:
        changes: The changes of this commit.
        rows: Their rows.
        before: The marked files, by path, as the statement read them.
        now: The same after the compactions.
        ways: How rows were found.
        files: The files that the commit has written; new delete files are added.
    """
    moved = before.keys() - now.keys()
    arrived = now.keys() - before.keys()
    outdated = [file for file in changes.added_delete_files if covers_any(file, [before[path].task for path in moved])]
    # A partition's delete file may also delete rows of files that were not compacted, including rows deleted earlier.
    staying = [
        mark for path, mark in now.items() if path in before and any(covers_any(file, [mark.task]) for file in outdated)
    ]
    wanted = {path: now[path].file_deletes() for path in arrived if now[path].changed}
    wanted |= {mark.task.path: mark.file_deletes(rows.rows_deleted_before(mark.task.path)) for mark in staying}
    new = write_delete_files(rows, {path: (deletes, frozenset()) for path, deletes in wanted.items()}, files)
    kept = tuple(file for file in changes.added_delete_files if file not in outdated)
    # Rows that were matched without a change must still exist, too, where V1 is checked (serializable).
    needed = wanted.keys() | (arrived if changes.validation.new_data_files else set())
    old_keys = {
        ref.key
        for path in moved
        for ref in (*before[path].task.position_deletes, before[path].task.deletion_vector)
        if ref is not None
    }
    validation = changes.validation
    added = (*kept, *new)
    return replace(
        changes,
        added_delete_files=added,
        removed_delete_files=changes.removed_delete_files - old_keys,
        summary=(*changes.summary, (ROWS_FOLLOWED, ", ".join(sorted(ways)))),
        rows_deleted={
            **{path: count for path, count in changes.rows_deleted.items() if path not in moved},
            **{path: len(now[path].deleted) for path in arrived},
        },
        row_level=replace(
            rows,
            changed={
                **{path: file for path, file in rows.changed.items() if path not in moved},
                **{path: now[path].changed_file() for path in arrived},
            },
            tasks={**rows.tasks, **{path: now[path].task for path in arrived}},
        ),
        validation=replace(
            validation,
            referenced_data_files=(validation.referenced_data_files - moved) | needed,
            added_vectors=referenced_by(file for file in added if file.is_deletion_vector),
        ),
    )


def covers_any(delete: ContentFile, tasks: Sequence[ScanTask]) -> bool:
    return any(may_cover(delete, task.path, partition_key(task.spec_id, task.partition)) for task in tasks)
