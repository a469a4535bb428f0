"""Copy the live rows of data files into new files: the tasks of a compaction. Worker.

Input: runs of scan tasks. Output: a `TaskCommit` with the new files and counts, or a `TaskFailure`. Rows keep their
order unless the write sorts them; files that are sorted already are merged. In format version 3 rows keep their row ids
and sequence numbers. Large row groups are copied without decoding them, with their deleted rows
(`dml.write.copied_row_groups`). Source: Iceberg's `SparkBinPackFileRewriteRunner`. Spec: "Row Lineage".
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dml import limits
from dml.errors import RowConservationError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID
from dml.model.scan_task import ScanContext, ScanTask
from dml.model.write_task import TaskCommit, TaskMetrics, report_batch
from dml.read.data_file import coalesce_batches
from dml.read.reader import TaskReader
from dml.tasks.task_input import TaskInput
from dml.write.copied_row_groups import CopyRule, RowGroupCopier
from dml.write.delta_rows import OriginLog, with_origins
from dml.write.delta_writer import run_write
from dml.write.file_layout import FileLayout, file_layout
from dml.write.output_files import OutputFileFactory, current_task
from dml.write.partitioning import open_data_writer
from dml.write.sorted_inputs import sorted_inputs
from dml.write.writer_spec import WriterSpec

__all__ = ["CopyRows", "RewriteRun", "copied_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRun:
    """The files, or parts of files, whose rows one task copies.

    Attributes:
        tasks: The scan tasks, in their order.
        partition: The partition of all rows under the output spec; None if it is computed for each row.
        target_file_size: The size in bytes at which a new file is closed.
        copies: The row groups that are copied without decoding them, if the footers allow it; None for none.
    """

    tasks: tuple[ScanTask, ...]
    partition: tuple[Any, ...] | None = None
    target_file_size: int
    copies: CopyRule | None = None


def copied_columns(spec: WriterSpec) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the field ids of the table's columns in new files, and the names of their row lineage columns."""
    metadata = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if spec.row_lineage else ()
    columns = file_layout(spec.context, row_lineage=spec.row_lineage).columns
    return tuple(column.field_id for column in columns[: len(columns) - len(metadata)]), metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRows:
    """The function of a task. It can be pickled.

    Attributes:
        input: Groups of one `RewriteRun`, with a `ScanContext` that projects `copied_columns`.
        spec: The write.
        reads_ahead: Whether a second thread reads and decodes while the task's own thread encodes and writes. Used when
            there are fewer tasks than cores.
    """

    input: TaskInput
    spec: WriterSpec
    reads_ahead: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with one binary column: the task's report.

        Args:
            batches: The numbers of the groups.
        """
        runs = [run for group in self.input.groups(batches) for run in group]

        def write(output: OutputFileFactory) -> TaskCommit:
            return copy_runs(runs, self.input.context, self.spec, output, reads_ahead=self.reads_ahead)

        yield report_batch(run_write(write, self.spec, current_task()))


def copy_runs(
    runs: Sequence[RewriteRun],
    context: ScanContext,
    spec: WriterSpec,
    output: OutputFileFactory,
    *,
    reads_ahead: bool = False,
) -> TaskCommit:
    """Copy the rows of some runs.

    Args:
        runs: The runs.
        context: The scan of their files.
        spec: The write.
        output: Opens new files; the caller deletes them if the copy fails.
        reads_ahead: Whether a second thread reads.

    Raises:
        RowConservationError: Another number of rows was written than were live.
        DmlError: A file cannot be read or written.
    """
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    reader = TaskReader(context, spark_types=False)
    commits = [copy_run(run, reader, spec, layout, output, reads_ahead=reads_ahead) for run in runs]
    return TaskCommit(
        data_files=tuple(file for commit in commits for file in commit.data_files),
        delete_files=tuple(file for commit in commits for file in commit.delete_files),
        joined_files=tuple(file for commit in commits for file in commit.joined_files),
        row_origins=tuple(origins for commit in commits for origins in commit.row_origins),
        metrics=sum((commit.metrics for commit in commits), TaskMetrics()),
    )


def copy_run(
    run: RewriteRun,
    reader: TaskReader,
    spec: WriterSpec,
    layout: FileLayout,
    output: OutputFileFactory,
    *,
    reads_ahead: bool,
) -> TaskCommit:
    if run.copies is not None and run.partition is not None:
        copier = RowGroupCopier(spec, layout, reader.context, output)
        done = copier.copy(
            run.tasks,
            run.partition,
            origin_log(run, spec),
            rule=run.copies,
            target_file_size=run.target_file_size,
        )
        if done is not None:
            return done
    options = replace(spec.context.options, target_file_size=run.target_file_size)
    origins = origin_log(run, spec)
    live = LiveRows(reader, origins)
    inputs = sorted_inputs(reader.context, spec, run.tasks) if spec.sorts_rows and run.partition is not None else None
    if inputs is None:
        batches = coalesce_batches(live.read(run.tasks), reader.context.batch_rows)
    else:
        batches = inputs.merge([live.read([task]) for task in run.tasks])
        spec = replace(spec, sorts_rows=False)
    writer = open_data_writer(replace(spec, context=replace(spec.context, options=options)), layout, output, origins)
    try:
        for batch in read_ahead(batches) if reads_ahead else batches:
            writer.write(
                layout.batch(batch.columns)
                if origins is None
                else with_origins(layout.batch(batch.columns[:-1]), batch.columns[-1].to_numpy()),
                run.partition,
            )
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    written = sum(file.record_count for file in files)
    if written != live.carried:
        raise RowConservationError(
            f"Rows do not add up: {live.carried} live rows were read, and {written} written",
            hint="Nothing was published, the table is unchanged",
            file=run.tasks[0].path,
        )
    return TaskCommit(
        data_files=files,
        row_origins=() if origins is None else origins.report(),
        metrics=TaskMetrics(rows_carried=live.carried, rows_deleted=live.deleted),
    )


def origin_log(run: RewriteRun, spec: WriterSpec) -> OriginLog | None:
    """Return a log of the origins of the rows of a run's new files; None if they are not tracked."""
    if not spec.tracks_origins:
        return None
    return OriginLog(
        max_encoded_bytes=min(limits.MAX_TASK_ORIGIN_BYTES, spec.max_report_bytes),
        sources={task.file_ordinal: task.path for task in run.tasks},
    )


def read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches that another thread reads a few batches ahead."""
    with ThreadPoolExecutor(1, thread_name_prefix="rowdelta-read") as thread:
        pending = deque(thread.submit(next, batches, None) for _ in range(limits.BATCHES_AHEAD))
        while (batch := pending.popleft().result()) is not None:
            pending.append(thread.submit(next, batches, None))
            yield batch


class LiveRows:
    """Read the live rows of scan tasks, and count all rows.

    Args:
        reader: Reads files.
        origins: If given, the last column of each batch holds the origins of its rows.

    Attributes:
        carried: The number of live rows so far.
        deleted: The number of deleted rows so far.
    """

    def __init__(self, reader: TaskReader, origins: OriginLog | None) -> None:
        self._reader = reader
        self._origins = origins
        self.carried = 0
        self.deleted = 0

    def read(self, tasks: Iterable[ScanTask]) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of some tasks, in their order."""
        for task in tasks:
            for rows in self._reader.scan_file(task):
                batch = rows.batch
                if self._origins is not None:
                    batch = self._origins.with_carried_origins(batch, task.file_ordinal, rows.start_position)
                if rows.live is not None:
                    batch = batch.filter(pa.array(rows.live))
                self.carried += batch.num_rows
                self.deleted += rows.batch.num_rows - batch.num_rows
                yield batch
