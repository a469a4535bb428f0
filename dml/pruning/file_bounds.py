"""What a manifest says of files, as bounds: partition summaries, partition tuples, column metrics. Driver.

Input: a manifest's line, a partition tuple, a data file's entry. Output: `Bounds` by field id.
Spec: "Manifest Lists", "Manifests", "Appendix D" on serialised values.
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
    """How the metrics of a column are read: settled once, however many files are looked at.

    Attributes:
        is_floating: Whether its type has NaN.
        is_nested: Whether it is a field of a struct.
        is_uuid: Whether its bounds must be interpreted together: see `in_byte_order`.
        fixed: How its serialised bounds lie in memory, if they are numbers of one size.
        decode: A serialised bound to its value; None if it is missing, NaN, or not of the column's type (that of an
            older schema, say).
    """

    is_floating: bool
    is_nested: bool
    is_uuid: bool
    fixed: np.dtype[Any] | None
    decode: Callable[[bytes | None], Any]

    @staticmethod
    def of(field_type: PrimitiveType, *, is_nested: bool = False) -> "MetricColumn":
        """The column of a type."""
        is_floating = isinstance(field_type, (FloatType, DoubleType))
        return MetricColumn(
            is_floating=is_floating,
            is_nested=is_nested,
            is_uuid=isinstance(field_type, UUIDType),
            fixed=FIXED.get(type(field_type)),
            decode=decoder(field_type),
        )

    def ends(self, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any]:
        """Return both serialised bounds as values, in the order by which predicates compare."""
        found = self.decode(lower), self.decode(upper)
        return in_byte_order(*found) if self.is_uuid else found


def metric_columns(schema: Schema) -> dict[int, MetricColumn]:
    """A schema's columns and nested fields of primitive types, by field id."""
    types = {field_id: schema.find_type(field_id) for field_id in schema.field_ids}
    columns = {field.field_id for field in schema.fields}
    return {
        field_id: MetricColumn.of(found, is_nested=field_id not in columns)
        for field_id, found in types.items()
        if isinstance(found, PrimitiveType)
    }


def decoder(field_type: PrimitiveType) -> Callable[[bytes | None], Any]:
    """Reads the serialised bounds of a type."""
    if not isinstance(field_type, ORDERED):
        return lambda _: None
    # What the function does for this type, found once instead of for each value.
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
    """What a data file's metrics say of its columns.

    Args:
        file: The data file.
        columns: By field id.
        identity: What is known better: columns that have one value in the file's partition.
    """
    known: dict[int, ColumnBounds] = dict(identity) if identity else {}

    def bounds_of(field_id: int) -> ColumnBounds:
        # A filter asks for a column as often as it names it.
        if field_id not in known:
            column = columns.get(field_id)
            known[field_id] = UNKNOWN if column is None else MetricBounds(file, field_id, column)
        return known[field_id]

    return bounds_of


@dataclass(frozen=True, slots=True)
class MetricBounds:
    """What a data file's metrics say of one column, each worked out when it is asked for.

    Attributes:
        file: The data file.
        field_id: The column.
        column: How its metrics are read.
    """

    file: ContentFile
    field_id: int
    column: MetricColumn

    @property
    def lower(self) -> Any:
        """No value is less."""
        if self.column.is_uuid:
            return self._ends[0]
        return self.column.decode(self.file.lower_bounds.get(self.field_id))

    @property
    def upper(self) -> Any:
        """No value is greater."""
        if self.column.is_uuid:
            return self._ends[1]
        return self.column.decode(self.file.upper_bounds.get(self.field_id))

    @property
    def nulls(self) -> bool:
        """Whether there may be NULLs."""
        # Iceberg's Java library does not count all fields of a struct in the rows in which the struct is NULL: floats
        # in Parquet files, and any in ORC files.
        all_counted = not self.column.is_nested or self.file.value_counts.get(self.field_id) == self.file.record_count
        return not all_counted or self.file.null_value_counts.get(self.field_id) != 0

    @property
    def nans(self) -> bool:
        """Whether there may be NaNs."""
        return self.column.is_floating and self._nan_count != 0 and not self._only(0)

    @property
    def values(self) -> bool:
        """Whether there may be values that are neither."""
        return not self._only(self._nan_count or 0)

    @property
    def _ends(self) -> tuple[Any, Any]:
        return self.column.ends(self.file.lower_bounds.get(self.field_id), self.file.upper_bounds.get(self.field_id))

    @property
    def _nan_count(self) -> int | None:
        return self.file.nan_value_counts.get(self.field_id) if self.column.is_floating else 0

    def _only(self, nans: int) -> bool:
        """Whether NULLs and so many NaNs are all that there is."""
        count = self.file.value_counts.get(self.field_id, 0)
        nulls = self.file.null_value_counts.get(self.field_id, 0)
        # Some writers say -1 for what they do not know.
        return count > 0 and nulls >= 0 and count == nulls + nans


def may_meet(one: ColumnBounds, other: ColumnBounds) -> bool:
    """Whether a value of one set of rows may be in another; NULL meets NULL, and NaN meets NaN."""
    if (one.nulls and other.nulls) or (one.nans and other.nans):
        return True
    return one.values and other.values and not (is_less(one.upper, other.lower) or is_less(other.upper, one.lower))


def is_less(upper: Any, lower: Any) -> bool:
    """Whether a bound is known to be less than another."""
    return upper is not None and lower is not None and bool(upper < lower)


def partition_bounds(partition: Sequence[Any], fields: StructType) -> BoundsOf:
    """What a partition tuple says: each field has this one value.

    Args:
        partition: Values in Iceberg's internal form.
        fields: The spec's partition type.
    """
    known = {field.field_id: value_bounds(value) for field, value in zip(fields.fields, partition, strict=False)}
    return lambda field_id: known.get(field_id, UNKNOWN)


def value_bounds(value: Any) -> Bounds:
    """The bounds of rows that all have one value."""
    if value is None:
        return Bounds(nans=False, values=False)
    if isinstance(value, float) and math.isnan(value):
        return Bounds(nulls=False, values=False)
    plain = value.bytes if isinstance(value, UUID) else value
    return Bounds(lower=plain, upper=plain, nulls=False, nans=False)


def summary_bounds(summaries: Sequence[PartitionSummary], fields: StructType) -> BoundsOf:
    """What a manifest's line says of the partition values of its files.

    Args:
        summaries: One for each field of the spec.
        fields: The spec's partition type.
    """
    known = {
        field.field_id: summarised(summary, field.field_type)
        for field, summary in zip(fields.fields, summaries, strict=False)
        if isinstance(field.field_type, PrimitiveType)
    }
    return lambda field_id: known.get(field_id, UNKNOWN)


def summarised(summary: PartitionSummary, field_type: PrimitiveType) -> Bounds:
    """The bounds of one partition field in a manifest."""
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
