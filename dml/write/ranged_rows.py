"""Sort the rows of many data files in several tasks: the stages of a sort by ranges of the key. Worker.

1. `SampleKeys` reads the key columns of some row groups. The driver computes the bounds of the ranges from them
   (`range_bounds`), so that each range fills one new file.
2. `SplitRows` reads the files, cuts sorted rows at the bounds, and yields them as pieces: serialized record batches of
   a few KiB, each with the number of its range.
3. Spark's shuffle passes all pieces of a range to one task. It moves opaque bytes, so rows may have types that Spark
   lacks: they are never converted to Spark rows.
4. `WriteRanges` sorts the rows of a range in bounded memory and writes them.

Counts of deleted rows, and failures of the second stage, travel with the pieces to the third, which reports them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dml import limits
from dml.errors import DmlError, RowConservationError
from dml.model.scan_task import ScanTask
from dml.model.write_task import TaskCommit, TaskMetrics, report_batch
from dml.read.reader import TaskReader
from dml.tasks.task_input import TaskInput, pack, unpack
from dml.write.carried_rows import LiveRows
from dml.write.delta_rows import ORIGIN_COLUMN, OriginLog, with_origins
from dml.write.delta_writer import final_failure, run_write
from dml.write.file_layout import FileLayout, file_layout
from dml.write.output_files import OutputFileFactory, current_task
from dml.write.partitioning import DataWriter, KeyOrder, SortKeys, open_data_writer, writing_order
from dml.write.sorted_inputs import KeyReader
from dml.write.writer_spec import WriterSpec

__all__ = [
    "PIECE_SCHEMA",
    "SAMPLE_SCHEMA",
    "RangeTarget",
    "SampleKeys",
    "SplitRows",
    "SplitRun",
    "WriteRanges",
    "range_bounds",
]

FAILED: Final = -1
"""The number of a sample that is the failure of its task."""

SAMPLE_SCHEMA: Final = pa.schema([("part", pa.int32()), ("sample", pa.binary())])
PIECE_SCHEMA: Final = pa.schema([("part", pa.int32()), ("piece", pa.binary()), ("report", pa.binary())])


# ---- samples ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKeys:
    """The function of a task that samples the sort keys of row groups. It can be pickled.

    Attributes:
        input: Groups of scan tasks, each with the number of its group, and a `ScanContext` of the table. Its projection
            is ignored: only the key columns are read.
        spec: The write.
    """

    input: TaskInput
    spec: WriterSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `SAMPLE_SCHEMA`: the number of each group with packed keys of some of its rows, or a failure.

        Args:
            batches: The numbers of the groups.
        """
        try:
            reader = KeyReader(self.input.context, self.spec)
            for number, task in (pair for group in self.input.groups(batches) for pair in group):
                if parts := [*reader.read(task)]:
                    yield sample_batch(number, pack((some(pa.concat_tables(parts)), reader.directions)))
        except DmlError as error:
            failure = final_failure(error, self.spec, current_task())
            if failure is None:
                raise
            yield sample_batch(FAILED, pack(failure))


def some(keys: pa.Table) -> pa.Table:
    """Return keys at regular distances."""
    count = min(keys.num_rows, limits.SAMPLED_KEYS_PER_ROW_GROUP)
    return keys.take(pa.array(np.linspace(0, keys.num_rows - 1, count).astype(np.int64))).combine_chunks()


def sample_batch(number: int, packed: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number], pa.int32()), pa.array([packed], pa.binary())], schema=SAMPLE_SCHEMA)


def range_bounds(samples: Iterable[tuple[int, bytes]], ranges: Sequence[int]) -> dict[int, pa.Table]:
    """Return the bounds of the ranges of each group: the greatest key of each range except the last, in order.

    Args:
        samples: The rows of all `SampleKeys` tasks.
        ranges: The number of ranges of each group. A group without rows has no bounds.

    Raises:
        DmlError: The failure of a task.
    """
    keys: dict[int, list[pa.Table]] = {}
    directions: SortKeys = []
    for number, packed in samples:
        if number == FAILED:
            raise unpack(packed)
        sample, directions = unpack(packed)
        keys.setdefault(number, []).append(sample)
    return {number: quantiles(pa.concat_tables(found), directions, ranges[number]) for number, found in keys.items()}


def quantiles(keys: pa.Table, directions: SortKeys, ranges: int) -> pa.Table:
    places = pc.sort_indices(keys, sort_keys=directions).to_numpy()
    steps = (np.arange(1, ranges) * len(places)) // ranges
    return keys.take(pa.array(places[steps])).combine_chunks()


# ---- pieces -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRun:
    """The files, or parts of files, whose rows one task cuts into ranges.

    Attributes:
        tasks: The scan tasks.
        first: The number of the first range.
        bounds: The packed bounds of the ranges, as returned by `range_bounds`; None for a single range.
    """

    tasks: tuple[ScanTask, ...]
    first: int
    bounds: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """The function of a task that cuts rows into ranges. It can be pickled.

    Attributes:
        input: Groups of `SplitRun`s, with a `ScanContext` that projects `copied_columns`.
        spec: The write.
    """

    input: TaskInput
    spec: WriterSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `PIECE_SCHEMA`: pieces of ranges, and a report of each run to its first range.

        Args:
            batches: The numbers of the groups.
        """
        layout = file_layout(self.spec.context, row_lineage=self.spec.row_lineage)
        for run in (run for group in self.input.groups(batches) for run in group):
            try:
                reader = TaskReader(self.input.context, spark_types=False)
                live = LiveRows(reader, OriginLog() if self.spec.tracks_origins else None)
                for rows in buffered(live.read(run.tasks), layout):
                    yield from self._pieces(rows, run, layout)
                report: TaskMetrics | DmlError = TaskMetrics(rows_carried=live.carried, rows_deleted=live.deleted)
            except DmlError as error:
                failure = final_failure(error, self.spec, current_task())
                if failure is None:
                    raise
                report = failure
            yield piece_batch([(run.first, None, pack(report))])

    def _pieces(self, rows: pa.Table, run: SplitRun, layout: FileLayout) -> Iterator[pa.RecordBatch]:
        order = writing_order(self.spec, layout.columns)
        assert order is not None, "the job sorts rows"
        for number, part in cut(rows, order, None if run.bounds is None else unpack(run.bounds)):
            step = max(1, limits.SHUFFLED_PIECE_BYTES * part.num_rows // max(1, part.nbytes))
            pieces = part.combine_chunks().to_batches(max_chunksize=step)
            for start in range(0, len(pieces), limits.SHUFFLED_PIECES):
                sent = pieces[start : start + limits.SHUFFLED_PIECES]
                yield piece_batch([(run.first + number, piece.serialize().to_pybytes(), None) for piece in sent])


def buffered(batches: Iterable[pa.RecordBatch], layout: FileLayout) -> Iterator[pa.Table]:
    """Yield rows in tables of up to `limits.MAX_SPLIT_BUFFER_BYTES`, with their origins if batches have them."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(layout_batch(batch, layout))
        size += held[-1].nbytes
        if size > limits.MAX_SPLIT_BUFFER_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def layout_batch(batch: pa.RecordBatch, layout: FileLayout) -> pa.RecordBatch:
    """Return a batch of copied columns in the file layout; a further column holds origins."""
    if batch.num_columns == len(layout.columns):
        return layout.batch(batch.columns)
    return with_origins(layout.batch(batch.columns[:-1]), batch.columns[-1].to_numpy())


def cut(rows: pa.Table, order: KeyOrder, bounds: pa.Table | None) -> Iterator[tuple[int, pa.Table]]:
    """Sort rows and cut them at bounds.

    Args:
        rows: The rows.
        order: Their order.
        bounds: The greatest key of each range except the last; None for a single range.

    Yields:
        The number of each range that has rows, from 0, with its sorted rows.
    """
    keys, directions = order.keys(rows)
    if bounds is not None:
        keys = pa.concat_tables([keys, bounds])  # after the rows: the sort is stable, so equal rows come first
    places = pc.sort_indices(keys, sort_keys=directions).to_numpy()
    ends = np.flatnonzero(places >= rows.num_rows)
    for number, (start, end) in enumerate(pairwise([-1, *ends.tolist(), len(places)])):
        if end > start + 1:
            yield number, rows.take(pa.array(places[start + 1 : end]))


def piece_batch(rows: Sequence[tuple[int, bytes | None, bytes | None]]) -> pa.RecordBatch:
    columns = [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), PIECE_SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=PIECE_SCHEMA)


# ---- new files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTarget:
    """The destination of the rows of a range.

    Attributes:
        partition: The partition of all rows.
        target_file_size: The size in bytes at which a new file is closed.
        sources: The paths of the old files by ordinal, packed.
    """

    partition: tuple[Any, ...]
    target_file_size: int
    sources: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRanges:
    """The function of a task that writes ranges. It can be pickled.

    Attributes:
        targets: The targets of all ranges, by number.
        spec: The write.
    """

    targets: tuple[RangeTarget, ...]
    spec: WriterSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with one binary column: the task's report.

        Args:
            batches: Rows of `PIECE_SCHEMA`.
        """
        yield report_batch(run_write(partial(self._write, batches), self.spec, current_task()))

    def _write(self, batches: Iterable[pa.RecordBatch], output: OutputFileFactory) -> TaskCommit:
        layout = file_layout(self.spec.context, row_lineage=self.spec.row_lineage)
        schema = layout.arrow.append(ORIGIN_COLUMN) if self.spec.tracks_origins else layout.arrow
        writers: dict[int, tuple[DataWriter, OriginLog | None]] = {}
        rows = deleted = 0
        try:
            for number, piece, report in pieces_of(batches):
                if report is not None:
                    deleted += deleted_rows(report)
                    continue
                if number not in writers:
                    writers[number] = self._open(number, layout, output)
                batch = pa.ipc.read_record_batch(pa.py_buffer(piece), schema)
                writers[number][0].write(batch, self.targets[number].partition)
                rows += batch.num_rows
            files = tuple(file for writer, _ in writers.values() for file in writer.close())
        except BaseException:
            for writer, _ in writers.values():
                writer.abort()
            raise
        written = sum(file.record_count for file in files)
        if written != rows:
            raise RowConservationError(
                f"Rows do not add up: {rows} rows were received, and {written} written",
                hint="Nothing was published, the table is unchanged",
            )
        return TaskCommit(
            data_files=files,
            row_origins=tuple(found for _, log in writers.values() if log is not None for found in log.report()),
            metrics=TaskMetrics(rows_carried=rows, rows_deleted=deleted),
        )

    def _open(self, number: int, layout: FileLayout, output: OutputFileFactory) -> tuple[DataWriter, OriginLog | None]:
        target, context = self.targets[number], self.spec.context
        options = replace(context.options, target_file_size=target.target_file_size)
        log = None
        if self.spec.tracks_origins:
            size = min(limits.MAX_TASK_ORIGIN_BYTES, self.spec.max_report_bytes)
            log = OriginLog(max_encoded_bytes=size, sources=unpack(target.sources))
        spec = replace(self.spec, context=replace(context, options=options))
        return open_data_writer(spec, layout, output, log), log


def pieces_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Buffer, bytes | None]]:
    for batch in batches:
        numbers, pieces, reports = batch.columns
        for place in range(batch.num_rows):
            yield numbers[place].as_py(), pieces[place].as_buffer(), reports[place].as_py()


def deleted_rows(packed: bytes) -> int:
    """Return the number of deleted rows that a run reports.

    Raises:
        DmlError: The run failed.
    """
    report: TaskMetrics | DmlError = unpack(packed)
    if isinstance(report, DmlError):
        raise report
    return report.rows_deleted
