"""Rows into the files of their partitions. Worker.

Input: batches of any partitions. Output: data files, each of one partition. `FanoutDataWriter` writes all partitions at
once; `ClusteredDataWriter` one after the other, for rows that lie together by partition.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.table.sorting import SortOrder

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
        """Bytes of rows that are kept in memory."""

    @property
    def is_open(self) -> bool:
        """Whether a file is open, or rows wait for one."""

    def flush(self) -> None:
        """Frees the memory of the rows that are kept."""

    def finish_file(self) -> None:
        """Writes all rows, and closes the open file; later rows go to a new one."""


OpenPartition = Callable[[tuple[Any, ...]], PartitionWriter]

MAX_OPEN_FILES = 256
MAX_BUFFERED_BYTES = 512 * 2**20

KEPT_SHARE = 0.75
"""So much stays when memory is freed: the largest of thousands of partitions are looked for now and then only."""

SPLIT_ROWS = 131_072
SPLIT_BYTES = 16 * 2**20
"""About so many rows are split at once. Spark sends 10,000: of a hundred partitions these are pieces of a hundred rows,
and each piece costs more than its rows do."""


MAX_HELD_BYTES = 16 * 2**20
"""So many rows a partition has before its file is opened: of thousands of small ones none is open before the end."""


class LatePartitionWriter:
    """Keeps the rows of one partition until there are enough for a file, or nobody waits for more.

    Args:
        open_writer: Makes what writes them.
    """

    def __init__(self, open_writer: Callable[[], PartitionWriter]) -> None:
        self._open_writer = open_writer
        self._writer: PartitionWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that are kept in memory."""
        return self._held_bytes + (0 if self._writer is None else self._writer.buffered_bytes)

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._writer is not None and self._writer.is_open

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:  # noqa: ARG002
        """Takes rows of the partition."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self.is_open or self._held_bytes > MAX_HELD_BYTES:
            self._released()

    def flush(self) -> None:
        """Frees the memory of the rows that are kept."""
        self._released().flush()

    def finish_file(self) -> None:
        """Writes all rows, and closes the open file; later rows go to a new one."""
        self._released().finish_file()

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes the last file."""
        return self._released().close()

    def abort(self) -> None:
        """Gives up the rows and the open file."""
        self._held, self._held_bytes = [], 0
        if self._writer is not None:
            self._writer.abort()

    def _released(self) -> PartitionWriter:
        """The writer, when it has the rows that were held."""
        if self._writer is None:
            self._writer = self._open_writer()
        held, self._held, self._held_bytes = self._held, [], 0
        for batch in held:
            self._writer.write(batch)
        return self._writer


class FanoutDataWriter:
    """Writes any number of partitions at once.

    With too many rows in memory, the partition that holds most writes a row group; with too many files open, the one
    that was not written to for longest is finished.

    Args:
        router: Finds the partitions of rows.
        open_partition: Makes the writer of one partition.
        max_open_files: How many files may be open.
        max_buffered_bytes: How many bytes of rows may be kept in memory, beside those that wait to be split.
        split_rows: How many rows may wait to be split, with `SPLIT_BYTES` at most.
    """

    def __init__(
        self,
        router: PartitionRouter,
        open_partition: OpenPartition,
        *,
        max_open_files: int = MAX_OPEN_FILES,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        split_rows: int = SPLIT_ROWS,
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
        """Bytes of rows that are kept in memory, beside those that wait to be split."""
        return self._buffered

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Writes rows into the files of their partitions, those of a partition in the order in which they come."""
        if partition is not None:
            self._split()
            self._write(partition, batch)
            return
        rows, size = self._waiting_rows + batch.num_rows, self._waiting_bytes + batch.nbytes
        if rows > self._split_rows or size > SPLIT_BYTES:
            self._split()
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes

    def _split(self) -> None:
        """Gives the rows that wait to the writers of their partitions."""
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
        """Remembers whether a partition that was written to has a file open, and keeps no more open than may be."""
        self._open.pop(key, None)
        if writer.is_open:
            self._open[key] = writer
        while len(self._open) > self._max_open_files:
            _, oldest = self._open.popitem(last=False)
            self._buffered -= oldest.buffered_bytes
            oldest.finish_file()

    def _free(self) -> None:
        """Writes the rows of the partitions that have most, until there is room for a while."""
        for key, writer in sorted(self._writers.items(), key=lambda item: item[1].buffered_bytes, reverse=True):
            if self._buffered <= self._max_buffered_bytes * KEPT_SHARE:
                break
            self._buffered -= writer.buffered_bytes
            writer.flush()
            self._note(key, writer)

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes all files."""
        self._split()
        return tuple(file for writer in self._writers.values() for file in writer.close())

    def abort(self) -> None:
        """Gives up the rows and the open files."""
        self._waiting = []
        for writer in self._writers.values():
            writer.abort()


class ClusteredDataWriter:
    """Writes one partition after the other; one that comes again gets a file of its own again.

    Spark sorts rows by a hash of their partition: those of two partitions may come mixed if they have the same hash.

    Args:
        router: Finds the partitions of rows.
        open_partition: Makes the writer of one partition.
    """

    def __init__(self, router: PartitionRouter, open_partition: OpenPartition) -> None:
        self._router = router
        self._open_partition = open_partition
        self._current: tuple[Hashable, PartitionWriter] | None = None
        self._done: list[ContentFile] = []

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Writes rows."""
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
        """Finishes the last file."""
        self._finish()
        return tuple(self._done)

    def abort(self) -> None:
        """Gives up the open file."""
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
        return writer if order is None else SortingDataWriter(order, writer)

    partition_spec = current_spec(context)
    if is_unpartitioned(partition_spec):
        return open_partition((None,) * len(partition_spec.fields))
    router = PartitionRouter(partition_spec, layout.columns)
    if context.options.fanout is False and spec.job is WriteJob.ROWS:
        return ClusteredDataWriter(router, open_partition)
    return FanoutDataWriter(router, open_partition)
