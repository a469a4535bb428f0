"""Where the rows of new data files come from, noted as they are written. Worker.

Input: batches with a last column of origins, in the order in which they get into a file. Output: `RowOrigins`. The
column travels with the rows through partitioning and sorting, and ends here: no file holds it.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from dml.model.row_origins import NEW_ROWS, Numbers, RowOrigins, origins

__all__ = ["MAX_ENCODED_BYTES", "MAX_RUNS", "OriginLog"]

MAX_RUNS: Final = 2**21
"""Runs that a task remembers; rows that sorting has torn apart are not worth more."""

MAX_ENCODED_BYTES: Final = 2 * 2**20
"""What the origins of one task may take on their way to the driver."""

_COLUMN: Final = pa.field("_origin", pa.int64(), nullable=False)


class OriginLog:
    """The origins of all rows that one task writes.

    Args:
        max_runs: Beyond so many runs the log is given up.
        max_encoded_bytes: Beyond so many bytes it is not reported.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS, max_encoded_bytes: int = MAX_ENCODED_BYTES) -> None:
        self._max_runs = max_runs
        self._max_encoded_bytes = max_encoded_bytes
        self._runs: dict[str, list[tuple[Numbers, Numbers]]] = {}
        self._count = 0
        self._new_rows = 0
        self._given_up = False

    def carried(self, batch: pa.RecordBatch, ordinal: int, start: int) -> pa.RecordBatch:
        """The batch with origins: it is neighbouring rows of a data file."""
        return _with(batch, origins(ordinal, start, batch.num_rows))

    def inserted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with origins: its rows are new."""
        first = NEW_ROWS + self._new_rows
        self._new_rows += batch.num_rows
        return _with(batch, np.arange(first, first + batch.num_rows, dtype=np.int64))

    def take(self, batch: pa.RecordBatch, location: str) -> pa.RecordBatch:
        """The batch without origins: its rows are the next ones of a file.

        Args:
            batch: With origins.
            location: The file.
        """
        last = batch.num_columns - 1
        if not self._given_up:
            self._note(batch.column(last).to_numpy(), location)
        return batch.select(list(range(last)))

    def _note(self, numbers: Numbers, location: str) -> None:
        if not len(numbers):
            return
        begins = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(numbers) != 1) + 1])
        lengths = np.diff(begins, append=len(numbers))
        self._runs.setdefault(location, []).append((numbers[begins], lengths))
        self._count += len(begins)
        if self._count > self._max_runs:
            self._given_up = True
            self._runs.clear()

    def report(self) -> tuple[RowOrigins, ...]:
        """The origins, file by file; nothing where there were too many."""
        found: list[RowOrigins] = []
        size = 0
        for location, parts in self._runs.items():
            found.append(RowOrigins.of(location, *_joined(parts)))
            size += len(found[-1].encoded)
            if size > self._max_encoded_bytes:
                return ()
        return tuple(found)


def _with(batch: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], schema=batch.schema.append(_COLUMN))


def _joined(parts: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """All runs of a file; those that only the end of a batch has parted are one."""
    firsts = np.concatenate([part[0] for part in parts])
    lengths = np.concatenate([part[1] for part in parts])
    begins = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), firsts[1:] != firsts[:-1] + lengths[:-1]]))
    return firsts[begins], np.add.reduceat(lengths, begins)
