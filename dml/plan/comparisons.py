"""A comparison of a column with a constant as an Iceberg predicate that is true for the same rows. Driver.

Input: a column, an operator, a constant. Output: an Iceberg expression, true exactly where Spark's comparison is true;
None where Spark's casts make that uncertain. Source: Spark's rules of implicit casts (ANSI and legacy alike, or None).

Iceberg's `!=` and `not in` are true for NULL, SQL's are not: those come with IS NOT NULL. Spark orders NaN above all
values, so `>` on floats comes with "or is NaN".
"""

import math
import struct
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
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

from dml.sqlparse.constants import INTEGER_TEXT, Constant, Kind, TimeZone, text_date, text_timestamp

__all__ = ["ComparisonOperator", "TableColumn", "compare", "is_in", "is_null", "starts_with"]

MAX_DIGITS = 38
EXACT_DOUBLE = 1 << 53
EXACT_FLOAT = 1 << 24
MAX_FLOAT = 3.4028234663852886e38
EXACT = Context(prec=100)


class ComparisonOperator(StrEnum):
    """The operators, as SQL writes them."""

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
        """The operator for exchanged sides."""
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
    """`column operator constant`.

    Args:
        column: The column.
        operator: The operator.
        constant: The constant; a comparison with NULL is never true.
        zone: The session's time zone.
    """
    if constant.kind is Kind.NULL:
        return AlwaysFalse()
    match column.field_type:
        case IntegerType() | LongType():
            return compare_integer(column, operator, constant)
        case DecimalType():
            return compare_decimal(column, operator, constant)
        case FloatType() | DoubleType():
            return compare_floating(column, operator, constant)
    value = same_typed(column.field_type, constant, zone)
    if isinstance(value, bool) and operator is ComparisonOperator.NOT_EQUAL:
        return predicate(column, ComparisonOperator.EQUAL, not value)
    return None if value is None else predicate(column, operator, value)


def same_typed(field_type: IcebergType, constant: Constant, zone: TimeZone) -> Any:
    """The constant as a value of the column's type, for types that are compared as they are; else None."""
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
    """The constant as microseconds of a timestamp column."""
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
    """The Iceberg predicate with SQL's meaning, for a value of the column's type."""
    if operator is ComparisonOperator.NOT_EQUAL:
        return And(
            NotEqualTo(term=Reference(column.name), value=as_literal(value)), NotNull(term=Reference(column.name))
        )
    return PREDICATES[operator](term=Reference(column.name), value=as_literal(value))


def as_literal(value: Any) -> Literal[Any]:
    """A value as PyIceberg's literal, which dates and timestamps are already."""
    return value if isinstance(value, Literal) else literal(value)


def compare_integer(column: TableColumn, operator: ComparisonOperator, constant: Constant) -> BooleanExpression | None:
    """A comparison of an int or bigint column."""
    bits = 32 if isinstance(column.field_type, IntegerType) else 64
    value = integer_operand(constant, bits)
    if value is None:
        return None
    limit = 1 << (bits - 1)
    return compare_stepped(
        column, operator, value, step=Decimal(1), least=Decimal(-limit), greatest=Decimal(limit - 1), to_column=int
    )


def integer_operand(constant: Constant, bits: int) -> Decimal | None:
    """The constant that an integer column is exactly compared with; None where Spark's casts may round."""
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
    """A comparison of a decimal column."""
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
        to_column=lambda found: scaled(found, kind.scale),
    )


def fits(value: Decimal, precision: int, scale: int) -> bool:
    """Whether Spark compares with a decimal of this size without rounding: both fit into 38 digits."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    own_scale = max(0, -exponent)
    integral = max(len(digits) + exponent, precision - scale)
    return integral + max(scale, own_scale) <= MAX_DIGITS


def scaled(value: Decimal, scale: int) -> Decimal:
    """The same value, written with a scale."""
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
    """A comparison of a column whose values are the multiples of a step between two limits.

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
    """A comparison of a float or double column."""
    value = floating_operand(constant, single=isinstance(column.field_type, FloatType))
    if value is None:
        return None
    if math.isnan(value):
        return compare_nan(column.name, operator)
    compared = predicate(column, operator, value)
    return Or(compared, IsNaN(term=Reference(column.name))) if operator in UPWARD else compared


def floating_operand(constant: Constant, *, single: bool) -> float | None:
    """The constant as the number that Spark compares a floating column with; None where that is not certain."""
    match constant.kind:
        case Kind.INTEGER if single and abs(constant.value) > EXACT_FLOAT:
            # A float column meets an integer as float or as double, depending on the mode.
            return None
        case Kind.INTEGER | Kind.DECIMAL | Kind.FLOAT | Kind.DOUBLE:
            try:
                value = float(constant.value)
            except OverflowError:
                return None
            # PyIceberg takes a value beyond a float's range for one that infinity cannot exceed either.
            return None if math.isinf(value) or (single and abs(value) > MAX_FLOAT) else value
    return None


def compare_nan(name: str, operator: ComparisonOperator) -> BooleanExpression:
    """A comparison with NaN, which equals itself and is above all other values."""
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
    """`column [NOT] IN (constants)`.

    Args:
        column: The column.
        constants: The list; a NULL in it makes NOT IN never true.
        zone: The session's time zone.
        negated: Whether it is NOT IN.
    """
    values = [constant for constant in constants if constant.kind is not Kind.NULL]
    if negated and len(values) < len(constants):
        return AlwaysFalse()
    if any(value.kind is Kind.STRING for value in values) and not keeps_text(column.field_type, values):
        return None
    kinds = {value.kind for value in values}
    if kinds & {Kind.FLOAT, Kind.DOUBLE} and len(kinds) > 1:  # Spark compares all of such a list as doubles
        return None
    tests = [compare(column, ComparisonOperator.EQUAL, value, zone) for value in values]
    if any(test is None for test in tests):
        return None
    possible = [test for test in tests if test is not None and not isinstance(test, AlwaysFalse)]
    if isinstance(column.field_type, FloatType) and coincide(possible):
        return None
    return none_of(column.name, possible) if negated else one_of(column.name, possible)


def keeps_text(field_type: IcebergType, values: Sequence[Constant]) -> bool:
    """Whether a list with strings is compared value by value: Spark may turn the column into text instead.

    In legacy mode Spark compares the text of a date, so that it equals only a date that is written in the same way.
    """
    if any(value.kind is not Kind.STRING for value in values):
        return False
    if isinstance(field_type, DateType):
        return all(len(value.value) == len("2020-01-31") for value in values)
    return isinstance(field_type, (StringType, IntegerType, LongType))


def coincide(tests: Sequence[BooleanExpression]) -> bool:
    """Whether two constants are one 32-bit number: bound to a float column, a set of literals keeps one of them."""
    values = [test.literal.value for test in tests if isinstance(test, EqualTo)]
    return len({struct.pack("<f", value) for value in values}) < len(set(values))


def one_of(name: str, tests: Sequence[BooleanExpression]) -> BooleanExpression:
    """Any of some equalities, as one predicate."""
    literals = [test.literal for test in tests if isinstance(test, EqualTo)]
    result: BooleanExpression = In(term=Reference(name), literals=set(literals)) if literals else AlwaysFalse()
    return Or(result, IsNaN(term=Reference(name))) if any(isinstance(test, IsNaN) for test in tests) else result


def none_of(name: str, tests: Sequence[BooleanExpression]) -> BooleanExpression:
    """None of some equalities, and not NULL."""
    literals: list[Literal[Any]] = [test.literal for test in tests if isinstance(test, EqualTo)]
    result: BooleanExpression = NotNull(term=Reference(name))
    if literals:
        result = And(NotIn(term=Reference(name), literals=set(literals)), result)
    return And(NotNaN(term=Reference(name)), result) if any(isinstance(test, IsNaN) for test in tests) else result


def starts_with(column: TableColumn, prefix: str, *, negated: bool) -> BooleanExpression | None:
    """`column [NOT] LIKE 'prefix%'`."""
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
    """`column IS [NOT] NULL`."""
    return NotNull(term=Reference(column.name)) if negated else IsNull(term=Reference(column.name))
