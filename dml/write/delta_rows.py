"""The row delta of a task: its changes by data file, the new rows, and counts of both. Worker.

Input: the batches of one task, in the layout of `DeltaLayout`, sorted by file and position. Output: the changes of each
data file, ordered by position and one per position; and the inserted rows. One batch at a time is in memory.
`RowBuilder` builds batches of the file layout from value columns of a delta and rows of a data file.

For the report to the driver, `RowLog` counts the rows of each data file that the delta names, and `OriginLog` records
which rows of which files go to each new file. Its origin column travels with the rows through partitioning and
sorting, and is removed before they are written.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml import limits
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import DataError, ErrorKind, ExecutionError
from dml.model.columns import (
    BY_SOURCE,
    FILE_ORDINAL,
    LAST_UPDATED_SEQUENCE_NUMBER_ID,
    POS,
    ROW_OPERATION,
    DeltaLayout,
    RowOperation,
)
from dml.model.row_map import RowMap
from dml.model.scan_task import ScanTask
from dml.model.write_task import NEW_ROWS, ChangedFile, Numbers, RowOrigins, TaskMetrics, origins
from dml.read.reader import FileBatch
from dml.write.file_layout import FileLayout, convert_array

__all__ = [
    "ChangeCursor",
    "DeltaCounts",
    "FileDelta",
    "OriginLog",
    "RowBuilder",
    "RowChanges",
    "check_live",
    "delta_runs",
    "drop_large_positions",
    "missing_row_error",
    "with_origins",
]

Positions = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class RowLog:
    """The rows of one data file that the delta has named so far."""

    deleted: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    updated: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    observed: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)

    def add_changes(self, positions: Positions, operations: npt.NDArray[np.int32]) -> None:
        """Record rows that change."""
        updates = operations == RowOperation.UPDATE
        self.updated.add_many(positions[updates])
        self.deleted.add_many(positions[~updates])

    @property
    def changed(self) -> PositionDeleteIndex:
        """The deleted and updated rows."""
        return self.deleted.union(self.updated)

    def changed_file(self, path: str) -> ChangedFile:
        """Return the log in the form of the task's report."""
        return ChangedFile(
            path=path,
            rows_deleted=len(self.deleted),
            rows_updated=len(self.updated),
            deleted=encode(self.deleted),
            updated=encode(self.updated),
            observed=encode(self.observed.difference(self.changed)),
        )


def drop_large_positions(files: Sequence[ChangedFile], max_bytes: int) -> tuple[ChangedFile, ...]:
    """Return the files with their positions, or without them if they are too large for the report."""
    size = sum(len(part or b"") for file in files for part in (file.deleted, file.updated, file.observed))
    if size <= min(max_bytes, limits.MAX_TASK_POSITION_BYTES):
        return tuple(files)
    return tuple(replace(file, deleted=None, updated=None, observed=None) for file in files)


ORIGIN_COLUMN: Final = pa.field("_origin", pa.int64(), nullable=False)


class OriginLog:
    """The origins of all rows that one task writes.

    Args:
        max_runs: Above this number of runs, the log is dropped.
        max_encoded_bytes: Above this size, the log is not reported.
        sources: The path of each old file by its ordinal, for a compaction, whose new files have row maps.
    """

    def __init__(
        self,
        *,
        max_runs: int = limits.MAX_TASK_ORIGIN_RUNS,
        max_encoded_bytes: int = limits.MAX_TASK_ORIGIN_BYTES,
        sources: Mapping[int, str] | None = None,
    ) -> None:
        self._sources = sources
        self._max_runs = max_runs
        self._max_encoded_bytes = max_encoded_bytes
        self._runs: dict[str, list[tuple[Numbers, Numbers]]] = {}
        self._count = 0
        self._new_rows = 0
        self._given_up = False

    def with_carried_origins(self, batch: pa.RecordBatch, ordinal: int, start: int) -> pa.RecordBatch:
        """Add origins to a batch of neighbouring rows of a data file."""
        return with_origins(batch, origins(ordinal, start, batch.num_rows))

    def with_new_origins(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add origins to a batch of new rows."""
        first = NEW_ROWS + self._new_rows
        self._new_rows += batch.num_rows
        return with_origins(batch, np.arange(first, first + batch.num_rows, dtype=np.int64))

    def note_copied(
        self, location: str, ordinal: int, start: int, rows: int, keep: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Record that the next rows of a new file are neighbouring rows of a data file.

        Args:
            location: The new file.
            ordinal: The data file.
            start: The position of the first row.
            rows: The number of rows, before `keep` applies.
            keep: The mask of rows to record; None for all.
        """
        if not self._given_up:
            numbers = origins(ordinal, start, rows)
            self._note(numbers if keep is None else numbers[keep], location)

    def take(self, batch: pa.RecordBatch, location: str) -> pa.RecordBatch:
        """Remove the origins from a batch, and record them as those of the next rows of a file.

        Args:
            batch: The rows, with origins as the last column.
            location: The file.
        """
        last = batch.num_columns - 1
        if not self._given_up:
            self._note(batch.column(last).to_numpy(), location)
        return batch.select(list(range(last)))

    def _note(self, numbers: Numbers, location: str) -> None:
        if not len(numbers):
            return
        begins = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(numbers) != 1) + 1])
        lengths = np.diff(begins, append=len(numbers))
        self._runs.setdefault(location, []).append((numbers[begins], lengths))
        self._count += len(begins)
        if self._count > self._max_runs:
            self._given_up = True
            self._runs.clear()

    def row_map(self, location: str) -> str | None:
        """Return the row map of a file whose rows are all noted; None if it has none, or one that is too large."""
        if self._sources is None or location not in self._runs:
            return None
        text = RowMap.of(RowOrigins.of(location, *merge_runs(self._runs[location])), self._sources).to_text()
        return text if len(text) <= limits.MAX_ROW_MAP_BYTES else None

    def report(self) -> tuple[RowOrigins, ...]:
        """Return the origins, file by file, or nothing if they exceed a limit."""
        found: list[RowOrigins] = []
        size = 0
        for location, parts in self._runs.items():
            found.append(RowOrigins.of(location, *merge_runs(parts)))
            size += len(found[-1].encoded)
            if size > self._max_encoded_bytes:
                return ()
        return tuple(found)


def with_origins(batch: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    """Return a batch with the origins of its rows as the last column."""
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], schema=batch.schema.append(ORIGIN_COLUMN))


def merge_runs(parts: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Merge the runs of a file that only the end of a batch separates."""
    firsts = np.concatenate([part[0] for part in parts])
    lengths = np.concatenate([part[1] for part in parts])
    begins = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), firsts[1:] != firsts[:-1] + lengths[:-1]]))
    return firsts[begins], np.add.reduceat(lengths, begins)


Operations = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
NO_FILE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """Rows of one data file that are deleted or updated.

    Attributes:
        positions: The positions, ascending and unique.
        operations: DELETE or UPDATE for each position.
        values: The value columns of the delta.
    """

    positions: Positions
    operations: Operations
    values: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return int(self.positions.nbytes + self.operations.nbytes + self.values.nbytes)

    @property
    def updates(self) -> Mask:
        """The mask of the updates."""
        updates: Mask = self.operations == RowOperation.UPDATE
        return updates

    def slice(self, start: int, end: int) -> "RowChanges":
        """Return a range of the changes, without copying."""
        return RowChanges(
            positions=self.positions[start:end],
            operations=self.operations[start:end],
            values=self.values.slice(start, end - start),
        )

    def only_updates(self) -> "RowChanges":
        """Return the updates alone."""
        updates = self.updates
        if updates.all():
            return self
        return RowChanges(
            positions=self.positions[updates],
            operations=self.operations[updates],
            values=filter_values(self.values, updates),
        )

    @staticmethod
    def concat(parts: list["RowChanges"]) -> "RowChanges":
        """Concatenate changes of one file, in order."""
        if len(parts) == 1:
            return parts[0]
        return RowChanges(
            positions=np.concatenate([part.positions for part in parts]),
            operations=np.concatenate([part.operations for part in parts]),
            values=pa.concat_batches([part.values for part in parts]),
        )


@dataclass(slots=True, kw_only=True)
class DeltaCounts:
    """Counts of a row delta, which grow while it is read."""

    matched: int = 0
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    deleted_by_source: int = 0
    updated_by_source: int = 0

    def metrics(self, *, rows_carried: int = 0) -> TaskMetrics:
        """Return the counts as the task reports them.

        Args:
            rows_carried: Rows copied unchanged into rewritten files.
        """
        return TaskMetrics(
            rows_matched=self.matched,
            rows_deleted=self.deleted,
            rows_updated=self.updated,
            rows_inserted=self.inserted,
            rows_deleted_by_source=self.deleted_by_source,
            rows_updated_by_source=self.updated_by_source,
            rows_carried=rows_carried,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDelta:
    """The changes of one data file. Consume them before requesting the next run.

    Attributes:
        ordinal: The file ordinal.
        changes: The changes, by position.
        log: The rows that the delta names. Complete once the changes are consumed.
    """

    ordinal: int
    changes: Iterator[RowChanges]
    log: RowLog


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedRows:
    """The value columns of inserted rows. Consume them before requesting the next run."""

    batches: Iterator[pa.RecordBatch]


def delta_runs(
    batches: Iterable[pa.RecordBatch], layout: DeltaLayout, counts: DeltaCounts
) -> Iterator[FileDelta | InsertedRows]:
    """Split the row delta of one task by data file.

    Args:
        batches: The delta.
        layout: The delta's layout.
        counts: Updated while rows are consumed.

    Raises:
        DataError: Two source rows match one target row, and the layout checks cardinality.
        ExecutionError: The rows are not sorted by file and position.
    """
    seen: set[int] = set()
    for ordinal, run in groupby(segments(batches), key=lambda segment: segment[0]):
        parts = (batch for _, batch in run)
        if ordinal == NO_FILE:
            yield InsertedRows(batches=inserted_values(parts, counts))
            continue
        if ordinal in seen:
            raise ExecutionError(f"The delta rows of data file {ordinal} are not contiguous", file_ordinal=ordinal)
        seen.add(ordinal)
        log = RowLog()
        yield FileDelta(ordinal=ordinal, changes=file_changes(ordinal, parts, layout, counts, log), log=log)


def segments(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        ordinals = integers(batch.column(FILE_ORDINAL), NO_FILE)
        starts = [0, *(np.flatnonzero(np.diff(ordinals)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(starts):
            yield int(ordinals[start]), batch.slice(start, end - start)


def integers(column: pa.Array, null: int) -> npt.NDArray[np.int64]:
    filled = column.fill_null(null) if column.null_count else column
    values: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False)
    return values


def operation_codes(batch: pa.RecordBatch) -> Operations:
    return integers(batch.column(ROW_OPERATION), RowOperation.MATCHED).astype(np.int32, copy=False)


def operations_of(batch: pa.RecordBatch) -> Operations:
    return operation_codes(batch) & ~BY_SOURCE


def count_by_source(batch: pa.RecordBatch, counts: DeltaCounts) -> None:
    # A target row without a matching source row occurs once in the delta, so all of its changes count.
    codes = operation_codes(batch)
    deleted = int((codes == (RowOperation.DELETE | BY_SOURCE)).sum())
    updated = int((codes == (RowOperation.UPDATE | BY_SOURCE)).sum())
    counts.deleted_by_source += deleted
    counts.updated_by_source += updated
    counts.matched -= deleted + updated


def value_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([ROW_OPERATION, FILE_ORDINAL, POS])


def filter_values(values: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    # A delta that only deletes has no values, and Arrow does not filter rows without columns.
    return values.filter(pa.array(mask)) if values.num_columns else values


def inserted_values(parts: Iterable[pa.RecordBatch], counts: DeltaCounts) -> Iterator[pa.RecordBatch]:
    for batch in parts:
        inserts = operations_of(batch) == RowOperation.INSERT
        if not inserts.all() and (~inserts & (operations_of(batch) != RowOperation.MATCHED)).any():
            raise ExecutionError("A delta row deletes or updates a row, but names no data file")
        number = int(inserts.sum())
        counts.inserted += number
        if number:
            values = value_columns(batch)
            yield values if number == batch.num_rows else filter_values(values, inserts)


def file_changes(
    ordinal: int, parts: Iterable[pa.RecordBatch], layout: DeltaLayout, counts: DeltaCounts, log: RowLog
) -> Iterator[RowChanges]:
    last_matched = last_changed = -1
    for batch in parts:
        positions = integers(batch.column(POS), -1)
        operations = operations_of(batch)
        steps = np.diff(positions, prepend=np.int64(last_matched))
        check_steps(ordinal, positions, operations, steps)
        repeated = steps == 0
        if layout.check_cardinality and repeated.any():
            raise DataError(
                "A row of the target table is matched by more than one row of the source",
                kind=ErrorKind.CARDINALITY_VIOLATION,
                file_ordinal=ordinal,
                position=int(positions[repeated][0]),
            )
        counts.matched += len(positions) - int(repeated.sum())
        count_by_source(batch, counts)
        last_matched = int(positions[-1])
        log.observed.add_many(positions[operations == RowOperation.MATCHED])
        changes = first_changes(positions, operations, batch, last_changed)
        if len(changes):
            last_changed = int(changes.positions[-1])
            updates = int(changes.updates.sum())
            counts.updated += updates
            counts.deleted += len(changes) - updates
            log.add_changes(changes.positions, changes.operations)
            yield changes


def check_steps(ordinal: int, positions: Positions, operations: Operations, steps: Positions) -> None:
    if positions[0] < 0 or (steps < 0).any():
        raise ExecutionError(f"The delta rows of data file {ordinal} are not sorted by position", file_ordinal=ordinal)
    if (operations == RowOperation.INSERT).any():
        raise ExecutionError(f"An inserted delta row names data file {ordinal}", file_ordinal=ordinal)


def first_changes(positions: Positions, operations: Operations, batch: pa.RecordBatch, last: int) -> RowChanges:
    """Return the first change of each position. Rows that only match have no change."""
    values = value_columns(batch)
    changing = operations != RowOperation.MATCHED
    if not changing.all():
        positions, operations, values = positions[changing], operations[changing], filter_values(values, changing)
    first = np.diff(positions, prepend=np.int64(last)) > 0
    if not first.all():
        positions, operations, values = positions[first], operations[first], filter_values(values, first)
    return RowChanges(positions=positions, operations=operations, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The pending changes of a cursor.

    Attributes:
        positions: Positions of deleted and updated rows.
        updates: The number of updates.
    """

    positions: Positions
    updates: int


class ChangeCursor:
    """Iterate over the changes of a data file by position, with lookahead.

    Args:
        changes: The changes, by position.
    """

    def __init__(self, changes: Iterator[RowChanges]) -> None:
        self._changes = changes
        self._held: deque[RowChanges] = deque()
        self._held_bytes = 0
        self._ended = False
        self._fetch()

    def _fetch(self) -> bool:
        """Buffer the next changes. Return False at the end."""
        found = next(self._changes, None)
        if found is None:
            self._ended = True
            return False
        self._held.append(found)
        self._held_bytes += found.nbytes
        return True

    def exhausted(self) -> bool:
        """Return True if `before` has returned all changes."""
        return not self._held

    @property
    def next_position(self) -> int:
        """The position of the next change."""
        return int(self._held[0].positions[0])

    def before(self, position: int) -> RowChanges | None:
        """Return the remaining changes before a position, or None."""
        parts: list[RowChanges] = []
        while self._held:
            head = self._held.popleft()
            self._held_bytes -= head.nbytes
            end = int(np.searchsorted(head.positions, position))
            if end:
                parts.append(head.slice(0, end))
            if end < len(head):
                rest = head.slice(end, len(head))
                self._held.appendleft(rest)
                self._held_bytes += rest.nbytes
                break
            if not self._held:
                self._fetch()
        return RowChanges.concat(parts) if parts else None

    def ahead(self, start: int, end: int, max_bytes: int) -> Ahead | None:
        """Look up the changes between two positions without consuming them.

        Args:
            start: The first position.
            end: The position after the last one.
            max_bytes: Approximate limit for buffered changes.

        Returns:
            The changes, or None if they exceed the limit.
        """
        while self._held and int(self._held[-1].positions[-1]) < end and not self._ended:
            if self._held_bytes > max_bytes:
                return None
            self._fetch()
        parts = []
        for held in self._held:
            first, last = np.searchsorted(held.positions, (start, end))
            if first < last:
                parts.append(held.slice(int(first), int(last)))
        positions = np.concatenate([part.positions for part in parts]) if parts else np.empty(0, np.int64)
        return Ahead(positions=positions, updates=sum(int(part.updates.sum()) for part in parts))


def missing_row_error(task: ScanTask, position: int) -> ExecutionError:
    """Return the error for a change of a position that the file lacks."""
    return ExecutionError(
        f"Cannot change the row at position {position} of '{task.path}': the file has no such row",
        hint="The file was replaced while the statement ran; run the statement again",
        file=task.path,
        position=position,
    )


def check_live(rows: FileBatch, places: npt.NDArray[np.int64]) -> None:
    """Check that all changed rows are live: an update of a deleted row would restore it.

    Raises:
        ExecutionError: A changed row was already deleted, or is not in the file.
    """
    if places[0] < 0 or (rows.live is not None and not rows.live[places].all()):
        raise ExecutionError(f"Cannot change a row that was deleted before, near position {rows.start_position}")


class RowBuilder:
    """Build new rows from delta values.

    Args:
        files: The columns of new files.
        delta: The columns of the delta.
    """

    def __init__(self, files: FileLayout, delta: DeltaLayout) -> None:
        self._files = files
        self._places = {field_id: place for place, field_id in enumerate(delta.value_ids)}
        self._assigned = frozenset(delta.assigned_ids)

    def build_inserted(self, values: pa.RecordBatch) -> pa.RecordBatch:
        """Build inserted rows, which have no lineage."""
        return self._files.batch(
            [
                values.column(self._places[column.field_id])
                if column.field_id in self._places
                else pa.nulls(values.num_rows, target.type)
                for column, target in zip(self._files.columns, self._files.arrow, strict=True)
            ]
        )

    def build_updated(self, values: pa.RecordBatch, old: dict[int, pa.Array]) -> pa.RecordBatch:
        """Build updated rows.

        Args:
            values: Value columns of the delta, one row per update.
            old: By field id, the columns of the replaced rows that are not assigned, and `_row_id`.
        """
        arrays = []
        for column, target in zip(self._files.columns, self._files.arrow, strict=True):
            if column.field_id in self._assigned:
                arrays.append(values.column(self._places[column.field_id]))
            elif column.field_id == LAST_UPDATED_SEQUENCE_NUMBER_ID:
                arrays.append(pa.nulls(values.num_rows, target.type))
            else:
                arrays.append(old[column.field_id])
        return self._files.batch(arrays)

    def build_carried(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """Build rows that are carried over unchanged."""
        return self._files.batch(arrays)

    def build_patched(self, arrays: Sequence[pa.Array], values: pa.RecordBatch, places: Positions) -> pa.RecordBatch:
        """Build rows of a data file, some of them updated.

        Args:
            arrays: The file's columns.
            values: Value columns of the delta, one row per update.
            places: Indexes of the updated rows, ascending.
        """
        result = []
        for column, target, array in zip(self._files.columns, self._files.arrow, arrays, strict=True):
            if column.field_id in self._assigned:
                new = convert_array(values.column(self._places[column.field_id]), target.type, target.name)
                result.append(replace_values(convert_array(array, target.type, target.name), new, places))
            elif column.field_id == LAST_UPDATED_SEQUENCE_NUMBER_ID:
                result.append(replace_values(array, pa.nulls(len(places), array.type), places))
            else:
                result.append(array)
        return self._files.batch(result)

    def apply_changes(self, rows: FileBatch, changes: RowChanges | None) -> tuple[pa.RecordBatch, Mask | None, int]:
        """Apply changes to neighbouring rows of a data file.

        Args:
            rows: The rows as the file holds them.
            changes: The changes of these rows; None if there are none.

        Returns:
            All rows, with the new values of updated ones; the mask of rows that stay, or None for all; and the number
            of updates.

        Raises:
            DataError: A new value violates a constraint.
            ExecutionError: A changed row was already deleted, or is not in the file.
        """
        keep = None if rows.live is None or rows.live.all() else rows.live
        arrays = rows.batch.columns
        if changes is None:
            return self.build_carried(arrays), keep, 0
        places = changes.positions - rows.start_position
        check_live(rows, places)
        updated = changes.updates
        number = int(updated.sum())
        batch = (
            self.build_patched(arrays, changes.only_updates().values, places[updated])
            if number
            else self.build_carried(arrays)
        )
        deleted = places[changes.operations == RowOperation.DELETE]
        if len(deleted):
            keep = np.ones(rows.batch.num_rows, dtype=np.bool_) if keep is None else keep.copy()
            keep[deleted] = False
        return batch, keep, number


def replace_values(array: pa.Array, new: pa.Array, places: Positions) -> pa.Array:
    """Replace the values of an array at some indexes.

    Args:
        array: The values.
        new: One value per index, of the same type.
        places: The indexes, ascending.
    """
    rows = len(array)
    if len(places) == rows:
        return new
    if pa.types.is_nested(array.type) or isinstance(array, pa.ExtensionArray):
        picked = np.arange(rows)
        picked[places] = rows + np.arange(len(places))
        return pa.concat_arrays([array, new]).take(pa.array(picked))
    mask = np.zeros(rows, dtype=np.bool_)
    mask[places] = True
    return pc.replace_with_mask(array, pa.array(mask), new)
