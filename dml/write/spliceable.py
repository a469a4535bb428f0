"""A Parquet file that is to be spliced: its bytes, its footer and its offset indexes. Worker.

Input: a data file. Output: what of it can be copied, or None where nothing can: all that is decided before anything is
written. Few reads: an object store answers each of them after a while.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dml.files.file_io import check_size, file_errors, file_io, open_file
from dml.model.scan_task import ScanTask
from dml.splice.footer import MAX_FOOTER_BYTES, TRAILER_BYTES, Footer, Range, footer_length
from dml.splice.pages import offset_indexes
from dml.splice.spliced_file import SplicedColumn
from dml.splice.thrift_compact import Fields

__all__ = ["OldFile", "opened", "read_offset_indexes"]

FOOTER_GUESS_BYTES: Final = 64 * 2**10
"""What is read of a file's end at once: most footers are not longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFile:
    """An open data file that is to be spliced.

    Attributes:
        task: The file.
        stream: Its bytes.
        footer: Its footer.
    """

    task: ScanTask
    stream: Any
    footer: Footer

    def read(self, start: int, length: int) -> bytes:
        """Exactly these bytes.

        Raises:
            CorruptFileError: the file ends before them.
            ExecutionError: the storage failed.
        """
        with file_errors(self.task.path):
            return read_exactly(self.stream, start, length)


def read_exactly(stream: Any, start: int, length: int) -> bytes:
    stream.seek(start)
    data = bytes(stream.read(length))
    if len(data) != length:
        raise ValueError(f"it ends at {start + len(data)}, but bytes up to {start + length} are needed")
    return data


@contextmanager
def opened(task: ScanTask, io_properties: dict[str, str]) -> Iterator[OldFile | None]:
    """A data file to be spliced; None for one that cannot be."""
    io = file_io(io_properties, task.path)
    with file_errors(task.path):
        stream = open_file(io, task.path)
    with stream:  # what goes wrong while the new file is written is not the old one's fault
        with file_errors(task.path):
            check_size(stream, task.path, task.file_size_in_bytes)
            footer = read_footer(stream, task)
        yield None if footer is None else OldFile(task=task, stream=stream, footer=footer)


def read_footer(stream: Any, task: ScanTask) -> Footer | None:
    """The footer of a file that can be spliced.

    A footer that breaks the format is for the reader to judge, which is about to read the file anyway.
    """
    size = task.file_size_in_bytes
    tail = read_exactly(stream, max(0, size - FOOTER_GUESS_BYTES), min(size, FOOTER_GUESS_BYTES))
    try:
        length = footer_length(tail[-TRAILER_BYTES:], size)
        if length > MAX_FOOTER_BYTES:
            return None
        start = size - TRAILER_BYTES - length
        missing = length + TRAILER_BYTES - len(tail)
        data = read_exactly(stream, start, missing) + tail if missing > 0 else tail[-TRAILER_BYTES - length :]
        footer = Footer.of(data[:-TRAILER_BYTES], start)
        return footer if footer.obstacle() is None and footer.rows == task.record_count else None
    except ValueError:
        return None


def read_offset_indexes(old: OldFile, columns: Iterable[SplicedColumn]) -> dict[Range, Fields] | None:
    """The offset indexes of the chunks that may be copied; None where one is broken, which readers may not mind.

    Raises:
        ExecutionError: the storage failed.
    """
    leaves = [leaf for column in columns if column.copied is not None for leaf in column.copied.leaves]
    chunks = [group.chunks[leaf] for group in old.footer.row_groups for leaf in leaves]
    with file_errors(old.task.path):
        try:
            return offset_indexes(chunks, partial(read_exactly, old.stream))
        except ValueError:
            return None
