"""Jobs of an interrupted statement are cancelled, also those that Spark submits after the interrupt."""

import threading

import pytest
from pyspark.sql import SparkSession

from dml.spark.jobs import new_tag, tag_jobs

pytestmark = pytest.mark.spark


def test_a_job_that_is_submitted_after_an_interrupt_is_cancelled(spark: SparkSession) -> None:
    """Spark may still be planning when the interrupt comes: then there is no job yet to cancel."""
    tag, errors = new_tag(), []
    with pytest.raises(KeyboardInterrupt), tag_jobs(spark, tag, interrupts=True):
        raise KeyboardInterrupt

    def run() -> None:
        spark.sparkContext.addJobTag(tag)
        try:
            spark.sparkContext.parallelize([0], 1).foreach(lambda _: threading.Event().wait(600))
        except Exception as error:  # noqa: BLE001
            errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert len(errors) == 1
    assert "cancelled" in errors[0].lower()
