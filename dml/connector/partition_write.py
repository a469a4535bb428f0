"""Rows in place of those of their partitions, written by the tasks of Spark's own job. Driver, classic Spark only.

Input: a planned write. Output: Spark's `Write` and `BatchWrite`: its tasks run our writer as the write function of a
Python data source, and its commit is that of an INSERT OVERWRITE.
"""

from collections.abc import Sequence
from typing import ClassVar

from py4j.java_gateway import JavaObject

from dml.connector.job_write import DistributedWrite, WriterJob, reading_itself
from dml.engine.insert import RowsWrite, commit_rows
from dml.spark.proxies import Proxy
from dml.spark_scan.running_query import running_plan
from dml.spark_scan.workers import writer_factory
from dml.write.stream_rows import StreamRows

__all__ = ["PartitionWrite"]


class PartitionWrite(DistributedWrite):
    """Rows that replace the partitions that they lie in.

    Args:
        write: The write, planned with `keeping_files_open`.
        schema: The columns of the rows.
        arranged: Puts them in the table's order where Spark has not.
    """

    interfaces: ClassVar[tuple[str, ...]] = DistributedWrite.interfaces

    def __init__(self, write: RowsWrite, schema: JavaObject, arranged: StreamRows | None) -> None:
        super().__init__(write, left_out=frozenset() if arranged is None else arranged.left_out(write.target.table))
        self._schema = schema
        self._arranged = arranged

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name} (dynamic)"

    def toBatch(self) -> "SparkBatchWrite":
        """The write of one job."""
        write = reading_itself(self._write, running_plan(self._write.engine.spark))
        return SparkBatchWrite(write, self._schema, self._arranged)


class SparkBatchWrite(Proxy):
    """The write of one job.

    Args:
        write: The write, planned.
        schema: The columns of the rows.
        arranged: Puts them in the table's order where Spark has not.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.BatchWrite",)

    def __init__(self, write: RowsWrite, schema: JavaObject, arranged: StreamRows | None) -> None:
        self._write = write
        self._schema = schema
        self._arranged = arranged
        self._job = WriterJob(write)

    def toString(self) -> str:
        """What Spark's log shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def createBatchWriterFactory(self, _: JavaObject) -> JavaObject:
        """What writes the rows of a task; the job begins after this."""
        factory = writer_factory(self._arranged or self._write.task, self._schema)
        self._job.begin()
        return factory

    def useCommitCoordinator(self) -> bool:
        """One attempt of a task counts."""
        return True

    def onDataWriterCommit(self, message: JavaObject) -> None:
        """Nothing: the files of a task are known with those of all tasks."""

    def commit(self, messages: Sequence[JavaObject], *_: JavaObject) -> None:
        """Commit what the tasks wrote."""
        commit_rows(self._write, self._job.written(messages))

    def abort(self, _: Sequence[JavaObject | None]) -> None:
        """Delete what the tasks wrote, when they have ended."""
        self._job.abort()
