"""Delta values as rows of the table, and rows of a data file with their changes. Worker.

Input: value columns of a delta, rows of a data file. Output: batches of the file layout.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER_ID, DeltaLayout, RowOperation
from dml.read.reader import FileBatch
from dml.write.conversion import converted
from dml.write.delta_rows import RowChanges, check_live
from dml.write.file_layout import FileLayout

__all__ = ["RowBuilder"]

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class RowBuilder:
    """Makes new rows of delta values.

    Args:
        files: The columns of new files.
        delta: The columns of the delta.
    """

    def __init__(self, files: FileLayout, delta: DeltaLayout) -> None:
        self._files = files
        self._places = {field_id: place for place, field_id in enumerate(delta.value_ids)}
        self._assigned = frozenset(delta.assigned_ids)

    def inserted(self, values: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that are all new: no lineage."""
        return self._files.batch(
            [
                values.column(self._places[column.field_id])
                if column.field_id in self._places
                else pa.nulls(values.num_rows, field.type)
                for column, field in zip(self._files.columns, self._files.arrow, strict=True)
            ]
        )

    def updated(self, values: pa.RecordBatch, old: dict[int, pa.Array]) -> pa.RecordBatch:
        """Updated rows by themselves.

        Args:
            values: Value columns of the delta, a row for each.
            old: By field id, the columns of the rows that they replace: those that are not assigned, and `_row_id`.
        """
        arrays = []
        for column, field in zip(self._files.columns, self._files.arrow, strict=True):
            if column.field_id in self._assigned:
                arrays.append(values.column(self._places[column.field_id]))
            elif column.field_id == LAST_UPDATED_SEQUENCE_NUMBER_ID:
                arrays.append(pa.nulls(values.num_rows, field.type))
            else:
                arrays.append(old[column.field_id])
        return self._files.batch(arrays)

    def carried(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows as they are in a data file."""
        return self._files.batch(arrays)

    def patched(self, arrays: Sequence[pa.Array], values: pa.RecordBatch, places: Positions) -> pa.RecordBatch:
        """Rows of a data file, some of them updated.

        Args:
            arrays: The file's columns.
            values: Value columns of the delta, a row for each update.
            places: Which rows they update, ascending.
        """
        result = []
        for column, field, array in zip(self._files.columns, self._files.arrow, arrays, strict=True):
            if column.field_id in self._assigned:
                new = converted(values.column(self._places[column.field_id]), field.type, field.name)
                result.append(replaced(converted(array, field.type, field.name), new, places))
            elif column.field_id == LAST_UPDATED_SEQUENCE_NUMBER_ID:
                result.append(replaced(array, pa.nulls(len(places), array.type), places))
            else:
                result.append(array)
        return self._files.batch(result)

    def changed(self, rows: FileBatch, changes: RowChanges | None) -> tuple[pa.RecordBatch, Mask | None, int]:
        """Neighbouring rows of a data file with their changes.

        Args:
            rows: As the file holds them.
            changes: What becomes of some of them; None for nothing.

        Returns:
            All rows, the updated ones with their new values; which of them stay, or None for all; and how many were
            updated.

        Raises:
            DataError: a new value breaks a rule.
            ExecutionError: A changed row was deleted before, or is not in the file.
        """
        keep = None if rows.live is None or rows.live.all() else rows.live
        arrays = rows.batch.columns
        if changes is None:
            return self.carried(arrays), keep, 0
        places = changes.positions - rows.start_position
        check_live(rows, places)
        updated = changes.updates
        number = int(updated.sum())
        batch = self.patched(arrays, changes.updated().values, places[updated]) if number else self.carried(arrays)
        deleted = places[changes.operations == RowOperation.DELETE]
        if len(deleted):
            keep = np.ones(rows.batch.num_rows, dtype=np.bool_) if keep is None else keep.copy()
            keep[deleted] = False
        return batch, keep, number


def replaced(array: pa.Array, new: pa.Array, places: Positions) -> pa.Array:
    """An array with other values at some places.

    Args:
        array: The values.
        new: One value for each place, of the same type.
        places: Ascending.
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
