"""Run a write job in a task: write its rows and return one report. A failure leaves no files behind. Worker.

Input: record batches of one Spark partition (new rows, or a delta sorted by file and position; for a stream, with the
mapping from their columns to the table's) and a `WriterSpec`. Output: files, and a `TaskCommit` or a `TaskFailure`.
Source: for aborts, Iceberg's `SparkWrite` and `SparkPositionDeltaWrite`. Spec: "Row Lineage", "Position Delete Files",
"Deletion Vectors".

A failure that a retry would repeat is returned, not raised: Spark would retry the task and finally report the error as
text inside a `SparkException`.

One `DeltaWriter` serves all modes. Each changed data file is rewritten (`FileRewriter`), marked (`RowMarker`) or
removed. A `Choose` function selects the way from the file's row counts. Copy-on-write and merge-on-read use the
constant functions `always_rewrite` and `always_mark`, which never count. The adaptive mode uses `choose_by_counts`.
Its maximum share of deleted rows is a table property. Its two thresholds for splicing instead of marking
(`limits.MIN_SPLICED_ROW_RATIO`, `limits.MAX_SPLICED_BYTES_RATIO`) are estimates
(docs/decisions/029-a-mode-that-chooses-by-file.md).

- Rewritten files are copied without deleted rows, and with the new values of updated rows. The file and its delta are
  read in parallel, one batch at a time; batches without changes pass through unchanged. A file whose rows are only
  matched is not read, and a file that loses every row has no successor. If the file allows it, row groups without
  changes, and unassigned columns of row groups in which rows are only updated, are copied undecoded
  (`dml.write.splicing`). New rows share the files of rewritten rows, or become the last row group of a spliced file of
  their partition.
- In marked files, deleted and updated rows are marked as deleted; updated and inserted rows go to new files. Only the
  columns that the statement does not assign are read from an updated row's data file, and only the parts of the file
  that hold updated rows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import DmlError, ExecutionError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, LAST_UPDATED_SEQUENCE_NUMBER_ID, ROW_ID, ROW_ID_ID
from dml.model.manifest import ContentFile
from dml.model.scan_task import ScanTask
from dml.model.write_task import ChangedFile, RowOrigins, SplicedDataFile, TaskCommit, TaskFailure, report_batch
from dml.read.reader import FileBatch
from dml.tasks.task_input import freeze_imports
from dml.write.delete_files import (
    DeleteResult,
    DeleteWriter,
    DeletionVectorWriter,
    PositionDeleteWriter,
    delete_file_options,
)
from dml.write.delta_rows import (
    ChangeCursor,
    DeltaCounts,
    FileDelta,
    OriginLog,
    RowBuilder,
    RowChanges,
    check_live,
    delta_runs,
    drop_large_positions,
    missing_row_error,
)
from dml.write.file_layout import FileLayout, file_layout
from dml.write.held_rows import HoldingDataWriter
from dml.write.output_files import DRIVER_PARTITION, OutputFileFactory, TaskIdentity, current_task
from dml.write.partition_values import PartitionRouter
from dml.write.partitioning import open_data_writer
from dml.write.splicing import Splicer
from dml.write.writer_spec import DELETE_FILE_VERSION, DELETION_VECTOR_VERSION, WriteJob, WriterSpec, current_spec

__all__ = [
    "Choice",
    "Choose",
    "DeltaWriter",
    "FileCounts",
    "FileRewriter",
    "RowMarker",
    "StreamColumn",
    "StreamRows",
    "WriteTask",
    "always_mark",
    "always_rewrite",
    "choose_by_counts",
    "may_be_spliced",
    "rows_to_mark",
    "run_write",
    "write_task",
]


class Choice(StrEnum):
    """How the changes of a data file are written."""

    REMOVE = "remove"
    """All live rows are deleted: the file is removed from the table unread."""

    REWRITE = "rewrite"
    """A new file replaces the file; what can be copied undecoded is spliced."""

    MARK = "mark"
    """Deleted and updated rows are marked, new values go to a new file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """A data file and its changes.

    Attributes:
        rows: All rows in the file, including deleted ones.
        dead: Rows that earlier position deletes delete.
        is_dead_exact: False if equality deletes may delete more rows, which only reading the file would show.
        deleted: Live rows that the statement deletes.
        updated: Live rows that the statement updates.
        is_all: False if the file has more changes than were counted.
        new_bytes_ratio: The share of the file's bytes that splicing would encode; None if it cannot be spliced.
    """

    rows: int
    dead: int = 0
    is_dead_exact: bool = True
    deleted: int = 0
    updated: int = 0
    is_all: bool = True
    new_bytes_ratio: float | None = None


Choose = Callable[[Callable[[], FileCounts]], Choice]
"""Select the choice of one file. Counting buffers changes, so the counts are a function, called only if needed."""


def always_rewrite(_count: Callable[[], FileCounts]) -> Choice:
    """Select copy-on-write."""
    return Choice.REWRITE


def always_mark(_count: Callable[[], FileCounts]) -> Choice:
    """Select merge-on-read."""
    return Choice.MARK


def rows_to_mark(rows: int, dead: int, max_deleted_ratio: float) -> int:
    """Return how many more rows of a data file may be marked; at least one row always stays live.

    Args:
        rows: All rows in the file.
        dead: Rows that are already deleted.
        max_deleted_ratio: The maximum share of deleted rows.
    """
    return min(int(rows * max_deleted_ratio), rows - 1) - dead


def may_be_spliced(counts: FileCounts) -> bool:
    """Return True if splicing may be cheaper than marking, so that reading the file's footer is worthwhile.

    This requires that every row keeps its position: none is deleted, before or now.
    """
    unmoved = counts.is_all and counts.is_dead_exact and not counts.dead and not counts.deleted
    return unmoved and counts.updated > 0 and counts.updated >= limits.MIN_SPLICED_ROW_RATIO * counts.rows


def choose_by_counts(counts: FileCounts, max_deleted_ratio: float) -> Choice:
    """Return the cheapest choice for one data file.

    The first matching rule applies:

    1. no live row remains: `REMOVE`;
    2. enough rows of few enough columns are updated: `REWRITE`, which splices the file;
    3. the file stays within `max_deleted_ratio`: `MARK`;
    4. `REWRITE`.
    """
    changed = counts.deleted + counts.updated
    if counts.is_all and counts.is_dead_exact and counts.deleted and counts.deleted == counts.rows - counts.dead:
        return Choice.REMOVE
    cheap = counts.new_bytes_ratio is not None and counts.new_bytes_ratio <= limits.MAX_SPLICED_BYTES_RATIO
    if cheap and may_be_spliced(counts):
        return Choice.REWRITE
    if counts.is_all and changed <= rows_to_mark(counts.rows, counts.dead, max_deleted_ratio):
        return Choice.MARK
    return Choice.REWRITE


class FileRewriter:
    """Rewrite data files.

    Args:
        spec: The job.
        layout: The columns of new files.
        output: Opens new files.

    Attributes:
        splicer: Splices the files that allow it; None if the job excludes splicing for all files.
        changed_files: The data files that were rewritten, or lost every row.
        rows_carried: The number of rows copied unchanged.
    """

    def __init__(self, spec: WriterSpec, layout: FileLayout, output: OutputFileFactory) -> None:
        assert spec.files is not None
        self._files = spec.files
        self._rows = RowBuilder(layout, spec.layout)
        self._spec_id = spec.context.default_spec_id
        self._origins = None
        if spec.tracks_origins:
            self._origins = OriginLog(max_encoded_bytes=min(limits.MAX_TASK_ORIGIN_BYTES, spec.max_report_bytes))
        self.splicer = Splicer(spec, layout, output, self._origins) if spec.splices else None
        self._writer = open_data_writer(spec, layout, output, self._origins)
        self._router = PartitionRouter(current_spec(spec.context), layout.columns)
        # Updates that assign no source of a partition value leave every row in its partition.
        self._keeps_partition = self._router.source_ids.isdisjoint(spec.layout.assigned_ids)
        self._new: list[pa.RecordBatch] = []
        self._new_bytes = 0
        self._holds_new = self.splicer is not None and self.splicer.gains_rows
        metadata = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if spec.row_lineage else ()
        self._metadata_columns = metadata
        self._columns = tuple(column.field_id for column in layout.columns[: len(layout.columns) - len(metadata)])
        self.changed_files: list[ChangedFile] = []
        self.rows_carried = 0

    @property
    def removed_data_files(self) -> tuple[str, ...]:
        """The paths of `changed_files`."""
        return tuple(file.path for file in self.changed_files)

    @property
    def spliced_files(self) -> tuple[SplicedDataFile, ...]:
        """The copied columns of the new files that were spliced."""
        return () if self.splicer is None else tuple(self.splicer.spliced_files)

    def row_origins(self) -> tuple[RowOrigins, ...]:
        """Return where the rows of new files come from; nothing if the job does not track it."""
        return () if self._origins is None else self._origins.report()

    def close(self) -> tuple[ContentFile, ...]:
        """Complete all files and return them."""
        if self.splicer is None:
            return tuple(self._writer.close())
        for batch in self._new:
            for partition, rows in self._router.split(batch):
                if not self.splicer.append(self._spec_id, partition, rows):
                    self._write_new(rows)
        self.splicer.close()
        return (*self._writer.close(), *self.splicer.data_files)

    def abort(self) -> None:
        """Close the open files, which the caller deletes."""
        self._writer.abort()
        if self.splicer is not None:
            self.splicer.abort()

    def rewrite(self, delta: FileDelta) -> None:
        """Rewrite one data file. A file without changes stays.

        Raises:
            DataError: A new value violates a constraint, or two delta rows are for one row.
            ExecutionError: The delta does not fit the file.
        """
        changes = ChangeCursor(delta.changes)
        if changes.exhausted():
            return
        task = self._files.task(delta.ordinal)
        spliced = None if self.splicer is None else self.splicer.splice(task, changes)
        if spliced is not None:
            self._report(delta, task, rows_before=spliced.rows_before, rows_carried=spliced.rows_carried)
            return
        partition = task.partition if self._keeps_partition and task.spec_id == self._spec_id else None
        live = carried = 0
        for rows in self._files.rows(delta.ordinal, columns=self._columns, metadata_columns=self._metadata_columns):
            live += rows.batch.num_rows if rows.live is None else int(rows.live.sum())
            carried += self._write(task, rows, changes.before(rows.start_position + rows.batch.num_rows), partition)
        if not changes.exhausted():
            raise missing_row_error(task, changes.next_position)
        self._report(delta, task, rows_before=live, rows_carried=carried)

    def remove(self, delta: FileDelta) -> None:
        """Remove a data file unread.

        Args:
            delta: The deletes of all its live rows; already consumed.
        """
        task = self._files.task(delta.ordinal)
        self._report(delta, task, rows_before=len(delta.log.deleted), rows_carried=0)

    def _report(self, delta: FileDelta, task: ScanTask, *, rows_before: int, rows_carried: int) -> None:
        log = delta.log.changed_file(task.path)
        self.changed_files.append(replace(log, rows_before=rows_before, rows_carried=rows_carried))
        self.rows_carried += rows_carried

    def insert(self, values: pa.RecordBatch) -> None:
        """Add new rows.

        Raises:
            DataError: A value violates a constraint.
        """
        batch = self._rows.build_inserted(values)
        if not self._holds_new:
            self._write_new(batch)
            return
        self._new.append(batch)
        self._new_bytes += batch.nbytes
        if self._new_bytes > limits.MAX_APPENDED_BYTES:
            for held in self._new:
                self._write_new(held)
            self._new, self._holds_new = [], False

    def _write_new(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch if self._origins is None else self._origins.with_new_origins(batch))

    def _write(
        self, task: ScanTask, rows: FileBatch, changes: RowChanges | None, partition: tuple[Any, ...] | None
    ) -> int:
        """Write the remaining rows of a batch, and return how many of them are unchanged."""
        batch, keep, updates = self._rows.apply_changes(rows, changes)
        if self._origins is not None:
            batch = self._origins.with_carried_origins(batch, task.file_ordinal, rows.start_position)
        if keep is not None:
            batch = batch.filter(pa.array(keep))
        if batch.num_rows:
            self._writer.write(batch, partition)
        return int(batch.num_rows) - updates


class NewRowsWriter:
    """Write updated and inserted rows to new files, or hold them for the driver if they are few.

    Args:
        spec: The job.
        layout: The columns of new files.
        output: Opens new files.
    """

    def __init__(self, spec: WriterSpec, layout: FileLayout, output: OutputFileFactory) -> None:
        self._files = spec.files
        self._rows = RowBuilder(layout, spec.layout)
        self._writer = HoldingDataWriter(
            partial(open_data_writer, spec, layout, output), spec.max_held_bytes(output.task.partition_id)
        )
        delta, row_lineage = spec.layout, spec.row_lineage
        self._metadata_columns = (ROW_ID,) if row_lineage else ()
        known = {ROW_ID_ID, LAST_UPDATED_SEQUENCE_NUMBER_ID, *delta.assigned_ids}
        self._old_ids = tuple(column.field_id for column in layout.columns if column.field_id not in known)
        self._read_ids = (*self._old_ids, *((ROW_ID_ID,) if row_lineage else ()))

    def insert(self, values: pa.RecordBatch) -> None:
        """Add new rows.

        Raises:
            DataError: A value violates a constraint.
        """
        self._writer.write(self._rows.build_inserted(values))

    def update(self, ordinal: int, updates: RowChanges) -> None:
        """Add updated rows of one data file.

        Raises:
            DataError: A value violates a constraint.
            ExecutionError: The file lacks the rows.
        """
        if not self._read_ids:
            self._writer.write(self._rows.build_updated(updates.values, {}))
            return
        assert self._files is not None
        task = self._files.task(ordinal)
        cursor = ChangeCursor(iter((updates,)))
        for rows in self._files.rows(
            ordinal, columns=self._old_ids, metadata_columns=self._metadata_columns, positions=updates.positions
        ):
            changes = cursor.before(rows.start_position + rows.batch.num_rows)
            if changes is not None:
                self._write(rows, changes)
        if not cursor.exhausted():
            raise missing_row_error(task, cursor.next_position)

    def _write(self, rows: FileBatch, changes: RowChanges) -> None:
        places = changes.positions - rows.start_position
        check_live(rows, places)
        taken = pa.array(places)
        columns = zip(self._read_ids, rows.batch.columns, strict=True)
        old = {field_id: column.take(taken) for field_id, column in columns}
        self._writer.write(self._rows.build_updated(changes.values, old))

    def held(self) -> bytes:
        """Return the rows left to the driver, as an Arrow stream; empty if there are none."""
        return self._writer.held()

    def close(self) -> tuple[ContentFile, ...]:
        """Complete all files and return them."""
        return self._writer.close()

    def abort(self) -> None:
        """Close the open files, which the caller deletes."""
        self._writer.abort()


class RowMarker:
    """Mark deleted and updated rows as deleted, and pass the new values of updated rows to `NewRowsWriter`.

    Args:
        spec: The job.
        output: Opens new files.
        new_rows: Receives updated rows; None for a statement that only deletes.

    Attributes:
        changed_files: The data files whose rows were deleted or updated.
    """

    def __init__(self, spec: WriterSpec, output: OutputFileFactory, new_rows: NewRowsWriter | None) -> None:
        self._deletes = open_delete_writer(spec, output)
        self._new_rows = new_rows
        self.changed_files: list[ChangedFile] = []

    def mark(self, delta: FileDelta) -> None:
        """Write the changes of one data file.

        Raises:
            DataError: A new value violates a constraint, or two delta rows are for one row.
            ExecutionError: The delta does not fit the file.
        """
        for updates in concat_changes(updates_of(delta.changes), limits.UPDATE_BATCH_ROWS):
            if self._new_rows is None:
                raise no_new_rows()
            self._new_rows.update(delta.ordinal, updates)
        positions = delta.log.changed
        if positions.is_empty:
            return
        written = self._deletes.delete(delta.ordinal, positions)
        self.changed_files.append(
            replace(delta.log.changed_file(written.path), deletes_before=written.before, deletes_after=written.after)
        )

    def close(self) -> DeleteResult:
        """Complete all delete files."""
        return self._deletes.close()


def open_delete_writer(spec: WriterSpec, output: OutputFileFactory) -> DeleteWriter:
    """Return a writer of deletion vectors from format version 3, of position delete files before."""
    assert spec.files is not None
    max_held_bytes = spec.max_held_bytes(output.task.partition_id)
    if spec.context.format_version >= DELETION_VECTOR_VERSION:
        return DeletionVectorWriter(files=spec.files, output=output, max_held_bytes=max_held_bytes)
    options = delete_file_options(spec.context)
    return PositionDeleteWriter(files=spec.files, options=options, output=output, max_held_bytes=max_held_bytes)


def no_new_rows() -> ExecutionError:
    """Return the error for a new row in a delta whose layout has none."""
    return ExecutionError("Rows are updated or inserted by a statement that only deletes")


def updates_of(changes: Iterator[RowChanges]) -> Iterator[RowChanges]:
    """Yield the updates among changes."""
    for part in changes:
        updates = part.only_updates()
        if len(updates):
            yield updates


def concat_changes(changes: Iterator[RowChanges], rows: int) -> Iterator[RowChanges]:
    """Concatenate changes into parts of at least `rows` rows."""
    pending: list[RowChanges] = []
    held = 0
    for part in changes:
        pending.append(part)
        held += len(part)
        if held >= rows:
            yield RowChanges.concat(pending)
            pending, held = [], 0
    if pending:
        yield RowChanges.concat(pending)


class DeltaWriter:
    """Write all rows of a task.

    Only the parts that a job needs are opened. Marking rows thus works in a table with a column that cannot be written.

    Args:
        spec: The job.
        output: Opens new files; the caller deletes them if the job fails.
    """

    def __init__(self, spec: WriterSpec, output: OutputFileFactory) -> None:
        self._spec = spec
        self._rewriter: FileRewriter | None = None
        self._new_rows: NewRowsWriter | None = None
        self._marker: RowMarker | None = None
        if spec.writes_rows:
            layout = file_layout(spec.context, row_lineage=spec.row_lineage)
            if spec.job in {WriteJob.COPY_ON_WRITE, WriteJob.CHOSEN_BY_FILE}:
                self._rewriter = FileRewriter(spec, layout, output)
            if spec.job is not WriteJob.COPY_ON_WRITE:  # copy-on-write puts new rows into the files of rewritten ones
                self._new_rows = NewRowsWriter(spec, layout, output)
        has_deletes = spec.context.format_version >= DELETE_FILE_VERSION
        if spec.job is WriteJob.MERGE_ON_READ or (spec.job is WriteJob.CHOSEN_BY_FILE and has_deletes):
            self._marker = RowMarker(spec, output, self._new_rows)
        self._max_deleted_ratio = spec.context.options.auto_max_deleted_ratio if self._marker is not None else 0.0
        self._choose = self._strategy()

    def _strategy(self) -> Choose:
        match self._spec.job:
            case WriteJob.MERGE_ON_READ:
                return always_mark
            case WriteJob.CHOSEN_BY_FILE:
                return lambda count: choose_by_counts(count(), self._max_deleted_ratio)
            case _:
                return always_rewrite

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        """Write all rows of the task.

        Raises:
            DataError: A new value violates a constraint, or two delta rows are for one row.
            ExecutionError: The delta does not fit its files.
        """
        counts = DeltaCounts()
        try:
            if self._spec.job is WriteJob.ROWS:
                for batch in batches:
                    if batch.num_rows:
                        self._insert(batch)
                        counts.inserted += batch.num_rows
            else:
                for run in delta_runs(batches, self._spec.layout, counts):
                    if isinstance(run, FileDelta):
                        self._change(run)
                    else:
                        for values in run.batches:
                            self._insert(values)
            return self._close(counts)
        except BaseException:
            for part in (self._rewriter, self._new_rows):
                if part is not None:
                    part.abort()
            raise

    def _insert(self, values: pa.RecordBatch) -> None:
        part = self._rewriter if self._new_rows is None else self._new_rows
        if part is None:
            raise no_new_rows()
        part.insert(values)

    def _change(self, delta: FileDelta) -> None:
        """Write the changes of one data file. Rows that are only matched write nothing."""
        held: list[RowChanges] = []
        choice = self._choose(lambda: self._count(delta, held))
        whole = replace(delta, changes=chain(held, delta.changes))
        if choice is Choice.MARK and self._marker is not None:
            self._marker.mark(whole)
            return
        assert self._rewriter is not None, "a job that does not only mark rows has a rewriter"
        if choice is Choice.REMOVE and self._is_every_row(delta):
            self._rewriter.remove(whole)
        else:
            self._rewriter.rewrite(whole)

    def _count(self, delta: FileDelta, held: list[RowChanges]) -> FileCounts:
        """Count the changes of a file.

        Args:
            delta: The file's changes; those that are counted are consumed.
            held: Receives the consumed changes.
        """
        task = self._task(delta)
        first = next(delta.changes, None)
        if first is None:
            return FileCounts(rows=task.record_count)
        dead = self._dead_rows(task)
        room = rows_to_mark(task.record_count, dead, self._max_deleted_ratio)
        found = hold_changes(chain((first,), delta.changes), held, room, limits.MAX_HELD_CHANGE_BYTES)
        counts = FileCounts(
            rows=task.record_count,
            dead=dead,
            is_dead_exact=not task.equality_deletes,
            deleted=found.rows - found.updated,
            updated=found.updated,
            is_all=found.is_all,
        )
        if self._rewriter is not None and self._rewriter.splicer is not None and may_be_spliced(counts):
            counts = replace(counts, new_bytes_ratio=self._rewriter.splicer.new_bytes_ratio(task))
        return counts

    def _task(self, delta: FileDelta) -> ScanTask:
        assert self._spec.files is not None
        return self._spec.files.task(delta.ordinal)

    def _dead_rows(self, task: ScanTask) -> int:
        """Return the number of rows that position deletes delete. Equality deletes are not counted."""
        if task.deletion_vector is not None:
            return task.deletion_vector.record_count
        if all(ref.referenced_data_file is not None for ref in task.position_deletes):
            return sum(ref.record_count for ref in task.position_deletes)
        return len(self._existing(task))

    def _is_every_row(self, delta: FileDelta) -> bool:
        """Return True if the counted changes are for exactly the live rows of the file.

        The counts suggest it. A delta that does not fit the file goes to the rewriter, which reads the file and
        reports the row.
        """
        task, changed = self._task(delta), delta.log.changed
        dead = self._existing(task) if task.has_deletes else PositionDeleteIndex()
        union, rows = changed.union(dead), task.record_count
        return len(changed) + len(dead) == len(union) == rows and int(union.to_numpy()[-1]) < rows

    def _existing(self, task: ScanTask) -> PositionDeleteIndex:
        assert self._spec.files is not None
        deletes = task.position_deletes if task.deletion_vector is None else (task.deletion_vector,)
        return self._spec.files.existing_positions(task.file_ordinal, deletes)

    def _close(self, counts: DeltaCounts) -> TaskCommit:
        """Complete all files, and return the task commit. Only this method makes one for a successful task."""
        rewriter, new_rows, marker = self._rewriter, self._new_rows, self._marker
        rewritten = rewriter.close() if rewriter is not None else ()
        new = new_rows.close() if new_rows is not None else ()
        deletes = marker.close() if marker is not None else DeleteResult()
        changed = [file for part in (rewriter, marker) if part is not None for file in part.changed_files]
        return TaskCommit(
            data_files=(*rewritten, *new),
            spliced_files=rewriter.spliced_files if rewriter is not None else (),
            removed_data_files=rewriter.removed_data_files if rewriter is not None else (),
            delete_files=deletes.delete_files,
            rewritten_delete_files=deletes.rewritten_delete_files,
            referenced_data_files=deletes.referenced_data_files,
            held_rows=new_rows.held() if new_rows is not None else b"",
            held_deletes=deletes.held,
            changed_files=drop_large_positions(changed, self._spec.max_report_bytes),
            row_origins=rewriter.row_origins() if rewriter is not None else (),
            metrics=counts.metrics(rows_carried=rewriter.rows_carried if rewriter is not None else 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCounts:
    """Changes of a data file that are in memory.

    Attributes:
        rows: The number of changes.
        updated: The number of updates among them.
        is_all: True if the iterator is exhausted.
    """

    rows: int
    updated: int
    is_all: bool


def hold_changes(changes: Iterator[RowChanges], held: list[RowChanges], rows: int, max_bytes: int) -> HeldCounts:
    """Buffer changes until the file cannot be marked any more.

    Deletes without updates are all buffered, because they may cover every row.

    Args:
        changes: The changes of a file.
        held: Receives the buffered changes.
        rows: The number of rows that may be marked.
        max_bytes: The limit for the buffered changes.
    """
    number = updated = nbytes = 0
    for part in changes:
        held.append(part)
        number += len(part)
        updated += int(part.updates.sum())
        nbytes += part.nbytes
        if nbytes > max_bytes or (updated and number > rows):
            return HeldCounts(rows=number, updated=updated, is_all=False)
    return HeldCounts(rows=number, updated=updated, is_all=True)


def write_task(batches: Iterable[pa.RecordBatch], spec: WriterSpec, task: TaskIdentity) -> TaskCommit | TaskFailure:
    """Write the rows of one task.

    Args:
        batches: The rows: new rows for `WriteJob.ROWS`, else delta rows.
        spec: The job.
        task: The task attempt.

    Returns:
        The files; or, after deleting them, the failure, if another attempt would repeat it.

    Raises:
        Exception: The task failed and its files are deleted; another attempt may succeed.
    """
    return run_write(lambda output: DeltaWriter(spec, output).write(batches), spec, task)


def run_write(
    write: Callable[[OutputFileFactory], TaskCommit], spec: WriterSpec, task: TaskIdentity
) -> TaskCommit | TaskFailure:
    """Run the function of a task that writes files, and delete them if it fails.

    Args:
        write: Writes files of the given factory.
        spec: The job.
        task: The task attempt.

    Returns:
        The files; or, after deleting them, the failure, if another attempt would repeat it.

    Raises:
        Exception: The task failed and its files are deleted; another attempt may succeed.
    """
    output = OutputFileFactory(spec.context, task)
    try:
        commit = write(output)
    except BaseException as error:
        output.abort()
        failure = final_failure(error, spec, task)
        if failure is None:
            raise
        return TaskFailure(failure, attempt_number=task.attempt_number)
    return replace(commit, attempt_number=task.attempt_number)


def final_failure(error: BaseException, spec: WriterSpec, task: TaskIdentity) -> DmlError | None:
    """Return the error to report to the driver, or None if Spark should retry the task."""
    if isinstance(error, DmlError) and not isinstance(error, ExecutionError):
        return error
    if not isinstance(error, Exception) or task.attempt_number + 1 < spec.max_failures:
        return None  # a killed task is not reported; any other is retried
    if isinstance(error, DmlError):
        return error
    place = "the driver" if task.partition_id == DRIVER_PARTITION else f"the task of partition {task.partition_id}"
    return ExecutionError(
        f"Writing failed in {place}: {type(error).__name__}: {error}",
        partition_id=task.partition_id,
        attempts=task.attempt_number + 1,
    )


class WriteTask:
    """A picklable write job for `mapInArrow`.

    Args:
        spec: The job.
    """

    def __init__(self, spec: WriterSpec) -> None:
        self.spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with one binary column: the task's report."""
        freeze_imports()
        yield report_batch(write_task(batches, self.spec, current_task()))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamColumn:
    """The source of a table column's values.

    Attributes:
        place: The index of the query's column; None if it has none.
        default: An array of one value for all rows, used if `place` is None.
    """

    place: int | None = None
    default: pa.Array | None = None

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column's values for a batch."""
        if self.place is not None:
            return batch.column(self.place)
        assert self.default is not None
        return pa.repeat(self.default[0], batch.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows:
    """Write the rows of a task of a micro-batch. It can be pickled.

    Attributes:
        task: Writes rows that have the table's columns.
        columns: The sources of the table's columns, in table order.
    """

    task: WriteTask
    columns: tuple[StreamColumn, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with one binary column: the task's report."""
        return self.task(map(self.arrange_columns, batches))

    def missing_ids(self, table: Table) -> frozenset[int]:
        """Return the ids of the table's columns that the rows lack."""
        pairs = zip(table.schema().fields, self.columns, strict=True)
        return frozenset(field.field_id for field, column in pairs if column.place is None)

    def arrange_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the table's columns, in table order."""
        arrays = [column.values(batch) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[f"v{place}" for place in range(len(arrays))])
