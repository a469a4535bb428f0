"""Copy-on-write: data files are copied without deleted rows, and with the new values of updated rows. Worker.

Input: a task's delta, file by file, and the data files. Output: new data files, and the paths of those they replace.
Spec: "Row Lineage" for carried and updated rows.

The file and its delta are read in parallel, one batch at a time; batches without changes pass through unchanged. A file
whose rows are only matched is not read, and a file that loses every row has no successor. If the file allows it, row
groups without changes, and unassigned columns of row groups in which rows are only updated, are copied undecoded
(`dml.write.splicing`).

New rows share the files of rewritten rows, or become the last row group of a spliced file of their partition.
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from dml import limits
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID
from dml.model.manifest import ContentFile
from dml.model.scan_task import ScanTask
from dml.model.write_task import ChangedFile, RowOrigins, SplicedDataFile
from dml.read.reader import FileBatch
from dml.write.delta_rows import ChangeCursor, FileDelta, RowChanges, misplaced
from dml.write.file_layout import FileLayout
from dml.write.output_files import OutputFileFactory
from dml.write.partition_values import PartitionRouter
from dml.write.partitioning import open_data_writer
from dml.write.row_builder import RowBuilder
from dml.write.row_log import OriginLog
from dml.write.splicing import Splicer
from dml.write.writer_spec import WriterSpec, current_spec

__all__ = ["FileRewriter"]


class FileRewriter:
    """Rewrites data files.

    Args:
        spec: The job.
        layout: The columns of new files.
        output: Opens new files.

    Attributes:
        splicer: Splices the files that allow it; None if the job rules it out for all files.
        changed_files: The data files that were rewritten, or lost every row.
        rows_carried: Rows copied unchanged.
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
        """Which columns of the new files are copied."""
        return () if self.splicer is None else tuple(self.splicer.spliced_files)

    def row_origins(self) -> tuple[RowOrigins, ...]:
        """Where the rows of new files come from; empty if the job does not track it."""
        return () if self._origins is None else self._origins.report()

    def close(self) -> tuple[ContentFile, ...]:
        """Complete all files."""
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
        """Rewrite one data file; a file without changes stays.

        Raises:
            DataError: a new value breaks a rule, or two delta rows are for one row.
            ExecutionError: the delta does not fit the file.
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
            raise misplaced(task, changes.next_position)
        self._report(delta, task, rows_before=live, rows_carried=carried)

    def remove(self, delta: FileDelta) -> None:
        """Remove a data file unread.

        Args:
            delta: Deletes each of its live rows; already consumed.
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
            DataError: a value breaks a rule.
        """
        batch = self._rows.inserted(values)
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
        self._writer.write(batch if self._origins is None else self._origins.inserted(batch))

    def _write(
        self, task: ScanTask, rows: FileBatch, changes: RowChanges | None, partition: tuple[Any, ...] | None
    ) -> int:
        """Write the rows of a batch that stay; return how many are unchanged."""
        batch, keep, updates = self._rows.changed(rows, changes)
        if self._origins is not None:
            batch = self._origins.carried(batch, task.file_ordinal, rows.start_position)
        if keep is not None:
            batch = batch.filter(pa.array(keep))
        if batch.num_rows:
            self._writer.write(batch, partition)
        return int(batch.num_rows) - updates
