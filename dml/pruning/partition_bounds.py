"""Derive bounds for the rows of files from partition values, whichever writer computed them. Driver.

Input: the value of a partition field, or the bounds of several. Output: bounds for the exact transforms of the rows'
values, without rounding or overflow. They are compared with literals that are transformed exactly.

Writers differ at the limits of types (decision 037): Java's `truncate` and `hour` wrap around, Java until 0.10 and Rust
round instants before 1970 up, and Rust yields NULL for years and months outside of the years -262143 to 262142.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DateType, DecimalType, IcebergType, LongType

from dml.model.transforms import INTEGER_LIMITS, is_reproducible
from dml.pruning.row_tests import Bounds, ColumnBounds

__all__ = ["exact_type", "rows_bounds"]

FIRST_WRAPPED_HOUR: Final = (1 << 32) + -(1 << 63) // 3_600_000_000
"""Partition values that have wrapped around are at least this, or at most its negation."""


def exact_type(transform: Transform[Any, Any], source: IcebergType) -> IcebergType:
    """Return a type that holds the exact transform of every value: PyIceberg folds comparisons beyond its range."""
    if isinstance(transform, TruncateTransform) and type(source) in INTEGER_LIMITS:
        return DecimalType(38, 0)
    return LongType() if isinstance(transform, HourTransform) else transform.result_type(source)


def rows_bounds(transform: Transform[Any, Any], source: IcebergType) -> Callable[[ColumnBounds], ColumnBounds] | None:
    """Return a function from bounds of partition values to bounds of the exact transforms of the rows' values.

    Args:
        transform: The transform of the partition field.
        source: The type of the column.

    Returns:
        The function; None if the bounds need no conversion.
    """
    match transform:
        case TruncateTransform() if type(source) in INTEGER_LIMITS:
            return partial(unwrap_multiples, transform.width)
        case HourTransform():
            return unwrap_hours
        case YearTransform() | MonthTransform():
            return bound_years
        case DayTransform() if not isinstance(source, DateType):
            return lower_by_one
    return None


def unwrap_multiples(width: int, bounds: ColumnBounds) -> ColumnBounds:
    """Return bounds of multiples of a width, extended to the least multiple if it may have wrapped around.

    A column may have been an INT when a file was written, and be a BIGINT now.
    """
    lower, upper = bounds.lower, bounds.upper
    for kind, limit in INTEGER_LIMITS.items():
        least = (-limit // width) * width
        if not is_reproducible(TruncateTransform(width), kind()) and overlaps(lower, upper, -limit, limit - 1):
            return without_limits(bounds)
        wrapped = least + 2 * limit
        if least == -limit or not overlaps(lower, upper, wrapped, wrapped):
            continue
        if lower is not None and lower == upper:
            lower = upper = least  # not a multiple of the width, so it has wrapped around
        elif lower is not None:
            lower = min(lower, least)
    return Bounds(lower=lower, upper=upper, nulls=bounds.nulls, nans=bounds.nans, values=bounds.values)


def overlaps(lower: int | None, upper: int | None, first: int, last: int) -> bool:
    """Return whether the range between two bounds overlaps an interval."""
    return (lower is None or lower <= last) and (upper is None or upper >= first)


def without_limits(bounds: ColumnBounds) -> Bounds:
    """Return the bounds without a lower and an upper one."""
    return Bounds(nulls=bounds.nulls, nans=bounds.nans, values=bounds.values)


def unwrap_hours(bounds: ColumnBounds) -> ColumnBounds:
    """Return bounds of hours, without limits beyond the years -195721 to 199660: other hours wrap around to those."""
    lower, upper = bounds.lower, bounds.upper
    known = lower is not None and upper is not None
    if known and lower > -FIRST_WRAPPED_HOUR and upper < FIRST_WRAPPED_HOUR:
        return lower_by_one(bounds)
    return without_limits(bounds)


def bound_years(bounds: ColumnBounds) -> ColumnBounds:
    """Return bounds of years or months; NULL may be any date outside of the calendar of Rust."""
    if bounds.nulls:
        return Bounds(nans=bounds.nans)
    return lower_by_one(bounds)


def lower_by_one(bounds: ColumnBounds) -> ColumnBounds:
    """Return bounds of years, months, days or hours, lowered by one before 1970, where writers may have rounded up."""
    lower = bounds.lower
    if lower is None or lower > 0:
        return bounds
    return Bounds(lower=lower - 1, upper=bounds.upper, nulls=bounds.nulls, nans=bounds.nans, values=bounds.values)
