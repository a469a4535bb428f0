"""Lists and deletes files in the storage of a table's FileIO. Driver.

Input: a FileIO and a folder. Output: the files below it, each with its name in the storage, by which it is deleted.
A FileIO's own `delete` is unsafe here: it parses locations as URIs, so `a.parquet#1` would delete `a.parquet`, and a
star would delete many files.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import unquote, urlsplit

from pyarrow import fs as arrow_fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from dml.errors import ExecutionError, NotSupportedError
from dml.files.file_io import is_fsspec
from dml.files.schemes import check_location, reject_other_file
from dml.maintenance.orphan_choice import ListedFile, path_of

__all__ = ["RealNames", "Storage", "delete_file", "storage_of"]

LOCAL_SCHEMES: Final = frozenset({"", "file"})
# The keys of the last write time in fsspec file systems.
TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")


class Storage(Protocol):
    """A storage that lists and deletes files."""

    def kind(self, location: str) -> arrow_fs.FileType:
        """Return whether a location is a file or a folder, or does not exist."""
        ...

    def files(self, folder: str, *, follow_links: bool = False) -> Iterator[ListedFile]:
        """Yield all files below a folder, given without a trailing slash; none if it does not exist.

        Args:
            folder: The folder.
            follow_links: Include files and folders that symbolic links point to, as reading a table does.
        """
        ...

    def path(self, location: str) -> str:
        """Return the name of a file in the storage, by which it is deleted.

        Raises:
            NotSupportedError: The FileIO would access another file.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file by its name in the storage, if it exists."""
        ...


def storage_of(io: FileIO, folder: str) -> Storage:
    """Return the storage of a folder.

    Args:
        io: The table's FileIO.
        folder: A location.

    Raises:
        NotSupportedError: The FileIO cannot list files, or does not support the scheme.
    """
    check_location(io, folder)
    match io:
        case PyArrowFileIO():
            scheme, netloc, _ = io.parse_location(folder, io.properties)
            filesystem = io.fs_by_scheme(scheme, netloc)
            local = isinstance(filesystem, arrow_fs.LocalFileSystem)
            return LocalStorage() if local else ArrowStorage(io=io, filesystem=filesystem)
        case _ if is_fsspec(io):
            uri = urlsplit(folder)
            return LocalStorage() if is_local(folder) else FsspecStorage(io.get_fs(uri.scheme, uri.hostname))
        case _:
            raise NotSupportedError(
                f"The storage of '{folder}' cannot list files: its FileIO is {type(io).__name__}",
                hint="Set the catalog's property py-io-impl to pyiceberg.io.pyarrow.PyArrowFileIO",
            )


def delete_file(io: FileIO, location: str) -> None:
    """Delete a file if it exists, through the storage of its FileIO.

    Raises:
        NotSupportedError: The FileIO does not support the scheme, or would delete another file.
        Exception: The storage failed.
    """
    if isinstance(io, PyArrowFileIO) or is_fsspec(io):
        storage = storage_of(io, location)
        storage.delete(storage.path(location))
        return
    check_location(io, location)
    with suppress(FileNotFoundError):
        io.delete(location)


class RealNames:
    """Resolves symbolic links of the local file system; caches the result per folder."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def all_of(self, location: str) -> Iterator[str]:
        """Yield a location and other names of the same file.

        Args:
            location: A URI or a path.
        """
        yield location
        if is_local(location):
            path = local_path(location)
            yield self._real(path)
            if "%" in path:
                yield self._real(unquote(path))

    def of(self, location: str) -> str:
        """Return a location with links resolved; other than local locations are unchanged."""
        return self._real(local_path(location)) if is_local(location) else location

    def _real(self, path: str) -> str:
        if os.path.islink(path):  # noqa: PTH114 - a Path for each of many files takes longer than the check
            return os.path.realpath(path)
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return f"{self._folders[folder]}/{name}"


def is_local(location: str) -> bool:
    return urlsplit(location).scheme in LOCAL_SCHEMES


def local_path(location: str) -> str:
    return path_of(location) if urlsplit(location).scheme else str(Path(location).absolute())  # as PyIceberg does


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Folders of the local file system."""

    def kind(self, location: str) -> arrow_fs.FileType:
        path = Path(local_path(location))
        if path.is_file():
            return arrow_fs.FileType.File
        return arrow_fs.FileType.Directory if path.is_dir() else arrow_fs.FileType.NotFound

    def files(self, folder: str, *, follow_links: bool = False) -> Iterator[ListedFile]:
        """Yield all regular files below a folder."""
        root = local_path(folder)
        prefix = "file://" if urlsplit(folder).scheme else ""

        def raise_error(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error  # an unreadable folder must not look empty

        for place, _, names in os.walk(root, onerror=raise_error, followlinks=follow_links):
            real = f"{prefix}{os.path.realpath(place)}"
            relative = os.path.relpath(place, root)
            for name in names:
                path = Path(place, name)
                try:
                    state = path.stat(follow_symlinks=follow_links)
                except FileNotFoundError:
                    continue
                if not stat.S_ISREG(state.st_mode):
                    continue
                below = name if relative == "." else f"{relative}/{name}"
                yield ListedFile(
                    folder=folder,
                    relative=below,
                    path=str(path),
                    real_location=f"{real}/{name}",
                    modified_ms=state.st_mtime_ns // 1_000_000,
                    size=state.st_size,
                )

    def path(self, location: str) -> str:
        return local_path(location)

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ArrowStorage:
    """Storages that PyArrow supports: S3, GCS, Azure, HDFS ..."""

    io: PyArrowFileIO
    filesystem: arrow_fs.FileSystem

    def kind(self, location: str) -> arrow_fs.FileType:
        path = self.io.parse_location(location, self.io.properties)[2]
        return self.filesystem.get_file_info(path.rstrip("/")).type

    def files(self, folder: str, *, follow_links: bool = False) -> Iterator[ListedFile]:  # noqa: ARG002 - has no links
        root = self.io.parse_location(folder, self.io.properties)[2].rstrip("/")
        selector = arrow_fs.FileSelector(root, recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == arrow_fs.FileType.File:
                time = cast("datetime | None", info.mtime)
                yield listed_file(folder, root, info.path, time, info.size)

    def path(self, location: str) -> str:
        path = str(self.io.parse_location(location, self.io.properties)[2])
        reject_other_file(location, path)
        return path

    def delete(self, path: str) -> None:
        try:
            self.filesystem.delete_file(path)
        except FileNotFoundError:
            return


@dataclass(frozen=True, slots=True)
class FsspecStorage:
    """Storages that fsspec supports."""

    filesystem: Any

    def kind(self, location: str) -> arrow_fs.FileType:
        path = self.filesystem._strip_protocol(location)  # noqa: SLF001 - no public method
        self.filesystem.invalidate_cache()
        if self.filesystem.isfile(path):
            return arrow_fs.FileType.File
        return arrow_fs.FileType.Directory if self.filesystem.isdir(path) else arrow_fs.FileType.NotFound

    def files(self, folder: str, *, follow_links: bool = False) -> Iterator[ListedFile]:  # noqa: ARG002 - has no links
        root = str(self.filesystem._strip_protocol(folder)).rstrip("/")  # noqa: SLF001 - no public method
        self.filesystem.invalidate_cache()  # other processes may have written since the last listing
        for path, info in self.filesystem.find(root, detail=True).items():
            if info.get("type", "file") == "file" and not path.endswith("/"):  # an empty object may mark a folder
                yield listed_file(folder, root, path, time_of(info), info.get("size"))

    def path(self, location: str) -> str:
        return str(self.filesystem._strip_protocol(location))  # noqa: SLF001 - no public method

    def delete(self, path: str) -> None:
        try:
            self.filesystem.rm_file(path)
        except FileNotFoundError:
            return


def listed_file(folder: str, root: str, path: str, modified: datetime | None, size: int | None) -> ListedFile:
    if not path.startswith(f"{root}/"):
        raise ExecutionError(f"The storage lists '{path}' below '{root}'", file=path)  # its location cannot be derived
    relative = path[len(root) + 1 :]
    return ListedFile(
        folder=folder,
        relative=relative,
        path=path,
        real_location=f"{folder}/{relative}",
        modified_ms=None if modified is None else int(modified.timestamp() * 1000),
        size=size,
    )


def time_of(info: dict[str, Any]) -> datetime | None:
    value = next((info[name] for name in TIMES if info.get(name) is not None), None)
    match value:
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case int() | float():
            return datetime.fromtimestamp(value, UTC)
        case str():
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        case _:
            return None
