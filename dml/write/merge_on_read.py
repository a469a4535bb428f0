"""Merge-on-read: deleted and updated rows are marked as deleted, updated and inserted rows go to new files. Worker.

Input: a task's delta, file by file, and the data files. Output: new data files and delete files. Spec: "Position Delete
Files", "Deletion Vectors", "Row Lineage".

An updated row takes from its data file only the columns that the statement does not assign, and of the file only the
parts that hold updated rows are read.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from dml.errors import ExecutionError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER_ID, ROW_ID, ROW_ID_ID, DeltaLayout
from dml.model.write_task import ChangedFile
from dml.read.reader import FileBatch
from dml.read.target_files import TargetFiles
from dml.write.delete_files import DeleteWriter
from dml.write.delta_rows import ChangeCursor, Changes, FileDelta, check_live, misplaced
from dml.write.file_layout import FileLayout
from dml.write.rolling import DataWriter
from dml.write.row_builder import RowBuilder

__all__ = ["NewRows", "PositionDeltaWriter"]

READ_ROWS = 262_144
"""How many updated rows of a file are gathered before the file is read for them."""


class NewRows:
    """Writes updated and inserted rows.

    Args:
        files: The data files.
        layout: The columns of new files.
        delta: The columns of the delta.
        writer: Takes the rows.
        row_lineage: Whether updated rows keep their ids.
    """

    def __init__(
        self, *, files: TargetFiles, layout: FileLayout, delta: DeltaLayout, writer: DataWriter, row_lineage: bool
    ) -> None:
        self._files = files
        self._rows = RowBuilder(layout, delta)
        self._writer = writer
        self._metadata_columns = (ROW_ID,) if row_lineage else ()
        known = {ROW_ID_ID, LAST_UPDATED_SEQUENCE_NUMBER_ID, *delta.assigned_ids}
        self._old_ids = tuple(column.field_id for column in layout.columns if column.field_id not in known)
        self._read_ids = (*self._old_ids, *((ROW_ID_ID,) if row_lineage else ()))

    def insert(self, values: pa.RecordBatch) -> None:
        """Adds new rows.

        Raises:
            DataError: a value breaks a rule.
        """
        self._writer.write(self._rows.inserted(values))

    def update(self, ordinal: int, updates: Changes) -> None:
        """Adds updated rows of one data file.

        Raises:
            DataError: a value breaks a rule.
            ExecutionError: the file does not have the rows.
        """
        if not self._read_ids:
            self._writer.write(self._rows.updated(updates.values, {}))
            return
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

    def _write(self, rows: FileBatch, changes: Changes) -> None:
        places = changes.positions - rows.start_position
        check_live(rows, places)
        taken = pa.array(places)
        columns = zip(self._read_ids, rows.batch.columns, strict=True)
        old = {field_id: column.take(taken) for field_id, column in columns}
        self._writer.write(self._rows.updated(changes.values, old))


class PositionDeltaWriter:
    """Writes a delta as deletes and new rows.

    Args:
        deletes: Takes the positions of deleted and updated rows.
        new_rows: Takes updated and inserted rows; None for a statement that only deletes.
        read_rows: How many updated rows are gathered before the file is read for them.

    Attributes:
        changed_files: The data files whose rows were deleted or updated.
    """

    def __init__(self, *, deletes: DeleteWriter, new_rows: NewRows | None, read_rows: int = READ_ROWS) -> None:
        self._deletes = deletes
        self._new_rows = new_rows
        self._read_rows = read_rows
        self.changed_files: list[ChangedFile] = []

    def apply(self, delta: FileDelta) -> None:
        """Writes the changes of one data file.

        Raises:
            DataError: a new value breaks a rule, or two delta rows are for one row.
            ExecutionError: the delta does not fit the file.
        """
        for updates in gathered(updates_of(delta.changes), self._read_rows):
            self._rows().update(delta.ordinal, updates)
        positions = delta.log.changed
        if positions.is_empty:
            return
        written = self._deletes.delete(delta.ordinal, positions)
        self.changed_files.append(
            replace(delta.log.changed_file(written.path), deletes_before=written.before, deletes_after=written.after)
        )

    def insert(self, values: pa.RecordBatch) -> None:
        """Adds new rows.

        Raises:
            DataError: a value breaks a rule.
        """
        self._rows().insert(values)

    def _rows(self) -> NewRows:
        if self._new_rows is None:
            raise ExecutionError("Rows are updated or inserted by a statement that only deletes")
        return self._new_rows


def updates_of(changes: Iterator[Changes]) -> Iterator[Changes]:
    """The updates among changes."""
    for part in changes:
        updates = part.updated()
        if len(updates):
            yield updates


def gathered(changes: Iterator[Changes], rows: int) -> Iterator[Changes]:
    """Joins changes until there are so many: reading a file for few rows at a time is slow."""
    pending: list[Changes] = []
    held = 0
    for part in changes:
        pending.append(part)
        held += len(part)
        if held >= rows:
            yield Changes.concat(pending)
            pending, held = [], 0
    if pending:
        yield Changes.concat(pending)
