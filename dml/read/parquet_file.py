"""Parquet data files. Worker-safe.

Input: an open file. Output: record batches, a few pages at a time, and bounds from row group statistics.
Spec: "Appendix A", Parquet.
"""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import DateType, NestedField

from dml.pruning.row_tests import Bounds
from dml.read.data_file import FileField, Piece, empty_batches, file_fields, leaf_columns

__all__ = ["ParquetFile"]

UNKNOWN = Bounds()


class ParquetFile:
    """An open Parquet file.

    Args:
        source: The open file.
        name_mapping: Ids for files that have none.
        local: Whether it is on this machine: then it is read as it is decoded; else a row group's wanted columns
            are fetched at once.
    """

    columnar = True

    def __init__(self, source: Any, name_mapping: NameMapping | None, *, local: bool) -> None:
        # Writers may leave the checksums of pages out; Iceberg's Java library and RowDelta do not.
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
        """What the row group's statistics say of a column; nothing of one inside a list or map."""
        leaf = self.leaf_of.get(field.field_id)
        if leaf is None:
            return UNKNOWN
        column, field_type = leaf
        if pa.types.is_date(field_type) != isinstance(field.field_type, DateType):
            return UNKNOWN  # dates that were promoted to timestamps are still counted in days
        statistics = self.metadata.row_group(piece.index).column(column).statistics
        return UNKNOWN if statistics is None else statistics_bounds(statistics, field_type, piece.rows)

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of consecutive row groups."""
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
    """The row groups with the positions of their rows."""
    position = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        start = first_byte(group.column(0)) if group.num_columns else 0
        yield Piece(index=index, start=start, first_position=position, rows=group.num_rows)
        position += group.num_rows


def first_byte(column: Any) -> int:
    """Where a column chunk starts: at its dictionary, if it has one."""
    dictionary = column.dictionary_page_offset
    offset = column.data_page_offset
    return int(min(dictionary, offset) if dictionary is not None and dictionary > 0 else offset)


def plain_leaves(
    fields: tuple[FileField, ...], leaves: Sequence[range]
) -> Iterator[tuple[int, tuple[int, pa.DataType]]]:
    """Field id, physical column and type of the columns that stand in no list or map."""
    for field, span in zip(fields, leaves, strict=True):
        if pa.types.is_struct(field.type):
            inner = [range(span.start + part.start, span.start + part.stop) for part in leaf_columns(field.children)]
            yield from plain_leaves(field.children, inner)
        elif not field.children and field.field_id is not None:
            yield field.field_id, (span.start, field.type)


def statistics_bounds(statistics: Any, field_type: pa.DataType, rows: int) -> Bounds:
    """A column chunk's statistics as bounds; NaN is never ruled out, as Parquet does not count it."""
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
    """Least and greatest value in Iceberg's internal form; None for types whose statistics are not used."""
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
    """Whether a bound is NaN, which bounds nothing."""
    return isinstance(value, float) and math.isnan(value)


def has_usable_order(field_type: pa.DataType) -> bool:
    """Whether Parquet's order of the type is Iceberg's, and pyarrow gives its statistics as plain values."""
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
    """A Python value as Iceberg holds it; None where that is not known."""
    match value:
        case bool() | int() | float() | str() | Decimal():
            return value
        case np.generic():
            return value.item()
    return None
