"""The few rows and deleted positions that tasks left to the driver, as one file for each partition. Driver.

Input: the job, and what its tasks reported. Output: a `TaskCommit` of the files, as if one more task had written them;
or an error, and then none of them is left. Rows are written as tasks write them, in the same formats and the table's
sort order. On an object store, where each file takes a while, those of several partitions are written side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from dml.deletes.deletion_vector import decode
from dml.errors import DmlError, ExecutionError
from dml.model.manifest import ContentFile, is_unpartitioned
from dml.model.scan_task import FileDeletes
from dml.model.write_task import TaskCommit
from dml.write.delete_files import VectorFile, delete_file_options, write_partition_deletes
from dml.write.file_layout import FileLayout, file_layout
from dml.write.output_files import OutputFileFactory, TaskIdentity
from dml.write.partition_values import PartitionRouter
from dml.write.run import data_writer
from dml.write.writer_spec import DELETION_VECTOR_VERSION, WriterSpec, current_spec

__all__ = ["threads_for", "write_joined_files"]

THREADS: Final = 16
LOCAL: Final = frozenset({"", "file"})

Files = tuple[ContentFile, ...]
Part = Callable[[OutputFileFactory], Files]
"""What is written by itself, side by side with other parts."""

Rows = tuple[tuple[Any, ...] | None, pa.RecordBatch]
"""Rows, and their partition; None in a table without partitions."""


def write_joined_files(spec: WriterSpec, commits: Sequence[TaskCommit]) -> TaskCommit | None:
    """Write what tasks have left to the driver.

    Args:
        spec: The job.
        commits: What all its tasks reported, none of them a failure.

    Returns:
        The files; None where there is nothing to write.

    Raises:
        DmlError: it failed, as often as Spark lets a task fail; every file is deleted.
    """
    data = data_parts(spec, [commit.held_rows for commit in commits if commit.held_rows])
    deletes = delete_parts(spec, commits)
    if not data and not deletes:
        return None
    parts = [*data, *deletes]
    # Numbers that no task has: their names never meet.
    outputs = [
        OutputFileFactory(spec.context, TaskIdentity(partition_id=len(commits) + number))
        for number, _ in enumerate(parts)
    ]
    attempts = max(1, spec.max_failures)
    try:
        if len(parts) == 1:
            found = [written(parts[0], outputs[0], attempts)]
        else:
            with ThreadPoolExecutor(min(THREADS, len(parts)), "rowdelta-write") as threads:
                found = list(threads.map(written, parts, outputs, [attempts] * len(parts)))
    except BaseException:
        for output in outputs:
            output.abort()
        raise
    return TaskCommit(
        data_files=tuple(file for files in found[: len(data)] for file in files),
        delete_files=tuple(file for files in found[len(data) :] for file in files),
    )


def written(part: Part, output: OutputFileFactory, attempts: int) -> Files:
    """Write one part; what a storage refuses is tried again, as Spark would try a task again.

    Raises:
        DmlError: it failed.
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
    """What becomes data files; partitions are dealt out evenly."""
    if not streams:
        return []
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    # Each task's rows may have come in the table's order, but not those of all tasks.
    spec = replace(spec, sorts_rows=spec.context.sorted_by_table_order)
    pieces = list(partitions_of(spec, layout, streams))
    parts = min(threads_for(spec.context.data_location), len(pieces))
    return [partial(write_data, spec, layout, pieces[first::parts]) for first in range(parts)]


def threads_for(location: str) -> int:
    """How many files are worth writing at once."""
    return 1 if urlsplit(location).scheme in LOCAL else THREADS


def partitions_of(spec: WriterSpec, layout: FileLayout, streams: Sequence[bytes]) -> Iterator[Rows]:
    """The rows of all tasks, partition by partition."""
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    partition_spec = current_spec(spec.context)
    router = None if is_unpartitioned(partition_spec) else PartitionRouter(partition_spec, layout.columns)
    for batch in pa.concat_tables(tables).combine_chunks().to_batches():
        rows = pa.RecordBatch.from_arrays(batch.columns, schema=layout.arrow)
        yield from [(None, rows)] if router is None else router.split(rows)


def write_data(spec: WriterSpec, layout: FileLayout, pieces: Sequence[Rows], output: OutputFileFactory) -> Files:
    """Data files of some partitions."""
    with data_writer(spec, layout, output) as writer:
        for partition, rows in pieces:
            writer.write(rows, partition)
        return writer.close()


def delete_parts(spec: WriterSpec, commits: Sequence[TaskCommit]) -> list[Part]:
    """What becomes delete files: one Puffin file of all vectors, or position delete files of partitions."""
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
    """One Puffin file."""
    vectors = VectorFile(output)
    for file in deletes:
        vectors.add(file)
    return vectors.close()


def write_positions(spec: WriterSpec, deletes: Sequence[FileDeletes], output: OutputFileFactory) -> Files:
    """A position delete file for each partition."""
    return tuple(write_partition_deletes(deletes, delete_file_options(spec.context), output))
