"""Derive task location, attempts and parallelism from Spark's master URL and settings. Driver.

Input: a master URL, or settings as `get(key, default)`. No session is needed, so code that starts one can use it.
Source: Spark documentation, "Submitting Applications" (master URLs), "Configuration" and "Dynamic Allocation".
"""

import os
import re
from collections.abc import Callable
from typing import Final

__all__ = [
    "SettingReader",
    "integer_setting",
    "is_local_master",
    "local_cores",
    "max_task_failures",
    "parallel_tasks",
    "usable_cores",
]

SettingReader = Callable[[str, str | None], str | None]
"""Returns the value of a setting by its key, or the default."""

LOCAL: Final = re.compile(r"local(\[\s*[\d*]+\s*(,\s*(?P<failures>\d+)\s*)?\])?")
"""Masters whose tasks run in the driver's JVM. `local-cluster[...]` is not one: it starts separate processes."""

TASK_FAILURES: Final = 4
SHUFFLE_PARTITIONS: Final = 200
LEAST_PARALLELISM: Final = 2


def is_local_master(master: str | None) -> bool:
    """Return True if tasks run in the driver's JVM, so they can read its local files."""
    return LOCAL.fullmatch((master or "").strip()) is not None


def max_task_failures(get: SettingReader) -> int:
    """Return how many attempts Spark gives a task: one with a local master, unless its URL gives another number."""
    local = LOCAL.fullmatch((get("spark.master", None) or "").strip())
    if local is not None:
        return int(local["failures"] or 1)
    return integer_setting(get, "spark.task.maxFailures", TASK_FAILURES)


def parallel_tasks(get: SettingReader, live: int) -> int:
    """Return how many concurrent tasks to divide work into.

    An explicit `spark.default.parallelism` takes precedence. On a local master it is the number of cores. A cluster may
    still be starting its executors, so configured executors count as well as live ones. With dynamic allocation the
    number of live executors follows from the number of waiting tasks: dividing work by it would keep a cluster at its
    current size. There `spark.sql.shuffle.partitions` limits the tasks of a stage, as it does for Spark's own shuffles.

    Args:
        get: Reads a setting.
        live: `SparkContext.defaultParallelism`: the cores of the executors that have registered.
    """
    explicit = integer_setting(get, "spark.default.parallelism", 0)
    if explicit:
        return explicit
    if is_local_master(get("spark.master", None)):
        return max(1, live)
    slots = max(
        1, integer_setting(get, "spark.executor.cores", 1) // max(1, integer_setting(get, "spark.task.cpus", 1))
    )
    executors = integer_setting(get, "spark.executor.instances", 0)
    if (get("spark.dynamicAllocation.enabled", None) or "").strip().lower() != "true":
        return max(LEAST_PARALLELISM, live, executors * slots)
    started = max(
        executors,
        integer_setting(get, "spark.dynamicAllocation.minExecutors", 0),
        integer_setting(get, "spark.dynamicAllocation.initialExecutors", 0),
    )
    width = integer_setting(get, "spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
    most = integer_setting(get, "spark.dynamicAllocation.maxExecutors", 0) * slots
    return max(LEAST_PARALLELISM, live, started * slots, min(most, width) if most else width)


def integer_setting(get: SettingReader, key: str, default: int) -> int:
    """Return a setting as an integer, or the default if it is not set or not an integer (`infinity`)."""
    text = (get(key, None) or "").strip()
    return int(text) if text.isdecimal() else default


LOCAL_CORES: Final = re.compile(r"local\[\s*(\d+)\s*[,\]]")


def local_cores(master: str) -> int:
    """Return how many tasks a local master runs at once, by Spark's rule."""
    number = LOCAL_CORES.match(master)
    if number is not None:
        return int(number[1])
    return usable_cores() if "[" in master else 1


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
