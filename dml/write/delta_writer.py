"""Writes the rows of one task: a strategy for each changed data file, and new rows. Worker.

Input: the job, and its rows: new rows, or a delta sorted by file and position. Output: files, and their `TaskCommit`.

One writer serves all modes. Each changed data file is rewritten, marked or removed as `dml.write.choice` chooses;
copy-on-write and merge-on-read are constant choices, and only the adaptive mode counts changes before it chooses.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.scan_task import ScanTask
from dml.model.write_task import TaskCommit
from dml.write.choice import (
    Choice,
    Choose,
    FileCounts,
    always_mark,
    always_rewrite,
    choose_by_counts,
    may_be_spliced,
    rows_to_mark,
)
from dml.write.copy_on_write import FileRewriter
from dml.write.delete_files import DeleteResult
from dml.write.delta_rows import DeltaCounts, FileDelta, RowChanges, delta_runs
from dml.write.file_layout import file_layout
from dml.write.merge_on_read import NewRowsWriter, RowMarker, no_new_rows
from dml.write.output_files import OutputFileFactory
from dml.write.row_log import within_limit
from dml.write.writer_spec import DELETE_FILE_VERSION, WriteJob, WriterSpec

__all__ = ["DeltaWriter"]


class DeltaWriter:
    """Writes all rows of a task.

    The parts that a job does not need are not opened: a table with a column that cannot be written can still be deleted
    from by marking rows.

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
            if spec.job is not WriteJob.COPY_ON_WRITE:  # its new rows share the files of rewritten ones
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
            DataError: a new value breaks a rule, or two delta rows are for one row.
            ExecutionError: the delta does not fit its files.
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
        """Write the changes of one data file; nothing if its rows are only matched."""
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
            delta: The file's changes, consumed as far as they are counted.
            held: Receives what was consumed.
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
        """Return how many rows position deletes delete; for equality deletes the file would have to be read."""
        if task.deletion_vector is not None:
            return task.deletion_vector.record_count
        if all(ref.referenced_data_file is not None for ref in task.position_deletes):
            return sum(ref.record_count for ref in task.position_deletes)
        return len(self._existing(task))

    def _is_every_row(self, delta: FileDelta) -> bool:
        """Return whether the counted changes are for each live row, and for no other.

        The counts suggest it. A delta that does not fit the file is left to the rewriter, which reads the file and
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
        """Complete all files. The only place that makes the commit of a task that succeeded."""
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
            changed_files=within_limit(changed, self._spec.max_report_bytes),
            row_origins=rewriter.row_origins() if rewriter is not None else (),
            metrics=counts.metrics(rows_carried=rewriter.rows_carried if rewriter is not None else 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCounts:
    """Changes of a data file that are in memory.

    Attributes:
        rows: All of them.
        updated: The updates among them.
        is_all: Whether no changes are left in the iterator.
    """

    rows: int
    updated: int
    is_all: bool


def hold_changes(changes: Iterator[RowChanges], held: list[RowChanges], rows: int, max_bytes: int) -> HeldCounts:
    """Take changes into memory until the file cannot be marked any more.

    Deletes alone are all taken: they may turn out to be of every row.

    Args:
        changes: The changes of a file.
        held: Receives what is taken.
        rows: The number of rows that may be marked.
        max_bytes: The limit for what is held.
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
