"""Merge-on-read: deleted and updated rows are marked as deleted; updated and inserted rows go to new files. Worker.

Input: a task's delta, file by file, and the data files. Output: new data files and delete files. Spec: "Position Delete
Files", "Deletion Vectors", "Row Lineage".

Only the columns that the statement does not assign are read from an updated row's data file, and only the parts of the
file that hold updated rows.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from dml import limits
from dml.errors import ExecutionError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER_ID, ROW_ID, ROW_ID_ID
from dml.model.manifest import ContentFile
from dml.model.write_task import ChangedFile
from dml.read.reader import FileBatch
from dml.write.delete_files import (
    DeleteResult,
    DeleteWriter,
    DeletionVectorWriter,
    PositionDeleteWriter,
    delete_file_options,
)
from dml.write.delta_rows import ChangeCursor, FileDelta, RowChanges, check_live, misplaced
from dml.write.file_layout import FileLayout
from dml.write.held_rows import HoldingDataWriter
from dml.write.output_files import OutputFileFactory
from dml.write.partitioning import open_data_writer
from dml.write.row_builder import RowBuilder
from dml.write.writer_spec import DELETION_VECTOR_VERSION, WriterSpec

__all__ = ["NewRowsWriter", "RowMarker", "no_new_rows"]


class NewRowsWriter:
    """Writes updated and inserted rows to new files, or holds few of them for the driver.

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
            DataError: a value breaks a rule.
        """
        self._writer.write(self._rows.inserted(values))

    def update(self, ordinal: int, updates: RowChanges) -> None:
        """Add updated rows of one data file.

        Raises:
            DataError: a value breaks a rule.
            ExecutionError: the file does not have the rows.
        """
        if not self._read_ids:
            self._writer.write(self._rows.updated(updates.values, {}))
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
            raise misplaced(task, cursor.next_position)

    def _write(self, rows: FileBatch, changes: RowChanges) -> None:
        places = changes.positions - rows.start_position
        check_live(rows, places)
        taken = pa.array(places)
        columns = zip(self._read_ids, rows.batch.columns, strict=True)
        old = {field_id: column.take(taken) for field_id, column in columns}
        self._writer.write(self._rows.updated(changes.values, old))

    def held(self) -> bytes:
        """Return the rows left to the driver, as an Arrow stream; empty if there are none."""
        return self._writer.held()

    def close(self) -> tuple[ContentFile, ...]:
        """Complete all files."""
        return self._writer.close()

    def abort(self) -> None:
        """Close the open files, which the caller deletes."""
        self._writer.abort()


class RowMarker:
    """Marks deleted and updated rows as deleted; the new values of updated rows go to `NewRowsWriter`.

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
            DataError: a new value breaks a rule, or two delta rows are for one row.
            ExecutionError: the delta does not fit the file.
        """
        for updates in gathered(updates_of(delta.changes), limits.UPDATE_BATCH_ROWS):
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
        updates = part.updated()
        if len(updates):
            yield updates


def gathered(changes: Iterator[RowChanges], rows: int) -> Iterator[RowChanges]:
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
