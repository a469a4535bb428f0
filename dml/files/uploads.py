"""Small files are written to S3 by one request. Worker-safe.

Input: a FileIO. Output: the same FileIO. PyIceberg opens PyArrow's S3 so that opening a file begins a multipart upload:
three requests for a deletion vector of some kilobytes. With `allow_delayed_open` PyArrow sends what fits into one part
(10 MB) as one PUT when the file is closed, and begins a multipart upload only beyond that. FsspecFileIO does so by
itself.
"""

from functools import lru_cache, partial
from importlib import import_module
from typing import Any, Final

from pyiceberg.io import FileIO

__all__ = ["with_single_puts"]

MARK: Final = "rowdelta_single_puts"
RETRY_STRATEGY: Final = "s3.retry-strategy-impl"


def with_single_puts(io: FileIO) -> FileIO:
    """Let a FileIO write small files to S3 by one request.

    Args:
        io: A FileIO that nobody else uses; nothing changes if it does so already.
    """
    open_filesystem = getattr(io, "fs_by_scheme", None)
    # FsspecFileIO keeps its file systems by thread, and finds them by another method.
    if open_filesystem is not None and not hasattr(io, MARK):
        setattr(io, "fs_by_scheme", lru_cache(partial(delayed, io, open_filesystem)))  # noqa: B010 - this object alone
        setattr(io, MARK, True)
    return io


def delayed(io: FileIO, open_filesystem: Any, scheme: str, netloc: str | None = None) -> Any:
    """The file system of a scheme; one on S3 opens a file when its bytes are sent."""
    found = open_filesystem(scheme, netloc)
    if found.type_name != "s3":
        return found
    # Pickling is the public way to the options of a file system; it leaves the retry strategy out.
    make, (options,) = found.__reduce__()
    retries = (
        {"retry_strategy": retry_strategy(io.properties[RETRY_STRATEGY])} if RETRY_STRATEGY in io.properties else {}
    )
    return make({**options, **retries, "allow_delayed_open": True})


def retry_strategy(name: str) -> Any:
    """The strategy of a class that a catalog names, which PyIceberg has loaded already."""
    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)()
