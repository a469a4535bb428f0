"""The rows of a MERGE's source in files of the driver's machine, on which the tasks run. Worker, and driver.

Input: the rows, task by task. Output: an Arrow file for each task; of these one file of one batch, which tasks and
driver map into their memory. So they come into the heap of no JVM, however many there turn out to be.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PART_SCHEMA", "MappedBatch", "PartWriter", "mapped_columns"]

PART_SCHEMA: Final = pa.schema([pa.field("path", pa.string()), pa.field("fits", pa.bool_())])

FULL: Final = "full"
"""A file of this name says that a task found too much: the others need not go on."""


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """A batch in a file.

    Attributes:
        path: An Arrow file of one batch.
    """

    path: str

    def batch(self) -> pa.RecordBatch:
        """The batch, mapped into memory."""
        return pa.ipc.open_file(pa.memory_map(self.path)).get_batch(0)

    @staticmethod
    def write(path: str, batch: pa.RecordBatch) -> "MappedBatch":
        """Write a batch.

        Raises:
            OSError: there is no room for it.
        """
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
            file.write_batch(batch)
        return MappedBatch(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWriter:
    """What each task runs. It can be pickled.

    Attributes:
        folder: Where files are written.
        most_bytes: So many all tasks may write, about: each looks before it writes a batch.
        fits: The column that says whether a row is short enough; it is not written. Empty for none.
    """

    folder: str
    most_bytes: int
    fits: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row of `PART_SCHEMA`: the file, if there are rows, and whether it has all of them."""
        path, fits = f"{self.folder}/{uuid.uuid4()}.arrow", True
        rows = 0
        with ExitStack() as stack:
            file: pa.RecordBatchFileWriter | None = None
            for batch in batches:
                fits = self.has_room(batch)
                if not fits:
                    Path(self.folder, FULL).touch()
                    break
                part = batch.drop_columns([self.fits]) if self.fits else batch
                if file is None:
                    sink = stack.enter_context(pa.OSFile(path, "wb"))
                    file = stack.enter_context(pa.ipc.new_file(sink, part.schema))
                file.write_batch(part)
                rows += part.num_rows
        yield pa.record_batch([pa.array([path if rows else ""]), pa.array([fits])], schema=PART_SCHEMA)

    def has_room(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch may be written, as far as this task knows."""
        if self.fits and not pc.all(batch.column(self.fits), min_count=0).as_py():
            return False
        with os.scandir(self.folder) as entries:
            written = {entry.name: entry.stat().st_size for entry in entries}
        return FULL not in written and sum(written.values()) + batch.nbytes <= self.most_bytes


def mapped_columns(paths: Iterable[str]) -> list[pa.ChunkedArray]:
    """The columns of some parts, mapped into memory; none where there is no part.

    Args:
        paths: Of the files.
    """
    parts = [pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths]
    columns: list[pa.ChunkedArray] = pa.concat_tables(parts).columns if parts else []
    return columns
