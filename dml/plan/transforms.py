"""A comparison of one of Iceberg's transforms with a constant as a condition on the column itself. Driver.

Input: `system.days(ts) = DATE '2026-01-01'`, taken apart. Output: an Iceberg expression about `ts`, true for the same
rows; None where that is not certain. It prunes whatever the table is partitioned by, and by the metrics of files; what
is said of buckets prunes by partition fields of as many buckets alone, as it says nothing about the order of values.

    system.years(d) <= 56              ->   d < 2027-01-01
    system.truncate(4, s) = 'abcd'     ->   s starts with 'abcd'
    system.truncate(10, i) = 20        ->   i >= 20 AND i < 30

    system.bucket(16, id) = 3          ->   the same, as a predicate that partition fields bucket[16] decide

Other comparisons are left to Spark.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, NotNull, Or, Reference
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml import limits
from dml.plan.comparisons import ComparisonOperator, TableColumn, compare, is_null, starts_with
from dml.pruning.bucket_predicate import InBuckets
from dml.sqlparse.constants import Constant, Kind, TimeZone

__all__ = ["Transformed", "compare_transformed", "is_in_transformed", "is_null_transformed"]

DAY_MICROS = 86_400_000_000
HOUR_MICROS = 3_600_000_000
UNITS = frozenset({"years", "months", "days", "hours"})


@dataclass(frozen=True, slots=True)
class Transformed:
    """A call of a transform.

    Attributes:
        name: The function, lower case.
        width: The first argument of `truncate` or `bucket`.
        column: The column.
    """

    name: str
    width: int | None
    column: TableColumn


def compare_transformed(
    call: Transformed, operator: ComparisonOperator, constant: Constant, zone: TimeZone
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
    if call.name == "bucket":
        return compare_bucket(call, operator, constant)
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
    call: Transformed, operator: ComparisonOperator, constant: Constant, zone: TimeZone
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
    column: TableColumn, operator: ComparisonOperator, begin: Constant, end: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """A comparison of what is one for all values from `begin` to before `end`, and grows with the value."""
    below = compare(column, ComparisonOperator.LESS, begin, zone)
    from_begin = compare(column, ComparisonOperator.GREATER_EQUAL, begin, zone)
    before_end = compare(column, ComparisonOperator.LESS, end, zone)
    above = compare(column, ComparisonOperator.GREATER_EQUAL, end, zone)
    if below is None or from_begin is None or before_end is None or above is None:
        return None
    match operator:
        case ComparisonOperator.EQUAL:
            return And(from_begin, before_end)
        case ComparisonOperator.NOT_EQUAL:
            return Or(below, above)
        case ComparisonOperator.LESS:
            return below
        case ComparisonOperator.LESS_EQUAL:
            return before_end
        case ComparisonOperator.GREATER:
            return above
    return from_begin


def compare_start(
    column: TableColumn, width: int, operator: ComparisonOperator, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """The start of a text, compared for being equal."""
    if constant.kind is not Kind.STRING or operator not in {ComparisonOperator.EQUAL, ComparisonOperator.NOT_EQUAL}:
        return None
    negated = operator is ComparisonOperator.NOT_EQUAL
    length = len(constant.value)
    if length > width:
        return NotNull(term=Reference(column.name)) if negated else AlwaysFalse()
    return (
        starts_with(column, constant.value, negated=negated)
        if length == width
        else compare(column, operator, constant, zone)
    )


def compare_multiple(
    column: TableColumn, width: int, operator: ComparisonOperator, constant: Constant, zone: TimeZone
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


def is_in_transformed(
    call: Transformed, constants: Sequence[Constant], zone: TimeZone, *, negated: bool
) -> BooleanExpression | None:
    """`transform(column) [NOT] IN (constants)`.

    Args:
        call: The transform of the column.
        constants: The list; a NULL in it makes NOT IN never true.
        zone: The session's time zone.
        negated: Whether it is NOT IN.
    """
    values = [constant for constant in constants if constant.kind is not Kind.NULL]
    if negated and len(values) < len(constants):
        return AlwaysFalse()
    if len({value.kind for value in values}) > 1:  # Spark compares all of such a list as one type
        return None
    if call.name == "bucket":
        if not has_buckets(call) or any(value.kind is not Kind.INTEGER for value in values):
            return None
        return in_buckets(call, frozenset(value.value for value in values), negated=negated)
    if len(values) > limits.MAX_TRANSFORMED_VALUES:
        return None
    operator, joined = (ComparisonOperator.NOT_EQUAL, And) if negated else (ComparisonOperator.EQUAL, Or)
    tests = [compare_transformed(call, operator, value, zone) for value in values]
    known = [test for test in tests if test is not None]
    if len(known) < len(tests):
        return None
    start: BooleanExpression = AlwaysTrue() if negated else AlwaysFalse()
    return reduce(joined, known, start)


def is_null_transformed(call: Transformed, *, negated: bool) -> BooleanExpression | None:
    """`transform(column) IS [NOT] NULL`; a bucket is NULL where the value is."""
    return is_null(call.column, negated=negated) if has_buckets(call) else None


def compare_bucket(call: Transformed, operator: ComparisonOperator, constant: Constant) -> BooleanExpression | None:
    """The number of a value's bucket."""
    if not has_buckets(call) or constant.kind is not Kind.INTEGER:
        return None
    number, count = constant.value, call.width
    if operator in EQUALITIES:
        return in_buckets(call, frozenset({number}), negated=operator is ComparisonOperator.NOT_EQUAL)
    if count is None or count > limits.MAX_LISTED_BUCKETS:
        return None
    return in_buckets(call, frozenset(filter(RANGES[operator](number), range(count))), negated=False)


def has_buckets(call: Transformed) -> bool:
    """Whether a call is one of `bucket` that computes what partitions have."""
    # A UUID is text to Spark, and bytes to the transform.
    return (
        call.name == "bucket"
        and call.width is not None
        and 0 < call.width < 1 << 31
        and isinstance(call.column.field_type, BUCKETED)
    )


def in_buckets(call: Transformed, numbers: frozenset[int], *, negated: bool) -> BooleanExpression:
    """Values in some buckets, or in the others."""
    count = call.width or 0
    buckets = frozenset(number for number in numbers if 0 <= number < count)
    if len(buckets) in {0, count}:
        everything = negated is not bool(buckets)
        return NotNull(term=Reference(call.column.name)) if everything else AlwaysFalse()
    return InBuckets(Reference(call.column.name), count=count, buckets=buckets, negated=negated)


BUCKETED = (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
RANGES: dict[ComparisonOperator, Callable[[int], Callable[[int], bool]]] = {
    ComparisonOperator.LESS: lambda bound: lambda bucket: bucket < bound,
    ComparisonOperator.LESS_EQUAL: lambda bound: lambda bucket: bucket <= bound,
    ComparisonOperator.GREATER: lambda bound: lambda bucket: bucket > bound,
    ComparisonOperator.GREATER_EQUAL: lambda bound: lambda bucket: bucket >= bound,
}
EQUALITIES = frozenset({ComparisonOperator.EQUAL, ComparisonOperator.NOT_EQUAL})
