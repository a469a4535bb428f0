"""What a failed statement leaves behind is deleted, as well as it can be. Driver.

Files of tasks that reported are known by path. Where Spark itself failed, tasks that had finished do not report any
more: their files are found by the statement's id, which stands in each name.
"""

import logging
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from pyarrow import fs as arrow_fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from dml.files.deletion import delete_files
from dml.files.schemes import check_location
from dml.model.write_task import WriteContext

__all__ = ["delete_others", "delete_uncommitted"]

LOG = logging.getLogger(__name__)


def delete_uncommitted(table: Table, context: WriteContext, paths: Collection[str] | None = None) -> None:
    """Delete the files of a statement that was not committed; its tasks have ended.

    Args:
        table: The table.
        context: The write.
        paths: The files, where all tasks reported theirs; None looks for them.
    """
    try:
        if paths is None:
            paths = list(files_named(table.io, context.data_location, context.query_id))
        delete_files(table.io, paths)
    except Exception as error:  # noqa: BLE001 - the failure that led here is the one to report
        LOG.warning(
            "Files of the failed statement %s may be left in %s: %s", context.query_id, context.data_location, error
        )


def delete_others(table: Table, context: WriteContext, wanted: Collection[str]) -> None:
    """Delete the files of attempts that were killed, where others have done their tasks.

    What such an attempt writes after this is an orphan.

    Args:
        table: The table.
        context: The write.
        wanted: The files of the attempts that count.
    """
    try:
        names = {location.rpartition("/")[2] for location in wanted}  # unique, where locations may be written two ways
        found = files_named(table.io, context.data_location, context.query_id)
        delete_files(table.io, [location for location in found if location.rpartition("/")[2] not in names])
    except Exception as error:  # noqa: BLE001 - the statement goes on: files that nobody needs cost little
        LOG.warning(
            "Files of failed attempts of the statement %s may be left in %s: %s",
            context.query_id,
            context.data_location,
            error,
        )


def files_named(io: FileIO, location: str, part: str) -> Iterator[str]:
    """Files below a location whose names have a part.

    Only storages that can list are asked; others keep the files until orphans are removed.

    Raises:
        NotSupportedError: the table may have no files there.
    """
    check_location(io, location)
    match io:
        case PyArrowFileIO():
            return arrow_files_named(io, location, part)
        case FsspecFileIO():
            return fsspec_files_named(io, location, part)
        case _:
            LOG.warning("Files of the failed statement %s may be left in %s: the storage cannot list", part, location)
            return iter(())


def arrow_files_named(io: PyArrowFileIO, location: str, part: str) -> Iterator[str]:
    """`files_named` where PyArrow lists."""
    scheme, netloc, path = io.parse_location(location, io.properties)
    filesystem = io.fs_by_scheme(scheme, netloc)
    selector = arrow_fs.FileSelector(path, recursive=True, allow_not_found=True)
    prefix = location[: len(location) - len(path)] if location.endswith(path) else ""
    for info in filesystem.get_file_info(selector):
        if info.type == arrow_fs.FileType.File and part in info.base_name:
            yield f"{prefix}{info.path}"


def fsspec_files_named(io: FsspecFileIO, location: str, part: str) -> Iterator[str]:
    """`files_named` where fsspec lists."""
    uri = urlsplit(location)
    filesystem = io.get_fs(uri.scheme or "file", uri.hostname)
    filesystem.invalidate_cache()  # workers have written since this process looked last
    for path in filesystem.find(location):
        if part in path.rpartition("/")[2]:
            yield filesystem.unstrip_protocol(path)
