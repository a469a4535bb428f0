"""The rows of a micro-batch as the columns of a table, and into its files. Worker.

Input: record batches with the columns of a streaming query; where each column of the table is among them. Output: as
`WriteTask`. On the driver `dml.streaming.columns` has found the columns and compared the types; what is narrower than
the table's type is widened when files are written.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from dml.write.run import WriteTask

__all__ = ["StreamColumn", "StreamRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamColumn:
    """Where the values of a table's column come from.

    Attributes:
        place: The place of the query's column; None where it has none.
        default: Then one value, which each row gets.
    """

    place: int | None = None
    default: pa.Array | None = None

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The column of a batch."""
        if self.place is not None:
            return batch.column(self.place)
        assert self.default is not None
        return pa.repeat(self.default[0], batch.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows:
    """Writes the rows of a task of a micro-batch. It can be pickled.

    Attributes:
        task: Writes rows that have the table's columns.
        columns: One for each column of the table, in its order.
    """

    task: WriteTask
    columns: tuple[StreamColumn, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row with one binary column: the task's `TaskCommit`."""
        return self.task(map(self.arranged, batches))

    def left_out(self, table: Table) -> frozenset[int]:
        """Ids of the table's columns that the rows have not."""
        pairs = zip(table.schema().fields, self.columns, strict=True)
        return frozenset(field.field_id for field, column in pairs if column.place is None)

    def arranged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with the table's columns, in its order."""
        arrays = [column.values(batch) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[f"v{place}" for place in range(len(arrays))])
