"""Finds the rows of a DELETE or UPDATE, computes their new values and writes, in one task: none leaves Python. Worker.

Input: groups of scan tasks, of which a Spark task gets its number, each a whole data file. Output: one `TaskCommit`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from dml.model.columns import FILE_ORDINAL, POS, ROW_OPERATION, RowOperation, value_name
from dml.model.row_conditions import RowTerm
from dml.read.computed_rows import computed
from dml.read.packed_groups import PackedGroups
from dml.write.run import WriteTask

__all__ = ["ScannedDeltaTask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedDeltaTask:
    """What Spark's tasks run. It can be pickled.

    Attributes:
        groups: What they read: the rows that change, with `FILE_ORDINAL` and `POS` behind their columns.
        read_ids: Field ids of the columns that are read.
        operation: What becomes of the rows.
        values: The new values, in the order of the delta's value columns.
        write: Writes the delta.
    """

    groups: PackedGroups
    read_ids: tuple[int, ...]
    operation: RowOperation
    values: tuple[RowTerm, ...]
    write: WriteTask

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row with one binary column: the `TaskCommit` of the task whose number is in the first column."""
        return self.write(self.delta(batch) for batch in self.groups.read(numbers))

    def delta(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as a delta (`dml.model.columns`).

        Raises:
            DataError: of kind `OVERFLOW`: a new value does not fit its type.
        """
        columns = {field_id: rows.column(place) for place, field_id in enumerate(self.read_ids)}
        operations = pa.repeat(pa.scalar(int(self.operation), pa.int32()), rows.num_rows)
        arrays = [operations, rows.column(FILE_ORDINAL), rows.column(POS)]
        arrays += [computed(term, columns, rows.num_rows) for term in self.values]
        names = [ROW_OPERATION, FILE_ORDINAL, POS, *map(value_name, range(len(self.values)))]
        return pa.RecordBatch.from_arrays(arrays, names=names)
