"""How files that nothing needs are deleted. Worker-safe.

Input: a FileIO and locations. Output: those that could not be deleted; they are orphans, and harm nobody.
"""

import logging
import time
from collections.abc import Iterable

from pyiceberg.io import FileIO

from dml import limits
from dml.retry import storage_retries

__all__ = ["delete_files"]

LOG = logging.getLogger(__name__)


def delete_files(io: FileIO, locations: Iterable[str]) -> tuple[str, ...]:
    """Deletes files as well as it can.

    Args:
        io: Where they are.
        locations: The files; one that is not there counts as deleted.

    Returns:
        The locations that could not be deleted.
    """
    deadline = time.monotonic() + limits.STORAGE_RETRY_SECONDS
    return tuple(location for location in locations if not deleted(io, location, deadline))


def deleted(io: FileIO, location: str, deadline: float) -> bool:
    try:
        storage_retries(deadline)(io.delete, location)
    except FileNotFoundError:
        return True
    except Exception as error:  # noqa: BLE001 - the failure that led here is the one to report
        LOG.warning("The file '%s', which nothing needs, could not be deleted: %s", location, error)
        return False
    return True
