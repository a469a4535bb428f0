"""Write rows to the data files of their partitions. Worker.

Input: batches with rows of any partitions. Output: data files, each of one partition. `FanoutDataWriter` writes all
partitions at once. `ClusteredDataWriter` writes one after the other, for rows that are clustered by partition.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.table.sorting import SortOrder

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.model.manifest import ContentFile, is_unpartitioned
from dml.write.file_layout import FileLayout
from dml.write.output_files import OutputFileFactory
from dml.write.partition_values import PartitionRouter
from dml.write.rolling import DataWriter, RollingDataWriter
from dml.write.row_log import OriginLog
from dml.write.sorting import SortingDataWriter, row_order
from dml.write.writer_spec import WriteJob, WriterSpec, current_spec

__all__ = ["ClusteredDataWriter", "FanoutDataWriter", "PartitionWriter", "open_data_writer"]


class PartitionWriter(DataWriter, Protocol):
    """Writes the rows of one partition."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of buffered rows."""

    @property
    def is_open(self) -> bool:
        """True if a file is open or rows are buffered for one."""

    def flush(self) -> None:
        """Write the buffered rows, to free their memory."""

    def finish_file(self) -> None:
        """Write all rows and close the open file. Later rows go to a new file."""


OpenPartition = Callable[[tuple[Any, ...]], PartitionWriter]


class LatePartitionWriter:
    """Buffers the rows of one partition, and opens its file when there are enough or when no more rows come.

    Args:
        open_writer: Opens the writer of the partition.
    """

    def __init__(self, open_writer: Callable[[], PartitionWriter]) -> None:
        self._open_writer = open_writer
        self._writer: PartitionWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of buffered rows, here and in the writer."""
        return self._held_bytes + (0 if self._writer is None else self._writer.buffered_bytes)

    @property
    def is_open(self) -> bool:
        """True if a file is open; rows that wait for the first one do not count."""
        return self._writer is not None and self._writer.is_open

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:  # noqa: ARG002
        """Buffer rows, or write them if a file is open."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self.is_open or self._held_bytes > limits.MAX_UNOPENED_FILE_BYTES:
            self._release()

    def flush(self) -> None:
        """Write the buffered rows, to free their memory."""
        self._release().flush()

    def finish_file(self) -> None:
        """Write all rows and close the open file. Later rows go to a new file."""
        self._release().finish_file()

    def close(self) -> tuple[ContentFile, ...]:
        """Write all rows and return the files."""
        return self._release().close()

    def abort(self) -> None:
        """Drop the rows and the open file."""
        self._held, self._held_bytes = [], 0
        if self._writer is not None:
            self._writer.abort()

    def _release(self) -> PartitionWriter:
        """Pass the buffered rows to the writer, and return it."""
        if self._writer is None:
            self._writer = self._open_writer()
        held, self._held, self._held_bytes = self._held, [], 0
        for batch in held:
            self._writer.write(batch)
        return self._writer


class FanoutDataWriter:
    """Writes any number of partitions at once.

    Above `max_buffered_bytes`, the partitions with the most buffered rows write a row group. Above `max_open_files`,
    the least recently written file is finished.

    Args:
        router: Splits rows by partition.
        open_partition: Opens the writer of one partition.
        max_open_files: Maximum number of open files.
        max_buffered_bytes: Maximum bytes of buffered rows, without those that wait to be split.
        split_rows: Maximum rows that are buffered for splitting; at most `limits.SPLIT_BATCH_BYTES`.
    """

    def __init__(
        self,
        router: PartitionRouter,
        open_partition: OpenPartition,
        *,
        max_open_files: int = limits.MAX_OPEN_FILES,
        max_buffered_bytes: int = limits.MAX_PARTITION_BUFFER_BYTES,
        split_rows: int = limits.SPLIT_BATCH_ROWS,
    ) -> None:
        self._router = router
        self._open_partition = open_partition
        self._max_open_files = max_open_files
        self._max_buffered_bytes = max_buffered_bytes
        self._split_rows = split_rows
        self._writers: dict[Hashable, PartitionWriter] = {}
        self._open: OrderedDict[Hashable, PartitionWriter] = OrderedDict()
        self._buffered = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of buffered rows, without those that wait to be split."""
        return self._buffered

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Write rows to the files of their partitions. Each partition keeps the order of its rows."""
        if partition is not None:
            self._split()
            self._write(partition, batch)
            return
        rows, size = self._waiting_rows + batch.num_rows, self._waiting_bytes + batch.nbytes
        if rows > self._split_rows or size > limits.SPLIT_BATCH_BYTES:
            self._split()
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes

    def _split(self) -> None:
        """Split the waiting rows, and pass them to the writers of their partitions."""
        waiting, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        if waiting:
            for found, rows in self._router.split(waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)):
                self._write(found, rows)

    def _write(self, partition: tuple[Any, ...], rows: pa.RecordBatch) -> None:
        key = partition_key(0, partition)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = LatePartitionWriter(partial(self._open_partition, partition))
        before = writer.buffered_bytes
        writer.write(rows)
        self._buffered += writer.buffered_bytes - before
        self._note(key, writer)
        if self._buffered > self._max_buffered_bytes:
            self._free()

    def _note(self, key: Hashable, writer: PartitionWriter) -> None:
        """Record a partition as the most recently written one, and finish the oldest files above the limit."""
        self._open.pop(key, None)
        if writer.is_open:
            self._open[key] = writer
        while len(self._open) > self._max_open_files:
            _, oldest = self._open.popitem(last=False)
            self._buffered -= oldest.buffered_bytes
            oldest.finish_file()

    def _free(self) -> None:
        """Write the rows of the largest partitions until `limits.KEPT_BUFFER_SHARE` of the limit is left."""
        for key, writer in sorted(self._writers.items(), key=lambda item: item[1].buffered_bytes, reverse=True):
            if self._buffered <= self._max_buffered_bytes * limits.KEPT_BUFFER_SHARE:
                break
            self._buffered -= writer.buffered_bytes
            writer.flush()
            self._note(key, writer)

    def close(self) -> tuple[ContentFile, ...]:
        """Write all rows and return the files."""
        self._split()
        return tuple(file for writer in self._writers.values() for file in writer.close())

    def abort(self) -> None:
        """Drop the rows and the open files."""
        self._waiting = []
        for writer in self._writers.values():
            writer.abort()


class ClusteredDataWriter:
    """Writes one partition after the other. A partition that returns after another one gets another file.

    Spark sorts rows by a hash of their partition, so rows of two partitions with the same hash may be interleaved.

    Args:
        router: Splits rows by partition.
        open_partition: Opens the writer of one partition.
    """

    def __init__(self, router: PartitionRouter, open_partition: OpenPartition) -> None:
        self._router = router
        self._open_partition = open_partition
        self._current: tuple[Hashable, PartitionWriter] | None = None
        self._done: list[ContentFile] = []

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Write rows, and finish the file of the partition before."""
        pieces = ((partition, batch),) if partition is not None else self._router.split(batch)
        for found, rows in pieces:
            self._writer(found).write(rows)

    def _writer(self, partition: tuple[Any, ...]) -> PartitionWriter:
        key = partition_key(0, partition)
        if self._current is None or self._current[0] != key:
            self._finish()
            self._current = (key, self._open_partition(partition))
        return self._current[1]

    def _finish(self) -> None:
        if self._current is not None:
            self._done.extend(self._current[1].close())
            self._current = None

    def close(self) -> tuple[ContentFile, ...]:
        """Finish the last file and return all."""
        self._finish()
        return tuple(self._done)

    def abort(self) -> None:
        """Drop the open file."""
        if self._current is not None:
            self._current[1].abort()


def open_data_writer(
    spec: WriterSpec, layout: FileLayout, output: OutputFileFactory, origins: OriginLog | None = None
) -> DataWriter:
    """Return a writer of new data files, for any partitions and in the table's sort order if the job asks for it.

    Updated rows arrive in the order of the old files, so a delta needs several open partitions even if
    `write.spark.fanout.enabled` is false; only its inserted rows are then sorted by partition.
    """
    context = spec.context
    order = None
    if spec.sorts_rows:
        order = row_order(SortOrder.model_validate_json(context.sort_order_json), layout.columns)

    def open_partition(partition: tuple[Any, ...]) -> PartitionWriter:
        writer = RollingDataWriter(layout, context.options, output, context.default_spec_id, partition, origins)
        return (
            writer
            if order is None
            else SortingDataWriter(order, writer, max_buffered_bytes=limits.MAX_SORT_BUFFER_BYTES)
        )

    partition_spec = current_spec(context)
    if is_unpartitioned(partition_spec):
        return open_partition((None,) * len(partition_spec.fields))
    router = PartitionRouter(partition_spec, layout.columns)
    if context.options.fanout is False and spec.job is WriteJob.ROWS:
        return ClusteredDataWriter(router, open_partition)
    return FanoutDataWriter(router, open_partition)
