"""A progress bar for long statements in a terminal. Driver; classic Spark.

Input: a session and a description. Output: a transient line on standard error, updated from Spark's status tracker with
the tasks of the jobs that this thread starts. Statements of less than a second show nothing. Errors of the progress bar
never affect the statement.
"""

import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dml import limits
from dml.spark.bridge.gateway import Py4JError
from dml.spark.lazy_session import LazySession

__all__ = ["TaskCounts", "progress_bar", "task_counts"]

JOB_GROUP: Final = "spark.jobGroup.id"
JOB_DESCRIPTION: Final = "spark.job.description"

TaskCounts = tuple[int, int]


@contextmanager
def progress_bar(
    lazy_session: LazySession, description: str, *, enabled: bool = True, stream: TextIO | None = None
) -> Iterator[None]:
    """Show the progress of the Spark jobs of the enclosed code.

    Args:
        lazy_session: The Spark session; nothing is shown on Connect, or without a session.
        description: The label of the bar, `MERGE lake.db.flights`.
        enabled: False shows nothing.
        stream: The stream to write to, by default standard error; nothing is shown unless it is a terminal.
    """
    target = stream or sys.stderr
    context = spark_context(lazy_session.spark) if enabled and target.isatty() and lazy_session.is_started else None
    if context is None:
        yield
        return
    group = f"rowdelta-{uuid.uuid4().hex}"
    finished = threading.Event()
    painter = threading.Thread(
        target=paint, args=(context, group, description, target, finished), name="rowdelta-progress", daemon=True
    )
    before = set_job_group(context, group, description)
    painter.start()
    try:
        yield
    finally:
        finished.set()
        painter.join(timeout=limits.PROGRESS_DELAY_SECONDS)
        restore_job_group(context, before)


def spark_context(spark: SparkSession) -> Any:
    """Return the context of a classic session, or None on Connect or if it was stopped."""
    try:
        return spark.sparkContext
    except Exception:  # noqa: BLE001  Connect raises errors of its own, which must not fail the statement
        return None


def set_job_group(context: Any, group: str, description: str) -> tuple[str | None, str | None]:
    """Set the job group of this thread, so that its jobs can be found; return the previous group and description."""
    before: tuple[str | None, str | None] = (None, None)
    with suppress(Py4JError):
        before = context.getLocalProperty(JOB_GROUP), context.getLocalProperty(JOB_DESCRIPTION)
        context.setLocalProperty(JOB_GROUP, group)
        context.setLocalProperty(JOB_DESCRIPTION, description)
    return before


def restore_job_group(context: Any, before: tuple[str | None, str | None]) -> None:
    """Restore the user's job group."""
    with suppress(Py4JError):
        context.setLocalProperty(JOB_GROUP, before[0])
        context.setLocalProperty(JOB_DESCRIPTION, before[1])


def paint(context: Any, group: str, description: str, target: TextIO, finished: threading.Event) -> None:
    """Draw the bar in its own thread until the statement is finished."""
    if finished.wait(limits.PROGRESS_DELAY_SECONDS):
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with suppress(Exception), Progress(*columns, console=Console(file=target), transient=True) as bar:
        task = bar.add_task(description, total=None)
        while not finished.wait(limits.PROGRESS_POLL_SECONDS):
            done, total = task_counts(context.statusTracker(), group)
            bar.update(task, completed=done, total=total or None)


def task_counts(tracker: Any, group: str) -> TaskCounts:
    """Count the tasks of a group's jobs.

    Args:
        tracker: Spark's status tracker.
        group: The job group.

    Returns:
        Finished tasks and all tasks, of the stages that Spark still tracks.
    """
    done = total = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total
