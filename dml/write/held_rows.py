"""The few rows of a task, which the driver writes together with those of other tasks. Worker.

Input: batches as `FileLayout.batch` makes them. Output: where they are few, bytes for the task's `TaskCommit`; else
data files. `dml.write.joined_files` makes one file for each partition of what all tasks held.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from dml.model.manifest import ContentFile
from dml.write.rolling import DataWriter

__all__ = ["HoldingDataWriter", "stream_of"]


def stream_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches of one schema, at least one, as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


class HoldingDataWriter:
    """Holds rows until they are too many; then these and all that follow go to a writer.

    Args:
        open_writer: Opens it.
        max_bytes: So many bytes of rows may be held; with 0 none are.
    """

    def __init__(self, open_writer: Callable[[], DataWriter], max_bytes: int) -> None:
        self._open_writer = open_writer
        self._max_bytes = max_bytes
        self._writer: DataWriter | None = None
        self._rows: list[tuple[pa.RecordBatch, tuple[Any, ...] | None]] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Takes rows."""
        self._bytes += batch.nbytes
        if self._writer is None and self._bytes <= self._max_bytes:
            self._rows.append((batch, partition))
        else:
            self._released().write(batch, partition)

    def held(self) -> bytes:
        """The rows that are in no file, as an Arrow stream; empty if there are none."""
        return stream_of([batch for batch, _ in self._rows]) if self._rows else b""

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes all files."""
        return () if self._writer is None else self._writer.close()

    def abort(self) -> None:
        """Gives up the rows and the open files."""
        self._rows = []
        if self._writer is not None:
            self._writer.abort()

    def _released(self) -> DataWriter:
        """The writer, when it has the rows that were held."""
        if self._writer is None:
            self._writer = self._open_writer()
            rows, self._rows = self._rows, []
            for batch, partition in rows:
                self._writer.write(batch, partition)
        return self._writer
