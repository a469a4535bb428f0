"""Constants of DEFAULT clauses, as values of the column's type. Pure; driver.

Input: the text of the expression, a type, and the session's time zone. Output: the Python value that PyIceberg stores
for the type. Values are never rounded or truncated to fit: that is an error. Source: Iceberg specification, "Default
values" and Appendix D, "Single-value serialization".
"""

import datetime
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

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
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.sqlparse.constants import EPOCH, MICROS_OF_DAY, MICROSECOND, Constant, Kind, TimeZone, text_time
from dml.sqlparse.constants import constant as constant_value
from dml.sqlparse.dialect import parse_expression
from dml.sqlparse.quoting import quote_string, string_value
from dml.sqlparse.tokens import TokenKind, read_source

__all__ = ["constant", "literal_text"]

NOT_CONSTANT = "A default is a constant: a number, a string, TRUE, FALSE, NULL, X'..', DATE '..', TIMESTAMP '..'"


class UnfitError(Exception):
    # The value does not fit the type; the message gives the reason.
    pass


def constant(text: str, kind: IcebergType, *, column: str, time_zone: str = "UTC") -> Any:
    """Return the value of a DEFAULT expression.

    Args:
        text: The expression as written.
        kind: The type of the column.
        column: The name of the column, for errors.
        time_zone: The session's time zone, for TIMESTAMP literals without a zone.

    Returns:
        The value as PyIceberg stores it; None for NULL.

    Raises:
        AnalysisError: The text is not a constant, or the constant does not fit the type.
        NotSupportedError: Columns of the type cannot have a default.
    """
    try:
        zone = TimeZone.of(time_zone, certain=False)
        value = value_of(text, zone)
        return None if value.kind is Kind.NULL else convert_constant(value, kind, zone)
    except (UnfitError, ValueError, OverflowError, InvalidOperation) as error:
        known = isinstance(error, UnfitError)
        raise AnalysisError(
            f"The default {text.strip()} does not fit column '{column}' of type {type_text(kind)}",
            kind=ErrorKind.INVALID_VALUE,
            hint=str(error) if known else NOT_CONSTANT,
            column=column,
        ) from None


def value_of(text: str, zone: TimeZone) -> Constant:
    source = read_source(text)
    strings = tuple(source.text(index) for index in range(source.end) if source.tokens[index].kind is TokenKind.STRING)
    if 0 < len(strings) == source.end:  # adjacent strings are concatenated
        return Constant(kind=Kind.STRING, value="".join(map(string_value, strings)))
    value = constant_value(parse_expression(text, strings), zone)
    if value is None:
        raise UnfitError(NOT_CONSTANT)
    return value


def convert_constant(value: Constant, column_type: IcebergType, zone: TimeZone) -> Any:
    converter = CONVERTERS.get(type(column_type))
    if converter is None:
        raise NotSupportedError(
            f"A column of type {type_text(column_type)} can have no default but NULL",
            hint="Leave DEFAULT out, and set the value when writing",
        )
    kinds, convert, expected = converter
    if value.kind not in kinds:
        raise UnfitError(f"Write {expected}")
    return convert(value, column_type, zone)


def whole_number(value: int, bits: int) -> int:
    if not -(1 << bits) <= value < 1 << bits:
        raise UnfitError(f"The type holds {-(1 << bits)} to {(1 << bits) - 1}")
    return value


def finite_float(value: float, column_type: IcebergType) -> float:
    if isinstance(column_type, FloatType):
        value = struct.unpack("f", struct.pack("f", value))[0]
    if math.isnan(value):
        raise UnfitError("NaN is no default")
    if math.isinf(value):
        raise UnfitError("The number is too large for the type")
    return value


def exact_decimal(value: Decimal, column_type: DecimalType) -> Decimal:
    with localcontext(prec=80):
        scaled = value.quantize(Decimal(1).scaleb(-column_type.scale))
        if scaled != value or len(scaled.as_tuple().digits) > column_type.precision:
            raise UnfitError(
                f"The type holds {column_type.precision - column_type.scale} digits before the point, "
                f"{column_type.scale} after"
            )
        return scaled


def fixed_bytes(value: bytes, column_type: FixedType) -> bytes:
    if len(value) != len(column_type):
        raise UnfitError(f"The type holds {len(column_type)} bytes, no more and no less")
    return value


def time_of_day(value: Constant) -> datetime.time:
    micros = text_time(value.value) if value.kind is Kind.STRING else value.value
    if micros is None:
        raise UnfitError("Write TIME '12:00:00'")
    return (EPOCH + micros * MICROSECOND).time()


def to_instant(value: Constant, zone: TimeZone) -> datetime.datetime:
    micros = value.value * MICROS_OF_DAY if value.kind is Kind.DATE else value.value
    return to_datetime(micros if value.kind is Kind.TIMESTAMP else zone.instant(micros))


def to_local(value: Constant, zone: TimeZone) -> datetime.datetime:
    micros = value.value * MICROS_OF_DAY if value.kind is Kind.DATE else value.value
    return to_datetime(zone.local(micros) if value.kind is Kind.TIMESTAMP else micros).replace(tzinfo=None)


def to_datetime(micros: int | None) -> datetime.datetime:
    if micros is None:
        raise UnfitError("The session's time zone is not known: write the zone, TIMESTAMP '2020-01-31 12:00:00Z'")
    return EPOCH + micros * MICROSECOND


MOMENTS = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
NUMBERS = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
Converter = Callable[[Constant, Any, TimeZone], Any]
CONVERTERS: dict[type[IcebergType], tuple[frozenset[Kind], Converter, str]] = {
    BooleanType: (frozenset({Kind.BOOLEAN}), lambda found, _type, _zone: found.value, "TRUE or FALSE"),
    IntegerType: (
        frozenset({Kind.INTEGER}),
        lambda found, _type, _zone: whole_number(found.value, 31),
        "a whole number",
    ),
    LongType: (frozenset({Kind.INTEGER}), lambda found, _type, _zone: whole_number(found.value, 63), "a whole number"),
    FloatType: (NUMBERS, lambda found, to, _zone: finite_float(float(found.value), to), "a number"),
    DoubleType: (NUMBERS, lambda found, to, _zone: finite_float(float(found.value), to), "a number"),
    DecimalType: (
        frozenset({Kind.INTEGER, Kind.DECIMAL}),
        lambda found, to, _zone: exact_decimal(Decimal(found.value), to),
        "a decimal number",
    ),
    StringType: (frozenset({Kind.STRING}), lambda found, _type, _zone: found.value, "a string in quotes"),
    UUIDType: (frozenset({Kind.STRING}), lambda found, _type, _zone: uuid.UUID(found.value), "the UUID in quotes"),
    BinaryType: (frozenset({Kind.BINARY}), lambda found, _type, _zone: found.value, "X'..'"),
    FixedType: (frozenset({Kind.BINARY}), lambda found, to, _zone: fixed_bytes(found.value, to), "X'..'"),
    DateType: (
        frozenset({Kind.DATE}),
        lambda found, _type, _zone: datetime.date.fromordinal(EPOCH.toordinal() + found.value),
        "DATE '2020-01-31'",
    ),
    TimeType: (frozenset({Kind.TIME, Kind.STRING}), lambda found, _type, _zone: time_of_day(found), "TIME '12:00:00'"),
    TimestamptzType: (MOMENTS, lambda found, _type, zone: to_instant(found, zone), "TIMESTAMP '2020-01-31 12:00:00'"),
    TimestampType: (MOMENTS, lambda found, _type, zone: to_local(found, zone), "TIMESTAMP_NTZ '2020-01-31 12:00:00'"),
}
"""Per type: the kinds of constants it accepts, their conversion to PyIceberg's value, and a hint for errors."""


def literal_text(value: Any, kind: IcebergType) -> str:
    """Return a default as SQL text that `constant` can parse.

    Args:
        value: The value as PyIceberg stores it.
        kind: The type of the column.

    Returns:
        For example `DATE '2020-01-31'`.
    """
    match value:
        case bool():
            return str(value).upper()
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case float():
            return f"{value!r}D" if "e" not in repr(value) else repr(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return f"TIMESTAMP '{text}Z'" if isinstance(kind, TimestamptzType) else f"TIMESTAMP_NTZ '{text}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case datetime.time():
            return f"TIME '{value.isoformat()}'"
        case _:
            return quote_string(str(value))
