"""Runs a write job in a task: rows in, one `TaskCommit` out, and no file left behind when it fails. Worker.

Input: record batches of one Spark partition and a `WriterSpec`. Output: `TaskCommit`. Source: Iceberg's `SparkWrite`
and `SparkPositionDeltaWrite` for what an abort does.

A failure that another attempt would only repeat is returned, not raised: Spark would run the task again, and in the end
report it as text inside a `SparkException`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import IdentityTransform

from dml.errors import DmlError, ExecutionError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID
from dml.model.manifest import is_unpartitioned
from dml.model.write_task import TaskCommit, TaskMetrics
from dml.read.packed_groups import settle
from dml.write.chosen_by_file import ChosenByFile
from dml.write.copy_on_write import PatchWriter
from dml.write.delete_files import (
    DeleteResult,
    DeleteWriter,
    DeletionVectorWriter,
    PositionDeleteWriter,
    delete_file_options,
)
from dml.write.delta_rows import DeltaCounts, FileDelta, delta_runs
from dml.write.file_layout import FileLayout, file_layout
from dml.write.file_splice import SpliceJob
from dml.write.held_rows import HoldingDataWriter
from dml.write.merge_on_read import NewRows, PositionDeltaWriter
from dml.write.output_files import OutputFileFactory, TaskIdentity, current_task
from dml.write.partition_values import PartitionRouter
from dml.write.partitioning import ClusteredDataWriter, FanoutDataWriter, PartitionWriter
from dml.write.rolling import DataWriter, RollingDataWriter
from dml.write.row_builder import RowBuilder
from dml.write.row_log import MAX_ENCODED_BYTES, OriginLog, within_limit
from dml.write.sorting import SortingDataWriter, row_order
from dml.write.splicing import Splicer
from dml.write.writer_spec import DELETE_FILE_VERSION, DELETION_VECTOR_VERSION, WriteJob, WriterSpec, current_spec

__all__ = ["TASK_COMMIT", "TASK_COMMIT_SCHEMA", "WriteTask", "data_writer", "run_job", "write_task"]


def run_job(spec: WriterSpec, output: OutputFileFactory, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """Writes all rows of a task; no file is created before there is a row for it.

    Args:
        spec: The job.
        output: Opens new files; the caller deletes them if the job fails.
        batches: The rows.
    """
    match spec.job:
        case WriteJob.ROWS:
            return write_rows(spec, output, batches)
        case WriteJob.COPY_ON_WRITE:
            return rewrite_files(spec, output, batches)
        case WriteJob.MERGE_ON_READ:
            return write_row_delta(spec, output, batches)
        case WriteJob.CHOSEN_BY_FILE:
            return write_chosen(spec, output, batches)


def open_data_writer(
    spec: WriterSpec, layout: FileLayout, output: OutputFileFactory, origins: OriginLog | None = None
) -> DataWriter:
    """The writer of new data files.

    Updated rows come in the order of the old files, so a delta keeps several partitions open also where
    `write.spark.fanout.enabled` is false; its inserted rows come by partition then.
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


@contextmanager
def data_writer(
    spec: WriterSpec, layout: FileLayout, output: OutputFileFactory, origins: OriginLog | None = None
) -> Iterator[DataWriter]:
    """A writer of new data files, which gives up its open files where the block fails."""
    writer = open_data_writer(spec, layout, output, origins)
    try:
        yield writer
    except BaseException:
        writer.abort()
        raise


@contextmanager
def new_row_writer(spec: WriterSpec, layout: FileLayout, output: OutputFileFactory) -> Iterator[HoldingDataWriter]:
    """`data_writer`, which opens no file for few rows where the driver writes those of all tasks."""
    writer = HoldingDataWriter(
        partial(open_data_writer, spec, layout, output), spec.max_held_bytes(output.task.partition_id)
    )
    try:
        yield writer
    except BaseException:
        writer.abort()
        raise


def write_rows(spec: WriterSpec, output: OutputFileFactory, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """New rows into data files."""
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    rows = RowBuilder(layout, spec.layout)
    inserted = 0
    with new_row_writer(spec, layout, output) as writer:
        for batch in batches:
            if batch.num_rows:
                writer.write(rows.inserted(batch))
                inserted += batch.num_rows
        files = writer.close()
        return TaskCommit(data_files=files, held_rows=writer.held(), metrics=TaskMetrics(rows_inserted=inserted))


def rewrite_files(spec: WriterSpec, output: OutputFileFactory, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """Copy-on-write: the data files that a delta changes are written anew."""
    assert spec.files is not None
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    origins = origin_log(spec)
    splicer = open_splicer(spec, layout, output, origins)
    with data_writer(spec, layout, output, origins) as writer:
        patch = patch_writer(spec, layout, writer, origins, splicer)
        counts = apply_delta(spec, batches, change=patch.patch, insert=patch.insert)
        return TaskCommit(
            data_files=(*writer.close(), *(() if splicer is None else splicer.data_files)),
            spliced_files=() if splicer is None else tuple(splicer.spliced_files),
            removed_data_files=patch.removed_data_files,
            changed_files=within_limit(patch.changed_files, spec.max_report_bytes),
            row_origins=() if origins is None else origins.report(),
            metrics=counts.metrics(rows_carried=patch.rows_carried),
        )


def origin_log(spec: WriterSpec) -> OriginLog | None:
    """What notes where the rows of rewritten data files were."""
    if not spec.tracks_origins:
        return None
    return OriginLog(max_encoded_bytes=min(MAX_ENCODED_BYTES, spec.max_report_bytes))


def open_splicer(
    spec: WriterSpec, layout: FileLayout, output: OutputFileFactory, origins: OriginLog | None
) -> Splicer | None:
    """What splices data files, where rows stay in their order."""
    if not spec.splices or spec.files is None:
        return None
    identities = (
        field.source_id for field in current_spec(spec.context).fields if isinstance(field.transform, IdentityTransform)
    )
    job = SpliceJob(
        layout=layout,
        delta=spec.layout,
        output=output,
        context=spec.context,
        schema=Schema.model_validate_json(spec.context.schema_json),
        constant_ids=frozenset(identities),
        lineage=(ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if spec.row_lineage else (),
        origins=origins,
    )
    return Splicer(spec.files, job, deletes=spec.deletes)


def patch_writer(
    spec: WriterSpec, layout: FileLayout, writer: DataWriter, origins: OriginLog | None, splicer: Splicer | None
) -> PatchWriter:
    """What writes data files anew."""
    assert spec.files is not None
    return PatchWriter(
        files=spec.files,
        layout=layout,
        delta=spec.layout,
        writer=writer,
        row_lineage=spec.row_lineage,
        spec_id=spec.context.default_spec_id,
        source_ids=PartitionRouter(current_spec(spec.context), layout.columns).source_ids,
        origins=origins,
        splicer=splicer,
    )


def write_chosen(spec: WriterSpec, output: OutputFileFactory, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """Each data file that a delta changes in the way that suits it: written anew, or its rows marked as deleted."""
    assert spec.files is not None
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    origins = origin_log(spec)
    splicer = open_splicer(spec, layout, output, origins)
    marks, delete_writer = None, None
    with data_writer(spec, layout, output, origins) as writer, new_row_writer(spec, layout, output) as new_writer:
        new_rows = NewRows(
            files=spec.files, layout=layout, delta=spec.layout, writer=new_writer, row_lineage=spec.row_lineage
        )
        if spec.context.format_version >= DELETE_FILE_VERSION:
            delete_writer = open_delete_writer(spec, output)
            marks = PositionDeltaWriter(deletes=delete_writer, new_rows=new_rows)
        patch = patch_writer(spec, layout, writer, origins, splicer)
        chosen = ChosenByFile(
            files=spec.files,
            rewrites=patch,
            marks=marks,
            splicer=splicer,
            max_deleted_ratio=spec.context.options.auto_max_deleted_ratio,
        )
        counts = apply_delta(spec, batches, change=chosen.change, insert=new_rows.insert)
        rewritten, new = writer.close(), new_writer.close()
        deletes = DeleteResult() if delete_writer is None else delete_writer.close()
        return TaskCommit(
            data_files=(*rewritten, *(() if splicer is None else splicer.data_files), *new),
            spliced_files=() if splicer is None else tuple(splicer.spliced_files),
            removed_data_files=patch.removed_data_files,
            delete_files=deletes.delete_files,
            rewritten_delete_files=deletes.rewritten_delete_files,
            referenced_data_files=deletes.referenced_data_files,
            held_rows=new_writer.held(),
            held_deletes=deletes.held,
            changed_files=within_limit(chosen.changed_files, spec.max_report_bytes),
            row_origins=() if origins is None else origins.report(),
            metrics=counts.metrics(rows_carried=patch.rows_carried),
        )


def write_row_delta(spec: WriterSpec, output: OutputFileFactory, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """Merge-on-read: a delta into delete files and new data files."""
    assert spec.files is not None
    delete_writer = open_delete_writer(spec, output)
    with ExitStack() as stack:
        writer, new_rows = None, None
        if spec.writes_rows:  # a table with a column that cannot be written can still be deleted from
            layout = file_layout(spec.context, row_lineage=spec.row_lineage)
            writer = stack.enter_context(new_row_writer(spec, layout, output))
            new_rows = NewRows(
                files=spec.files, layout=layout, delta=spec.layout, writer=writer, row_lineage=spec.row_lineage
            )
        delta = PositionDeltaWriter(deletes=delete_writer, new_rows=new_rows)
        counts = apply_delta(spec, batches, change=delta.apply, insert=delta.insert)
        files = writer.close() if writer is not None else ()
        deletes = delete_writer.close()
        return TaskCommit(
            data_files=files,
            delete_files=deletes.delete_files,
            rewritten_delete_files=deletes.rewritten_delete_files,
            referenced_data_files=deletes.referenced_data_files,
            held_rows=writer.held() if writer is not None else b"",
            held_deletes=deletes.held,
            changed_files=within_limit(delta.changed_files, spec.max_report_bytes),
            metrics=counts.metrics(),
        )


def apply_delta(
    spec: WriterSpec,
    batches: Iterable[pa.RecordBatch],
    *,
    change: Callable[[FileDelta], None],
    insert: Callable[[pa.RecordBatch], None],
) -> DeltaCounts:
    """Give the rows of a delta to their writers, in the order in which they come.

    Args:
        spec: The job.
        batches: The rows.
        change: Takes the changes of one data file.
        insert: Takes inserted rows.
    """
    counts = DeltaCounts()
    for run in delta_runs(batches, spec.layout, counts):
        if isinstance(run, FileDelta):
            change(run)
        else:
            for values in run.batches:
                insert(values)
    return counts


def open_delete_writer(spec: WriterSpec, output: OutputFileFactory) -> DeleteWriter:
    """The writer of deleted positions: from version 3 on always deletion vectors."""
    assert spec.files is not None
    max_held_bytes = spec.max_held_bytes(output.task.partition_id)
    if spec.context.format_version >= DELETION_VECTOR_VERSION:
        return DeletionVectorWriter(files=spec.files, output=output, max_held_bytes=max_held_bytes)
    options = delete_file_options(spec.context)
    return PositionDeleteWriter(files=spec.files, options=options, output=output, max_held_bytes=max_held_bytes)


TASK_COMMIT: Final = "task_commit"
TASK_COMMIT_SCHEMA: Final = pa.schema([pa.field(TASK_COMMIT, pa.binary(), nullable=False)])


def write_task(batches: Iterable[pa.RecordBatch], spec: WriterSpec, task: TaskIdentity) -> TaskCommit:
    """Writes the rows of one task.

    Args:
        batches: The rows: new rows for `WriteJob.ROWS`, else delta rows.
        spec: The job.
        task: Which attempt of which task this is.

    Returns:
        What was written; or, after deleting all of it, why it failed for good.

    Raises:
        Exception: it failed, everything written was deleted, and another attempt may succeed.
    """
    output = OutputFileFactory(spec.context, task)
    try:
        commit = run_job(spec, output, batches)
    except BaseException as error:
        output.abort()
        failure = final_failure(error, spec, task)
        if failure is None:
            raise
        return TaskCommit(failure=failure, attempt_number=task.attempt_number)
    return replace(commit, attempt_number=task.attempt_number)


def final_failure(error: BaseException, spec: WriterSpec, task: TaskIdentity) -> DmlError | None:
    """The error to report to the driver; None for one that Spark should answer with another attempt."""
    if isinstance(error, DmlError) and not isinstance(error, ExecutionError):
        return error
    if not isinstance(error, Exception) or task.attempt_number + 1 < spec.max_failures:
        return None  # a task that is stopped owes no reasons
    if isinstance(error, DmlError):
        return error
    return ExecutionError(
        f"Writing failed in the task of partition {task.partition_id}: {type(error).__name__}: {error}",
        partition_id=task.partition_id,
        attempts=task.attempt_number + 1,
    )


class WriteTask:
    """A write job as `mapInArrow` takes it. It can be pickled.

    Args:
        spec: The job.
    """

    def __init__(self, spec: WriterSpec) -> None:
        self.spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row with one binary column: the task's `TaskCommit`."""
        settle()
        commit = write_task(batches, self.spec, current_task())
        yield pa.record_batch([pa.array([commit.to_bytes()], pa.binary())], schema=TASK_COMMIT_SCHEMA)
