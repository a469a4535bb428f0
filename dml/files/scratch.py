"""Make folders for temporary files on the disks that Spark uses for its own. Driver and workers.

Output: a new folder in one of Spark's local directories; the end of its block removes it. The system's temporary
directory is often small, or in memory, on the machines of a cluster.

Under every cluster manager Spark passes the executor's local directories to its Python workers in `SPARK_LOCAL_DIRS`
(`BasePythonRunner` in Spark's `PythonRunner.scala`): those of `spark.local.dir`, of standalone and Kubernetes, and of
YARN's containers, which also have them in `LOCAL_DIRS`. Spark removes them when the executor ends, and with them the
files of killed workers.
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
    """Return Spark's local directories on a worker; none in other processes."""
    for variable in VARIABLES:
        found = [folder.strip() for folder in os.environ.get(variable, "").split(",") if folder.strip()]
        if found:
            return found
    return []


def scratch_folder(folders: Sequence[str] | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Make a new folder, on each of the disks in turn.

    Args:
        folders: The directories to use; None for Spark's local directories on a worker. Directories that cannot be
            written are skipped; if none is left, the system's temporary directory is used.

    Raises:
        OSError: none of them can be written.
    """
    places = local_folders() if folders is None else folders
    with LOCK:
        first = os.getpid() + next(COUNTER)  # workers are forked: each starts with a different disk
    for step in range(len(places)):
        place = places[(first + step) % len(places)]
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            return new_folder(place)
        except OSError:
            continue  # a failed or full disk: Spark skips it too
    return new_folder(None)


def new_folder(place: str | None) -> "tempfile.TemporaryDirectory[str]":
    """Make a new folder in a directory; None for the system's temporary directory."""
    return tempfile.TemporaryDirectory(prefix="rowdelta-", dir=place, ignore_cleanup_errors=True)
