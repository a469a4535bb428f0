"""The column `readable_metrics`: sizes, counts and bounds of each column, as values of its type. Worker-safe.

Input: the metric maps of many files, concatenated as in the manifest. Output: a struct array. Metrics are converted
column by column for all files at once, because a column has one type.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)

from dml.manifests.entries import EvenMaps, RaggedMaps
from dml.metadata_tables.values import value_array
from dml.read.projection import arrow_type

__all__ = ["METRIC_IDS", "readable_metrics"]

METRIC_IDS: Final = (108, 109, 110, 137, 125, 128)
"""The field ids of the source maps, in the order of `NAMES`: sizes, counts of values, nulls and NaNs, bounds."""

NAMES: Final = ("column_size", "value_count", "null_value_count", "nan_value_count", "lower_bound", "upper_bound")

FIXED_WIDTHS: Final[dict[type[PrimitiveType], str]] = {
    IntegerType: "<i4",
    DateType: "<i4",
    LongType: "<i8",
    TimestampType: "<i8",
    TimestamptzType: "<i8",
    FloatType: "<f4",
    DoubleType: "<f8",
}
"""Types whose bounds have a fixed width."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ByColumn:
    """The pairs of the maps of many files, sorted by column.

    Attributes:
        keys: The column id of each pair, ascending.
        rows: The index of each pair's file.
        values: The counts or bounds.
    """

    keys: npt.NDArray[np.int32]
    rows: Positions
    values: pa.Array

    @staticmethod
    def of(maps: RaggedMaps | EvenMaps) -> "ByColumn":
        """Sort the pairs."""
        sizes, keys = maps.sizes_and_keys()
        order = np.argsort(keys, kind="stable")
        return ByColumn(keys[order], np.repeat(np.arange(len(sizes)), sizes)[order], maps.values.take(pa.array(order)))

    def of_column(self, field_id: int) -> tuple[Positions, pa.Array]:
        """Return the files that have a value for a column, and those values."""
        first, last = np.searchsorted(self.keys, [field_id, field_id + 1])
        return self.rows[first:last], self.values.slice(first, last - first)


def readable_metrics(
    columns: Sequence[NestedField], maps: Mapping[int, RaggedMaps | EvenMaps], rows: int
) -> pa.StructArray:
    """Build the column for a batch of files.

    Args:
        columns: The table's columns that have metrics, by full name.
        maps: The files' metrics, by the ids in `METRIC_IDS`.
        rows: The number of files.
    """
    ordered = [ByColumn.of(maps[field_id]) for field_id in METRIC_IDS]
    children = [column_metrics(column, ordered, rows) for column in columns]
    if not children:
        return pa.array([{}] * rows, pa.struct([]))
    return pa.StructArray.from_arrays(children, names=[column.name for column in columns])


def column_metrics(column: NestedField, ordered: list[ByColumn], rows: int) -> pa.StructArray:
    """Build the metrics struct of one column."""
    assert isinstance(column.field_type, PrimitiveType)
    children = []
    for place, by_column in enumerate(ordered):
        files, values = by_column.of_column(column.field_id)
        typed = values if place < 4 else bound_values(values, column.field_type)
        children.append(scatter(typed, files, rows))
    return pa.StructArray.from_arrays(children, names=list(NAMES))


def scatter(values: pa.Array, files: Positions, rows: int) -> pa.Array:
    """Place values at the indices of their files; null elsewhere."""
    if len(values) == rows and np.array_equal(files, np.arange(rows)):
        return values
    places = np.full(rows, -1, np.int64)
    places[files] = np.arange(len(values))
    return values.take(pa.array(places, mask=places < 0))


def bound_values(bounds: pa.Array, kind: PrimitiveType) -> pa.Array:
    """Deserialize bounds; invalid bytes become null. Spec: "Appendix D"."""
    target = arrow_type(kind, spark=True)
    if isinstance(kind, BinaryType | FixedType):
        return bounds.cast(target)
    if isinstance(kind, BooleanType):
        return pa.array([bool(value[0]) if len(value) == 1 else None for value in bounds.to_pylist()], target)
    layout = FIXED_WIDTHS.get(type(kind))
    if layout is not None:
        numbers = fixed_width(bounds, np.dtype(layout))
        if numbers is not None:
            return pa.array(numbers).view(target)
    return value_array([bound_value(value, kind) for value in bounds.to_pylist()], kind)


def bound_value(value: bytes, kind: PrimitiveType) -> Any:
    """Deserialize a bound, or return None for invalid bytes: readers can do without metrics."""
    try:
        return from_bytes(kind, value)
    except (struct.error, ValueError, ArithmeticError, TypeError):
        return None


def fixed_width(bounds: pa.Array, layout: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """Return the bounds as numbers, or None if widths differ: a promoted column may have shorter bounds."""
    if not len(bounds):
        return np.array([], layout)
    _, offset_buffer, data = bounds.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(bounds) + 1, bounds.offset * 8)
    if not np.all(np.diff(offsets) == layout.itemsize):
        return None
    return np.frombuffer(data, layout, len(bounds), offsets[0])
