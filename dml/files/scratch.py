"""Folders for temporary files, on the disks that Spark uses for its own. Driver and workers.

Output: a new folder below one of Spark's local directories; it is removed at the end of its block. The system's
temporary folder is often small, or in memory, on the machines of a cluster.

Spark gives every Python worker the local directories of its executor in `SPARK_LOCAL_DIRS`, under each cluster manager
(`BasePythonRunner` in Spark's `PythonRunner.scala`): those of `spark.local.dir`, of standalone and Kubernetes, and of
YARN's containers, which has them in `LOCAL_DIRS` too. They go when the executor ends, so that what a killed worker
leaves does not stay.
"""

import os
import tempfile
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

__all__ = ["local_folders", "scratch_folder"]

VARIABLES: Final = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")

COUNTER: Final = count()
LOCK: Final = threading.Lock()


def local_folders() -> list[str]:
    """Spark's local directories on a worker; none outside of one."""
    for variable in VARIABLES:
        found = [folder.strip() for folder in os.environ.get(variable, "").split(",") if folder.strip()]
        if found:
            return found
    return []


def scratch_folder(folders: Sequence[str] | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Make a new folder, each time on another of the disks.

    Args:
        folders: Where it may be; None for Spark's local directories on a worker. A folder that cannot be written is
            passed over, and after all of them the system's temporary folder is taken.

    Raises:
        OSError: none of them can be written.
    """
    places = local_folders() if folders is None else folders
    with LOCK:
        first = os.getpid() + next(COUNTER)  # workers are forked: each begins with another disk
    for step in range(len(places)):
        place = places[(first + step) % len(places)]
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            return new_folder(place)
        except OSError:
            continue  # a disk that has failed or is full: Spark goes on without it too
    return new_folder(None)


def new_folder(place: str | None) -> "tempfile.TemporaryDirectory[str]":
    """A new folder in a place, or in the system's temporary folder."""
    return tempfile.TemporaryDirectory(prefix="rowdelta-", dir=place, ignore_cleanup_errors=True)
