"""Deleting metadata files that no snapshot uses. Driver.

Input: locations. Output: nothing; a file that cannot be deleted is logged, since the commit is decided by then.
"""

import logging
from collections.abc import Iterable

from pyiceberg.io import FileIO

__all__ = ["delete_quietly"]

_LOGGER = logging.getLogger(__name__)


def delete_quietly(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files, as far as it goes.

    Args:
        io: The table's FileIO.
        locations: The files; one that is missing is fine.
    """
    for location in locations:
        try:
            io.delete(location)
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 - every storage has errors of its own, and none matters here
            _LOGGER.warning("Could not delete the unused file '%s': %s", location, error)
