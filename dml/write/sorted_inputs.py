"""Read the sort keys of data files, and merge files whose rows are already sorted. Worker.

Input: scan tasks and a write that sorts rows. Output: the keys of live rows; or the rows of several sorted files in
order. A merge sorts and spills no rows: it keeps only the keys in memory. The sort order of a manifest entry is
ignored. Instead, a check reads the key columns of a file, up to the first row that is out of order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from dml import limits
from dml.model.scan_task import ScanContext, ScanTask
from dml.read.reader import TaskReader
from dml.write.file_layout import schema_layout
from dml.write.partitioning import SortKeys, key_columns, merge_by_keys, writing_order
from dml.write.writer_spec import WriterSpec

__all__ = ["KeyReader", "SortedInputs", "sorted_inputs"]


class KeyReader:
    """Read the sort keys of scan tasks.

    Args:
        context: The scan; its projection is replaced by the columns of the key.
        spec: A write that sorts rows.
    """

    def __init__(self, context: ScanContext, spec: WriterSpec) -> None:
        columns = Schema.model_validate_json(context.schema_json).fields
        keys = replace(context, projected_ids=key_columns(spec, columns), metadata_columns=())
        self._reader = TaskReader(keys, spark_types=False)
        self._layout = schema_layout(Schema(*self._reader.projected))
        order = writing_order(spec, self._layout.columns)
        assert order is not None, "the job sorts rows"
        self._order = order
        self.directions: SortKeys = order.keys(self._layout.arrow.empty_table())[1]

    def read(self, task: ScanTask) -> Iterator[pa.Table]:
        """Yield the keys of the live rows, batch by batch.

        Raises:
            DmlError: The file cannot be read.
        """
        for batch in self._reader.read(task):
            if batch.num_rows:
                yield self._order.keys(self._layout.batch(batch.columns))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedInputs:
    """Files whose rows are sorted.

    Attributes:
        keys: The keys of the live rows, by file.
        directions: The sort directions of the key columns.
    """

    keys: tuple[pa.Table, ...]
    directions: SortKeys

    def merge(self, files: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files in order.

        Args:
            files: The live rows of each file.
        """
        return merge_by_keys(self.keys, self.directions, [in_turn(file) for file in files])


def sorted_inputs(context: ScanContext, spec: WriterSpec, tasks: Sequence[ScanTask]) -> SortedInputs | None:
    """Return the keys of sorted files; None if a file is not sorted, or a merge would need too much memory.

    Args:
        context: The scan.
        spec: A write that sorts rows.
        tasks: The files, or parts of files.

    Raises:
        DmlError: A file cannot be read.
    """
    if len(tasks) > limits.MAX_MERGED_FILES:
        return None
    reader, size = KeyReader(context, spec), 0
    found: list[pa.Table] = []
    for task in tasks:
        parts: list[pa.Table] = []
        for keys in reader.read(task):
            last = [parts[-1].slice(parts[-1].num_rows - 1)] if parts else []
            size += keys.nbytes
            if size > limits.MAX_MERGED_KEY_BYTES or not is_sorted(pa.concat_tables([*last, keys]), reader.directions):
                return None
            parts.append(keys)
        if not parts:
            return None  # a file without live rows is rare, and has no keys to merge
        found.append(pa.concat_tables(parts).combine_chunks())
    return SortedInputs(keys=tuple(found), directions=reader.directions)


def is_sorted(keys: pa.Table, directions: SortKeys) -> bool:
    """Return True if rows are in the order of their keys."""
    places = pc.sort_indices(keys.combine_chunks(), sort_keys=directions).to_numpy()  # stable: equal rows stay
    return bool((np.diff(places.astype(np.int64)) == 1).all())


def in_turn(batches: Iterator[pa.RecordBatch]) -> Callable[[int], pa.Table]:
    """Return a function that returns the next rows of a file, given their number."""
    held: list[pa.RecordBatch] = []

    def take(count: int) -> pa.Table:
        taken: list[Any] = []
        while count:
            batch = held.pop() if held else next(batches)
            taken.append(batch.slice(0, count))
            if batch.num_rows > count:
                held.append(batch.slice(count))
            count -= taken[-1].num_rows
        return pa.Table.from_batches(taken)

    return take
