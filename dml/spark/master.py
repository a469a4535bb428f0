"""Read a Spark master URL and its settings: where tasks run, how often they are tried, how many run at once. Driver.

Input: settings, as `get(key, default)`. No session is needed, so launching a session and running one share the answers.
Source: Spark documentation, "Submitting Applications" (master URLs), "Configuration" and "Dynamic Allocation".
"""

import re
from collections.abc import Callable
from typing import Final

__all__ = ["Setting", "is_local", "max_task_failures", "number", "parallel_tasks"]

Setting = Callable[[str, str | None], str | None]
"""Returns the value of a setting by its key, or the default."""

LOCAL: Final = re.compile(r"local(\[\s*[\d*]+\s*(,\s*(?P<failures>\d+)\s*)?\])?")
"""Tasks run in the driver's own JVM. `local-cluster[...]` starts processes of their own."""

TASK_FAILURES: Final = 4
SHUFFLE_PARTITIONS: Final = 200
LEAST_PARALLELISM: Final = 2


def is_local(master: str | None) -> bool:
    """Return whether tasks run in the driver's JVM, and so see its files and run its Python."""
    return LOCAL.fullmatch((master or "").strip()) is not None


def max_task_failures(get: Setting) -> int:
    """Return how many attempts Spark gives a task: one with a local master, unless its URL gives another number."""
    local = LOCAL.fullmatch((get("spark.master", None) or "").strip())
    if local is not None:
        return int(local["failures"] or 1)
    return number(get, "spark.task.maxFailures", TASK_FAILURES)


def parallel_tasks(get: Setting, live: int) -> int:
    """Return for how many tasks at once work is divided.

    An explicit `spark.default.parallelism` wins. On a local master it is the cores. A cluster may still be starting its
    executors, so those that are configured count as well as those that are live. With dynamic allocation the number of
    live executors follows from how many tasks wait: dividing work by it would keep a cluster at the size that it has.
    There `spark.sql.shuffle.partitions` says how wide a stage may become, as it does for Spark's own shuffles.

    Args:
        get: Reads a setting.
        live: Spark's own number, `SparkContext.defaultParallelism`: the cores of the executors that have registered.
    """
    explicit = number(get, "spark.default.parallelism", 0)
    if explicit:
        return explicit
    if is_local(get("spark.master", None)):
        return max(1, live)
    slots = max(1, number(get, "spark.executor.cores", 1) // max(1, number(get, "spark.task.cpus", 1)))
    executors = number(get, "spark.executor.instances", 0)
    if (get("spark.dynamicAllocation.enabled", None) or "").strip().lower() != "true":
        return max(LEAST_PARALLELISM, live, executors * slots)
    started = max(
        executors,
        number(get, "spark.dynamicAllocation.minExecutors", 0),
        number(get, "spark.dynamicAllocation.initialExecutors", 0),
    )
    width = number(get, "spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
    most = number(get, "spark.dynamicAllocation.maxExecutors", 0) * slots
    return max(LEAST_PARALLELISM, live, started * slots, min(most, width) if most else width)


def number(get: Setting, key: str, default: int) -> int:
    """Return a setting as a whole number, or the default where it is not set or not one (`infinity`)."""
    text = (get(key, None) or "").strip()
    return int(text) if text.isdecimal() else default
