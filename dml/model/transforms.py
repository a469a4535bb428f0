"""Compute Iceberg's partition transforms, and format values, exactly for every value of their types. Worker-safe, pure.

Input: values in Iceberg's internal form (days, microseconds, unscaled numbers). Output: the transformed numbers; the
text that Spark and Iceberg's Java library write in paths of partitions, bounds of partitions in metadata tables, and
messages. Spec: "Partition Transforms". Source: `TransformUtil.java`, `Transform.toHumanString`.

PyIceberg transforms literals with Python's dates, which end in the year 9999, and arrays with Rust's, which end in the
year 262142 and yield NULL beyond. `9999-12-31 23:59:59` west of Greenwich, a common marker of current rows, is later
than the year 9999 in UTC. The results of `truncate` and `hour` may not fit their types: other libraries wrap them
silently. Here numbers are exact, and `exact_range` returns the values whose result fits.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote_plus

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
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
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

__all__ = [
    "INTEGER_LIMITS",
    "array_transform",
    "date_text",
    "exact_range",
    "exact_spec",
    "is_reproducible",
    "partition_path",
    "partition_value_text",
    "source_value_text",
    "timestamp_text",
]

INTEGER_LIMITS: Final[dict[type[IcebergType], int]] = {IntegerType: 1 << 31, LongType: 1 << 63}
"""The first number that is too large for an integer type; its negation is the type's minimum."""

DAY_MICROS: Final = 86_400_000_000
HOUR_MICROS: Final = 3_600_000_000
MAX_WIDTH: Final = 1 << 30

Numbers = npt.NDArray[np.int64]


def ticks_per_micro(source: IcebergType) -> int:
    """Return the number of units of a timestamp type in a microsecond."""
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
    """Return the decimal of an unscaled number, exactly: the context's precision does not apply."""
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


IDENTITY: IdentityTransform[Any] = IdentityTransform()


def date_text(days: int) -> str:
    """Format a date in ISO 8601 as Spark reads and writes it, with a sign for years after 9999."""
    year, month, day = civil(days)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def timestamp_text(micros: int, separator: str = "T", nanos: int = 0) -> str:
    """Format a timestamp in ISO 8601, with as many fractional digits as it needs.

    Args:
        micros: Microseconds since 1970.
        separator: The text between date and time.
        nanos: Nanoseconds after `micros`, 0 to 999.
    """
    days, rest = divmod(micros, DAY_MICROS)
    seconds, part = divmod(rest, 1_000_000)
    fraction = f".{part * 1000 + nanos:09d}".rstrip("0").rstrip(".")
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{date_text(days)}{separator}{clock}{fraction}"


def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day for a number of days since 1970."""
    months = int(calendar_units(np.array([days], np.int64), "M")[0])
    first = int(np.datetime64(months, "M").astype("datetime64[D]").astype(np.int64))
    return 1970 + months // 12, 1 + months % 12, 1 + days - first


def partition_value_text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    """Format a partition value as Iceberg's Java library does.

    Args:
        transform: The transform of the partition field.
        kind: The type of the partition field.
        value: The value, None for NULL.
    """
    match transform:
        case _ if value is None or not isinstance(value, int):
            return transform.to_human_string(kind, value)
        case YearTransform():
            return f"{1970 + value:04d}"
        case MonthTransform():
            return f"{1970 + value // 12:04d}-{1 + value % 12:02d}"
        case DayTransform():
            return day_text(value)
        case HourTransform():
            return f"{day_text(value // 24)}-{value % 24:02d}"
        case IdentityTransform():
            return day_text(value) if isinstance(kind, DateType) else source_value_text(kind, value)
    return transform.to_human_string(kind, value)


def source_value_text(kind: IcebergType, value: Any) -> str:
    """Format a number, date or timestamp for messages."""
    match kind:
        case TimestampType():
            return timestamp_text(value)
        case TimestamptzType():
            return f"{timestamp_text(value)}+00:00"
        case TimestampNanoType():
            return timestamp_text(value // 1000, nanos=value % 1000)
        case TimestamptzNanoType():
            return f"{timestamp_text(value // 1000, nanos=value % 1000)}+00:00"
    return IDENTITY.to_human_string(kind, value)


def day_text(days: int) -> str:
    """Format a day for a partition path as Java's `%04d-%02d-%02d`, where a sign counts as a digit of the year."""
    year, month, day = civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def partition_path(spec: PartitionSpec, fields: StructType, values: Sequence[Any]) -> str:
    """Return the path of a partition: `day=2026-01-01/kind=a`.

    Args:
        spec: The partition spec.
        fields: The partition type of the spec.
        values: The partition tuple.
    """
    return "/".join(
        f"{quote_plus(field.name, safe='')}="
        f"{quote_plus(partition_value_text(field.transform, typed.field_type, value), safe='')}"
        for field, typed, value in zip(spec.fields, fields.fields, values, strict=True)
    )
