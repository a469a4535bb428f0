"""What a failed statement leaves behind is deleted, as well as it can be. Driver.

Files of tasks that reported are known by path. Where Spark itself failed, tasks that had finished are not heard of any
more: their files are found by the statement's id, which stands in each name.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from pyarrow import fs as arrow_fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from dml.files.file_io import delete_files
from dml.files.schemes import check_location
from dml.model.write_task import WriteContext

__all__ = ["delete_late", "delete_others", "delete_uncommitted"]

LOG = logging.getLogger(__name__)

WAITS_SECONDS: Final = (0.0, 0.3, 1.0)
"""Before each look for files of a failed Spark job."""

LATE_WAITS_SECONDS: Final = (2.0, 8.0)
"""Before each further look, which nobody waits for: Spark gives a Python worker two seconds to stop."""


def delete_uncommitted(
    table: Table,
    context: WriteContext,
    paths: Collection[str] | None = None,
    *,
    waits: Sequence[float] = WAITS_SECONDS,
) -> None:
    """Delete the files of a statement that was not committed.

    Args:
        table: The table.
        context: The write.
        paths: The files, where all tasks told theirs; None looks for them.
        waits: Seconds before each look.
    """
    try:
        if paths is not None:
            delete_files(table.io, paths)
            return
        # Tasks that Spark has told to stop may still be writing: what they finish meanwhile goes with a later look.
        for wait in waits:
            time.sleep(wait)
            delete_files(table.io, list(files_named(table.io, context.data_location, context.query_id)))
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


def delete_late(table: Table, context: WriteContext) -> None:
    """Look again, beside whatever the driver does next, for files that a task finished after all.

    Spark forgets a task at once that it has told to stop; its Python worker may still have to close the file that it
    was writing.

    Args:
        table: The table.
        context: The write.
    """
    threading.Thread(
        target=delete_uncommitted,
        args=(table, context),
        kwargs={"waits": LATE_WAITS_SECONDS},
        name="rowdelta-abort",
        daemon=True,
    ).start()


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
