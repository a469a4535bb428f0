"""Whether Spark is still there, when a call to it has failed. Driver; classic Spark.

A JVM that ends (killed for its memory, most often) leaves the Python process with a connection to nobody, and every
call then fails with an error of the network that says nothing of it.
"""

import subprocess
from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from dml.errors import ExecutionError

__all__ = ["ended_with", "spark_ended"]

PATIENCE_SECONDS: Final = 0.2
"""Its connections are closed before it is gone."""


def ended_with(error: BaseException, spark: SparkSession) -> bool:
    """Whether an error came of Spark's end; False where another process started Spark, as on Connect.

    Args:
        error: What a call raised.
        spark: The session.
    """
    if not isinstance(error, OSError | Py4JNetworkError):
        return False
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def spark_ended() -> ExecutionError:
    """The error to raise from one that came of Spark's end."""
    return ExecutionError(
        "Spark's JVM ended while the statement ran",
        hint="Look into the system's log for the reason; if it was killed for its memory, lower spark.driver.memory or "
        "the number of cores. Start Python anew, and look whether the table has changed before running it again",
    )
