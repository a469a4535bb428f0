"""How the jobs of a statement end when it fails or is interrupted, and nobody else's. Driver; classic and Connect.

An interrupt ends the wait for Spark's answer, not the work: on Connect nobody stops the server, and on classic Spark
the handler that PySpark installs for SIGINT cannot reach the JVM while the same thread waits for it. So the jobs of the
enclosed code carry a tag of their own, which is beside the user's job group, description and tags, and are cancelled
by it.

A job that failed is over for Spark when its tasks have been asked to stop, not when they have stopped: a Python worker
may still be closing the file that it was writing. Whoever deletes what a failed job wrote has to know that its tasks
have ended (docs/decisions/017-end-of-failed-tasks.md).
"""

import logging
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dml import limits
from dml.errors import NotSupportedError

__all__ = [
    "await_tasks",
    "cancelled_on_interrupt",
    "ended_on_failure",
    "local_property",
    "new_tag",
    "running_query_id",
    "set_local_property",
    "tagged",
    "was_cancelled",
]

LOG = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
INTERRUPT_ON_CANCEL: Final = "spark.job.interruptOnCancel"


CANCELLED: Final = re.compile(r"\bJob \d+ cancelled\b|SPARK_JOB_CANCELLED|OPERATION_CANCELED")
"""What Spark says of a job or an operation that somebody has ended, and not a failure."""


def was_cancelled(error: BaseException) -> bool:
    """Whether an error of Spark's says that somebody has cancelled the job: then nothing may be tried in its place."""
    return CANCELLED.search(str(error)) is not None


@contextmanager
def cancelled_on_interrupt(spark: SparkSession) -> Iterator[None]:
    """Cancel the Spark jobs that the enclosed code has started when an interrupt (or an exit) leaves it.

    Args:
        spark: The session.
    """
    with tagged(spark, new_tag(), interrupts=True):
        yield


@contextmanager
def ended_on_failure(spark: SparkSession) -> Iterator[None]:
    """When an error or an interrupt leaves the enclosed code, wait until the tasks of its Spark jobs have ended.

    On classic Spark that is known: a task is asked to stop without interrupting its thread, which therefore waits for
    its Python worker, and ends when the worker has finished or Spark has killed it. On Spark Connect, where the server
    interrupts, workers get `limits.CONNECT_END_SECONDS`.

    Args:
        spark: The session.
    """
    tag = new_tag()
    try:
        with tagged(spark, tag, interrupts=False):
            yield
    except BaseException:
        context = getattr(spark, "_sc", None)
        if context is not None:
            # A server that interrupts the thread of a client's statement cancels its jobs when that has ended.
            with suppress(Exception):
                context.cancelJobsWithTag(tag)
        await_tasks(context, tag)
        raise


def new_tag() -> str:
    """A tag that no other job has."""
    return f"rowdelta-{uuid.uuid4().hex}"


def await_tasks(context: SparkContext | None, tag: str) -> None:
    """Wait until the tasks of the jobs with a tag have ended; in vain where they do not, or Spark cannot be asked."""
    if context is None:
        time.sleep(limits.CONNECT_END_SECONDS)
        return
    started = time.monotonic()
    with suppress(Py4JNetworkError, OSError):  # the JVM has ended, and its workers with it
        while time.monotonic() < started + limits.TASK_END_SECONDS:
            # Python's status tracker does not know tags.
            jobs = list(cast("Any", context)._jsc.sc().statusTracker().getJobIdsForTag(tag))  # noqa: SLF001
            is_reported = bool(jobs) or time.monotonic() > started + limits.JOB_REPORT_SECONDS
            if is_reported and not any(is_active(context, job) for job in jobs):
                return
            time.sleep(limits.JOB_POLL_SECONDS)
        LOG.warning(
            "Tasks of a failed statement still run after %d s: what they write is not deleted", limits.TASK_END_SECONDS
        )


def is_active(context: SparkContext, job: int) -> bool:
    """Whether a job, or a task of it, still runs.

    Spark's status tracker gets events in their order: when it has a job's end, it has that of all its tasks.
    """
    tracker = context.statusTracker()
    found = tracker.getJobInfo(job)
    if found is None:
        return False
    stages = (tracker.getStageInfo(stage) for stage in found.stageIds)
    return found.status == "RUNNING" or any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


@contextmanager
def tagged(spark: SparkSession, tag: str, *, interrupts: bool) -> Iterator[None]:
    """A tag on the Spark jobs that the enclosed code starts; an interrupt cancels them.

    Args:
        spark: The session.
        tag: The tag.
        interrupts: Whether the threads of tasks that are asked to stop are interrupted, where the session is classic.
    """
    context = getattr(spark, "_sc", None)
    jobs = tagged_session(spark, tag) if context is None else tagged_thread(context, tag, interrupts=interrupts)
    root = logging.getLogger()
    root.addFilter(is_worth_logging)
    try:
        with jobs:
            yield
    finally:
        root.removeFilter(is_worth_logging)


@contextmanager
def tagged_session(spark: SparkSession, tag: str) -> Iterator[None]:
    """A tag on what a Connect session asks of its server."""
    spark.addTag(tag)
    try:
        yield
    except Exception:
        raise
    except BaseException:
        with suppress(Exception):  # the server may be gone, and the interrupt is what to report
            spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


@contextmanager
def tagged_thread(context: SparkContext, tag: str, *, interrupts: bool) -> Iterator[None]:
    """A tag on the jobs that this thread starts; what it says of its jobs is afterwards as before.

    A session's own tags would not do: they are known to the JVM thread that py4j gives up when it is interrupted.
    """
    jobs = cast("Any", context)._jsc.sc()  # noqa: SLF001
    # The job group and all else: after an interrupt py4j gives this thread a new one in the JVM, which has none of it.
    before = jobs.getLocalProperties().clone()
    context.addJobTag(tag)
    # A task that is asked to stop looks up only between two batches; a thread that is interrupted does not wait, and
    # leaves its Python worker to itself.
    context.setLocalProperty(INTERRUPT_ON_CANCEL, str(interrupts).lower())
    try:
        yield
    except Exception:
        raise
    except BaseException:
        with suppress(Exception):  # the context may be stopped, and the interrupt is what to report
            context.cancelJobsWithTag(tag)
        raise
    finally:
        with suppress(Exception):
            jobs.setLocalProperties(before)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """False for what py4j logs of an interrupt, with a traceback: the interrupt itself is raised."""
    return not str(record.msg).endswith("while sending command.")


def local_property(name: str) -> str | None:
    """What Spark's thread that works for this one knows under a name; None where Spark is not in this process."""
    context = cast("Any", SparkContext)._active_spark_context  # noqa: SLF001
    if context is not None:
        with suppress(Exception):  # it may have been stopped
            return context.getLocalProperty(name)  # type: ignore[no-any-return]
    return None


def running_query_id() -> str:
    """The id of the streaming query that a function of `foreachBatch` works for, on classic Spark.

    Raises:
        NotSupportedError: Spark's thread that works for this one is not the query's: without the id a micro-batch that
            runs again is not known.
    """
    found = local_property(QUERY_ID)
    if not found:
        raise NotSupportedError(
            "A stream into a table needs Python's threads to be Spark's: the id of the query is not known here",
            hint="Do not set PYSPARK_PIN_THREAD=false",
        )
    return found


def set_local_property(name: str, value: str | None) -> None:
    """Let Spark's thread that works for this one, and those that it starts, know a value."""
    context = cast("Any", SparkContext)._active_spark_context  # noqa: SLF001
    if context is not None:
        with suppress(Exception):  # as above
            context.setLocalProperty(name, value)
