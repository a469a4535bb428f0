"""Micro-batches of streaming queries, written by the tasks of Spark's own jobs. Driver, classic Spark only.

Input: the table as Spark loaded it when the query was started, the write's columns and options. Output: Spark's `Write`
and `StreamingWrite`. Spark makes one for each micro-batch, so each is planned on the table as it is then, by
`dml.streaming.sink`.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from dml.catalog.registry import ResolvedTable
from dml.commit import StreamEpoch
from dml.connector.job_write import DistributedWrite, WriterJob, keeping_files_open
from dml.engine.engine import Engine, StatementSettings
from dml.errors import NotSupportedError
from dml.spark.java import python_schema
from dml.spark.proxies import Proxy
from dml.spark_scan.workers import stream_writer_factory
from dml.streaming.options import StreamOptions
from dml.streaming.sink import EpochWrite, commit_epoch, plan_epoch

__all__ = ["is_of_stream", "not_continuous", "stream_write"]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark says of itself in the thread of a streaming query; only micro-batches have a number."""


def is_of_stream(spark: SparkSession, write_id: str, options: Collection[str]) -> bool:
    """Whether a write is that of a streaming query's own sink, and not one that its `foreachBatch` makes.

    Args:
        spark: The session.
        write_id: Spark's id of the write: a stream's has the id of the query.
        options: The names of its options.
    """
    return spark.sparkContext.getLocalProperty(QUERY_ID) == write_id or any(
        name.lower() == "checkpointlocation" for name in options
    )


def not_continuous() -> NotSupportedError:
    """The error for a stream in continuous mode, which Spark plans outside of the query's thread."""
    return NotSupportedError(
        "Streams write to tables in micro-batches, not in continuous mode",
        hint="Use trigger(processingTime=...) or trigger(availableNow=True)",
    )


def stream_write(
    engine: Engine,
    started_on: ResolvedTable,
    query_id: str,
    schema: JavaObject,
    options: StreamOptions,
    *,
    complete: bool,
) -> "StreamWrite":
    """The write of the micro-batch that this thread runs.

    Args:
        engine: The session and its catalogs.
        started_on: The table as it was when the query was started.
        query_id: The query.
        schema: The columns of its rows.
        options: Of the stream's writer.
        complete: Whether the rows replace all others.

    Raises:
        NotSupportedError: the query runs in continuous mode.
        DmlError: the rows do not fit the table, or it is not there any more.
    """
    number = engine.spark.sparkContext.getLocalProperty(BATCH_ID)
    if number is None:
        raise not_continuous()
    epoch = StreamEpoch(
        query_id=query_id,
        epoch_id=int(number),
        table_uuid=started_on.table.metadata.table_uuid,
        adopts_checkpoint=options.adopts_checkpoint,
    )
    columns = python_schema(schema)
    planned = plan_epoch(engine, started_on, epoch, columns, options, complete=complete, refine=keeping_files_open)
    return StreamWrite(planned, schema, StatementSettings.of(engine).parallelism)


class StreamWrite(DistributedWrite):
    """A micro-batch.

    Args:
        planned: The micro-batch, planned.
        schema: The columns of its rows.
        tasks: How many tasks run at once: a micro-batch is too small for more, and each would leave files of its own.
    """

    interfaces: ClassVar[tuple[str, ...]] = DistributedWrite.interfaces

    def __init__(self, planned: EpochWrite, schema: JavaObject, tasks: int) -> None:
        super().__init__(planned.rows, tasks, planned.function.left_out(planned.rows.target.table))
        self._planned = planned
        self._schema = schema

    def toStreaming(self) -> "SparkStreamingWrite":
        """The write of its job."""
        return SparkStreamingWrite(self._planned, self._schema)


class SparkStreamingWrite(Proxy):
    """The write of a micro-batch's job.

    Args:
        planned: The micro-batch, planned.
        schema: The columns of its rows.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("org.apache.spark.sql.connector.write.streaming.StreamingWrite",)

    def __init__(self, planned: EpochWrite, schema: JavaObject) -> None:
        self._planned = planned
        self._schema = schema
        self._job = WriterJob(planned.rows)

    def toString(self) -> str:
        """What Spark's log shows."""
        return f"RowDelta streaming {self._planned.rows.command} {self._planned.rows.target.resolved.name}"

    def createStreamingWriterFactory(self, _: JavaObject) -> JavaObject:
        """What writes the rows of a task; the job begins after this."""
        factory = stream_writer_factory(self._planned.function, self._schema)
        self._job.begin()
        return factory

    def useCommitCoordinator(self) -> bool:
        """One attempt of a task counts."""
        return True

    def commit(self, _: int, messages: Sequence[JavaObject]) -> None:
        """Commit what the tasks wrote, unless the table has the micro-batch already."""
        commit_epoch(self._planned, self._job.written(messages))

    def abort(self, _: int, __: Sequence[JavaObject | None]) -> None:
        """Delete what the tasks wrote, when they have ended."""
        self._job.abort()
