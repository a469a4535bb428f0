"""Run a write job in a task: rows in, one report out, no files left behind on failure. Worker.

Input: record batches of one Spark partition and a `WriterSpec`. Output: a `TaskCommit` or a `TaskFailure`. Source:
Iceberg's `SparkWrite` and `SparkPositionDeltaWrite` for what an abort does.

A failure that a retry would repeat is returned, not raised: Spark would retry the task and finally report the error as
text inside a `SparkException`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from dml.errors import DmlError, ExecutionError
from dml.model.write_task import TaskCommit, TaskFailure, report_batch
from dml.tasks.task_input import freeze_imports
from dml.write.delta_writer import DeltaWriter
from dml.write.output_files import OutputFileFactory, TaskIdentity, current_task
from dml.write.writer_spec import WriterSpec

__all__ = ["WriteTask", "write_task"]


def write_task(batches: Iterable[pa.RecordBatch], spec: WriterSpec, task: TaskIdentity) -> TaskCommit | TaskFailure:
    """Write the rows of one task.

    Args:
        batches: The rows: new rows for `WriteJob.ROWS`, else delta rows.
        spec: The job.
        task: Which attempt of which task this is.

    Returns:
        The files; or, after deleting them, the failure, if another attempt would repeat it.

    Raises:
        Exception: the task failed and its files are deleted; another attempt may succeed.
    """
    output = OutputFileFactory(spec.context, task)
    try:
        commit = DeltaWriter(spec, output).write(batches)
    except BaseException as error:
        output.abort()
        failure = final_failure(error, spec, task)
        if failure is None:
            raise
        return TaskFailure(failure, attempt_number=task.attempt_number)
    return replace(commit, attempt_number=task.attempt_number)


def final_failure(error: BaseException, spec: WriterSpec, task: TaskIdentity) -> DmlError | None:
    """Return the error to report to the driver; None if Spark should retry the task."""
    if isinstance(error, DmlError) and not isinstance(error, ExecutionError):
        return error
    if not isinstance(error, Exception) or task.attempt_number + 1 < spec.max_failures:
        return None  # a killed task is not reported; any other is retried
    if isinstance(error, DmlError):
        return error
    return ExecutionError(
        f"Writing failed in the task of partition {task.partition_id}: {type(error).__name__}: {error}",
        partition_id=task.partition_id,
        attempts=task.attempt_number + 1,
    )


class WriteTask:
    """A picklable write job for `mapInArrow`.

    Args:
        spec: The job.
    """

    def __init__(self, spec: WriterSpec) -> None:
        self.spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with one binary column: the task's report."""
        freeze_imports()
        yield report_batch(write_task(batches, self.spec, current_task()))
