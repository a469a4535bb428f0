"""Compute Iceberg's partition transforms exactly, for every value of their source types. Worker-safe, pure.

Input: values in Iceberg's internal form (days, microseconds, unscaled numbers). Output: the transformed numbers.
Spec: "Partition Transforms".

PyIceberg transforms literals with Python's dates, which end in the year 9999, and arrays with Rust's, which end in the
year 262142 and yield NULL beyond. The results of `truncate` and `hour` may not fit their types: other libraries wrap
them silently. Here numbers are exact, and `exact_range` returns the values whose result fits.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampNanoType,
    TimestamptzNanoType,
)

__all__ = ["INTEGER_LIMITS", "array_transform", "calendar_units", "exact_range", "exact_spec", "is_reproducible"]

INTEGER_LIMITS: Final[dict[type[IcebergType], int]] = {IntegerType: 1 << 31, LongType: 1 << 63}
"""The first number that is too large for an integer type; its negation is the type's minimum."""

DAY_MICROS: Final = 86_400_000_000
HOUR_MICROS: Final = 3_600_000_000
MAX_WIDTH: Final = 1 << 30

Numbers = npt.NDArray[np.int64]


def ticks_per_micro(source: IcebergType) -> int:
    """Return how many units of a timestamp type a microsecond has."""
    return 1000 if isinstance(source, TimestampNanoType | TimestamptzNanoType) else 1


def calendar_units(days: Numbers, unit: str) -> Numbers:
    """Return months ("M") or years ("Y") since 1970 for days since 1970."""
    return np.asarray(days.view("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64))


def units_of(transform: TimeTransform[Any], source: IcebergType, values: Numbers) -> Numbers:
    """Return years, months, days or hours since 1970."""
    if isinstance(transform, HourTransform):
        return values // (HOUR_MICROS * ticks_per_micro(source))
    days = values if isinstance(source, DateType) else values // (DAY_MICROS * ticks_per_micro(source))
    match transform:
        case YearTransform():
            return calendar_units(days, "Y")
        case MonthTransform():
            return calendar_units(days, "M")
    return days


def exact_range(transform: Transform[Any, Any], source: IcebergType) -> tuple[Any, Any] | None:
    """Return the least and the greatest value whose transform fits the result type; None if all do."""
    match transform:
        case HourTransform() if ticks_per_micro(source) == 1:
            return -(1 << 31) * HOUR_MICROS, (1 << 31) * HOUR_MICROS - 1
        case TruncateTransform(width=width) if type(source) in INTEGER_LIMITS:
            limit = INTEGER_LIMITS[type(source)]
            return -(limit // width) * width, limit - 1
        case TruncateTransform(width=width) if isinstance(source, DecimalType):
            greatest = 10**source.precision - 1
            return decimal(-(greatest // width) * width, source.scale), decimal(greatest, source.scale)
    return None


def decimal(unscaled: int, scale: int) -> Decimal:
    """Return the decimal of an unscaled number, exactly, whatever the precision of the context."""
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def is_reproducible(transform: Transform[Any, Any], source: IcebergType) -> bool:
    """Return whether all engines compute the same partition values.

    Java and Rust add the width to the remainder in 32 bits. Beyond 2^30 that wraps around: Java's
    `truncate[2147483647]` of 5 is -2147483647.
    """
    return not (
        isinstance(transform, TruncateTransform) and isinstance(source, IntegerType) and transform.width > MAX_WIDTH
    )


# ---- arrays ---------------------------------------------------------------------------------------------------


def array_transform(transform: Transform[Any, Any], source: IcebergType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that transforms all values of an array.

    Values outside of `exact_range` get a result that does not fit the result type, or the type's minimum. Their order
    is preserved, because sorting relies on it.
    """
    if isinstance(transform, TimeTransform):
        return lambda values: time_units(transform, source, values)
    if isinstance(transform, TruncateTransform) and type(source) in INTEGER_LIMITS:
        return lambda values: multiples(values, transform.width)
    return transform.pyarrow_transform(source)


def time_units(transform: TimeTransform[Any], source: IcebergType, values: pa.Array) -> pa.Array:
    """Apply `units_of` to an array of dates or timestamps."""
    numbers, mask = integers(values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64()))
    return pa.array(units_of(transform, source, numbers), mask=mask)


def multiples(values: pa.Array, width: int) -> pa.Array:
    """Round integers down to multiples of a width."""
    numbers, mask = integers(values)
    found = numbers - numbers % width
    found[found > numbers] = np.iinfo(np.int64).min
    return pa.array(found, mask=mask)


def integers(values: pa.Array) -> tuple[Numbers, npt.NDArray[np.bool_] | None]:
    """Return integers with 0 for NULL, and a mask of the NULLs."""
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    filled = values.fill_null(0) if values.null_count else values
    return filled.to_numpy(zero_copy_only=False).astype(np.int64), mask


# ---- literals -------------------------------------------------------------------------------------------------


def literal_units(transform: TimeTransform[Any], source: IcebergType) -> Callable[[int | None], int | None]:
    """Return a function that applies `units_of` to one value."""

    def units(value: int | None) -> int | None:
        # A literal's successor may exceed 64 bits; its day does not.
        if value is None:
            return None
        if isinstance(transform, HourTransform):
            return value // (HOUR_MICROS * ticks_per_micro(source))
        days = value if isinstance(source, DateType) else value // (DAY_MICROS * ticks_per_micro(source))
        return int(units_of(transform, DateType(), np.array([days], np.int64))[0])

    return units


class ExactYearTransform(YearTransform[Any]):
    def transform(self, source: IcebergType) -> Callable[[Any], Any]:
        return literal_units(self, source)


class ExactMonthTransform(MonthTransform[Any]):
    def transform(self, source: IcebergType) -> Callable[[Any], Any]:
        return literal_units(self, source)


class ExactDayTransform(DayTransform[Any]):
    def transform(self, source: IcebergType) -> Callable[[Any], Any]:
        return literal_units(self, source)


EXACT: Final[dict[type[Transform[Any, Any]], Transform[Any, Any]]] = {
    YearTransform: ExactYearTransform(),
    MonthTransform: ExactMonthTransform(),
    DayTransform: ExactDayTransform(),
}
"""PyIceberg's transforms of hours and integers are already exact."""


def exact_spec(spec: PartitionSpec) -> PartitionSpec:
    """Return the spec with transforms that are exact for literals of all dates, for PyIceberg's projections."""
    fields = (
        PartitionField(field.source_id, field.field_id, EXACT.get(type(field.transform), field.transform), field.name)
        for field in spec.fields
    )
    return PartitionSpec(*fields, spec_id=spec.spec_id)
