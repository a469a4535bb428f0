"""Constants of a condition as values, where their meaning is certain. Driver.

Input: sqlglot's tree of an expression without columns, or of a condition without columns (`21 = 21`, `1 > NULL`).
Output: a value with its Spark type, as Spark's optimiser would fold it, or None: "not certain".
Source: Spark's SQL reference, "Literals" and "ANSI compliance" (casts that ANSI and legacy mode do alike).
"""

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import lru_cache, partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

from dml.sqlparse.constants import Values, evaluated

__all__ = ["INTEGER_TEXT", "Constant", "Kind", "TimeZone", "constant", "fold", "text_date", "text_timestamp"]


class Kind(StrEnum):
    """Spark types of constants."""

    NULL = "void"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant: int, Decimal, float, str, bytes or bool; days for dates, microseconds for timestamps."""

    kind: Kind
    value: Any = None


NULL = Constant(kind=Kind.NULL)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)  # noqa: UP017
MICROSECOND = dt.timedelta(microseconds=1)

DATE_TEXT = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
TIMESTAMP_TEXT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?(Z|[+-]\d{2}:\d{2})?)?", re.ASCII
)
INTEGER_TEXT = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
DECIMAL_TEXT = re.compile(r"\d*\.\d*|\d+", re.ASCII)
DOUBLE_TEXT = re.compile(r"-?\d{1,17}(\.\d{1,17})?", re.ASCII)
OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{2}):(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeZone:
    """The session's time zone, as far as Python is certain to know it as Java does.

    Attributes:
        offset: Minutes from UTC where they are always the same.
        region: A zone with a history.
    """

    offset: int | None = None
    region: ZoneInfo | None = None

    @staticmethod
    def of(name: str) -> "TimeZone":
        """The zone of `spark.sql.session.timeZone`; one that is not certain knows no instant."""
        if name.upper() in {"UTC", "Z", "GMT", "ETC/UTC", "UT", "ETC/GMT", "UNIVERSAL", "ETC/UNIVERSAL"}:
            return TimeZone(offset=0)
        if match := OFFSET.fullmatch(name):
            minutes = int(match[2]) * 60 + int(match[3])
            return TimeZone(offset=-minutes if match[1] == "-" else minutes)
        try:
            return TimeZone(region=ZoneInfo(name)) if "/" in name else TimeZone()
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return TimeZone()

    def instant(self, local_micros: int) -> int | None:
        """Microseconds since 1970 in UTC of a local time given as if it were UTC."""
        if self.offset is not None:
            return local_micros - self.offset * 60_000_000
        if self.region is None:
            return None
        try:
            local = (EPOCH + local_micros * MICROSECOND).replace(tzinfo=None)
        except OverflowError:
            return None
        # Outside these years the two libraries' tables of a zone may differ.
        if not 1970 < local.year < 2100:
            return None
        offset = local.replace(tzinfo=self.region).utcoffset()
        return None if offset is None else local_micros - offset // MICROSECOND


def constant(node: exp.Expression | None, zone: TimeZone) -> Constant | None:
    """The value of a constant expression; None where it is none, or where its value is not certain.

    Args:
        node: The expression.
        zone: The session's time zone, for timestamps without one.
    """
    return evaluated(node, certain(zone))


@lru_cache(maxsize=16)
def certain(zone: TimeZone) -> Values[Constant | None]:
    """Values that are certain; None for others. Made once: a list of IN may have a million constants."""
    return Values(
        null=NULL,
        boolean=boolean,
        text=lambda text: Constant(kind=Kind.STRING, value=text),
        number=number,
        binary=hexadecimal,
        negated=negated,
        cast=partial(cast, zone=zone),
        other=lambda: None,
    )


def number(text: str) -> Constant | None:
    """A number as written: 1, 1.5, 1e3."""
    if text.isdigit() and text.isascii():
        return Constant(kind=Kind.INTEGER, value=int(text))
    if "e" in text.lower():
        try:
            return Constant(kind=Kind.DOUBLE, value=float(text))
        except ValueError:
            return None
    if DECIMAL_TEXT.fullmatch(text) and text != ".":
        return Constant(kind=Kind.DECIMAL, value=Decimal(text))
    return None


def hexadecimal(text: str) -> Constant | None:
    """X'1F'; an odd number of digits has a zero in front."""
    try:
        return Constant(kind=Kind.BINARY, value=bytes.fromhex(text if len(text) % 2 == 0 else "0" + text))
    except ValueError:
        return None


def negated(value: Constant | None) -> Constant | None:
    """A number with the other sign."""
    if value is None or value.kind is Kind.NULL:
        return value
    if value.kind in {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}:
        return Constant(
            kind=value.kind, value=value.value.copy_negate() if value.kind is Kind.DECIMAL else -value.value
        )
    return None


INTEGER_BITS = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
INSTANTS = {exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ}


def cast(value: Constant | None, to: exp.DataType, zone: TimeZone) -> Constant | None:
    """CAST of a constant, where nothing can go wrong or differ between modes; also DATE '...', 1L and the like."""
    if value is None or value.kind is Kind.NULL:
        return value
    kind = to.this
    if kind in INTEGER_BITS:
        return cast_integer(value, INTEGER_BITS[kind])
    if kind is exp.DType.DECIMAL:
        return cast_decimal(value, to)
    if kind in {exp.DType.DOUBLE, exp.DType.FLOAT}:
        return cast_double(value, single=kind is exp.DType.FLOAT)
    if kind in {exp.DType.TEXT, exp.DType.VARCHAR} and not to.expressions:
        return cast_string(value)
    if kind is exp.DType.DATE:
        return cast_date(value)
    if kind in INSTANTS or kind is exp.DType.TIMESTAMPNTZ:
        return cast_timestamp(value, zone, instant=kind in INSTANTS)
    if kind is exp.DType.BOOLEAN and value.kind is Kind.BOOLEAN:
        return value
    return None


def cast_integer(value: Constant, bits: int) -> Constant | None:
    """To a whole number of so many bits."""
    if value.kind is Kind.STRING and INTEGER_TEXT.fullmatch(value.value):
        result = int(value.value)
    elif value.kind is Kind.INTEGER:
        result = value.value
    else:
        return None
    limit = 1 << (bits - 1)
    return Constant(kind=Kind.INTEGER, value=result) if -limit <= result < limit else None


def cast_decimal(value: Constant, to: exp.DataType) -> Constant | None:
    """To DECIMAL(p, s), without rounding."""
    sizes = [parameter.this for parameter in to.expressions]
    if not all(isinstance(size, exp.Literal) and size.this.isdigit() for size in sizes):
        return None
    precision, scale = ([int(size.this) for size in sizes] + [10, 0][len(sizes) :])[:2]
    try:
        plain = value.kind is Kind.STRING and DOUBLE_TEXT.fullmatch(value.value)
        if not plain and value.kind not in {Kind.INTEGER, Kind.DECIMAL}:
            return None
        exact = Decimal(value.value)
        result = exact.quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return None
    fits = result == exact and len(result.as_tuple().digits) <= precision
    return Constant(kind=Kind.DECIMAL, value=result) if fits else None


def cast_double(value: Constant, *, single: bool) -> Constant | None:
    """To DOUBLE or FLOAT."""
    if value.kind is Kind.STRING:
        if value.value.lower() == "nan":
            result = float("nan")
        elif DOUBLE_TEXT.fullmatch(value.value):
            result = float(value.value)
        else:
            return None
    elif value.kind in {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}:
        result = float(value.value)
    else:
        return None
    if not single:
        return Constant(kind=Kind.DOUBLE, value=result)
    try:
        return Constant(kind=Kind.FLOAT, value=struct.unpack("<f", struct.pack("<f", result))[0])
    except OverflowError:
        return None


def cast_string(value: Constant) -> Constant | None:
    """To STRING."""
    if value.kind is Kind.STRING:
        return value
    return Constant(kind=Kind.STRING, value=str(value.value)) if value.kind is Kind.INTEGER else None


def cast_date(value: Constant) -> Constant | None:
    """To DATE."""
    if value.kind is Kind.DATE:
        return value
    days = text_date(value.value) if value.kind is Kind.STRING else None
    return None if days is None else Constant(kind=Kind.DATE, value=days)


def cast_timestamp(value: Constant, zone: TimeZone, *, instant: bool) -> Constant | None:
    """To TIMESTAMP or TIMESTAMP_NTZ."""
    kind = Kind.TIMESTAMP if instant else Kind.TIMESTAMP_NTZ
    if value.kind is kind:
        return value
    micros = None
    if value.kind is Kind.STRING:
        micros = text_timestamp(value.value, zone if instant else None)
    elif value.kind is Kind.DATE:
        local = value.value * 86_400_000_000
        micros = zone.instant(local) if instant else local
    return None if micros is None else Constant(kind=kind, value=micros)


def text_date(text: str) -> int | None:
    """Days since 1970 of a date written in full, `2020-01-31`."""
    match = DATE_TEXT.fullmatch(text)
    try:
        return dt.date(*map(int, match.groups())).toordinal() - 719_163 if match else None
    except ValueError:
        return None


def text_timestamp(text: str, zone: TimeZone | None) -> int | None:
    """Microseconds since 1970 of a timestamp written in full.

    Args:
        text: `2020-01-31 12:34:56.789`, with or without a zone.
        zone: The zone of a text without one, for an instant; None for a local time, whose text must have none.
    """
    match = TIMESTAMP_TEXT.fullmatch(text)
    days = text_date(match[1]) if match else None
    if match is None or days is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.group(2, 3, 4))
    if hour > 23 or minute > 59 or second > 59:
        return None
    micros = int((match[5] or "").ljust(6, "0"))
    local = ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros
    written = match[6]
    if zone is None:
        return local if written is None else None
    return (zone if written is None else TimeZone.of(written)).instant(local)


# ---- conditions without columns ------------------------------------------------------------------------------

NUMBERS = {Kind.INTEGER, Kind.DECIMAL}
ORDERED = {Kind.STRING, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.BINARY}

OPERATORS: dict[type[exp.Expression], Callable[[Any, Any], bool]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
}


def fold(node: exp.Expression, zone: TimeZone) -> Constant | None:
    """The value of a condition without columns: a constant of kind boolean or null; None where it is not certain.

    Args:
        node: The condition; AND, OR and NOT are taken apart by the caller.
        zone: The session's time zone.
    """
    match node:
        case exp.Boolean() | exp.Null() | exp.Cast():
            value = constant(node, zone)
            return value if value is not None and value.kind in {Kind.BOOLEAN, Kind.NULL} else None
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return compared(OPERATORS[type(node)], constant(node.this, zone), constant(node.expression, zone))
        case exp.Is() if isinstance(node.expression, exp.Null):
            value = constant(node.this, zone)
            return None if value is None else boolean(value.kind is Kind.NULL)
        case exp.NullSafeEQ():
            return null_safe(constant(node.this, zone), constant(node.expression, zone))
    return None


def compared(operator: Callable[[Any, Any], bool], left: Constant | None, right: Constant | None) -> Constant | None:
    """A comparison of two constants of comparable types."""
    if left is None or right is None:
        return None
    if Kind.NULL in {left.kind, right.kind}:
        return Constant(kind=Kind.NULL)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return boolean(operator(Decimal(left.value), Decimal(right.value)))
    if left.kind is right.kind and left.kind in ORDERED:
        return boolean(operator(comparable(left), comparable(right)))
    if left.kind is right.kind is Kind.DOUBLE and not math.isnan(left.value) and not math.isnan(right.value):
        return boolean(operator(left.value, right.value))
    return None


def comparable(value: Constant) -> Any:
    """A value in Spark's order: strings by their bytes."""
    return value.value.encode() if value.kind is Kind.STRING else value.value


def null_safe(left: Constant | None, right: Constant | None) -> Constant | None:
    """`<=>`."""
    if left is None or right is None:
        return None
    if Kind.NULL in {left.kind, right.kind}:
        return boolean(left.kind is right.kind)
    return compared(eq, left, right)


def boolean(value: bool) -> Constant:
    """A boolean constant."""
    return Constant(kind=Kind.BOOLEAN, value=bool(value))
