"""Local folders of a cluster's machines: temporary files, and a check that machines share a folder. Driver and workers.

`scratch_folder` makes a folder in one of Spark's local directories; the end of its block removes it. The system's
temporary directory is often small, or in memory, on the machines of a cluster. Under every cluster manager Spark passes
the executor's local directories to its Python workers in `SPARK_LOCAL_DIRS` (`BasePythonRunner` in Spark's
`PythonRunner.scala`): those of `spark.local.dir`, of standalone and Kubernetes, and of YARN's containers, which also
have them in `LOCAL_DIRS`. Spark removes them when the executor ends, and with them the files of killed workers.

`look_for` looks for files from a worker, to check whether all machines share a folder. Files are opened by name and
never listed: a network file system may list a folder from a cache.
"""

import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

__all__ = ["Sighting", "local_folders", "look_for", "scratch_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The files that one machine can see.

    Attributes:
        host: The machine's name.
        missing: The first file that the machine cannot see; empty if it sees all.
        mark: The file that it wrote; empty if it wrote none.
        error: The reason why it could not write; empty if it could.
    """

    host: str
    missing: str = ""
    mark: str = ""
    error: str = ""


def look_for(files: Sequence[str], mark: str = "") -> Sighting:
    """Look for files on this machine, and write one more if all of them exist.

    A machine that misses one writes nothing: its folder is a different one, which would never be cleaned up.

    Args:
        files: Local paths.
        mark: Local path of a file to write; empty writes none.
    """
    host = socket.gethostname()
    missing = next((path for path in files if not is_seen(path)), "")
    if missing or not mark:
        return Sighting(host=host, missing=missing)
    try:
        Path(mark).write_bytes(host.encode())
    except OSError as error:
        return Sighting(host=host, error=error.strerror or str(error))
    return Sighting(host=host, mark=mark)


def is_seen(path: str) -> bool:
    try:
        with Path(path).open("rb"):
            return True
    except OSError:
        return False


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
        folders: The directories to use; None for Spark's local directories on a worker. Directories that are not
            writable are skipped; if none remains, the system's temporary directory is used.

    Raises:
        OSError: None of them is writable.
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
    return tempfile.TemporaryDirectory(prefix="rowdelta-", dir=place, ignore_cleanup_errors=True)
