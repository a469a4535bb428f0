"""Copy-on-write: data files are copied without deleted rows, and with the new values of updated rows. Worker.

Input: a task's delta, file by file, and the data files. Output: new data files, and the paths of those they replace.
Spec: "Row Lineage" for carried and updated rows.

The file and its delta are read side by side, a batch at a time. What no change touches goes through as it is. A file
whose rows are only matched is not read; of a file that loses every row nothing is written. Row groups in which nothing
changes, and columns that are not assigned where rows are only updated, are copied undecoded, if the file allows it
(`dml.write.splicing`).
"""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID, DeltaLayout
from dml.model.scan_task import ScanTask
from dml.model.write_task import ChangedFile
from dml.read.reader import FileBatch
from dml.read.target_files import TargetFiles
from dml.write.delta_rows import ChangeCursor, Changes, FileDelta, misplaced
from dml.write.file_layout import FileLayout
from dml.write.rolling import DataWriter
from dml.write.row_builder import RowBuilder
from dml.write.row_log import OriginLog
from dml.write.splicing import Splicer

__all__ = ["PatchWriter"]


class PatchWriter:
    """Rewrites data files.

    Args:
        files: The data files.
        layout: The columns of new files.
        delta: The columns of the delta.
        writer: Takes the rows.
        row_lineage: Whether rows keep their ids.
        spec_id: Spec of new files.
        source_ids: The columns that its partition values come from.
        origins: Notes where rows come from; None where nobody asks.
        splicer: Splices the files that can be; None where no file can be.

    Attributes:
        changed_files: The data files that were rewritten, or lost every row.
        rows_carried: Rows copied as they are.
    """

    def __init__(
        self,
        *,
        files: TargetFiles,
        layout: FileLayout,
        delta: DeltaLayout,
        writer: DataWriter,
        row_lineage: bool,
        spec_id: int,
        source_ids: frozenset[int],
        origins: OriginLog | None = None,
        splicer: Splicer | None = None,
    ) -> None:
        self._files = files
        self._rows = RowBuilder(layout, delta)
        self._writer = writer
        self._spec_id = spec_id
        self._origins = origins
        self._splicer = splicer
        # Updates that assign no source of a partition value leave every row in its partition.
        self._keeps_partition = source_ids.isdisjoint(delta.assigned_ids)
        metadata = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if row_lineage else ()
        self._metadata_columns = metadata
        self._columns = tuple(column.field_id for column in layout.columns[: len(layout.columns) - len(metadata)])
        self.changed_files: list[ChangedFile] = []
        self.rows_carried = 0

    @property
    def removed_data_files(self) -> tuple[str, ...]:
        """The files that were rewritten, or lost every row."""
        return tuple(file.path for file in self.changed_files)

    def patch(self, delta: FileDelta) -> None:
        """Rewrites one data file.

        Raises:
            DataError: a new value breaks a rule, or two delta rows are for one row.
            ExecutionError: the delta does not fit the file.
        """
        changes = ChangeCursor(delta.changes)
        if changes.exhausted():
            return
        task = self._files.task(delta.ordinal)
        spliced = None if self._splicer is None else self._splicer.splice(task, changes)
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
        """Takes a data file away unread: all of its live rows are deleted.

        Args:
            delta: A deletion of each of them, consumed.
        """
        task = self._files.task(delta.ordinal)
        self._report(delta, task, rows_before=len(delta.log.deleted), rows_carried=0)

    def _report(self, delta: FileDelta, task: ScanTask, *, rows_before: int, rows_carried: int) -> None:
        log = delta.log.changed_file(task.path)
        self.changed_files.append(replace(log, rows_before=rows_before, rows_carried=rows_carried))
        self.rows_carried += rows_carried

    def insert(self, values: pa.RecordBatch) -> None:
        """Adds new rows.

        Raises:
            DataError: a value breaks a rule.
        """
        batch = self._rows.inserted(values)
        self._writer.write(batch if self._origins is None else self._origins.inserted(batch))

    def _write(
        self, task: ScanTask, rows: FileBatch, changes: Changes | None, partition: tuple[Any, ...] | None
    ) -> int:
        """Writes what is left of neighbouring rows; gives the number of those that nothing changes."""
        batch, keep, updates = self._rows.changed(rows, changes)
        if self._origins is not None:
            batch = self._origins.carried(batch, task.file_ordinal, rows.start_position)
        if keep is not None:
            batch = batch.filter(pa.array(keep))
        if batch.num_rows:
            self._writer.write(batch, partition)
        return int(batch.num_rows) - updates
