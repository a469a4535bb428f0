"""What becomes of the rows of a data file, noted as a task reads and writes: for the report to the driver. Worker.

Input: positions of the delta, run by run; batches with a last column of origins, in the order in which they get into a
file. Output: counts and sets for `ChangedFile`; `RowOrigins`. The column of origins travels with the rows through
partitioning and sorting, and ends here: no file holds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml import limits
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.columns import RowOperation
from dml.model.write_task import NEW_ROWS, ChangedFile, Numbers, RowOrigins, origins

__all__ = ["OriginLog", "RowLog", "within_limit"]


Positions = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class RowLog:
    """The rows of one data file that the delta names, so far."""

    deleted: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    updated: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    observed: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)

    def add_changes(self, positions: Positions, operations: npt.NDArray[np.int32]) -> None:
        """Note rows that change."""
        updates = operations == RowOperation.UPDATE
        self.updated.add_many(positions[updates])
        self.deleted.add_many(positions[~updates])

    @property
    def changed(self) -> PositionDeleteIndex:
        """The rows that are not as they were."""
        return self.deleted.union(self.updated)

    def changed_file(self, path: str) -> ChangedFile:
        """The log as a task reports it."""
        return ChangedFile(
            path=path,
            rows_deleted=len(self.deleted),
            rows_updated=len(self.updated),
            deleted=encode(self.deleted),
            updated=encode(self.updated),
            observed=encode(self.observed.difference(self.changed)),
        )


def within_limit(files: Sequence[ChangedFile], max_bytes: int) -> tuple[ChangedFile, ...]:
    """The files with their positions; without, where these are too many to be sent."""
    size = sum(len(part or b"") for file in files for part in (file.deleted, file.updated, file.observed))
    if size <= min(max_bytes, limits.MAX_TASK_POSITION_BYTES):
        return tuple(files)
    return tuple(replace(file, deleted=None, updated=None, observed=None) for file in files)


COLUMN: Final = pa.field("_origin", pa.int64(), nullable=False)


class OriginLog:
    """The origins of all rows that one task writes.

    Args:
        max_runs: Beyond so many runs the log is given up.
        max_encoded_bytes: Beyond so many bytes it is not reported.
    """

    def __init__(
        self, *, max_runs: int = limits.MAX_TASK_ORIGIN_RUNS, max_encoded_bytes: int = limits.MAX_TASK_ORIGIN_BYTES
    ) -> None:
        self._max_runs = max_runs
        self._max_encoded_bytes = max_encoded_bytes
        self._runs: dict[str, list[tuple[Numbers, Numbers]]] = {}
        self._count = 0
        self._new_rows = 0
        self._given_up = False

    def carried(self, batch: pa.RecordBatch, ordinal: int, start: int) -> pa.RecordBatch:
        """The batch with origins: it is neighbouring rows of a data file."""
        return with_origins(batch, origins(ordinal, start, batch.num_rows))

    def inserted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with origins: its rows are new."""
        first = NEW_ROWS + self._new_rows
        self._new_rows += batch.num_rows
        return with_origins(batch, np.arange(first, first + batch.num_rows, dtype=np.int64))

    def copied(
        self, location: str, ordinal: int, start: int, rows: int, keep: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Note that the next rows of a file are neighbouring rows of a data file.

        Args:
            location: The file.
            ordinal: The data file.
            start: Position of the first row.
            rows: How many.
            keep: Which of them; None for all.
        """
        if not self._given_up:
            numbers = origins(ordinal, start, rows)
            self._note(numbers if keep is None else numbers[keep], location)

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
            found.append(RowOrigins.of(location, *joined(parts)))
            size += len(found[-1].encoded)
            if size > self._max_encoded_bytes:
                return ()
        return tuple(found)


def with_origins(batch: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], schema=batch.schema.append(COLUMN))


def joined(parts: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """All runs of a file; those that only the end of a batch has parted are one."""
    firsts = np.concatenate([part[0] for part in parts])
    lengths = np.concatenate([part[1] for part in parts])
    begins = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), firsts[1:] != firsts[:-1] + lengths[:-1]]))
    return firsts[begins], np.add.reduceat(lengths, begins)
