"""Look for files from a worker, to check whether all machines share a local folder. Worker-safe.

Files are opened by name and never listed: a network file system may list a folder from a cache.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Sighting", "look_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one machine sees.

    Attributes:
        host: The machine's name.
        missing: The first file that it does not see; empty if it sees all.
        mark: The file that it wrote; empty if it wrote none.
        error: Why it could not write; empty if it could.
    """

    host: str
    missing: str = ""
    mark: str = ""
    error: str = ""


def look_for(files: Sequence[str], mark: str = "") -> Sighting:
    """Look for files on this machine, and write one more if all of them are there.

    A machine that misses one writes nothing: its folder is a different one, which nothing would clean up.

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
