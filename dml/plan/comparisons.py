"""Translate comparisons of a column, or of a transform of it, with constants to exact Iceberg predicates. Driver.

Input: a column or a call of one of Iceberg's transforms, an operator, a constant. Output: an Iceberg expression about
the column, true exactly where Spark's comparison is true; None where Spark's casts make that uncertain. Source: Spark's
rules of implicit casts. A translation holds in both ANSI and legacy mode, or the result is None.

Iceberg's `!=` and `not in` are true for NULL, SQL's are not: the predicate adds IS NOT NULL. Spark orders NaN above all
values, so `>` on floats adds "or is NaN".

A comparison of a transform prunes by file metrics and by any partitioning of the column. One of buckets prunes only by
partition fields with the same number of buckets, as it implies no range of values:

    system.years(d) <= 56              ->   d < 2027-01-01
    system.truncate(4, s) = 'abcd'     ->   s starts with 'abcd'
    system.truncate(10, i) = 20        ->   i >= 20 AND i < 30
    system.bucket(16, id) = 3          ->   the same, as a predicate that partition fields bucket[16] decide

Other comparisons are left to Spark.
"""

import datetime as dt
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from functools import reduce
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, TimestampLiteral, literal
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml import limits
from dml.pruning.bucket_predicate import InBuckets
from dml.sqlparse.constants import INTEGER_TEXT, Constant, Kind, TimeZone, text_date, text_timestamp

__all__ = [
    "WIDTH_TRANSFORMS",
    "ComparisonOperator",
    "TableColumn",
    "Transformed",
    "compare",
    "compare_transformed",
    "is_in",
    "is_in_transformed",
    "is_null",
    "is_null_transformed",
    "starts_with",
]

MAX_DIGITS = 38
EXACT_DOUBLE = 1 << 53
EXACT_FLOAT = 1 << 24
MAX_FLOAT = 3.4028234663852886e38
EXACT = Context(prec=100)


class ComparisonOperator(StrEnum):
    """Comparison operators in SQL syntax."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="

    @property
    def negated(self) -> "ComparisonOperator":
        """The operator that is true where this one is false."""
        return NEGATED[self]

    @property
    def flipped(self) -> "ComparisonOperator":
        """The operator for swapped operands."""
        return FLIPPED.get(self, self)


NEGATED = {
    ComparisonOperator.EQUAL: ComparisonOperator.NOT_EQUAL,
    ComparisonOperator.NOT_EQUAL: ComparisonOperator.EQUAL,
    ComparisonOperator.LESS: ComparisonOperator.GREATER_EQUAL,
    ComparisonOperator.GREATER_EQUAL: ComparisonOperator.LESS,
    ComparisonOperator.GREATER: ComparisonOperator.LESS_EQUAL,
    ComparisonOperator.LESS_EQUAL: ComparisonOperator.GREATER,
}
FLIPPED = {
    ComparisonOperator.LESS: ComparisonOperator.GREATER,
    ComparisonOperator.GREATER: ComparisonOperator.LESS,
    ComparisonOperator.LESS_EQUAL: ComparisonOperator.GREATER_EQUAL,
    ComparisonOperator.GREATER_EQUAL: ComparisonOperator.LESS_EQUAL,
}
PREDICATES: dict[ComparisonOperator, Callable[..., BooleanExpression]] = {
    ComparisonOperator.LESS: LessThan,
    ComparisonOperator.LESS_EQUAL: LessThanOrEqual,
    ComparisonOperator.GREATER: GreaterThan,
    ComparisonOperator.GREATER_EQUAL: GreaterThanOrEqual,
    ComparisonOperator.EQUAL: EqualTo,
}
UPWARD = {ComparisonOperator.GREATER, ComparisonOperator.GREATER_EQUAL}
DOWNWARD = {ComparisonOperator.LESS, ComparisonOperator.LESS_EQUAL}


class TableColumn:
    """A column or nested field of the table.

    Args:
        name: Its full name in the schema.
        field_type: Its type.
    """

    __slots__ = ("field_type", "name")

    def __init__(self, name: str, field_type: IcebergType) -> None:
        self.name = name
        self.field_type = field_type


def compare(
    column: TableColumn, operator: ComparisonOperator, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """Translate `column operator constant`; a comparison with NULL is never true."""
    if constant.kind is Kind.NULL:
        return AlwaysFalse()
    match column.field_type:
        case IntegerType() | LongType():
            return compare_integer(column, operator, constant)
        case DecimalType():
            return compare_decimal(column, operator, constant)
        case FloatType() | DoubleType():
            return compare_floating(column, operator, constant)
    value = convert_constant(column.field_type, constant, zone)
    if isinstance(value, bool) and operator is ComparisonOperator.NOT_EQUAL:
        return predicate(column, ComparisonOperator.EQUAL, not value)
    return None if value is None else predicate(column, operator, value)


def convert_constant(field_type: IcebergType, constant: Constant, zone: TimeZone) -> Any:
    """Convert the constant to the column's type; None if Spark would cast the column to compare them."""
    kind, value = constant.kind, constant.value
    match field_type:
        case StringType() if kind is Kind.STRING:
            return value
        case BooleanType() if kind is Kind.BOOLEAN:
            return value
        case BinaryType() if kind is Kind.BINARY:
            return value
        case DateType() if kind in {Kind.DATE, Kind.STRING}:
            days = text_date(value) if kind is Kind.STRING else value
            return None if days is None else DateLiteral(days)
        case TimestampType() | TimestamptzType():
            micros = timestamp_micros(constant, zone, instant=isinstance(field_type, TimestamptzType))
            return None if micros is None else TimestampLiteral(micros)
    return None


def timestamp_micros(constant: Constant, zone: TimeZone, *, instant: bool) -> int | None:
    """Convert the constant to the microseconds of a timestamp column; None if that is uncertain."""
    value: int = constant.value
    match constant.kind:
        case Kind.STRING:
            return text_timestamp(constant.value, zone if instant else None)
        case Kind.DATE:
            return zone.instant(value * 86_400_000_000) if instant else value * 86_400_000_000
        case Kind.TIMESTAMP if instant:
            return value
        case Kind.TIMESTAMP_NTZ if not instant:
            return value
        # Spark compares the two kinds as instants: exact only where the zone's offset never changes.
        case Kind.TIMESTAMP_NTZ if zone.offset is not None:
            return value - zone.offset * 60_000_000
        case Kind.TIMESTAMP if zone.offset is not None:
            return value + zone.offset * 60_000_000
    return None


def predicate(column: TableColumn, operator: ComparisonOperator, value: Any) -> BooleanExpression:
    """Return the Iceberg predicate that is true where SQL's is, for a value of the column's type."""
    if operator is ComparisonOperator.NOT_EQUAL:
        return And(
            NotEqualTo(term=Reference(column.name), value=as_literal(value)), NotNull(term=Reference(column.name))
        )
    return PREDICATES[operator](term=Reference(column.name), value=as_literal(value))


def as_literal(value: Any) -> Literal[Any]:
    """Convert a value to a PyIceberg literal; dates and timestamps are literals already."""
    return value if isinstance(value, Literal) else literal(value)


def compare_integer(column: TableColumn, operator: ComparisonOperator, constant: Constant) -> BooleanExpression | None:
    """Translate a comparison of an int or bigint column."""
    bits = 32 if isinstance(column.field_type, IntegerType) else 64
    value = integer_operand(constant, bits)
    if value is None:
        return None
    limit = 1 << (bits - 1)
    return compare_stepped(
        column, operator, value, step=Decimal(1), least=Decimal(-limit), greatest=Decimal(limit - 1), to_column=int
    )


def integer_operand(constant: Constant, bits: int) -> Decimal | None:
    """Return the number that an integer column is compared with; None where Spark's casts may round."""
    match constant.kind:
        case Kind.INTEGER:
            return Decimal(constant.value)
        case Kind.DECIMAL:
            value: Decimal = constant.value
            return value if fits(value, 20, 0) else None
        case Kind.DOUBLE if math.isfinite(constant.value) and (bits == 32 or abs(constant.value) < EXACT_DOUBLE):
            return Decimal(constant.value)
        case Kind.STRING if INTEGER_TEXT.fullmatch(constant.value) and len(constant.value) <= (9 if bits == 32 else 18):
            return Decimal(constant.value)
    return None


def compare_decimal(column: TableColumn, operator: ComparisonOperator, constant: Constant) -> BooleanExpression | None:
    """Translate a comparison of a decimal column."""
    kind = column.field_type
    assert isinstance(kind, DecimalType)
    if constant.kind not in {Kind.INTEGER, Kind.DECIMAL}:
        return None
    value = Decimal(constant.value)
    if not fits(value, kind.precision, kind.scale):
        return None
    step = Decimal(1).scaleb(-kind.scale)
    greatest = EXACT.multiply(Decimal(10**kind.precision - 1), step)
    return compare_stepped(
        column,
        operator,
        value,
        step=step,
        least=-greatest,
        greatest=greatest,
        to_column=lambda found: rescale(found, kind.scale),
    )


def fits(value: Decimal, precision: int, scale: int) -> bool:
    """Return whether Spark compares with a decimal of this size without rounding: both fit into 38 digits."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    own_scale = max(0, -exponent)
    integral = max(len(digits) + exponent, precision - scale)
    return integral + max(scale, own_scale) <= MAX_DIGITS


def rescale(value: Decimal, scale: int) -> Decimal:
    """Rescale a decimal without changing its value."""
    return value.quantize(Decimal(1).scaleb(-scale), context=EXACT)


def compare_stepped(
    column: TableColumn,
    operator: ComparisonOperator,
    value: Decimal,
    *,
    step: Decimal,
    least: Decimal,
    greatest: Decimal,
    to_column: Any,
) -> BooleanExpression | None:
    """Translate a comparison of a column whose values are the multiples of a step between two limits.

    A constant between two multiples equals none of them, and `<` it means `<=` the multiple below.
    """
    below = EXACT.multiply((EXACT.divide(value, step)).to_integral_value(ROUND_FLOOR), step)
    whole = below == value
    if not least <= value <= greatest or (
        not whole and operator in {ComparisonOperator.EQUAL, ComparisonOperator.NOT_EQUAL}
    ):
        above = value > greatest
        always = (
            operator is ComparisonOperator.NOT_EQUAL
            or (above and operator in DOWNWARD)
            or (value < least and operator in UPWARD)
        )
        return NotNull(term=Reference(column.name)) if always else AlwaysFalse()
    if not whole:
        operator = ComparisonOperator.LESS_EQUAL if operator in DOWNWARD else ComparisonOperator.GREATER
    return predicate(column, operator, to_column(below))


def compare_floating(column: TableColumn, operator: ComparisonOperator, constant: Constant) -> BooleanExpression | None:
    """Translate a comparison of a float or double column."""
    value = floating_operand(constant, single=isinstance(column.field_type, FloatType))
    if value is None:
        return None
    if math.isnan(value):
        return compare_nan(column.name, operator)
    compared = predicate(column, operator, value)
    return Or(compared, IsNaN(term=Reference(column.name))) if operator in UPWARD else compared


def floating_operand(constant: Constant, *, single: bool) -> float | None:
    """Return the number that Spark compares a floating column with; None if that is uncertain."""
    match constant.kind:
        case Kind.INTEGER if single and abs(constant.value) > EXACT_FLOAT:
            # Spark compares a float column with an integer as float or as double, depending on the ANSI mode.
            return None
        case Kind.INTEGER | Kind.DECIMAL | Kind.FLOAT | Kind.DOUBLE:
            try:
                value = float(constant.value)
            except OverflowError:
                return None
            # PyIceberg treats a value beyond a float's range as one that infinity cannot exceed either.
            return None if math.isinf(value) or (single and abs(value) > MAX_FLOAT) else value
    return None


def compare_nan(name: str, operator: ComparisonOperator) -> BooleanExpression:
    """Translate a comparison with NaN, which equals itself and is above all other values."""
    match operator:
        case ComparisonOperator.EQUAL | ComparisonOperator.GREATER_EQUAL:
            return IsNaN(term=Reference(name))
        case ComparisonOperator.NOT_EQUAL | ComparisonOperator.LESS:
            return And(NotNaN(term=Reference(name)), NotNull(term=Reference(name)))
        case ComparisonOperator.LESS_EQUAL:
            return NotNull(term=Reference(name))
    return AlwaysFalse()


def is_in(
    column: TableColumn, constants: Sequence[Constant], zone: TimeZone, *, negated: bool
) -> BooleanExpression | None:
    """Translate `column [NOT] IN (constants)`; a NULL in the list makes NOT IN never true."""
    values = [constant for constant in constants if constant.kind is not Kind.NULL]
    if negated and len(values) < len(constants):
        return AlwaysFalse()
    if any(value.kind is Kind.STRING for value in values) and not compares_by_value(column.field_type, values):
        return None
    kinds = {value.kind for value in values}
    if kinds & {Kind.FLOAT, Kind.DOUBLE} and len(kinds) > 1:  # Spark compares a mixed list as doubles
        return None
    tests = [compare(column, ComparisonOperator.EQUAL, value, zone) for value in values]
    if any(test is None for test in tests):
        return None
    possible = [test for test in tests if test is not None and not isinstance(test, AlwaysFalse)]
    if isinstance(column.field_type, FloatType) and have_equal_floats(possible):
        return None
    return none_of(column.name, possible) if negated else one_of(column.name, possible)


def compares_by_value(field_type: IcebergType, values: Sequence[Constant]) -> bool:
    """Return whether Spark compares a list with strings value by value, rather than casting the column to a string.

    In legacy mode Spark compares dates as strings, so a date equals only one that is written in the same way.
    """
    if any(value.kind is not Kind.STRING for value in values):
        return False
    if isinstance(field_type, DateType):
        return all(len(value.value) == len("2020-01-31") for value in values)
    return isinstance(field_type, (StringType, IntegerType, LongType))


def have_equal_floats(tests: Sequence[BooleanExpression]) -> bool:
    """Return whether two constants are equal as 32-bit floats: PyIceberg's set of bound literals keeps one of them."""
    values = [test.literal.value for test in tests if isinstance(test, EqualTo)]
    return len({struct.pack("<f", value) for value in values}) < len(set(values))


def one_of(name: str, tests: Sequence[BooleanExpression]) -> BooleanExpression:
    """Combine equality tests into one predicate that is true if any of them is."""
    literals = [test.literal for test in tests if isinstance(test, EqualTo)]
    result: BooleanExpression = In(term=Reference(name), literals=set(literals)) if literals else AlwaysFalse()
    return Or(result, IsNaN(term=Reference(name))) if any(isinstance(test, IsNaN) for test in tests) else result


def none_of(name: str, tests: Sequence[BooleanExpression]) -> BooleanExpression:
    """Combine equality tests into one predicate that is true if none of them is and the value is not NULL."""
    literals: list[Literal[Any]] = [test.literal for test in tests if isinstance(test, EqualTo)]
    result: BooleanExpression = NotNull(term=Reference(name))
    if literals:
        result = And(NotIn(term=Reference(name), literals=set(literals)), result)
    return And(NotNaN(term=Reference(name)), result) if any(isinstance(test, IsNaN) for test in tests) else result


def starts_with(column: TableColumn, prefix: str, *, negated: bool) -> BooleanExpression | None:
    """Translate `column [NOT] LIKE 'prefix%'`."""
    if not isinstance(column.field_type, StringType):
        return None
    if not prefix:
        return AlwaysFalse() if negated else NotNull(term=Reference(column.name))
    if negated:
        return And(
            NotStartsWith(term=Reference(column.name), value=as_literal(prefix)), NotNull(term=Reference(column.name))
        )
    return StartsWith(term=Reference(column.name), value=as_literal(prefix))


def is_null(column: TableColumn, *, negated: bool) -> BooleanExpression:
    """Translate `column IS [NOT] NULL`."""
    return NotNull(term=Reference(column.name)) if negated else IsNull(term=Reference(column.name))


DAY_MICROS = 86_400_000_000
HOUR_MICROS = 3_600_000_000
UNITS = frozenset({"years", "months", "days", "hours"})
WIDTH_TRANSFORMS = frozenset({"bucket", "truncate"})
"""Transforms with a width as their first argument."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """A call of one of Iceberg's transforms on a column.

    Attributes:
        name: The function name in lower case.
        width: The first argument of `truncate` or `bucket`.
    """

    name: str
    width: int | None
    column: TableColumn


def compare_transformed(
    call: Transformed, operator: ComparisonOperator, constant: Constant, zone: TimeZone
) -> BooleanExpression | None:
    """Translate `transform(column) operator constant`; a comparison with NULL is never true."""
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
    """Translate a comparison of `years`, `months`, `days` or `hours`, counted from 1970."""
    wanted = Kind.DATE if call.name == "days" else Kind.INTEGER
    if constant.kind is not wanted:
        return None
    begin, end = (start_of(call, constant.value + step) for step in (0, 1))
    if begin is None or end is None:
        return None
    return compare_range(call.column, operator, begin, end, zone)


def start_of(call: Transformed, number: int) -> Constant | None:
    """Return the first value of a year, month, day or hour, as a constant of the column's type; None out of range."""
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
    """Return the first day of a year, month or day in days since 1970; None beyond Python's dates."""
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
    """Translate a comparison of a monotonic transform with its result for the values in [`begin`, `end`)."""
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
    """Translate `truncate(width, text) = constant`, or `<>`; None for other operators."""
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
    """Translate `truncate(width, number) = constant`, or `<>`, for a constant that is a multiple of the width.

    Numbers below the least multiple wrap around to one that is no multiple, so Spark evaluates other comparisons.
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
    """Translate `transform(column) [NOT] IN (constants)`; a NULL in the list makes NOT IN never true."""
    values = [constant for constant in constants if constant.kind is not Kind.NULL]
    if negated and len(values) < len(constants):
        return AlwaysFalse()
    if len({value.kind for value in values}) > 1:  # Spark casts a mixed list to one type
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
    """Translate `bucket(column) IS [NOT] NULL`, true where the column is [not] NULL; None for other transforms."""
    return is_null(call.column, negated=negated) if has_buckets(call) else None


def compare_bucket(call: Transformed, operator: ComparisonOperator, constant: Constant) -> BooleanExpression | None:
    """Translate a comparison of a bucket number with a constant."""
    if not has_buckets(call) or constant.kind is not Kind.INTEGER:
        return None
    number, count = constant.value, call.width
    if operator in EQUALITIES:
        return in_buckets(call, frozenset({number}), negated=operator is ComparisonOperator.NOT_EQUAL)
    if count is None or count > limits.MAX_LISTED_BUCKETS:
        return None
    return in_buckets(call, frozenset(filter(RANGES[operator](number), range(count))), negated=False)


def has_buckets(call: Transformed) -> bool:
    """Return whether a call is `bucket` with the same result as the partition transform."""
    # Spark reads a UUID as a string, the transform as bytes.
    return (
        call.name == "bucket"
        and call.width is not None
        and 0 < call.width < 1 << 31
        and isinstance(call.column.field_type, BUCKETED)
    )


def in_buckets(call: Transformed, numbers: frozenset[int], *, negated: bool) -> BooleanExpression:
    """Return the predicate for values in some buckets, or in the others if `negated`."""
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
