"""Write the few rows and deleted positions of each task together on the driver. Worker and driver.

In a task, `HoldingDataWriter` takes batches of `FileLayout.batch`. It returns few rows as bytes for the `TaskCommit`,
and writes more to data files. On the driver, `write_joined_files` takes the job and the commits of its tasks. It
returns a `TaskCommit` with one file per partition, as if one more task had written them, or raises an error after
deleting these files. The files have the formats and the sort order of files that tasks write. On an object store,
where each file has a latency, several partitions are written in parallel.

This module also inserts the unmatched source rows of a MERGE: few become held rows of the driver, many are assigned to
tasks.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from dml import limits
from dml.deletes.deletion_vector import decode
from dml.errors import DmlError, ExecutionError
from dml.model.columns import FILE_ORDINAL, INTERNAL_PREFIX, POS, ROW_OPERATION
from dml.model.manifest import ContentFile, is_unpartitioned
from dml.model.scan_task import FileDeletes
from dml.model.write_task import TaskCommit, TaskMetrics
from dml.rows.changes import ChangesRun
from dml.rows.lookup import Places
from dml.rows.program import Changes
from dml.tasks.row_task import SourceRows, inserted_batch, pack_places
from dml.write.delete_files import VectorFile, delete_file_options, write_partition_deletes
from dml.write.delta_rows import RowBuilder
from dml.write.file_layout import FileLayout, file_layout
from dml.write.output_files import OutputFileFactory, current_task
from dml.write.partition_values import PartitionRouter
from dml.write.partitioning import DataWriter, open_data_writer
from dml.write.writer_spec import DELETION_VECTOR_VERSION, WriterSpec, current_spec

__all__ = ["HoldingDataWriter", "assign_inserts", "held_inserts", "inserted_rows", "threads_for", "write_joined_files"]

LOCAL: Final = frozenset({"", "file"})

Files = tuple[ContentFile, ...]
Part = Callable[[OutputFileFactory], Files]
"""Writes files independently of, and in parallel with, other parts."""

Rows = tuple[tuple[Any, ...] | None, pa.RecordBatch]
"""A partition and its rows; None in an unpartitioned table."""


def stream_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Serialize batches of one schema, at least one, as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


class HoldingDataWriter:
    """Hold rows up to a limit. Above it, they and all later rows go to a writer.

    Args:
        open_writer: Opens the writer.
        max_bytes: The limit; with 0 no rows are held.
    """

    def __init__(self, open_writer: Callable[[], DataWriter], max_bytes: int) -> None:
        self._open_writer = open_writer
        self._max_bytes = max_bytes
        self._writer: DataWriter | None = None
        self._rows: list[tuple[pa.RecordBatch, tuple[Any, ...] | None]] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Add rows."""
        self._bytes += batch.nbytes
        if self._writer is None and self._bytes <= self._max_bytes:
            self._rows.append((batch, partition))
        else:
            self._released().write(batch, partition)

    def held(self) -> bytes:
        """Return the held rows as an Arrow stream; empty if there are none."""
        return stream_of([batch for batch, _ in self._rows]) if self._rows else b""

    def close(self) -> tuple[ContentFile, ...]:
        """Complete all files."""
        return () if self._writer is None else self._writer.close()

    def abort(self) -> None:
        """Drop the rows and close the open files."""
        self._rows = []
        if self._writer is not None:
            self._writer.abort()

    def _released(self) -> DataWriter:
        """Return the writer, after passing it the held rows."""
        if self._writer is None:
            self._writer = self._open_writer()
            rows, self._rows = self._rows, []
            for batch, partition in rows:
                self._writer.write(batch, partition)
        return self._writer


def write_joined_files(spec: WriterSpec, commits: Sequence[TaskCommit]) -> TaskCommit | None:
    """Write the rows and deleted positions that the tasks left to the driver.

    Args:
        spec: The job.
        commits: The commits of all its tasks, without failures.

    Returns:
        The files; None if there is nothing to write.

    Raises:
        DmlError: Each of `spec.max_failures` attempts failed; every file is deleted.
    """
    data = data_parts(spec, [commit.held_rows for commit in commits if commit.held_rows])
    deletes = delete_parts(spec, commits)
    if not data and not deletes:
        return None
    parts = [*data, *deletes]
    outputs = [OutputFileFactory(spec.context, current_task()) for _ in parts]
    attempts = max(1, spec.max_failures)
    try:
        if len(parts) == 1:
            found = [write_part(parts[0], outputs[0], attempts)]
        else:
            with ThreadPoolExecutor(min(limits.UPLOAD_THREADS, len(parts)), "rowdelta-write") as threads:
                found = list(threads.map(write_part, parts, outputs, [attempts] * len(parts)))
    except BaseException:
        for output in outputs:
            output.abort()
        raise
    return TaskCommit(
        data_files=tuple(file for files in found[: len(data)] for file in files),
        delete_files=tuple(file for files in found[len(data) :] for file in files),
    )


def write_part(part: Part, output: OutputFileFactory, attempts: int) -> Files:
    """Write one part. A storage failure is retried, as Spark retries a task.

    Raises:
        DmlError: The last attempt failed, or a retry would not help.
    """
    for left in reversed(range(attempts)):
        try:
            return part(output)
        except Exception as error:
            output.abort()
            final = isinstance(error, DmlError) and not isinstance(error, ExecutionError)
            if left and not final:
                continue
            if isinstance(error, DmlError):
                raise
            raise ExecutionError(f"Writing on the driver failed: {type(error).__name__}: {error}") from error
    raise AssertionError("a last attempt returns or raises")


def data_parts(spec: WriterSpec, streams: Sequence[bytes]) -> list[Part]:
    """Return the parts that write data files; partitions are distributed evenly."""
    if not streams:
        return []
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    # Rows may be sorted within each task, but not across tasks.
    spec = replace(spec, sorts_rows=spec.context.sorted_by_table_order)
    pieces = list(partitions_of(spec, layout, streams))
    parts = min(threads_for(spec.context.data_location), len(pieces))
    return [partial(write_data, spec, layout, pieces[first::parts]) for first in range(parts)]


def threads_for(location: str) -> int:
    """Return the number of files to write in parallel: local disks gain nothing from more than one."""
    return 1 if urlsplit(location).scheme in LOCAL else limits.UPLOAD_THREADS


def partitions_of(spec: WriterSpec, layout: FileLayout, streams: Sequence[bytes]) -> Iterator[Rows]:
    """Yield the rows of all tasks by partition."""
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    partition_spec = current_spec(spec.context)
    router = None if is_unpartitioned(partition_spec) else PartitionRouter(partition_spec, layout.columns)
    for batch in pa.concat_tables(tables).combine_chunks().to_batches():
        rows = pa.RecordBatch.from_arrays(batch.columns, schema=layout.arrow)
        yield from [(None, rows)] if router is None else router.split(rows)


def write_data(spec: WriterSpec, layout: FileLayout, pieces: Sequence[Rows], output: OutputFileFactory) -> Files:
    """Write the data files of some partitions."""
    writer = open_data_writer(spec, layout, output)
    try:
        for partition, rows in pieces:
            writer.write(rows, partition)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def delete_parts(spec: WriterSpec, commits: Sequence[TaskCommit]) -> list[Part]:
    """Return the parts that write delete files: one Puffin file, or position delete files by partition."""
    deletes = [
        FileDeletes(
            path=file.path,
            spec_id=file.spec_id,
            partition=file.partition,
            positions=decode(file.positions, file="the task's report", cardinality=None),
        )
        for commit in commits
        for file in commit.held_deletes
    ]
    if not deletes:
        return []
    if spec.context.format_version >= DELETION_VECTOR_VERSION:
        return [partial(write_vectors, deletes)]
    return [partial(write_positions, spec, deletes)]


def write_vectors(deletes: Sequence[FileDeletes], output: OutputFileFactory) -> Files:
    """Write all vectors into one Puffin file."""
    vectors = VectorFile(output)
    for file in deletes:
        vectors.add(file)
    return vectors.close()


def write_positions(spec: WriterSpec, deletes: Sequence[FileDeletes], output: OutputFileFactory) -> Files:
    """Write a position delete file for each partition."""
    return tuple(write_partition_deletes(deletes, delete_file_options(spec.context), output))


PLACE: Final = f"{INTERNAL_PREFIX}place"


def unmatched_places(run: ChangesRun, matched: BitMap) -> Places:
    """Return the indexes of source rows without a match."""
    mask = np.ones(len(run.matched), np.bool_)
    mask[np.asarray(matched.to_array(), np.int64)] = False
    return np.flatnonzero(mask)


def inserted_rows(program: Changes, source: SourceRows, matched: BitMap) -> pa.RecordBatch | None:
    """Return the new rows of a MERGE as a delta; None if there are none.

    Args:
        program: The MERGE.
        source: The source.
        matched: The indexes of source rows with a match.
    """
    run = ChangesRun(program, source.batch())
    found = list(map(inserted_batch, run.insert(unmatched_places(run, matched))))
    return pa.concat_batches(found) if found else None


def assign_inserts(
    program: Changes,
    source: SourceRows,
    spec: WriterSpec,
    matched: BitMap,
    loads: Mapping[int, int],
    *,
    by_partition: bool,
) -> dict[int, bytes]:
    """Assign the source rows to insert to tasks, encoded as in `RowTask.inserts`.

    Args:
        program: The MERGE.
        source: The source.
        spec: The write.
        matched: The indexes of source rows with a match.
        loads: The number of other rows that each task writes, by task number.
        by_partition: True if one task gets all rows of a partition.

    Raises:
        DataError: A value violates a constraint.
    """
    run = ChangesRun(program, source.batch())
    places, partition_spec = unmatched_places(run, matched), current_spec(spec.context)
    if not by_partition or is_unpartitioned(partition_spec):
        ends = np.cumsum(even_shares(list(loads.values()), len(places)))
        shares = np.split(places, ends[:-1])
    else:
        layout = file_layout(spec.context, row_lineage=spec.row_lineage)
        router, rows = PartitionRouter(partition_spec, layout.columns), RowBuilder(layout, spec.layout)
        partitions: dict[tuple[Any, ...], list[Places]] = {}
        for inserted in run.insert(places):
            new = rows.build_inserted(inserted_batch(inserted).drop_columns([ROW_OPERATION, FILE_ORDINAL, POS]))
            numbered = pa.RecordBatch.from_arrays([*new.columns, pa.array(inserted.places)], [*new.schema.names, PLACE])
            for partition, found in router.split(numbered):
                partitions.setdefault(partition, []).append(found.column(PLACE).to_numpy())
        shares = pack_largest_first([np.concatenate(found) for found in partitions.values()], list(loads.values()))
    return {task: pack_places(np.sort(share)) for task, share in zip(loads, shares, strict=True) if len(share)}


def even_shares(loads: Sequence[int], rows: int) -> npt.NDArray[np.int64]:
    """Return how many rows each task gets, so that all tasks that get any have even loads."""
    order = np.argsort(loads, kind="stable")
    ascending = np.asarray(loads, np.int64)[order]
    levels = (np.cumsum(ascending) + rows) / np.arange(1, len(loads) + 1)
    taking = int(np.flatnonzero(levels > ascending)[-1]) + 1
    share = np.zeros(len(loads), np.int64)
    share[order[:taking]] = levels[taking - 1] - ascending[:taking]
    share[order[0]] += rows - share.sum()
    return share


def pack_largest_first(parts: Sequence[Places], loads: Sequence[int]) -> list[Places]:
    """Assign whole parts to tasks, the largest part first, each to the task with the smallest load."""
    heap = [(load, number) for number, load in enumerate(loads)]
    heapq.heapify(heap)
    members: list[list[Places]] = [[np.empty(0, np.int64)] for _ in heap]
    for part in sorted(parts, key=len, reverse=True):
        size, number = heapq.heappop(heap)
        members[number].append(part)
        heapq.heappush(heap, (size + len(part), number))
    return [np.concatenate(found) for found in members]


def held_inserts(inserted: pa.RecordBatch, spec: WriterSpec) -> TaskCommit:
    """Return new rows of a MERGE as the commit of a task that left them to the driver.

    Args:
        inserted: The rows, as a delta.
        spec: The write.

    Raises:
        DataError: A value violates a constraint.
    """
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    rows = RowBuilder(layout, spec.layout).build_inserted(inserted.drop_columns([ROW_OPERATION, FILE_ORDINAL, POS]))
    return TaskCommit(held_rows=stream_of([rows]), metrics=TaskMetrics(rows_inserted=rows.num_rows))
