"""Open a data or delete file by its format; Parquet and ORC files (Avro: `dml.read.avro_file`). Worker-safe.

Input: a location and a format. Output: a `DataFile`. Parquet is read a few pages at a time, ORC a stripe at a time
(Arrow has no smaller unit). Bounds come from the statistics of Parquet's row groups. Spec: "Appendix A".
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import DateType, NestedField

from dml.errors import NotSupportedError
from dml.files.file_io import check_size, file_errors, open_file
from dml.pruning.row_tests import Bounds
from dml.read.avro_file import AvroFile
from dml.read.data_file import DataFile, FileField, Piece, empty_batches, file_fields, leaf_columns

__all__ = ["ParquetFile", "open_data_file"]

UNKNOWN = Bounds()


class OrcFile:
    """An open ORC file. Its only piece is the whole file: Arrow shows neither offsets nor row counts of stripes.

    Args:
        source: The open file.
        name_mapping: Field ids for a file without any.
    """

    columnar = True

    def __init__(self, source: Any, name_mapping: NameMapping | None) -> None:
        self.file = orc.ORCFile(source)
        self.schema = self.file.schema
        self.fields = file_fields(self.schema, name_mapping)
        self.rows = self.file.nrows
        self.pieces = (Piece(index=0, start=0, first_position=0, rows=self.file.nrows),) if self.file.nrows else ()

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:  # noqa: ARG002 - the protocol of all formats
        """Return unknown bounds, because Arrow does not show the statistics of stripes."""
        return UNKNOWN

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        if not pieces:
            return
        if not columns:  # Arrow returns no rows if no column is read
            yield from empty_batches(self.file.nrows, batch_rows)
            return
        names = [self.fields[column].name for column in columns]
        for stripe in range(self.file.nstripes):
            batch = self.file.read_stripe(stripe, columns=names)
            batch = batch.select([batch.schema.get_field_index(name) for name in names])
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)


class ParquetFile:
    """An open Parquet file.

    Args:
        source: The open file.
        name_mapping: Field ids for a file without any.
        local: True for a file on this machine, which is read while it is decoded. For a remote file, the wanted columns
            of a row group are fetched at once.
    """

    columnar = True

    def __init__(self, source: Any, name_mapping: NameMapping | None, *, local: bool) -> None:
        # Page checksums are optional in Parquet; Iceberg's Java library and RowDelta write them.
        self.file = pq.ParquetFile(
            source, pre_buffer=not local, coerce_int96_timestamp_unit="us", page_checksum_verification=True
        )
        self.metadata = self.file.metadata
        self.fields = file_fields(self.file.schema_arrow, name_mapping)
        self.leaves = leaf_columns(self.fields)
        if self.leaves and self.leaves[-1].stop != self.metadata.num_columns:
            raise ValueError(f"it has {self.metadata.num_columns} physical columns, {self.leaves[-1].stop} expected")
        self.pieces = tuple(row_groups(self.metadata))
        self.rows = sum(piece.rows for piece in self.pieces)
        self.leaf_of = dict(plain_leaves(self.fields, self.leaves))

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:
        """Return bounds from a row group's statistics; unknown bounds for a column inside a list or map."""
        leaf = self.leaf_of.get(field.field_id)
        if leaf is None:
            return UNKNOWN
        column, field_type = leaf
        if pa.types.is_date(field_type) != isinstance(field.field_type, DateType):
            return UNKNOWN  # the statistics of dates promoted to timestamps are still in days
        statistics = self.metadata.row_group(piece.index).column(column).statistics
        return UNKNOWN if statistics is None else statistics_bounds(statistics, field_type, piece.rows)

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of consecutive row groups."""
        if not columns:
            for piece in pieces:
                yield from empty_batches(piece.rows, batch_rows)
            return
        ascending = sorted(set(columns))
        physical = [leaf for column in ascending for leaf in self.leaves[column]]
        order = [ascending.index(column) for column in columns]
        groups = [piece.index for piece in pieces]
        for batch in self.file.reader.iter_batches(batch_rows, groups, column_indices=physical, use_threads=False):
            yield batch if order == sorted(order) else batch.select(order)


def row_groups(metadata: Any) -> Iterator[Piece]:
    """Yield the row groups as pieces, with their first positions."""
    position = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        start = first_byte(group.column(0)) if group.num_columns else 0
        yield Piece(index=index, start=start, first_position=position, rows=group.num_rows)
        position += group.num_rows


def first_byte(column: Any) -> int:
    """Return the offset of a column chunk, which starts with its dictionary page if it has one."""
    dictionary = column.dictionary_page_offset
    offset = column.data_page_offset
    return int(min(dictionary, offset) if dictionary is not None and dictionary > 0 else offset)


def plain_leaves(
    fields: tuple[FileField, ...], leaves: Sequence[range]
) -> Iterator[tuple[int, tuple[int, pa.DataType]]]:
    """Yield field id, physical column and type of the columns outside lists and maps."""
    for field, span in zip(fields, leaves, strict=True):
        if pa.types.is_struct(field.type):
            inner = [range(span.start + part.start, span.start + part.stop) for part in leaf_columns(field.children)]
            yield from plain_leaves(field.children, inner)
        elif not field.children and field.field_id is not None:
            yield field.field_id, (span.start, field.type)


def statistics_bounds(statistics: Any, field_type: pa.DataType, rows: int) -> Bounds:
    """Return a column chunk's statistics as bounds. NaN stays possible, because Parquet does not count it."""
    floating = pa.types.is_floating(field_type)
    null_count = statistics.null_count if statistics.has_null_count else None
    lower, upper = minimum_maximum(statistics, field_type)
    return Bounds(
        lower=lower,
        upper=upper,
        nulls=null_count != 0,
        nans=floating and null_count != rows,
        values=null_count != rows,
    )


def minimum_maximum(statistics: Any, field_type: pa.DataType) -> tuple[Any, Any]:
    """Return minimum and maximum in Iceberg's internal form, or None for types whose statistics are not used."""
    if not statistics.has_min_max or not has_usable_order(field_type):
        return None, None
    if pa.types.is_temporal(field_type):
        # Numbers, because Python's dates end in the year 9999.
        micros = 1000 if pa.types.is_timestamp(field_type) and field_type.unit == "ms" else 1
        return statistics.min_raw * micros, statistics.max_raw * micros
    lower, upper = internal(statistics.min), internal(statistics.max)
    known = lower is not None and upper is not None and not is_nan(lower) and not is_nan(upper)
    return (lower, upper) if known else (None, None)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def has_usable_order(field_type: pa.DataType) -> bool:
    """Return True if Parquet orders the type as Iceberg does, and pyarrow returns its statistics as plain values."""
    kinds = pa.types
    return (
        kinds.is_boolean(field_type)
        or kinds.is_signed_integer(field_type)
        or kinds.is_floating(field_type)
        or kinds.is_string(field_type)
        or kinds.is_large_string(field_type)
        or kinds.is_date32(field_type)
        or kinds.is_decimal128(field_type)
        or (kinds.is_timestamp(field_type) and field_type.unit in {"ms", "us"})
    )


def internal(value: Any) -> Any:
    """Return a Python value in Iceberg's internal form, or None if it has no known one."""
    match value:
        case bool() | int() | float() | str() | Decimal():
            return value
        case np.generic():
            return value.item()
    return None


@contextmanager
def open_data_file(
    io: FileIO, location: str, file_format: str, name_mapping: NameMapping | None, *, size: int
) -> Iterator[DataFile]:
    """Open a file until the block ends. Errors inside the block are reported with the file's name.

    Args:
        io: The FileIO.
        location: The file.
        file_format: The format in the file's manifest.
        name_mapping: Field ids for a file without any.
        size: The size in bytes in the file's manifest.

    Raises:
        CorruptFileError: The file is missing, has another size, or breaks its format.
        NotSupportedError: The format is not one that Iceberg stores rows in.
        ExecutionError: The storage failed.
    """
    with file_errors(location, io.properties), open_file(io, location) as stream:
        check_size(stream, location, size)
        match file_format.lower():
            case "parquet":
                local = "://" not in location or location.startswith("file:")
                yield ParquetFile(stream, name_mapping, local=local)
            case "orc":
                yield OrcFile(stream, name_mapping)
            case "avro":
                yield AvroFile(stream, name_mapping)
            case _:
                raise NotSupportedError(
                    f"The file '{location}' has the format '{file_format}'",
                    hint="Rows are read from Parquet, ORC and Avro files",
                    file=location,
                )
