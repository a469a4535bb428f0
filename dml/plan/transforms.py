"""A comparison of one of Iceberg's transforms with a constant as a condition on the column itself. Driver.

Input: `system.days(ts) = DATE '2026-01-01'`, taken apart. Output: an Iceberg expression about `ts`, true for the same
rows; None where that is not certain. It prunes whatever the table is partitioned by, and by the metrics of files.

    system.years(d) <= 56              ->   d < 2027-01-01
    system.truncate(4, s) = 'abcd'     ->   s starts with 'abcd'
    system.truncate(10, i) = 20        ->   i >= 20 AND i < 30

A bucket says nothing about the order of values, and is left to Spark.
"""

import datetime as dt
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, NotNull, Or, Reference
from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

from dml.plan.comparisons import Column, Comparison, compare, starts_with
from dml.plan.literals import Constant, Kind, TimeZone

__all__ = ["Transformed", "compare_transformed"]

DAY_MICROS = 86_400_000_000
HOUR_MICROS = 3_600_000_000
UNITS = frozenset({"years", "months", "days", "hours"})


@dataclass(frozen=True, slots=True)
class Transformed:
    """A call of a transform.

    Attributes:
        name: The function, lower case.
        width: The first argument of `truncate`.
        column: The column.
    """

    name: str
    width: int | None
    column: Column


def compare_transformed(
    call: Transformed, operator: Comparison, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """`transform(column) operator constant`.

    Args:
        call: The transform of the column.
        operator: The operator.
        constant: The constant; a comparison with NULL is never true.
        zone: The session's time zone.
    """
    if constant.kind is Kind.NULL:
        return AlwaysFalse()
    if call.name in UNITS:
        return compare_unit(call, operator, constant, zone)
    if call.name == "truncate" and call.width is not None and call.width > 0:
        match call.column.field_type:
            case StringType():
                return compare_start(call.column, call.width, operator, constant, zone)
            case IntegerType() | LongType():
                return compare_multiple(call.column, call.width, operator, constant, zone)
    return None


def compare_unit(
    call: Transformed, operator: Comparison, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """Years, months, days or hours since 1970."""
    wanted = Kind.DATE if call.name == "days" else Kind.INTEGER
    if constant.kind is not wanted:
        return None
    begin, end = (start_of(call, constant.value + step) for step in (0, 1))
    if begin is None or end is None:
        return None
    return compare_range(call.column, operator, begin, end, zone)


def start_of(call: Transformed, number: int) -> Constant | None:
    """The first value of a year, month, day or hour, as a constant of the column's type."""
    if call.name == "hours":
        micros = number * HOUR_MICROS
    else:
        days = first_day(call.name, number)
        if days is None:
            return None
        if isinstance(call.column.field_type, DateType):
            return Constant(kind=Kind.DATE, value=days)
        micros = days * DAY_MICROS
    if not -(1 << 63) <= micros < 1 << 63:
        return None
    match call.column.field_type:
        case TimestamptzType():
            return Constant(kind=Kind.TIMESTAMP, value=micros)
        case TimestampType():
            return Constant(kind=Kind.TIMESTAMP_NTZ, value=micros)
    return None


def first_day(unit: str, number: int) -> int | None:
    """Days since 1970 of the first day of a year, month or day; None beyond Python's dates."""
    try:
        match unit:
            case "years":
                return dt.date(1970 + number, 1, 1).toordinal() - 719_163
            case "months":
                return dt.date(1970 + number // 12, 1 + number % 12, 1).toordinal() - 719_163
        return dt.date.fromordinal(number + 719_163).toordinal() - 719_163
    except (ValueError, OverflowError):
        return None


def compare_range(
    column: Column, operator: Comparison, begin: Constant, end: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """A comparison of what is one for all values from `begin` to before `end`, and grows with the value."""
    below = compare(column, Comparison.LESS, begin, zone)
    from_begin = compare(column, Comparison.GREATER_EQUAL, begin, zone)
    before_end = compare(column, Comparison.LESS, end, zone)
    above = compare(column, Comparison.GREATER_EQUAL, end, zone)
    if below is None or from_begin is None or before_end is None or above is None:
        return None
    match operator:
        case Comparison.EQUAL:
            return And(from_begin, before_end)
        case Comparison.NOT_EQUAL:
            return Or(below, above)
        case Comparison.LESS:
            return below
        case Comparison.LESS_EQUAL:
            return before_end
        case Comparison.GREATER:
            return above
    return from_begin


def compare_start(
    column: Column, width: int, operator: Comparison, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """The start of a text, compared for being equal."""
    if constant.kind is not Kind.STRING or operator not in {Comparison.EQUAL, Comparison.NOT_EQUAL}:
        return None
    negated = operator is Comparison.NOT_EQUAL
    length = len(constant.value)
    if length > width:
        return NotNull(term=Reference(column.name)) if negated else AlwaysFalse()
    return (
        starts_with(column, constant.value, negated=negated)
        if length == width
        else compare(column, operator, constant, zone)
    )


def compare_multiple(
    column: Column, width: int, operator: Comparison, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """The multiple below a number, compared for being equal to a multiple.

    Below the least multiple a number wraps around to one that is no multiple: other comparisons are left to Spark.
    """
    if constant.kind is not Kind.INTEGER or constant.value % width or operator not in EQUALITIES:
        return None
    if constant.value < -(1 << (31 if isinstance(column.field_type, IntegerType) else 63)):
        return None
    end = Constant(kind=Kind.INTEGER, value=constant.value + width)
    return compare_range(column, operator, constant, end, zone)


EQUALITIES = frozenset({Comparison.EQUAL, Comparison.NOT_EQUAL})
