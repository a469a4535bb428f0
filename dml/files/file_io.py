"""How the files of a table are opened, and which file failed. Worker-safe.

Input: FileIO properties and locations as manifests have them. Output: FileIO objects, kept for the life of the process
(on workers they take the files that the driver's takes); open files; errors that name the file.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from dml import limits
from dml.errors import CorruptFileError, DmlError, storage_failure
from dml.files.schemes import ALLOWED_SCHEMES, restricted
from dml.files.uploads import with_single_puts

__all__ = ["check_size", "file_errors", "file_io", "open_file", "read_range"]


OBJECT_STORE_ERROR: Final = re.compile(r"\bAWS Error\b|\bgoogle::cloud\b|\bAzure\b|\bcurl")
"""Texts by which Arrow's errors of S3, Google Cloud Storage and Azure are recognized."""


@lru_cache(maxsize=limits.CACHED_FILE_IOS)
def cached_file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    """One FileIO for each storage: a new one would open new connections for every file."""
    settings = dict(properties)
    io = with_single_puts(load_file_io(settings, f"{scheme}://" if scheme else None))
    if ALLOWED_SCHEMES not in settings:
        return io
    return restricted(io, frozenset(filter(None, settings[ALLOWED_SCHEMES].split(","))))


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """The FileIO that reads and writes a location."""
    scheme, separator, _ = location.partition("://")
    return cached_file_io(tuple(sorted(properties.items())), scheme if separator else "")


def open_file(io: FileIO, location: str) -> Any:
    """An Arrow file for random access; a Python file of another FileIO is wrapped."""
    stream = io.new_input(location).open(seekable=True)
    return stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r")


def check_size(stream: Any, location: str, size: int) -> None:
    """Compares a file with what its manifest says, before anything that was read of either is believed.

    Raises:
        CorruptFileError: the file is longer or shorter.
    """
    found = stream.size()
    if found != size:
        raise CorruptFileError(
            f"The file '{location}' has {found} bytes, but its manifest says {size}",
            hint="It was cut short or replaced: restore it, or go back to a snapshot from before it was written",
            file=location,
        )


def read_range(io: FileIO, location: str, offset: int, length: int, *, size: int) -> bytes:
    """Exactly these bytes of a file.

    Args:
        io: The FileIO.
        location: The file.
        offset: Where they start.
        length: How many; all lie within the size.
        size: That of the file, as its manifest says.

    Raises:
        CorruptFileError: the file has another size.
        ExecutionError: the storage failed.
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
    """Turn exceptions inside the block into an error that names the file.

    Args:
        location: The file.
        io_properties: The properties of the FileIO that reads it, if the block opens it.

    Raises:
        CorruptFileError: the file is not there, or its content breaks its format.
        ExecutionError: the storage failed.
    """
    try:
        yield
    except DmlError:
        raise
    except FileNotFoundError as error:
        raise CorruptFileError(
            f"The table refers to the file '{location}', which is not there",
            hint="Restore the file, or remove it from the table's metadata",
            file=location,
        ) from error
    except OSError as error:
        # Arrow reports a broken file as an OSError too. An errno, or the name of an object store's client in the text,
        # indicates a failure of the storage.
        if error.errno is not None or OBJECT_STORE_ERROR.search(str(error)):
            raise storage_failure("Reading the file", location, error, io_properties) from error
        raise broken(location, error) from error
    except (pa.ArrowException, ValueError, EOFError, IndexError, KeyError, OverflowError) as error:
        raise broken(location, error) from error


def broken(location: str, error: Exception) -> CorruptFileError:
    """The error for a file that breaks its format."""
    reason = str(error).split("\n", 1)[0]
    return CorruptFileError(
        f"The file '{location}' cannot be read: {reason}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=location,
    )
