"""Reads rows of a table and writes them in the same task: they never leave Python. Worker.

Input: groups of scan tasks, of which a Spark task gets its number. Output: one `TaskCommit`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from dml.model.columns import value_name
from dml.read.packed_groups import PackedGroups
from dml.write.run import WriteTask

__all__ = ["ScannedRowsTask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRowsTask:
    """What Spark's tasks run. It can be pickled.

    Attributes:
        groups: What they read.
        places: For each value column of the write, its place among the columns that are read.
        write: What becomes of the rows.
    """

    groups: PackedGroups
    places: tuple[int, ...]
    write: WriteTask

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row with one binary column: the `TaskCommit` of the task whose number is in the first column."""
        names = [value_name(number) for number in range(len(self.places))]

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in self.groups.read(numbers):
                yield pa.RecordBatch.from_arrays([batch.column(place) for place in self.places], names=names)

        return self.write(rows())
