"""Writes the new columns of a spliced file, each as a Parquet file of its own. Worker.

Input: record batches, row group by row group. Output: the pages of each column as they are written, and in the end what
follows them. The pages are handed on at once: only those of one row group are in memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dml.options import WriteOptions
from dml.splice.footer import TRAILER_BYTES, Footer, footer_length
from dml.splice.spliced_file import ColumnFile
from dml.write.column_metrics import NanCounter
from dml.write.file_layout import FileLayout
from dml.write.parquet import dictionary_columns, open_parquet

__all__ = ["NewColumns"]


class PageSink:
    """A file that is only written to, and keeps nothing that was taken out of it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._start = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Adds bytes."""
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._size

    def flush(self) -> None:
        """Does nothing: bytes are taken as they are."""

    def close(self) -> None:
        """Ends the file; what was not taken stays."""
        self.closed = True

    def take(self) -> tuple[int, bytes]:
        """The bytes since the last time, and where they start."""
        start, data = self._start, b"".join(self._parts)
        self._start, self._parts = self._size, []
        return start, data


class NewColumns:
    """Writes columns, each into a file of its own.

    Args:
        layout: The columns.
        options: Sizes and compression.
    """

    def __init__(self, layout: FileLayout, options: WriteOptions) -> None:
        self._layout = layout
        self._options = options
        self._nans = NanCounter(layout.leaves, layout.modes)
        self._files: dict[str, tuple[PageSink, pq.ParquetWriter]] = {}
        self.rows = 0

    @property
    def nan_counts(self) -> Mapping[int, int]:
        """NaNs so far, by field id."""
        return self._nans.counts

    def row_group(self, batches: Sequence[pa.RecordBatch]) -> dict[str, tuple[int, bytes]]:
        """Writes a row group of each column.

        Args:
            batches: Its rows.

        Returns:
            By column: where its pages lie in its own file, and the pages.
        """
        for batch in batches:
            self._nans.add(batch.columns)
        table = pa.Table.from_batches(batches, self._layout.arrow)
        self.rows += table.num_rows
        if not self._files:
            self._open(table)
        pages = {}
        for name, (sink, writer) in self._files.items():
            writer.write_table(table.select([name]), row_group_size=max(1, table.num_rows))
            pages[name] = sink.take()
        return pages

    def _open(self, first: pa.Table) -> None:
        repeating = dictionary_columns(first)
        for field in self._layout.arrow:
            sink = PageSink()
            own = {name: part for name, part in self._layout.bloom_filters.items() if is_part(name, field.name)}
            writer = open_parquet(
                pa.PythonFile(sink, mode="w"),
                pa.schema([field]),
                self._options,
                dictionary=[name for name in repeating if is_part(name, field.name)],
                footer=[],
                bloom_filters={
                    name: {"ndv": max(1, first.num_rows), "fpp": probability} for name, probability in own.items()
                },
            )
            sink.take()  # the magic: pages are all that is wanted
            self._files[field.name] = sink, writer

    def close(self) -> dict[str, ColumnFile]:
        """Ends the columns' files.

        Returns:
            By column: what its file says of its pages.
        """
        return {name: column_file(sink, writer) for name, (sink, writer) in self._files.items()}

    def abort(self) -> None:
        """Gives the columns up."""
        for _, writer in self._files.values():
            writer.is_open = False  # else it would write its footer when it is collected


def is_part(name: str, column: str) -> bool:
    """Whether a dotted name is of a column or of a field inside it."""
    return name == column or name.startswith(f"{column}.")


def column_file(sink: PageSink, writer: Any) -> ColumnFile:
    """The file of one column, without its pages."""
    writer.close()
    start, tail = sink.take()
    length = footer_length(tail[-TRAILER_BYTES:], sink.tell())
    end = sink.tell() - TRAILER_BYTES
    footer = Footer.of(tail[-TRAILER_BYTES - length : -TRAILER_BYTES], end - length)
    return ColumnFile(footer=footer, tail=tail, tail_start=start)
