"""The FileIO through which files are written and deleted. Worker-safe.

Input: FileIO properties and locations. Output: FileIO objects, kept for the life of the process.
"""

from collections.abc import Mapping
from functools import lru_cache

from pyiceberg.io import FileIO, load_file_io

__all__ = ["file_io"]


@lru_cache(maxsize=16)
def cached_file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    """One FileIO for each storage: a new one would open new connections for every file."""
    return load_file_io(dict(properties), f"{scheme}://" if scheme else None)


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """The FileIO that writes to a location."""
    scheme, separator, _ = location.partition("://")
    return cached_file_io(tuple(sorted(properties.items())), scheme if separator else "")
