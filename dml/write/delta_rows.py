"""Split the row delta of a task by data file. Worker.

Input: the batches of one task, in the layout of `DeltaLayout`, sorted by file and position. Output: the changes of each
data file, by position and each position once; and the inserted rows. One batch at a time is in memory.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml.errors import DataError, ErrorKind, ExecutionError
from dml.model.columns import BY_SOURCE, FILE_ORDINAL, POS, ROW_OPERATION, DeltaLayout, RowOperation
from dml.model.scan_task import ScanTask
from dml.model.write_task import TaskMetrics
from dml.read.reader import FileBatch
from dml.write.row_log import RowLog

__all__ = [
    "ChangeCursor",
    "DeltaCounts",
    "FileDelta",
    "InsertedRows",
    "RowChanges",
    "check_live",
    "delta_runs",
    "misplaced",
]

Positions = npt.NDArray[np.int64]
Operations = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
NO_FILE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """Rows of one data file that are deleted or updated.

    Attributes:
        positions: Ascending and unique.
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
        """Return a range of them, without copying."""
        return RowChanges(
            positions=self.positions[start:end],
            operations=self.operations[start:end],
            values=self.values.slice(start, end - start),
        )

    def updated(self) -> "RowChanges":
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
    """The changes of one data file. Consume them before you ask for the next run.

    Attributes:
        ordinal: The file ordinal.
        changes: By position.
        log: The rows that the delta names. Complete once the changes are consumed.
    """

    ordinal: int
    changes: Iterator[RowChanges]
    log: RowLog


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedRows:
    """The value columns of inserted rows. Consume them before you ask for the next run."""

    batches: Iterator[pa.RecordBatch]


def delta_runs(
    batches: Iterable[pa.RecordBatch], layout: DeltaLayout, counts: DeltaCounts
) -> Iterator[FileDelta | InsertedRows]:
    """Split the row delta of one task by data file.

    Args:
        batches: The delta.
        layout: Its layout.
        counts: Grows while rows are consumed.

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
    """Return the first change of each position. Rows that only matched have no change."""
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
        positions: Of deleted and updated rows.
        updates: The number of updates.
    """

    positions: Positions
    updates: int


class ChangeCursor:
    """Returns the changes of a data file up to a position, and looks ahead.

    Args:
        changes: By position.
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


def misplaced(task: ScanTask, position: int) -> ExecutionError:
    """Return the error for a change of a position that the file does not have."""
    return ExecutionError(
        f"Cannot change the row at position {position} of '{task.path}': the file has no such row",
        hint="The file was replaced while the statement ran; run the statement again",
        file=task.path,
        position=position,
    )


def check_live(rows: FileBatch, places: npt.NDArray[np.int64]) -> None:
    """Check that only live rows are changed: an update of a deleted row would restore it.

    Raises:
        ExecutionError: A changed row was deleted before, or is not in the file.
    """
    if places[0] < 0 or (rows.live is not None and not rows.live[places].all()):
        raise ExecutionError(f"Cannot change a row that was deleted before, near position {rows.start_position}")
