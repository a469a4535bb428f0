"""Ctrl-C while a statement runs: its Spark job ends, its files go, the table and the user's settings stay."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from pyspark import SparkContext

from tests.lake import Lake

pytestmark = pytest.mark.spark


def slow(value: int) -> int:
    """Keeps a task busy far longer than the test waits."""
    time.sleep(0.05)
    return value


def eventually(holds: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def active_jobs(context: SparkContext) -> list[int]:
    """The jobs that Spark works on."""
    return list(context.statusTracker().getActiveJobsIds())


def test_an_interrupt_cancels_the_job_and_leaves_nothing(lake: Lake) -> None:
    spark = lake.session.spark
    context, name = spark.sparkContext, lake.create("id BIGINT, s STRING", **{"write.update.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 's' FROM range(20000)")
    before, rows = lake.state(name), lake.rows(f"SELECT count(*), sum(id) FROM {name}")
    spark.udf.register("slow", slow, "bigint")
    sent: list[float] = []

    def interrupt_the_running_job() -> None:
        if eventually(lambda: bool(active_jobs(context))):
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    context.setJobGroup("mine", "my own work")
    context.addJobTag("my-tag")
    shooter = threading.Thread(target=interrupt_the_running_job)
    try:
        shooter.start()
        with pytest.raises(KeyboardInterrupt):
            lake.session.sql(f"UPDATE {name} SET id = slow(id), s = 'u'")
        assert time.monotonic() - sent[0] < 20  # of 500 that the job would take
        assert eventually(lambda: not active_jobs(context))
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "my own work"
        assert set(context.getJobTags()) == {"my-tag"}
    finally:
        shooter.join()
        context.clearJobTags()
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)
    assert lake.state(name) == before
    assert lake.rows(f"SELECT count(*), sum(id) FROM {name}") == rows
    assert lake.session.sql(f"UPDATE {name} SET s = 'after' WHERE id = 7").rows_updated == 1


def test_a_merge_whose_source_is_cancelled_does_not_go_another_way(lake: Lake) -> None:
    spark = lake.session.spark
    name = lake.create("id BIGINT, s STRING")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 's' FROM range(10)")
    before = lake.state(name)
    spark.udf.register("slow", slow, "bigint")

    def cancel_the_running_job() -> None:
        if eventually(lambda: bool(active_jobs(spark.sparkContext))):
            spark.sparkContext.cancelAllJobs()

    canceller = threading.Thread(target=cancel_the_running_job)
    canceller.start()
    try:
        with pytest.raises(Exception, match=r"Job \d+ cancelled"):
            lake.session.sql(
                f"MERGE INTO {name} t USING (SELECT slow(id) AS id FROM range(600)) s ON t.id = s.id "
                "WHEN MATCHED THEN DELETE"
            )
    finally:
        canceller.join()
    assert lake.state(name) == before
