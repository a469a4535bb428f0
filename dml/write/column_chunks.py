"""Encode the new column chunks of a spliced file. Worker.

Each column is written to a Parquet file of its own, in memory. Input: record batches of the columns with new chunks,
one row group at a time. Output: the pages of each column after each row group, and at the end its footer. Only the
pages of one row group are in memory.
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
    """A write-only file in memory. `take` removes the bytes that were written so far."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._start = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written, including those that were taken."""
        return self._size

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Close the file. Bytes that were not taken stay."""
        self.closed = True

    def take(self) -> tuple[int, bytes]:
        """Return the offset of the bytes since the last call, and these bytes."""
        start, data = self._start, b"".join(self._parts)
        self._start, self._parts = self._size, []
        return start, data


class NewColumns:
    """Writes each column to a Parquet file of its own.

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
        """Write a row group of some columns.

        Args:
            batches: The rows, with exactly the columns that have new chunks in this row group.

        Returns:
            By column: the offset of its pages in its own file, and the pages.
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
        sink.take()  # Parquet's magic bytes
        self._files[column] = sink, writer

    def close(self) -> dict[str, ColumnFile]:
        """Close the files of all columns.

        Returns:
            By column: its footer, and the bytes after its pages.
        """
        ids = self._layout.variant_ids
        return {name: column_file(sink, writer, ids) for name, (sink, writer) in self._files.items()}

    def abort(self) -> None:
        """Drop the columns."""
        for _, writer in self._files.values():
            writer.is_open = False  # an open one writes its footer when it is garbage-collected


def stored_schema(layout: FileLayout) -> pa.Schema:
    """Return the schema for Arrow's Parquet writer."""
    return geometry_schema(layout.columns) if layout.has_geometries else layout.arrow


def written_footer(layout: FileLayout, options: WriteOptions) -> Footer:
    """Return the footer of a file without rows, which has the physical types of the columns.

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
    """Return whether a dotted name is a column or a field inside it."""
    return name == column or name.startswith(f"{column}.")


def column_file(sink: PageSink, writer: Any, variant_ids: frozenset[int]) -> ColumnFile:
    """Close the file of a column, and return its footer and the bytes after its pages."""
    writer.close()
    start, tail = sink.take()
    length = footer_length(tail[-TRAILER_BYTES:], sink.tell())
    end = sink.tell() - TRAILER_BYTES
    footer = Footer.of(annotated(tail[-TRAILER_BYTES - length : -TRAILER_BYTES], variant_ids), end - length)
    return ColumnFile(footer=footer, tail=tail, tail_start=start)
