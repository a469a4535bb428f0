"""Writes the new chunks of a spliced file, those of each column as a Parquet file of its own. Worker.

Input: record batches, row group by row group, of the columns that have new chunks there. Output: the pages of each
column as they are written, and in the end what follows them. The pages are handed on at once: only those of one row
group are in memory.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dml.options import WriteOptions
from dml.splice.footer import TRAILER_BYTES, Footer, footer_length
from dml.splice.spliced_file import ColumnFile
from dml.splice.variant_groups import annotated
from dml.write.file_layout import FileLayout
from dml.write.parquet import dictionary_columns, geometry_schema, open_parquet

__all__ = ["NewColumns", "written_footer"]


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
        layout: All columns that may have new chunks.
        options: Sizes and compression.
    """

    def __init__(self, layout: FileLayout, options: WriteOptions) -> None:
        self._layout = layout
        self._options = options
        self._schema = stored_schema(layout)
        self._files: dict[str, tuple[PageSink, pq.ParquetWriter]] = {}

    def row_group(self, batches: Sequence[pa.RecordBatch]) -> dict[str, tuple[int, bytes]]:
        """Writes a row group of some columns.

        Args:
            batches: Its rows: the columns that have new chunks there, and no others.

        Returns:
            By column: where its pages lie in its own file, and the pages.
        """
        table = pa.Table.from_batches(batches)
        if self._layout.has_geometries:
            table = table.cast(pa.schema([self._schema.field(name) for name in table.column_names]))
        repeating: list[str] | None = None
        pages = {}
        for name in table.column_names:
            if name not in self._files:
                repeating = dictionary_columns(table) if repeating is None else repeating
                self._open(name, repeating, table.num_rows)
            sink, writer = self._files[name]
            writer.write_table(table.select([name]), row_group_size=max(1, table.num_rows))
            pages[name] = sink.take()
        return pages

    def _open(self, column: str, repeating: Sequence[str], rows: int) -> None:
        sink = PageSink()
        own = {name: part for name, part in self._layout.bloom_filters.items() if is_part(name, column)}
        writer = open_parquet(
            pa.PythonFile(sink, mode="w"),
            pa.schema([self._schema.field(column)]),
            self._options,
            dictionary=[name for name in repeating if is_part(name, column)],
            footer=[],
            bloom_filters={name: {"ndv": max(1, rows), "fpp": probability} for name, probability in own.items()},
        )
        sink.take()  # the magic: pages are all that is wanted
        self._files[column] = sink, writer

    def close(self) -> dict[str, ColumnFile]:
        """Ends the columns' files.

        Returns:
            By column: what its file says of its pages.
        """
        ids = self._layout.variant_ids
        return {name: column_file(sink, writer, ids) for name, (sink, writer) in self._files.items()}

    def abort(self) -> None:
        """Gives the columns up."""
        for _, writer in self._files.values():
            writer.is_open = False  # else it would write its footer when it is collected


def stored_schema(layout: FileLayout) -> pa.Schema:
    """The columns as Arrow's Parquet writer takes them."""
    return geometry_schema(layout.columns) if layout.has_geometries else layout.arrow


def written_footer(layout: FileLayout, options: WriteOptions) -> Footer:
    """The footer of a file without rows: what types its columns would get.

    Args:
        layout: The columns.
        options: Sizes and compression.
    """
    sink = PageSink()
    schema = stored_schema(layout)
    open_parquet(pa.PythonFile(sink, mode="w"), schema, options, dictionary=False, footer=[]).close()
    data = sink.take()[1]
    length = footer_length(data[-TRAILER_BYTES:], len(data))
    start = len(data) - TRAILER_BYTES - length
    return Footer.of(annotated(data[start:-TRAILER_BYTES], layout.variant_ids), start)


def is_part(name: str, column: str) -> bool:
    """Whether a dotted name is of a column or of a field inside it."""
    return name == column or name.startswith(f"{column}.")


def column_file(sink: PageSink, writer: Any, variant_ids: frozenset[int]) -> ColumnFile:
    """The file of one column, without its pages."""
    writer.close()
    start, tail = sink.take()
    length = footer_length(tail[-TRAILER_BYTES:], sink.tell())
    end = sink.tell() - TRAILER_BYTES
    footer = Footer.of(annotated(tail[-TRAILER_BYTES - length : -TRAILER_BYTES], variant_ids), end - length)
    return ColumnFile(footer=footer, tail=tail, tail_start=start)
