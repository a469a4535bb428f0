"""Open, read and delete the files of a table, with errors that name the file. Worker-safe.

Input: FileIO properties and locations from manifests. Output: FileIO objects, cached for the life of the process
(on workers they accept the same files as on the driver); open files; errors that name the file. Files that cannot be
deleted are returned: they are harmless orphans.

With PyIceberg's settings for PyArrow's S3, opening a file starts a multipart upload: three requests for a deletion
vector of a few kilobytes. With `allow_delayed_open` PyArrow sends a file of one part (10 MB) as one PUT when it is
closed, and starts a multipart upload only for larger ones. FsspecFileIO always does so.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from dml import limits
from dml.errors import CorruptFileError, DmlError, storage_failure
from dml.files.schemes import ALLOWED_SCHEMES, restrict_schemes
from dml.lazy_imports import loaded_class
from dml.retry import storage_retries

if TYPE_CHECKING:
    from pyiceberg.io.fsspec import FsspecFileIO

__all__ = [
    "check_size",
    "delete_files",
    "file_errors",
    "file_io",
    "is_fsspec",
    "open_file",
    "read_range",
    "with_single_puts",
]

MARK: Final = "rowdelta_single_puts"
RETRY_STRATEGY: Final = "s3.retry-strategy-impl"


def with_single_puts(io: FileIO) -> FileIO:
    """Make a FileIO write small files to S3 in one request.

    Args:
        io: A FileIO that no other code uses; calling this twice has no further effect.

    Returns:
        The same FileIO.
    """
    open_filesystem = getattr(io, "fs_by_scheme", None)
    # FsspecFileIO caches its file systems by thread, under another method.
    if open_filesystem is not None and not hasattr(io, MARK):
        setattr(io, "fs_by_scheme", lru_cache(partial(delayed_filesystem, io, open_filesystem)))  # noqa: B010 - this object alone
        setattr(io, MARK, True)
    return io


def is_fsspec(io: FileIO) -> "TypeGuard[FsspecFileIO]":
    """Return True for a FileIO over fsspec, whose module loads an HTTP client and is imported only if it is used."""
    return isinstance(io, loaded_class("pyiceberg.io.fsspec", "FsspecFileIO"))


def delayed_filesystem(io: FileIO, open_filesystem: Any, scheme: str, netloc: str | None = None) -> Any:
    """Return the file system of a scheme. On S3, it opens a file only when it sends bytes."""
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
    """Return an instance of the class that a catalog names, which PyIceberg has already loaded."""
    module, _, kind = name.rpartition(".")
    return getattr(import_module(module), kind)()


LOG = logging.getLogger(__name__)


def delete_files(io: FileIO, locations: Iterable[str]) -> tuple[str, ...]:
    """Delete files, and continue after failures.

    Args:
        io: The FileIO.
        locations: The files; missing ones count as deleted.

    Returns:
        The locations that could not be deleted.
    """
    deadline = time.monotonic() + limits.STORAGE_RETRY_SECONDS
    return tuple(location for location in locations if not delete_one(io, location, deadline))


def delete_one(io: FileIO, location: str, deadline: float) -> bool:
    try:
        storage_retries(deadline)(io.delete, location)
    except FileNotFoundError:
        return True
    except Exception as error:  # noqa: BLE001 - it must not replace the error that led to the cleanup
        LOG.warning("The orphaned file '%s' could not be deleted: %s", location, error)
        return False
    return True


OBJECT_STORE_ERROR: Final = re.compile(r"\bAWS Error\b|\bgoogle::cloud\b|\bAzure\b|\bcurl")
"""Recognizes Arrow's errors of S3, Google Cloud Storage and Azure."""


@lru_cache(maxsize=limits.CACHED_FILE_IOS)
def cached_file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    """Return one FileIO per storage: a new one would open new connections for every file."""
    settings = dict(properties)
    listed = settings.get(ALLOWED_SCHEMES)
    allowed = None if listed is None else frozenset(filter(None, listed.split(",")))
    is_loaded = scheme and (allowed is None or scheme in allowed)  # PyIceberg warns about unknown schemes
    io = with_single_puts(load_file_io(settings, f"{scheme}://" if is_loaded else None))
    return io if allowed is None else restrict_schemes(io, allowed)


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the FileIO that reads and writes a location."""
    scheme, separator, _ = location.partition("://")
    return cached_file_io(tuple(sorted(properties.items())), scheme if separator else "")


def open_file(io: FileIO, location: str) -> Any:
    """Open an Arrow file for random access. Python files of other FileIOs are wrapped."""
    stream = io.new_input(location).open(seekable=True)
    return stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r")


def check_size(stream: Any, location: str, size: int) -> None:
    """Check a file's size against its manifest, before either is trusted.

    Raises:
        CorruptFileError: The file is longer or shorter.
    """
    found = stream.size()
    if found != size:
        raise CorruptFileError(
            f"The file '{location}' has {found} bytes, but its manifest records {size}",
            hint="It was cut short or replaced: restore it, or go back to a snapshot from before it was written",
            file=location,
        )


def read_range(io: FileIO, location: str, offset: int, length: int, *, size: int) -> bytes:
    """Read exactly this range of a file.

    Args:
        io: The FileIO.
        location: The file.
        offset: The offset of the first byte.
        length: The number of bytes; the range lies within the size.
        size: The file's size in its manifest.

    Raises:
        CorruptFileError: The file has another size.
        ExecutionError: The storage failed.
    """
    with file_errors(location, io.properties), open_file(io, location) as stream:
        check_size(stream, location, size)
        stream.seek(offset)
        data = bytes(stream.read(length))
        if len(data) != length:
            raise CorruptFileError(
                f"The file '{location}' ends at {offset + len(data)}, but bytes up to {offset + length} are needed",
                hint="It was cut short: restore it, or go back to a snapshot from before it was written",
                file=location,
            )
        return data


@contextmanager
def file_errors(location: str, io_properties: Mapping[str, str] | None = None) -> Iterator[None]:
    """Convert exceptions inside the block into an error that names the file.

    Args:
        location: The file.
        io_properties: The properties of the FileIO that reads it, if the block opens it.

    Raises:
        CorruptFileError: The file is missing or breaks its format.
        ExecutionError: The storage failed.
    """
    try:
        yield
    except DmlError:
        raise
    except FileNotFoundError as error:
        raise CorruptFileError(
            f"The table refers to the file '{location}', which does not exist",
            hint="Restore the file, or remove it from the table's metadata",
            file=location,
        ) from error
    except OSError as error:
        # Arrow reports a broken file as an OSError too. An errno, or the name of an object store's client in the text,
        # indicates a failure of the storage.
        if error.errno is not None or OBJECT_STORE_ERROR.search(str(error)):
            raise storage_failure("Reading the file", location, error, io_properties) from error
        raise broken_file_error(location, error) from error
    except (pa.ArrowException, ValueError, EOFError, IndexError, KeyError, OverflowError) as error:
        raise broken_file_error(location, error) from error


def broken_file_error(location: str, error: Exception) -> CorruptFileError:
    """Return the error for a file that breaks its format."""
    reason = str(error).split("\n", 1)[0]
    return CorruptFileError(
        f"The file '{location}' cannot be read: {reason}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=location,
    )
