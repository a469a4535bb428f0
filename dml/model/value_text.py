"""Format dates, timestamps and partition values, for every value of their types. Worker-safe, pure.

Input: values in Iceberg's internal form. Output: the text that Spark and Iceberg's Java library write: paths of
partitions, bounds of partitions in metadata tables, messages. Source: `TransformUtil.java`, `Transform.toHumanString`.

Python's dates end in the year 9999. `9999-12-31 23:59:59` west of Greenwich, a common marker of current rows, is later
than that in UTC.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

import numpy as np
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from dml.model.transforms import calendar_units

__all__ = ["date_text", "partition_path", "partition_value_text", "source_value_text", "timestamp_text"]

DAY_MICROS = 86_400_000_000
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
