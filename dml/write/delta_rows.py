"""Delta rows, file by file. Worker.

Input: the batches of one task, in the layout of `DeltaLayout`, sorted by file and position. Output: for each data file
its changes in the order of the file, each position once; and the inserted rows. Only a batch at a time is in memory.
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
        positions: Their positions, ascending, each once.
        operations: DELETE or UPDATE for each.
        values: The delta's value columns.
    """

    positions: Positions
    operations: Operations
    values: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        return int(self.positions.nbytes + self.operations.nbytes + self.values.nbytes)

    @property
    def updates(self) -> Mask:
        """Which of them are updates."""
        updates: Mask = self.operations == RowOperation.UPDATE
        return updates

    def slice(self, start: int, end: int) -> "RowChanges":
        """Some of them, without copying."""
        return RowChanges(
            positions=self.positions[start:end],
            operations=self.operations[start:end],
            values=self.values.slice(start, end - start),
        )

    def updated(self) -> "RowChanges":
        """Those that are updates."""
        updates = self.updates
        if updates.all():
            return self
        return RowChanges(
            positions=self.positions[updates],
            operations=self.operations[updates],
            values=filtered(self.values, updates),
        )

    @staticmethod
    def concat(parts: list["RowChanges"]) -> "RowChanges":
        """Neighbours as one."""
        if len(parts) == 1:
            return parts[0]
        return RowChanges(
            positions=np.concatenate([part.positions for part in parts]),
            operations=np.concatenate([part.operations for part in parts]),
            values=pa.concat_batches([part.values for part in parts]),
        )


@dataclass(slots=True, kw_only=True)
class DeltaCounts:
    """Rows counted while a delta is read."""

    matched: int = 0
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    deleted_by_source: int = 0
    updated_by_source: int = 0

    def metrics(self, *, rows_carried: int = 0) -> TaskMetrics:
        """The counts as the task reports them.

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
    """The changes of one data file, to be consumed before the next run is asked for.

    Attributes:
        ordinal: Which file.
        changes: In the order of the file.
        log: The rows that were named; it is complete when the changes are consumed.
    """

    ordinal: int
    changes: Iterator[RowChanges]
    log: RowLog


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedRows:
    """Inserted rows: their value columns, to be consumed before the next run is asked for."""

    batches: Iterator[pa.RecordBatch]


def delta_runs(
    batches: Iterable[pa.RecordBatch], layout: DeltaLayout, counts: DeltaCounts
) -> Iterator[FileDelta | InsertedRows]:
    """The delta of one task, file by file.

    Args:
        batches: Rows in the layout.
        layout: What the columns mean.
        counts: Is added to while rows are consumed.

    Raises:
        DataError: two rows are for one position, and the layout has that checked.
        ExecutionError: rows are not sorted, or a file comes twice.
    """
    seen: set[int] = set()
    for ordinal, run in groupby(segments(batches), key=lambda segment: segment[0]):
        parts = (batch for _, batch in run)
        if ordinal == NO_FILE:
            yield InsertedRows(batches=inserted_values(parts, counts))
            continue
        if ordinal in seen:
            raise ExecutionError(f"The delta rows of data file {ordinal} do not lie together", file_ordinal=ordinal)
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
    # A target row that no source row matches comes once, so no change of it is passed over.
    codes = operation_codes(batch)
    deleted = int((codes == (RowOperation.DELETE | BY_SOURCE)).sum())
    updated = int((codes == (RowOperation.UPDATE | BY_SOURCE)).sum())
    counts.deleted_by_source += deleted
    counts.updated_by_source += updated
    counts.matched -= deleted + updated


def value_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([ROW_OPERATION, FILE_ORDINAL, POS])


def filtered(values: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    # A delta that only deletes has no values, and Arrow does not filter rows without columns.
    return values.filter(pa.array(mask)) if values.num_columns else values


def inserted_values(parts: Iterable[pa.RecordBatch], counts: DeltaCounts) -> Iterator[pa.RecordBatch]:
    for batch in parts:
        inserts = operations_of(batch) == RowOperation.INSERT
        if not inserts.all() and (~inserts & (operations_of(batch) != RowOperation.MATCHED)).any():
            raise ExecutionError("A delta row deletes or updates a row of no data file")
        number = int(inserts.sum())
        counts.inserted += number
        if number:
            values = value_columns(batch)
            yield values if number == batch.num_rows else filtered(values, inserts)


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
        raise ExecutionError(f"The delta rows of data file {ordinal} are not in its order", file_ordinal=ordinal)
    if (operations == RowOperation.INSERT).any():
        raise ExecutionError(f"Inserted rows name the data file {ordinal}", file_ordinal=ordinal)


def first_changes(positions: Positions, operations: Operations, batch: pa.RecordBatch, last: int) -> RowChanges:
    """The first change of each position; rows that only matched are none."""
    values = value_columns(batch)
    changing = operations != RowOperation.MATCHED
    if not changing.all():
        positions, operations, values = positions[changing], operations[changing], filtered(values, changing)
    first = np.diff(positions, prepend=np.int64(last)) > 0
    if not first.all():
        positions, operations, values = positions[first], operations[first], filtered(values, first)
    return RowChanges(positions=positions, operations=operations, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Changes that are still to come.

    Attributes:
        positions: Of rows that are deleted or updated.
        updates: How many of them are updated.
    """

    positions: Positions
    updates: int


class ChangeCursor:
    """The changes of a data file, handed out up to a position.

    Args:
        changes: In the order of the file.
    """

    def __init__(self, changes: Iterator[RowChanges]) -> None:
        self._changes = changes
        self._held: deque[RowChanges] = deque()
        self._held_bytes = 0
        self._ended = False
        self._fetch()

    def _fetch(self) -> bool:
        """Takes in the next changes; False where there are none."""
        found = next(self._changes, None)
        if found is None:
            self._ended = True
            return False
        self._held.append(found)
        self._held_bytes += found.nbytes
        return True

    def exhausted(self) -> bool:
        """Whether all changes were handed out."""
        return not self._held

    @property
    def next_position(self) -> int:
        """The position of the next change."""
        return int(self._held[0].positions[0])

    def before(self, position: int) -> RowChanges | None:
        """The changes before a position that were not handed out yet; None where there are none."""
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
        """What is going to be changed between two positions, without handing it out.

        Args:
            start: The first position.
            end: The first position behind.
            max_bytes: About how many bytes of changes may be kept for later.

        Returns:
            The changes; None where there are more than may be kept.
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
    """The error for a change of a row that is not there."""
    return ExecutionError(
        f"The row at position {position} of '{task.path}' is to be changed, but the file has no such row",
        hint="The file was replaced while the statement ran; run the statement again",
        file=task.path,
        position=position,
    )


def check_live(rows: FileBatch, places: npt.NDArray[np.int64]) -> None:
    """A deleted row cannot be changed: its update would bring it back.

    Raises:
        ExecutionError: a change is for a row that was deleted before, or is not in the file.
    """
    if places[0] < 0 or (rows.live is not None and not rows.live[places].all()):
        raise ExecutionError(f"A row that was deleted before is to be changed, near position {rows.start_position}")
