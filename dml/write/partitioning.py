"""Write rows to data files: by partition, in the table's sort order, in files of the target size. Worker.

Input: batches of the file layout, with rows of any partitions in any order. Output: data files, each of one partition;
no files if there are no rows. Spec: "Sorting".

`FanoutDataWriter` writes all partitions at once. `ClusteredDataWriter` writes one after the other, for rows that are
clustered by partition. `RollingDataWriter` writes the files of one partition.

`SortingDataWriter` is an external merge sort. It buffers the rows of a partition up to a limit, and then spills them,
sorted, to a temporary file as a run. The merge holds only the keys of all runs in memory. Each piece of the result
takes a few neighbouring rows from every run, because runs are sorted.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import NestedField

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.files.scratch import scratch_folder
from dml.model.manifest import ContentFile, FileContent, is_unpartitioned
from dml.model.transforms import array_transform
from dml.options import WriteOptions
from dml.rows.space_filling_curves import Curve, curve_words
from dml.write.avro import AvroFileWriter
from dml.write.delta_rows import OriginLog
from dml.write.file_layout import DataFileWriter, FileLayout
from dml.write.orc import OrcFileWriter
from dml.write.output_files import OutputFile, OutputFileFactory, write_errors
from dml.write.parquet import ParquetFileWriter
from dml.write.partition_values import PartitionRouter, align_decimals, find_source, partition_form
from dml.write.writer_spec import WriteJob, WriterSpec, current_spec

__all__ = [
    "WRITERS",
    "ClusteredDataWriter",
    "CurveOrder",
    "DataWriter",
    "FanoutDataWriter",
    "KeyOrder",
    "RollingDataWriter",
    "SortKeys",
    "SortingDataWriter",
    "key_columns",
    "merge_by_keys",
    "open_data_writer",
    "row_order",
    "writing_order",
]


class DataWriter(Protocol):
    """Write rows to data files. The task's `OutputFileFactory` deletes files that were written before `abort`."""

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Write rows.

        Args:
            batch: The rows.
            partition: The partition of all rows if the caller knows it; None computes it.
        """

    def close(self) -> tuple[ContentFile, ...]:
        """Write all rows and return the files."""

    def abort(self) -> None:
        """Drop the open files."""


WRITERS: Final[Mapping[str, Callable[[pa.NativeFile, FileLayout, WriteOptions], DataFileWriter]]] = {
    "parquet": ParquetFileWriter,
    "orc": OrcFileWriter,
    "avro": AvroFileWriter,
}
"""The writers by file format."""

CHECK_ROWS = 1000
"""Rows between two checks of a file's size, as in Iceberg's `RollingFileWriter`."""


class RollingDataWriter:
    """Write the files of one partition. A file that reaches the target size is closed, and the next one opened.

    Args:
        layout: The files' columns.
        options: Target size and format.
        files: Opens new files.
        spec_id: The spec of the partition.
        partition: The partition tuple.
        origins: Records where rows come from. If given, the last column of each batch holds their origins.
    """

    def __init__(
        self,
        layout: FileLayout,
        options: WriteOptions,
        files: OutputFileFactory,
        spec_id: int,
        partition: tuple[Any, ...],
        origins: OriginLog | None = None,
    ) -> None:
        self._layout = layout
        self._options = options
        self._files = files
        self._spec_id = spec_id
        self._partition = partition
        self._origins = origins
        self._file: OutputFile | None = None
        self._writer: DataFileWriter | None = None
        self._done: list[ContentFile] = []

    @property
    def buffered_bytes(self) -> int:
        """Bytes of buffered rows."""
        return 0 if self._writer is None else self._writer.buffered_bytes

    @property
    def is_open(self) -> bool:
        """True if a file is open."""
        return self._writer is not None

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Write rows of the partition."""
        assert partition is None or partition == self._partition
        target = self._options.target_file_size
        pieces = max(1, -(-batch.nbytes // target))
        step = max(CHECK_ROWS, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, step):
            writer = self._writer or self._open()
            rows = batch if step >= batch.num_rows else batch.slice(start, step)
            if self._origins is not None and self._file is not None:
                rows = self._origins.take(rows, self._file.location)
            with write_errors(self._location):
                writer.write(rows)
            if writer.estimated_size >= target:
                self.finish_file()

    def flush(self) -> None:
        """Write the buffered rows, to free their memory."""
        if self._writer is not None:
            with write_errors(self._location):
                self._writer.flush()

    def finish_file(self) -> None:
        """Close the open file. Later rows go to a new file."""
        if self._writer is None or self._file is None:
            return
        row_map = None if self._origins is None else self._origins.row_map(self._file.location)
        with write_errors(self._location):
            statistics = self._writer.close(row_map)
        self._files.close(self._file)
        metrics = statistics.metrics
        self._done.append(
            ContentFile(
                content=FileContent.DATA,
                path=self._file.location,
                file_format=self._options.file_format,
                spec_id=self._spec_id,
                partition=self._partition,
                record_count=statistics.record_count,
                file_size_in_bytes=statistics.file_size_in_bytes,
                split_offsets=statistics.split_offsets,
                sort_order_id=self._layout.sort_order_id,
                **{name: getattr(metrics, name) for name in metrics.__slots__},
            )
        )
        self._writer = self._file = None

    def close(self) -> tuple[ContentFile, ...]:
        """Finish the last file and return all."""
        self.finish_file()
        return tuple(self._done)

    def abort(self) -> None:
        """Drop the open file."""
        if self._writer is not None:
            self._writer.abort()
        self._writer = self._file = None

    @property
    def _location(self) -> str:
        return "" if self._file is None else self._file.location

    def _open(self) -> DataFileWriter:
        self._file = self._files.open(self._options.file_format, self._spec_id, self._partition)
        self._writer = WRITERS[self._options.file_format](self._file.stream, self._layout, self._options)
        return self._writer


SortKeys = list[tuple[str, str]]


def values_at(rows: pa.RecordBatch | pa.Table, path: tuple[int, ...]) -> pa.Array:
    """Return the values of a column, or of a field in its structs; NULL where a struct is NULL."""
    values = rows.column(path[0])
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    for place in path[1:]:
        values = pc.struct_field(values, [place])
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedBy:
    """One field of a sort order: the path to its source in a batch, and its transform."""

    field: SortField
    path: tuple[int, ...]
    transform: Any

    def keys(self, batch: pa.RecordBatch | pa.Table, number: int) -> Iterator[tuple[str, str, pa.Array]]:
        """Yield key columns with names and directions: NULL flags, NaN flags (NaN is the greatest value), values."""
        values = partition_form(self.transform(align_decimals(values_at(batch, self.path))))
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
        """Return the key columns of rows, and their sort directions."""
        found = [key for number, field in enumerate(self.fields) for key in field.keys(rows, number)]
        columns = {name: values for name, _, values in found}
        return pa.table(columns), [(name, direction) for name, direction, _ in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveOrder:
    """The order of rows along a space-filling curve over the columns of new files.

    Attributes:
        curve: The curve.
        paths: The path to each of its columns in a batch.
    """

    curve: Curve
    paths: tuple[tuple[int, ...], ...]

    def keys(self, rows: pa.RecordBatch | pa.Table) -> tuple[pa.Table, SortKeys]:
        """Return the key columns of rows, and their sort directions."""
        words = curve_words(self.curve, [values_at(rows, path) for path in self.paths])
        columns = {f"w{number}": word for number, word in enumerate(words)}
        return pa.table(columns), [(name, "ascending") for name in columns]


KeyOrder = RowOrder | CurveOrder


def writing_order(spec: WriterSpec, columns: tuple[NestedField, ...]) -> KeyOrder | None:
    """Return the order in which a job's writers sort rows; None if they do not.

    Args:
        spec: The job.
        columns: The columns of the batches.
    """
    if not spec.sorts_rows:
        return None
    if spec.curve is None:
        return row_order(SortOrder.model_validate_json(spec.context.sort_order_json), columns)
    sources = [find_source(field_id, columns) for field_id in spec.curve.field_ids]
    return CurveOrder(curve=spec.curve, paths=tuple(source[0] for source in sources if source is not None))


def key_columns(spec: WriterSpec, columns: tuple[NestedField, ...]) -> tuple[int, ...]:
    """Return the field ids of the columns that hold the sort key of a job's writers.

    Args:
        spec: A job that sorts rows.
        columns: The table's columns.
    """
    if spec.curve is not None:
        sources = spec.curve.field_ids
    else:
        order = SortOrder.model_validate_json(spec.context.sort_order_json)
        sources = tuple(field.source_id for field in order.fields)
    return tuple(column.field_id for column in columns if any(find_source(source, (column,)) for source in sources))


def row_order(order: SortOrder, columns: tuple[NestedField, ...]) -> RowOrder | None:
    """Return the sort order over the columns of new files; None if rows cannot be, or need not be, sorted by it."""
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
    """Sort the rows of one partition before they are written.

    Args:
        order: The sort order.
        writer: Receives the sorted rows.
        max_buffered_bytes: Maximum bytes of rows in memory; above it, they are spilled.
    """

    def __init__(self, order: KeyOrder, writer: RollingDataWriter, *, max_buffered_bytes: int) -> None:
        self._order = order
        self._writer = writer
        self._max_buffered_bytes = max_buffered_bytes
        self._rows: list[pa.RecordBatch] = []
        self._runs: list[pa.Table] = []
        self._files = ExitStack()
        self.buffered_bytes = 0

    @property
    def is_open(self) -> bool:
        """True if rows are buffered or spilled."""
        return bool(self._rows or self._runs)

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:  # noqa: ARG002
        """Add rows of the partition."""
        self._rows.append(batch)
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes > self._max_buffered_bytes:
            self.flush()

    def flush(self) -> None:
        """Spill the buffered rows to a temporary file, as a sorted run."""
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
        """Write all rows. Later rows go to a new file."""
        if self._runs and self._rows:
            self.flush()
        pieces = merge_runs(self._order, self._runs) if self._runs else self._memory_pieces()
        for piece in pieces:
            self._writer.write(piece)
        self._writer.finish_file()
        self._forget()

    def close(self) -> tuple[ContentFile, ...]:
        """Finish the last file and return all."""
        self.finish_file()
        return self._writer.close()

    def abort(self) -> None:
        """Drop the rows and the open file."""
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


def merge_runs(order: KeyOrder, runs: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs into one sorted sequence, piece by piece."""
    directions = order.keys(runs[0].slice(0, 0))[1]
    return merge_by_keys([order.keys(run)[0] for run in runs], directions, [partial(take_next, [run]) for run in runs])


def take_next(rest: list[pa.Table], count: int) -> pa.Table:
    """Take rows from the start of the only table of a list."""
    taken, rest[0] = rest[0].slice(0, count), rest[0].slice(count)
    return taken


def merge_by_keys(
    keys: Sequence[pa.Table], directions: SortKeys, take: Sequence[Callable[[int], pa.Table]]
) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs into one sorted sequence, piece by piece.

    Args:
        keys: The keys of the rows of each run.
        directions: The sort directions of the key columns.
        take: Returns the next rows of each run, as many as given.
    """
    places = pc.sort_indices(pa.concat_tables(keys), sort_keys=directions).to_numpy()  # stable: runs keep their order
    starts = np.cumsum([0, *(run.num_rows for run in keys)])
    for begin in range(0, len(places), limits.SORTED_BATCH_ROWS):
        piece = places[begin : begin + limits.SORTED_BATCH_ROWS]
        of_run = np.searchsorted(starts, piece, side="right") - 1
        parts, taken, offset = [], np.empty(len(piece), dtype=np.int64), 0
        for number in np.unique(of_run).tolist():
            mine = of_run == number
            count = int(mine.sum())
            parts.append(take[number](count))
            taken[mine] = np.arange(offset, offset + count)
            offset += count
        rows = pa.concat_tables(parts).combine_chunks()
        yield from (rows if len(parts) == 1 else rows.take(pa.array(taken))).to_batches()


class PartitionWriter(DataWriter, Protocol):
    """Write the rows of one partition."""

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
    """Buffer the rows of one partition, and open its file when there are enough or when no more rows come.

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
    """Write any number of partitions at once.

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
        """Flush or finish the largest partitions until `limits.KEPT_BUFFER_SHARE` of the limit is left."""
        for key, writer in sorted(self._writers.items(), key=lambda item: item[1].buffered_bytes, reverse=True):
            if self._buffered <= self._max_buffered_bytes * limits.KEPT_BUFFER_SHARE:
                break
            before = writer.buffered_bytes
            writer.flush()
            if writer.buffered_bytes:  # ORC: a stripe is written only when it is full
                writer.finish_file()
            self._buffered -= before - writer.buffered_bytes
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
    """Write one partition after the other. A partition that returns after another one gets another file.

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
    """Return a writer of new data files, for any partitions, which sorts rows if the job requires it.

    Updated rows arrive in the order of the old files, so a delta needs several open partitions even if
    `write.spark.fanout.enabled` is false; only its inserted rows are then sorted by partition.
    """
    context = spec.context
    order = writing_order(spec, layout.columns)

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
