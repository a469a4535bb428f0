"""Bounds from a table's metadata: partition summaries, partition tuples and column metrics. Driver.

Input: a manifest list entry, a partition tuple, a data file's entry. Output: `Bounds` by field id.
Spec: "Manifest Lists", "Manifests", "Appendix D" on serialized values.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.model.manifest import ContentFile, PartitionSummary
from dml.pruning.row_tests import Bounds, BoundsOf, ColumnBounds

__all__ = [
    "MetricColumn",
    "file_bounds",
    "in_byte_order",
    "may_meet",
    "metric_columns",
    "partition_bounds",
    "summary_bounds",
]

UNKNOWN = Bounds()
UUID_BYTES: Final = 16

ORDERED = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimeType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

FIXED: Final[dict[type[IcebergType], np.dtype[Any]]] = {
    DateType: np.dtype("<i4"),
    DoubleType: np.dtype("<f8"),
    FloatType: np.dtype("<f4"),
    IntegerType: np.dtype("<i4"),
    LongType: np.dtype("<i8"),
    TimeType: np.dtype("<i8"),
    TimestampNanoType: np.dtype("<i8"),
    TimestampType: np.dtype("<i8"),
    TimestamptzNanoType: np.dtype("<i8"),
    TimestamptzType: np.dtype("<i8"),
}
"""Types whose bounds are numbers of one size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricColumn:
    """Decodes the metrics of a column; built once for all files.

    Attributes:
        is_floating: True if its type has NaN.
        is_nested: True for a field of a struct.
        is_uuid: True if both bounds must be interpreted together: see `in_byte_order`.
        fixed: The memory layout of its serialized bounds, if they are numbers of one size.
        decode: Decodes a serialized bound; returns None if it is missing, NaN, or not of the column's type (for
            example of an older schema's type).
    """

    is_floating: bool
    is_nested: bool
    is_uuid: bool
    fixed: np.dtype[Any] | None
    decode: Callable[[bytes | None], Any]

    @staticmethod
    def of(field_type: PrimitiveType, *, is_nested: bool = False) -> "MetricColumn":
        """Return the decoder for a type."""
        is_floating = isinstance(field_type, (FloatType, DoubleType))
        return MetricColumn(
            is_floating=is_floating,
            is_nested=is_nested,
            is_uuid=isinstance(field_type, UUIDType),
            fixed=FIXED.get(type(field_type)),
            decode=decoder(field_type),
        )

    def ends(self, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any]:
        """Return both serialized bounds as values, in the order by which predicates compare."""
        found = self.decode(lower), self.decode(upper)
        return in_byte_order(*found) if self.is_uuid else found


def metric_columns(schema: Schema) -> dict[int, MetricColumn]:
    """Return the decoders of a schema's columns and nested fields of primitive types, by field id."""
    types = {field_id: schema.find_type(field_id) for field_id in schema.field_ids}
    columns = {field.field_id for field in schema.fields}
    return {
        field_id: MetricColumn.of(found, is_nested=field_id not in columns)
        for field_id, found in types.items()
        if isinstance(found, PrimitiveType)
    }


def decoder(field_type: PrimitiveType) -> Callable[[bytes | None], Any]:
    """Return a function that decodes the serialized bounds of a type, without NaN; always None for unordered types."""
    if not isinstance(field_type, ORDERED):
        return lambda _: None
    # Dispatch on the type once instead of for each value.
    convert: Callable[[PrimitiveType, bytes], Any] = from_bytes.dispatch(type(field_type))

    def decode(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            value: Any = convert(field_type, data)
        except (struct.error, ValueError):
            return None
        if isinstance(value, UUID):
            return value.bytes
        return None if isinstance(value, float) and math.isnan(value) else value

    return decode


def in_byte_order(lower: bytes | None, upper: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Convert bounds of UUIDs to bounds in byte order, whichever order their writer used; None if there is no bound.

    The specification orders UUIDs by their bytes, Iceberg's Java library as two signed numbers of 8 bytes. The two
    orders agree on the first halves if these have the same sign, and may disagree on the second halves.
    """
    if lower is None or upper is None or len(lower) != len(upper) or len(lower) != UUID_BYTES:
        return None, None
    signs = lower[0] >> 7, upper[0] >> 7
    if lower == upper or signs == (0, 1):  # the latter descends as signed numbers
        return lower, upper
    if signs == (1, 0):
        return None, None
    return lower[:8] + bytes(8), upper[:8] + b"\xff" * 8


def file_bounds(
    file: ContentFile, columns: Mapping[int, MetricColumn], identity: Mapping[int, ColumnBounds] | None = None
) -> BoundsOf:
    """Return the bounds of a data file's columns from its metrics.

    Args:
        file: The data file.
        columns: By field id.
        identity: The columns that the file's partition fixes to one value. They take precedence over metrics.
    """
    known: dict[int, ColumnBounds] = dict(identity) if identity else {}

    def bounds_of(field_id: int) -> ColumnBounds:
        # Cached: a filter may name a column several times.
        if field_id not in known:
            column = columns.get(field_id)
            known[field_id] = UNKNOWN if column is None else MetricBounds(file, field_id, column)
        return known[field_id]

    return bounds_of


@dataclass(frozen=True, slots=True)
class MetricBounds:
    """`ColumnBounds` from a data file's metrics of one column, decoded on demand.

    Attributes:
        field_id: The column.
        column: The decoder of its metrics.
    """

    file: ContentFile
    field_id: int
    column: MetricColumn

    @property
    def lower(self) -> Any:
        """A lower bound of the values; None if unknown."""
        if self.column.is_uuid:
            return self._ends[0]
        return self.column.decode(self.file.lower_bounds.get(self.field_id))

    @property
    def upper(self) -> Any:
        """An upper bound of the values; None if unknown."""
        if self.column.is_uuid:
            return self._ends[1]
        return self.column.decode(self.file.upper_bounds.get(self.field_id))

    @property
    def nulls(self) -> bool:
        """True if there may be NULLs."""
        # Iceberg's Java library does not count all fields of a struct in the rows in which the struct is NULL: floats
        # in Parquet files, and any in ORC files.
        all_counted = not self.column.is_nested or self.file.value_counts.get(self.field_id) == self.file.record_count
        return not all_counted or self.file.null_value_counts.get(self.field_id) != 0

    @property
    def nans(self) -> bool:
        """True if there may be NaNs."""
        return self.column.is_floating and self._nan_count != 0 and not self._only(0)

    @property
    def values(self) -> bool:
        """True if there may be values other than NULL and NaN."""
        return not self._only(self._nan_count or 0)

    @property
    def _ends(self) -> tuple[Any, Any]:
        return self.column.ends(self.file.lower_bounds.get(self.field_id), self.file.upper_bounds.get(self.field_id))

    @property
    def _nan_count(self) -> int | None:
        return self.file.nan_value_counts.get(self.field_id) if self.column.is_floating else 0

    def _only(self, nans: int) -> bool:
        """Return whether all values are NULLs or one of `nans` NaNs."""
        count = self.file.value_counts.get(self.field_id, 0)
        nulls = self.file.null_value_counts.get(self.field_id, 0)
        # Some writers store -1 for unknown counts.
        return count > 0 and nulls >= 0 and count == nulls + nans


def may_meet(one: ColumnBounds, other: ColumnBounds) -> bool:
    """Return whether two sets of rows may have a value in common, where NULL equals NULL and NaN equals NaN."""
    if (one.nulls and other.nulls) or (one.nans and other.nans):
        return True
    return one.values and other.values and not (is_less(one.upper, other.lower) or is_less(other.upper, one.lower))


def is_less(upper: Any, lower: Any) -> bool:
    """Return whether a bound is known to be less than another."""
    return upper is not None and lower is not None and bool(upper < lower)


def partition_bounds(partition: Sequence[Any], fields: StructType) -> BoundsOf:
    """Return the bounds of partition fields whose values are those of a tuple.

    Args:
        partition: Values in Iceberg's internal form.
        fields: The spec's partition type.
    """
    known = {field.field_id: value_bounds(value) for field, value in zip(fields.fields, partition, strict=False)}
    return lambda field_id: known.get(field_id, UNKNOWN)


def value_bounds(value: Any) -> Bounds:
    """Return the bounds of rows that all have one value."""
    if value is None:
        return Bounds(nans=False, values=False)
    if isinstance(value, float) and math.isnan(value):
        return Bounds(nulls=False, values=False)
    plain = value.bytes if isinstance(value, UUID) else value
    return Bounds(lower=plain, upper=plain, nulls=False, nans=False)


def summary_bounds(summaries: Sequence[PartitionSummary], fields: StructType) -> BoundsOf:
    """Return the bounds of the partition values of a manifest's files.

    Args:
        summaries: One for each field of the spec, from the manifest list.
        fields: The spec's partition type.
    """
    known = {
        field.field_id: bounds_of_summary(summary, field.field_type)
        for field, summary in zip(fields.fields, summaries, strict=False)
        if isinstance(field.field_type, PrimitiveType)
    }
    return lambda field_id: known.get(field_id, UNKNOWN)


def bounds_of_summary(summary: PartitionSummary, field_type: PrimitiveType) -> Bounds:
    """Return the bounds of one partition field in a manifest."""
    column = MetricColumn.of(field_type)
    nans = column.is_floating and summary.contains_nan is not False
    bounded = summary.lower_bound is not None or summary.upper_bound is not None
    lower, upper = column.ends(summary.lower_bound, summary.upper_bound)
    return Bounds(
        lower=lower,
        upper=upper,
        nulls=summary.contains_null is not False,
        nans=nans,
        values=bounded or not (summary.contains_null or nans),
    )
