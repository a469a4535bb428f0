"""Carry a MERGE's source from the tasks that compute it to those that read the target. Worker and driver.

Check the lengths of the rows that Spark sends to writers.

Input: the rows, task by task. Output: each task returns a few rows itself, and writes more to an Arrow file that the
driver can read. The driver combines all parts into one batch, which tasks receive with their function, by a broadcast
variable, or in a file that they map into memory.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dml.errors import DataError, DmlError, ExecutionError
from dml.model.columns import FITS
from dml.model.write_task import SourcePart, TaskFailure, TaskReport, report_batch
from dml.write.output_files import current_task

__all__ = [
    "BroadcastBatch",
    "LongRowCheck",
    "LongRowError",
    "MappedBatch",
    "PartWriter",
    "SentBatch",
    "StreamedBatch",
    "part_columns",
    "stream_bytes",
]

FULL: Final = "full"
"""The name of the marker file that a task creates if the limit is exceeded, so that the others stop."""


class SentBatch(Protocol):
    """A batch that tasks can open. It can be pickled."""

    def batch(self) -> pa.RecordBatch:
        """Return the batch."""


@dataclass(frozen=True, slots=True)
class StreamedBatch:
    """A batch that travels with the function that tasks run.

    Attributes:
        data: A compressed Arrow stream of one batch.
    """

    data: bytes

    def batch(self) -> pa.RecordBatch:
        """Return the batch."""
        return pa.ipc.open_stream(self.data).read_next_batch()

    @staticmethod
    def of(batch: pa.RecordBatch) -> "StreamedBatch":
        """Compress a batch."""
        return StreamedBatch(stream_bytes([batch], batch.schema, compression="lz4"))


class BroadcastVariable(Protocol):
    """PySpark's `Broadcast`, which modules that run on workers do not import."""

    @property
    def value(self) -> bytes:
        """The bytes."""


@dataclass(frozen=True, slots=True)
class BroadcastBatch:
    """A batch in a broadcast variable, of which each executor fetches one copy.

    The driver keeps the batch for the tasks that it runs itself: with `spark.io.encryption.enabled`, PySpark hangs when
    the driver reads a variable of some megabytes.

    Attributes:
        variable: An Arrow stream of one batch.
        held: The batch; None on executors.
    """

    variable: BroadcastVariable
    held: pa.RecordBatch | None = field(default=None, repr=False, compare=False)

    def batch(self) -> pa.RecordBatch:
        """Return the batch."""
        if self.held is not None:
            return self.held
        return pa.ipc.open_stream(self.variable.value).read_next_batch()

    def __reduce__(self) -> tuple[type["BroadcastBatch"], tuple[BroadcastVariable]]:
        return BroadcastBatch, (self.variable,)


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """A batch in a file that driver and tasks share.

    Attributes:
        path: An Arrow file of one batch.
    """

    path: str

    def batch(self) -> pa.RecordBatch:
        """Map the file into memory and return its batch."""
        return pa.ipc.open_file(pa.memory_map(self.path)).get_batch(0)

    @staticmethod
    def write(path: str, batch: pa.RecordBatch) -> "MappedBatch":
        """Write a batch.

        Raises:
            OSError: The disk is full.
        """
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
            file.write_batch(batch)
        return MappedBatch(path)


class LongRowError(DataError):
    """A row is too long for batches limited by row count."""


@dataclass(frozen=True, slots=True)
class LongRowCheck:
    """Run a task's function and fail at the first batch with a long row. It can be pickled.

    Attributes:
        function: Receives the rows without the column `FITS`.
    """

    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the function's output. Its input raises `LongRowError` at a batch with a long row."""
        return self.function(map(check_row_lengths, batches))


def check_row_lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without the column `FITS`.

    Raises:
        LongRowError: A row does not fit.
    """
    if not all_true(batch, FITS):
        raise LongRowError("A row is too long for batches limited by row count")
    return batch.drop_columns([FITS])


def all_true(batch: pa.RecordBatch, column: str) -> bool:
    """Return True if a boolean column is true in all rows."""
    return bool(pc.all(batch.column(column), min_count=0).as_py())


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWriter:
    """Send the rows of one task to the driver. It can be pickled.

    Attributes:
        folder: The folder to write files to; empty if tasks share no folder with the driver and return all rows.
        most_bytes: The limit for all tasks together. With a folder, each task compares it with the bytes that all have
            written. Without one, a task cannot see the others, and its share shrinks with its number (`share`).
        held_bytes: The limit for rows that a task with a folder returns itself.
        fits: A boolean column, True for rows that are short enough. It is not sent. Empty if there is none.
    """

    folder: str
    most_bytes: int
    held_bytes: int
    fits: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one report. A failure that another attempt would repeat is reported, not raised."""
        report: TaskReport
        try:
            report = self.part(batches)
        except DmlError as error:
            if isinstance(error, ExecutionError):
                raise
            report = TaskFailure(error)
        yield report_batch(report)

    def part(self, batches: Iterable[pa.RecordBatch]) -> SourcePart:
        """Write or hold the rows of the task."""
        number = current_task().partition_id
        path, fits, held, size = "", True, list[pa.RecordBatch](), 0
        with ExitStack() as stack:
            file: pa.RecordBatchFileWriter | None = None
            for batch in batches:
                if not batch.num_rows:
                    continue
                size += batch.nbytes
                fits = (not self.fits or all_true(batch, self.fits)) and self.has_room(batch, size, number)
                if not fits:
                    break
                held.append(batch.drop_columns([self.fits]) if self.fits else batch)
                if not self.folder or (file is None and size <= share(self.held_bytes, number)):
                    continue
                if file is None:
                    path = f"{self.folder}/{uuid.uuid4()}.arrow"
                    sink = stack.enter_context(pa.OSFile(path, "wb"))
                    file = stack.enter_context(pa.ipc.new_file(sink, held[0].schema))
                for part in held:
                    file.write_batch(part)
                held.clear()
        if not fits and self.folder:
            Path(self.folder, FULL).touch()
        return SourcePart(path=path, rows=stream_bytes(held, held[0].schema) if held and fits else b"", fits=fits)

    def has_room(self, batch: pa.RecordBatch, size: int, number: int) -> bool:
        """Return True if a batch stays within the limit, as far as this task can tell.

        Args:
            batch: The batch.
            size: Bytes of the task's rows, including this batch.
            number: The task's number.
        """
        if not self.folder:
            return size <= share(self.most_bytes, number)
        with os.scandir(self.folder) as entries:
            written = {entry.name: entry.stat().st_size for entry in entries}
        return FULL not in written and sum(written.values()) + batch.nbytes <= self.most_bytes


def share(limit: int, number: int) -> int:
    """Return a task's share of a limit for all tasks, whose count is unknown before they run.

    Evenly distributed rows fit whenever their total does. The shares of n tasks add up to at most limit * (ln n + 1).
    """
    return limit // (number + 1)


def stream_bytes(batches: Sequence[pa.RecordBatch], schema: pa.Schema, compression: str | None = None) -> bytes:
    """Return batches as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        for batch in batches:
            stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def part_columns(parts: Iterable[SourcePart]) -> list[pa.ChunkedArray]:
    """Return the columns of all parts, with files mapped into memory; an empty list if there are no rows.

    Args:
        parts: The parts. Their files may be deleted afterwards.
    """
    tables = [
        pa.ipc.open_file(pa.memory_map(part.path)).read_all() if part.path else pa.ipc.open_stream(part.rows).read_all()
        for part in parts
        if part.path or part.rows
    ]
    columns: list[pa.ChunkedArray] = pa.concat_tables(tables).columns if tables else []
    return columns
