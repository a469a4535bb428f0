"""Rows of one partition in the table's sort order, however many they are. Worker.

Input: batches in any order. Output: the same rows, sorted, to the writer of data files. Spec: "Sorting".

Rows are kept in memory up to a limit; beyond it they go, sorted, to a temporary file as a run. In the end only the keys
of all runs are in memory: each piece of the result is a few neighbouring rows of every run, for runs are sorted.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import NestedField

from dml import limits
from dml.files.scratch import scratch_folder
from dml.model.manifest import ContentFile
from dml.model.transforms import array_transform
from dml.write.partition_values import aligned, find_source, physical
from dml.write.rolling import RollingDataWriter

__all__ = ["RowOrder", "SortingDataWriter", "row_order"]


SortKeys = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedBy:
    """One field of a sort order: where its source is in a batch, and what becomes of it."""

    field: SortField
    path: tuple[int, ...]
    transform: Any

    def keys(self, batch: pa.RecordBatch | pa.Table, number: int) -> Iterator[tuple[str, str, pa.Array]]:
        """Key columns with their names and directions: NULLs, then NaNs (the greatest value), then values."""
        values = batch.column(self.path[0])
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        for place in self.path[1:]:
            values = pc.struct_field(values, [place])
        values = physical(self.transform(aligned(values)))
        direction = "ascending" if self.field.direction == SortDirection.ASC else "descending"
        nulls_first = self.field.null_order == NullOrder.NULLS_FIRST
        yield f"n{number}", "descending" if nulls_first else "ascending", pc.is_null(values)
        if pa.types.is_floating(values.type):
            yield f"f{number}", direction, pc.fill_null(pc.is_nan(values), fill_value=False)
        yield f"v{number}", direction, values


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """A sort order over the columns of new files."""

    fields: tuple[SortedBy, ...]

    def keys(self, rows: pa.RecordBatch | pa.Table) -> tuple[pa.Table, SortKeys]:
        """The key columns of rows, and how they sort."""
        found = [key for number, field in enumerate(self.fields) for key in field.keys(rows, number)]
        columns = {name: values for name, _, values in found}
        return pa.table(columns), [(name, direction) for name, direction, _ in found]


def row_order(order: SortOrder, columns: tuple[NestedField, ...]) -> RowOrder | None:
    """The sort order over the columns of new files; None where rows cannot be, or need not be, sorted by it."""
    fields = []
    for field in order.fields:
        found = find_source(field.source_id, columns)
        if found is None or isinstance(field.transform, UnknownTransform):
            return None
        if not isinstance(field.transform, VoidTransform):
            path, source = found
            fields.append(SortedBy(field=field, path=path, transform=array_transform(field.transform, source)))
    return RowOrder(fields=tuple(fields)) if fields else None


class SortingDataWriter:
    """Sorts the rows of one partition before they are written.

    Args:
        order: The order.
        writer: Writes them.
        max_buffered_bytes: How many bytes of rows may be kept in memory.
    """

    def __init__(self, order: RowOrder, writer: RollingDataWriter, *, max_buffered_bytes: int) -> None:
        self._order = order
        self._writer = writer
        self._max_buffered_bytes = max_buffered_bytes
        self._rows: list[pa.RecordBatch] = []
        self._runs: list[pa.Table] = []
        self._files = ExitStack()
        self.buffered_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether there are rows that are in no file yet."""
        return bool(self._rows or self._runs)

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:  # noqa: ARG002
        """Takes rows of the partition."""
        self._rows.append(batch)
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes > self._max_buffered_bytes:
            self.flush()

    def flush(self) -> None:
        """Puts the rows that are in memory into a temporary file, as a run."""
        if not self._rows:
            return
        run = self._sorted_rows()
        folder = self._files.enter_context(scratch_folder())
        path = f"{folder}/run.arrow"
        with pa.ipc.new_file(path, run.schema) as sink:
            sink.write_table(run, max_chunksize=limits.SORTED_BATCH_ROWS)
        source = self._files.enter_context(pa.memory_map(path))
        self._runs.append(pa.ipc.open_file(source).read_all())

    def finish_file(self) -> None:
        """Writes all rows; later ones go to a new file."""
        if self._runs and self._rows:
            self.flush()
        pieces = merged(self._order, self._runs) if self._runs else self._memory_pieces()
        for piece in pieces:
            self._writer.write(piece)
        self._writer.finish_file()
        self._forget()

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes the last file."""
        self.finish_file()
        return self._writer.close()

    def abort(self) -> None:
        """Gives up the rows and the open file."""
        self._forget()
        self._writer.abort()

    def _forget(self) -> None:
        self._rows, self._runs, self.buffered_bytes = [], [], 0
        self._files.close()

    def _sorted_rows(self) -> pa.Table:
        rows = pa.Table.from_batches(self._rows).combine_chunks()
        self._rows, self.buffered_bytes = [], 0
        keys, directions = self._order.keys(rows)
        return rows.take(pc.sort_indices(keys, sort_keys=directions))

    def _memory_pieces(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            yield from self._sorted_rows().to_batches(max_chunksize=limits.SORTED_BATCH_ROWS)


def merged(order: RowOrder, runs: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted runs as one sorted sequence, piece by piece."""
    keys = pa.concat_tables([order.keys(run)[0] for run in runs])
    directions = order.keys(runs[0].slice(0, 0))[1]
    places = pc.sort_indices(keys, sort_keys=directions).to_numpy()  # stable: rows of a run stay in its order
    starts = np.cumsum([0, *(run.num_rows for run in runs)])
    cursors = [0] * len(runs)
    for begin in range(0, len(places), limits.SORTED_BATCH_ROWS):
        piece = places[begin : begin + limits.SORTED_BATCH_ROWS]
        of_run = np.searchsorted(starts, piece, side="right") - 1
        parts, taken, offset = [], np.empty(len(piece), dtype=np.int64), 0
        for number in np.unique(of_run).tolist():
            mine = of_run == number
            count = int(mine.sum())
            parts.append(runs[number].slice(cursors[number], count))
            taken[mine] = np.arange(offset, offset + count)
            cursors[number] += count
            offset += count
        rows = pa.concat_tables(parts).combine_chunks().take(pa.array(taken))
        yield from rows.to_batches()
