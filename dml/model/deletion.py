"""Deletes what nothing needs any more: files of a failed task, of a failed commit, of a lost attempt. Worker-safe.

Input: locations. Output: none; a file that cannot be deleted is logged, for the first failure is the one to report.
Source: Iceberg's `SparkCleanupUtil` (three retries, growing waits, missing files are fine).
"""

import logging
import time
from collections.abc import Iterable

from pyiceberg.io import FileIO

__all__ = ["delete_files"]

LOG = logging.getLogger(__name__)

RETRIES = 3
FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 30.0
MAX_TOTAL_SECONDS = 120.0


def delete_files(io: FileIO, locations: Iterable[str]) -> tuple[str, ...]:
    """Deletes files as well as it can.

    Args:
        io: Where they are.
        locations: The files; one that is not there counts as deleted.

    Returns:
        The locations that could not be deleted.
    """
    deadline = time.monotonic() + MAX_TOTAL_SECONDS
    return tuple(location for location in locations if not deleted(io, location, deadline))


def deleted(io: FileIO, location: str, deadline: float) -> bool:
    wait = FIRST_WAIT_SECONDS
    for attempt in range(RETRIES + 1):
        try:
            io.delete(location)
        except FileNotFoundError:
            return True
        except Exception as error:  # noqa: BLE001 - the failure that led here is the one to report
            if attempt == RETRIES or time.monotonic() + wait > deadline:
                LOG.warning("The file '%s', which nothing needs, could not be deleted: %s", location, error)
                return False
            time.sleep(wait)
            wait = min(wait * 2, MAX_WAIT_SECONDS)
        else:
            return True
    return False
