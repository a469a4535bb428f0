"""Ctrl-C while Spark works: the jobs of the statement end, and nobody else's. Driver; classic Spark and Spark Connect.

An interrupt ends the wait for Spark's answer, not the work: on Connect nobody tells the server, and on classic Spark
the handler that PySpark installs for SIGINT cannot reach the JVM while the same thread waits for it. So the jobs of the
enclosed code carry a tag of their own, which is beside the user's job group, description and tags, and are cancelled
by it.
"""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession

__all__ = ["cancelled_on_interrupt"]

INTERRUPT_ON_CANCEL: Final = "spark.job.interruptOnCancel"
JOB_PROPERTIES: Final = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.tags",
    "spark.scheduler.pool",
    INTERRUPT_ON_CANCEL,
)
"""What Spark knows of a thread's jobs: after an interrupt py4j gives the thread a new one in the JVM, without it."""


@contextmanager
def cancelled_on_interrupt(spark: SparkSession) -> Iterator[None]:
    """Cancel the Spark jobs that the enclosed code has started when an interrupt (or an exit) leaves it.

    Args:
        spark: The session.
    """
    tag = f"rowdelta-{uuid.uuid4().hex}"
    context = getattr(spark, "_sc", None)
    tagged = tagged_session(spark, tag) if context is None else tagged_thread(context, tag)
    root = logging.getLogger()
    root.addFilter(is_worth_logging)
    try:
        with tagged:
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
def tagged_thread(context: SparkContext, tag: str) -> Iterator[None]:
    """A tag on the jobs that this thread starts; what it says of its jobs is afterwards as before.

    A session's own tags would not do: they are known to the JVM thread that py4j gives up when it is interrupted.
    """
    before = {key: context.getLocalProperty(key) for key in JOB_PROPERTIES}
    context.addJobTag(tag)
    # A task that is told to stop looks up only between two batches; a thread that is interrupted does not wait.
    context.setLocalProperty(INTERRUPT_ON_CANCEL, "true")
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
            for key, value in before.items():
                # PySpark's stub has no None, which takes a property away.
                context.setLocalProperty(key, cast("str", value))


def is_worth_logging(record: logging.LogRecord) -> bool:
    """False for what py4j logs of an interrupt, with a traceback: the interrupt itself is raised."""
    return not str(record.msg).endswith("while sending command.")
