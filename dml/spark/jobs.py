"""Cancel the jobs of a statement that fails or is interrupted, and no other jobs. Driver; classic and Connect.

An interrupt ends the wait for Spark's result, not the work. On Connect the server continues, and on classic Spark the
SIGINT handler of PySpark cannot reach the JVM while its thread waits for it. So the jobs of the enclosed code carry
their own tag, beside the user's job group, description and tags, by which they are cancelled.

Spark reports a failed job when its tasks have been asked to stop, not when they have stopped: a Python worker may still
be closing the file that it was writing. The files of a failed job can be deleted only after its tasks have ended
(docs/decisions/017-end-of-failed-tasks.md).
"""

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from types import MappingProxyType
from typing import Final, ParamSpec, TypeVar, cast

from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import SparkSession

from dml import limits
from dml.errors import NotSupportedError
from dml.spark.bridge.gateway import Py4JNetworkError
from dml.spark.bridge.names import CONTEXT
from dml.spark.bridge.sessions import active_context, spark_context

__all__ = [
    "await_end_on_failure",
    "await_tasks",
    "cancel_on_interrupt",
    "cancel_tagged_jobs",
    "inherit_job_properties",
    "local_property",
    "new_tag",
    "running_query_id",
    "set_local_property",
    "tag_jobs",
    "was_cancelled",
]

LOG = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
INTERRUPT_ON_CANCEL: Final = "spark.job.interruptOnCancel"


CANCELLED: Final = re.compile(r"\bJob \d+ cancelled\b|SPARK_JOB_CANCELLED|OPERATION_CANCELED")
"""Spark's messages about a job or an operation that was cancelled and did not fail."""


def was_cancelled(error: BaseException) -> bool:
    """Return True if a Spark error reports a cancelled job: then no retry or fallback may run."""
    return CANCELLED.search(str(error)) is not None


@contextmanager
def cancel_on_interrupt(spark: SparkSession) -> Iterator[None]:
    """Cancel the Spark jobs of the enclosed code when an interrupt (or an exit) leaves it."""
    with tag_jobs(spark, new_tag(), interrupts=True):
        yield


@contextmanager
def await_end_on_failure(spark: SparkSession, properties: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """When an error or an interrupt leaves the enclosed code, wait until the tasks of its Spark jobs have ended.

    Classic Spark reports their end. Tasks are asked to stop without interrupting their threads, so each thread waits
    for its Python worker, and ends when the worker has finished or Spark has killed it. A Spark Connect server
    interrupts the threads, so there the wait is `limits.CONNECT_END_SECONDS`.

    Args:
        spark: The session.
        properties: Local properties of the jobs, on classic Spark.
    """
    tag = new_tag()
    try:
        with tag_jobs(spark, tag, interrupts=False):
            for name, value in properties.items():
                set_local_property(name, value)
            yield
    except BaseException:
        context = spark_context(spark)
        if context is not None:
            # A server that interrupts the thread of a client's statement cancels its jobs only after it has ended.
            with suppress(Exception):
                context.cancelJobsWithTag(tag)
        await_tasks(context, tag)
        raise


def cancel_tagged_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel the running jobs with a tag, of all threads."""
    context = spark_context(spark)
    with suppress(Exception):  # the context or the server may have ended, and their jobs with them
        if context is None:
            spark.interruptTag(tag)
        else:
            context.cancelJobsWithTag(tag)


Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def inherit_job_properties(
    spark: SparkSession, function: Callable[Arguments, Returned]
) -> Callable[Arguments, Returned]:
    """Return a function for another thread, whose jobs have the job group, tags and so on of this one."""
    context = spark_context(spark)
    if context is None:
        return cast("Callable[Arguments, Returned]", inheritable_thread_target(spark)(function))
    # PySpark's own wrapper takes a function or a session, depending on its version.
    jobs = CONTEXT.of(context).sc()
    properties = jobs.getLocalProperties().clone()

    def run(*arguments: Arguments.args, **given: Arguments.kwargs) -> Returned:
        jobs.setLocalProperties(properties.clone())
        return function(*arguments, **given)

    return run


def new_tag() -> str:
    """Return a unique tag."""
    return f"rowdelta-{uuid.uuid4().hex}"


def await_tasks(context: SparkContext | None, tag: str) -> None:
    """Wait until the tasks of the jobs with a tag have ended, up to a time limit; a fixed time without a context."""
    if context is None:
        time.sleep(limits.CONNECT_END_SECONDS)
        return
    started = time.monotonic()
    with suppress(Py4JNetworkError, OSError):  # the JVM has ended, and its workers with it
        while time.monotonic() < started + limits.TASK_END_SECONDS:
            # Python's status tracker cannot search by tag.
            jobs = list(CONTEXT.of(context).sc().statusTracker().getJobIdsForTag(tag))
            is_reported = bool(jobs) or time.monotonic() > started + limits.JOB_REPORT_SECONDS
            if is_reported and not any(is_active(context, job) for job in jobs):
                return
            time.sleep(limits.JOB_POLL_SECONDS)
        LOG.warning(
            "Tasks of a failed statement still run after %d s: what they write is not deleted", limits.TASK_END_SECONDS
        )


def is_active(context: SparkContext, job: int) -> bool:
    """Return True if a job or one of its tasks is running.

    Spark's status tracker receives events in order: once it has the end of a job, it has the ends of all its tasks.
    """
    tracker = context.statusTracker()
    found = tracker.getJobInfo(job)
    if found is None:
        return False
    stages = (tracker.getStageInfo(stage) for stage in found.stageIds)
    return found.status == "RUNNING" or any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


@contextmanager
def tag_jobs(spark: SparkSession, tag: str, *, interrupts: bool) -> Iterator[None]:
    """Tag the Spark jobs of the enclosed code, and cancel them on an interrupt.

    Args:
        spark: The session.
        tag: The tag.
        interrupts: Whether cancelling interrupts the threads of tasks, on classic Spark.
    """
    context = spark_context(spark)
    jobs = tag_session(spark, tag) if context is None else tag_thread(context, tag, interrupts=interrupts)
    root = logging.getLogger()
    root.addFilter(is_worth_logging)
    try:
        with jobs:
            yield
    finally:
        root.removeFilter(is_worth_logging)


@contextmanager
def tag_session(spark: SparkSession, tag: str) -> Iterator[None]:
    """Tag the requests of a Connect session."""
    spark.addTag(tag)
    try:
        yield
    except Exception:
        raise
    except BaseException:
        with suppress(Exception):  # the server may have ended, and the interrupt is what to report
            spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


@contextmanager
def tag_thread(context: SparkContext, tag: str, *, interrupts: bool) -> Iterator[None]:
    """Tag the jobs that this thread starts, and restore its local properties afterwards.

    The session's own tags would be lost: they belong to the JVM thread, which py4j abandons on an interrupt.
    """
    jobs = CONTEXT.of(context).sc()
    # The job group and so on: after an interrupt py4j assigns a new JVM thread, which has no properties.
    before = jobs.getLocalProperties().clone()
    context.addJobTag(tag)
    # A task checks whether it should stop only between batches. An interrupted thread stops at once, but does not wait
    # for its Python worker.
    context.setLocalProperty(INTERRUPT_ON_CANCEL, str(interrupts).lower())
    try:
        yield
    except Exception:
        raise
    except BaseException:
        with suppress(Exception):  # the context may be stopped, and the interrupt is what to report
            context.cancelJobsWithTag(tag)
        Thread(target=cancel_late_jobs, args=(context, tag), name="rowdelta-cancel", daemon=True).start()
        raise
    finally:
        with suppress(Exception):
            jobs.setLocalProperties(before)


def cancel_late_jobs(context: SparkContext, tag: str) -> None:
    """Cancel jobs with a tag for a while: after an interrupt the JVM may still be planning, and submit them later."""
    end = time.monotonic() + limits.LATE_JOB_SECONDS
    with suppress(Exception):  # the context may be stopped
        while time.monotonic() < end:
            context.cancelJobsWithTag(tag)
            time.sleep(limits.LATE_JOB_POLL_SECONDS)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for py4j's log record of an interrupt, which is raised anyway."""
    return not str(record.msg).endswith("while sending command.")


def local_property(name: str) -> str | None:
    """Return a local property of this thread's JVM thread; None on Connect or if the context has stopped."""
    context = active_context()
    if context is not None:
        with suppress(Exception):  # it may have been stopped
            return context.getLocalProperty(name)  # type: ignore[no-any-return]
    return None


def running_query_id() -> str:
    """Return the id of the streaming query that runs this `foreachBatch` function, on classic Spark.

    Raises:
        NotSupportedError: this thread's JVM thread is not the query's. Without the id a repeated micro-batch cannot be
            recognized.
    """
    found = local_property(QUERY_ID)
    if not found:
        raise NotSupportedError(
            "A stream into a table needs pinned threads: the id of the query is not known in this one",
            hint="Do not set PYSPARK_PIN_THREAD=false",
        )
    return found


def set_local_property(name: str, value: str | None) -> None:
    """Set a local property of this thread's JVM thread and of the threads that it starts; do nothing on Connect."""
    context = active_context()
    if context is not None:
        with suppress(Exception):  # as above
            context.setLocalProperty(name, value)
