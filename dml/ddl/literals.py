"""The constant of a DEFAULT clause, as a value of its column's type. Pure; driver.

Input: the text of the expression, a type, and the session's time zone. Output: the Python value that PyIceberg keeps
for the type, never one that differs from what was written: a number that does not fit is an error. Source: Iceberg
specification, "Default values" and Appendix D, "Single-value serialization".
"""

import datetime
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
from sqlglot import expressions as exp

from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.sqlparse.constants import Values, evaluated
from dml.sqlparse.dialect import parse_expression
from dml.sqlparse.quoting import quote_string, string_value
from dml.sqlparse.tokens import Kind, read_source

__all__ = ["constant", "literal_text"]

FRACTIONS = {exp.DType.FLOAT, exp.DType.DOUBLE}
WHOLE = {exp.DType.TINYINT: 7, exp.DType.SMALLINT: 15, exp.DType.INT: 31, exp.DType.BIGINT: 63}
MOMENTS = {exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMP}
NOT_CONSTANT = "A default is a constant: a number, a string, TRUE, FALSE, NULL, X'..', DATE '..', TIMESTAMP '..'"


class UnfitError(Exception):
    # The value does not fit the type; the text says why.
    pass


def constant(text: str, kind: IcebergType, *, column: str, time_zone: str = "UTC") -> Any:
    """The value of a DEFAULT expression.

    Args:
        text: The expression as written.
        kind: The type of the column.
        column: Its name, for errors.
        time_zone: The session's time zone: a TIMESTAMP literal without a zone is read by it.

    Returns:
        The value as PyIceberg keeps it; None for NULL.

    Raises:
        AnalysisError: the text is no constant, or the constant does not fit the type.
        NotSupportedError: columns of the type can have no default.
    """
    try:
        value = value_of(text)
        return None if value is None else converted(value, kind, ZoneInfo(time_zone))
    except (UnfitError, ValueError, OverflowError, InvalidOperation) as error:
        known = isinstance(error, UnfitError)
        raise AnalysisError(
            f"The default {text.strip()} does not fit column '{column}' of type {type_text(kind)}",
            kind=ErrorKind.INVALID_VALUE,
            hint=str(error) if known else NOT_CONSTANT,
            column=column,
        ) from None


def value_of(text: str) -> Any:
    source = read_source(text)
    strings = tuple(source.text(index) for index in range(source.end) if source.tokens[index].kind is Kind.STRING)
    if 0 < len(strings) == source.end:  # strings beside each other are one
        return "".join(map(string_value, strings))
    return evaluated(parse_expression(text, strings), PYTHON_VALUES)


def as_number(text: str) -> int | Decimal | float:
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def negated(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise UnfitError(NOT_CONSTANT)
    return -value


def no_constant() -> Any:
    raise UnfitError(NOT_CONSTANT)


def typed(value: Any, to: exp.DataType) -> Any:
    # A typed literal, DATE '2020-01-01' or 5L, which sqlglot reads as a cast.
    kind = to.this
    number = isinstance(value, int | Decimal | float) and not isinstance(value, bool)
    if value is None:
        return None
    if kind in WHOLE and isinstance(value, int):
        return whole(value, WHOLE[kind])
    if kind in FRACTIONS and number:
        return float(value)
    if kind == exp.DType.DECIMAL and (number or isinstance(value, str)):
        return Decimal(str(value))
    if not isinstance(value, str):
        raise UnfitError(NOT_CONSTANT)
    if kind == exp.DType.DATE:
        return datetime.date.fromisoformat(value.strip())
    if kind in MOMENTS:
        return as_moment(value.strip())
    if kind == exp.DType.TIME:
        return datetime.time.fromisoformat(value.strip())
    raise UnfitError(NOT_CONSTANT)


PYTHON_VALUES: Final[Values[Any]] = Values(
    null=None,
    boolean=bool,
    text=str,
    number=as_number,
    binary=bytes.fromhex,
    negated=negated,
    cast=typed,
    other=no_constant,
)


def as_moment(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        moment, _, zone = text.rpartition(" ")
        try:
            return datetime.datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone))
        except ZoneInfoNotFoundError as error:
            raise UnfitError(f"'{text}' is no timestamp; write '2020-01-31 12:00:00'") from error


def converted(value: Any, kind: IcebergType, zone: ZoneInfo) -> Any:
    converter = CONVERTERS.get(type(kind))
    if converter is None:
        raise NotSupportedError(
            f"A column of type {type_text(kind)} can have no default but NULL",
            hint="Leave DEFAULT out, and set the value when writing",
        )
    classes, convert, expected = converter
    if type(value) not in classes:
        raise UnfitError(f"Write {expected}")
    return convert(value, kind, zone)


def midnight(value: datetime.date) -> datetime.datetime:
    return value if isinstance(value, datetime.datetime) else datetime.datetime.combine(value, datetime.time())


def whole(value: int, bits: int) -> int:
    if not -(1 << bits) <= value < 1 << bits:
        raise UnfitError(f"The type holds {-(1 << bits)} to {(1 << bits) - 1}")
    return value


def fraction(value: float, kind: IcebergType) -> float:
    if isinstance(kind, FloatType):
        value = struct.unpack("f", struct.pack("f", value))[0]
    if not math.isfinite(value):
        raise UnfitError("The number is too large for the type")
    return value


def decimal(value: Decimal, kind: DecimalType) -> Decimal:
    with localcontext(prec=80):
        scaled = value.quantize(Decimal(1).scaleb(-kind.scale))
        if scaled != value or len(scaled.as_tuple().digits) > kind.precision:
            raise UnfitError(
                f"The type holds {kind.precision - kind.scale} digits before the point, {kind.scale} after"
            )
        return scaled


def fixed(value: bytes, kind: FixedType) -> bytes:
    if len(value) != len(kind):
        raise UnfitError(f"The type holds {len(kind)} bytes, no more and no less")
    return value


def as_time(value: str | datetime.time) -> datetime.time:
    time = datetime.time.fromisoformat(value) if isinstance(value, str) else value
    if time.tzinfo is not None:
        raise UnfitError("Times have no time zone")
    return time


def instant(value: datetime.date, zone: ZoneInfo) -> datetime.datetime:
    moment = midnight(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(datetime.UTC)


def local(value: datetime.date, zone: ZoneInfo) -> datetime.datetime:
    moment = midnight(value)
    return moment.astimezone(zone).replace(tzinfo=None) if moment.tzinfo else moment


MOMENT = (datetime.date, datetime.datetime)
NUMBER = (int, float, Decimal)
CONVERTERS: dict[type[IcebergType], tuple[tuple[type, ...], Callable[[Any, Any, ZoneInfo], Any], str]] = {
    BooleanType: ((bool,), lambda value, _kind, _zone: value, "TRUE or FALSE"),
    IntegerType: ((int,), lambda value, _kind, _zone: whole(value, 31), "a whole number"),
    LongType: ((int,), lambda value, _kind, _zone: whole(value, 63), "a whole number"),
    FloatType: (NUMBER, lambda value, kind, _zone: fraction(float(value), kind), "a number"),
    DoubleType: (NUMBER, lambda value, kind, _zone: fraction(float(value), kind), "a number"),
    DecimalType: ((int, Decimal), lambda value, kind, _zone: decimal(Decimal(value), kind), "a decimal number"),
    StringType: ((str,), lambda value, _kind, _zone: value, "a string in quotes"),
    UUIDType: ((str,), lambda value, _kind, _zone: uuid.UUID(value), "the UUID in quotes"),
    BinaryType: ((bytes,), lambda value, _kind, _zone: value, "X'..'"),
    FixedType: ((bytes,), lambda value, kind, _zone: fixed(value, kind), "X'..'"),
    DateType: ((datetime.date,), lambda value, _kind, _zone: value, "DATE '2020-01-31'"),
    TimeType: ((datetime.time, str), lambda value, _kind, _zone: as_time(value), "TIME '12:00:00'"),
    TimestamptzType: (MOMENT, lambda value, _kind, zone: instant(value, zone), "TIMESTAMP '2020-01-31 12:00:00'"),
    TimestampType: (MOMENT, lambda value, _kind, zone: local(value, zone), "TIMESTAMP_NTZ '2020-01-31 12:00:00'"),
}
"""For each type: the Python classes of constants that it takes, how they become its values, and what to write."""


def literal_text(value: Any, kind: IcebergType) -> str:
    """A default as SQL text that `constant` reads back.

    Args:
        value: What PyIceberg keeps.
        kind: The type of the column.

    Returns:
        Such as `DATE '2020-01-31'`.
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
