"""Write small files to S3 in one request. Worker-safe.

Input: a FileIO. Output: the same FileIO. With PyIceberg's settings for PyArrow's S3, opening a file starts a multipart
upload: three requests for a deletion vector of a few kilobytes. With `allow_delayed_open` PyArrow sends a file of one
part (10 MB) as one PUT when it is closed, and starts a multipart upload only for larger ones. FsspecFileIO always does
so.
"""

from functools import lru_cache, partial
from importlib import import_module
from typing import Any, Final

from pyiceberg.io import FileIO

__all__ = ["with_single_puts"]

MARK: Final = "rowdelta_single_puts"
RETRY_STRATEGY: Final = "s3.retry-strategy-impl"


def with_single_puts(io: FileIO) -> FileIO:
    """Make a FileIO write small files to S3 in one request.

    Args:
        io: A FileIO that no other code uses; calling this again changes nothing.

    Returns:
        The same FileIO.
    """
    open_filesystem = getattr(io, "fs_by_scheme", None)
    # FsspecFileIO caches its file systems by thread, under another method.
    if open_filesystem is not None and not hasattr(io, MARK):
        setattr(io, "fs_by_scheme", lru_cache(partial(delayed, io, open_filesystem)))  # noqa: B010 - this object alone
        setattr(io, MARK, True)
    return io


def delayed(io: FileIO, open_filesystem: Any, scheme: str, netloc: str | None = None) -> Any:
    """Return the file system of a scheme; on S3, one that opens a file only when it sends bytes."""
    found = open_filesystem(scheme, netloc)
    if found.type_name != "s3":
        return found
    # Pickling is the only public access to the options of a file system; it omits the retry strategy.
    make, (options,) = found.__reduce__()
    retries = (
        {"retry_strategy": retry_strategy(io.properties[RETRY_STRATEGY])} if RETRY_STRATEGY in io.properties else {}
    )
    return make({**options, **retries, "allow_delayed_open": True})


def retry_strategy(name: str) -> Any:
    """Return an instance of the class that a catalog names, which PyIceberg has loaded already."""
    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)()
