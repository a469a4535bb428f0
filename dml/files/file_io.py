"""The FileIO with which workers read and write, by properties that the driver sends. Worker-safe.

Input: FileIO properties and locations. Output: FileIO objects, kept for the life of the process; they take the files
that the driver's takes.
"""

from collections.abc import Mapping
from functools import lru_cache

from pyiceberg.io import FileIO, load_file_io

from dml.files.schemes import ALLOWED_SCHEMES, restricted

__all__ = ["file_io"]


@lru_cache(maxsize=16)
def _cached_file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    """One FileIO for each storage: a new one would open new connections for every file."""
    settings = dict(properties)
    io = load_file_io(settings, f"{scheme}://" if scheme else None)
    if ALLOWED_SCHEMES not in settings:
        return io
    return restricted(io, frozenset(filter(None, settings[ALLOWED_SCHEMES].split(","))))


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """The FileIO that reads and writes a location."""
    scheme, separator, _ = location.partition("://")
    return _cached_file_io(tuple(sorted(properties.items())), scheme if separator else "")
