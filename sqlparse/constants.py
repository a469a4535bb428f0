"""Evaluate constant SQL expressions, for conditions and for DEFAULT. Pure; driver.

Input: sqlglot's tree of an expression without columns. Output: a value with its Spark type, as Spark's optimizer would
fold it, or None if it is uncertain.
Source: Spark's SQL reference, "Literals" and "ANSI compliance" (casts that ANSI and legacy mode do alike).
"""

import datetime as dt
import math
import re
import struct
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

__all__ = [
    "EPOCH",
    "INTEGER_TEXT",
    "MICROSECOND",
    "MICROS_OF_DAY",
    "Constant",
    "Kind",
    "TimeZone",
    "boolean",
    "constant",
    "text_date",
    "text_time",
    "text_timestamp",
]


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
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant: int, Decimal, float, str, bytes or bool; days for dates, microseconds for timestamps and times."""

    kind: Kind
    value: Any = None


NULL = Constant(kind=Kind.NULL)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)  # noqa: UP017
MICROSECOND = dt.timedelta(microseconds=1)
MICROS_OF_DAY = 86_400_000_000
MICROS_LIMIT = 1 << 63

DATE_TEXT = re.compile(r"([+-]?)(\d{4,7})-(\d{2})-(\d{2})(?:[ T].*)?", re.ASCII | re.DOTALL)
TIMESTAMP_TEXT = re.compile(
    r"([+-]?\d{4,6}-\d{2}-\d{2})"
    r"(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(?:(Z|[+-]\d{2}:\d{2})| ([A-Za-z]\S*))?)?",
    re.ASCII,
)
TIME_TEXT = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?", re.ASCII)
MAX_DIGITS = 38
"""The most digits of Spark's decimals."""

INTEGER_TEXT = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
DECIMAL_TEXT = re.compile(r"\d*\.\d*|\d+", re.ASCII)
DOUBLE_TEXT = re.compile(r"-?\d{1,17}(\.\d{1,17})?", re.ASCII)
EXACT_TEXT = re.compile(r"-?\d{1,38}(\.\d{1,38})?", re.ASCII)
OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{2}):(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeZone:
    """A time zone from Python's tables. Without an offset and a region it has no instants.

    Attributes:
        offset: Minutes from UTC of a zone with a fixed offset.
        region: A zone whose offset changes.
        certain: True to convert only years in which Python's and Java's tables of a region certainly agree.
    """

    offset: int | None = None
    region: ZoneInfo | None = None
    certain: bool = True

    @staticmethod
    def of(name: str, *, certain: bool = True) -> "TimeZone":
        """Return the zone with a name, as in `spark.sql.session.timeZone`; an unknown zone has no instants.

        Args:
            name: The name, or an offset.
            certain: True to exclude instants that Java may compute differently.
        """
        if name.upper() in {"UTC", "Z", "GMT", "ETC/UTC", "UT", "ETC/GMT", "UNIVERSAL", "ETC/UNIVERSAL"}:
            return TimeZone(offset=0, certain=certain)
        if match := OFFSET.fullmatch(name):
            minutes = int(match[2]) * 60 + int(match[3])
            return TimeZone(offset=-minutes if match[1] == "-" else minutes, certain=certain)
        try:
            known = "/" in name or not certain
            return TimeZone(region=ZoneInfo(name) if known else None, certain=certain)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return TimeZone(certain=certain)

    def instant(self, local_micros: int) -> int | None:
        """Convert a local time, in microseconds since 1970, to UTC; None if the zone is unknown or uncertain."""
        if self.offset is not None:
            return local_micros - self.offset * 60_000_000
        if self.region is None:
            return None
        try:
            local = (EPOCH + local_micros * MICROSECOND).replace(tzinfo=None)
        except OverflowError:
            return None
        # Outside these years Python's and Java's tables of a zone may differ.
        if self.certain and not 1970 < local.year < 2100:
            return None
        offset = local.replace(tzinfo=self.region).utcoffset()
        return None if offset is None else local_micros - offset // MICROSECOND

    def local(self, instant_micros: int) -> int | None:
        """Convert an instant, in microseconds since 1970 in UTC, to local time; None if the zone is unknown."""
        if self.offset is not None:
            return instant_micros + self.offset * 60_000_000
        if self.region is None:
            return None
        try:
            offset = (EPOCH + instant_micros * MICROSECOND).astimezone(self.region).utcoffset()
        except OverflowError:
            return None
        return None if offset is None else instant_micros + offset // MICROSECOND


def constant(node: Any, zone: TimeZone) -> Constant | None:
    """Evaluate a constant expression; None if it is not constant or its value is uncertain.

    Args:
        node: The tree of the expression.
        zone: The session's time zone, for timestamps without one.
    """
    match node:
        case exp.Literal():
            return Constant(kind=Kind.STRING, value=node.this) if node.is_string else number(node.this)
        case exp.Neg():
            return negate(constant(node.this, zone))
        case exp.Cast():
            return cast(constant(node.this, zone), node.to, zone)
        case exp.TsOrDsToDate() if not node.args.get("format") and not node.args.get("zone"):  # to_date(x)
            value = constant(node.this, zone)
            return value if value is None or value.kind is Kind.NULL else cast_date(value)
        case exp.Paren():
            return constant(node.this, zone)
        case exp.Null():
            return NULL
        case exp.Boolean():
            return boolean(bool(node.this))
        case exp.HexString():
            return hexadecimal(node.this)
    return None


def boolean(value: bool) -> Constant:
    """Return a boolean constant."""
    return Constant(kind=Kind.BOOLEAN, value=bool(value))


def number(text: str) -> Constant | None:
    """Parse a number literal: 1, 1.5, 1e3; None outside of the range of Spark's types, which is an error there."""
    if text.isdigit() and text.isascii():
        return None if len(text.lstrip("0")) > MAX_DIGITS else Constant(kind=Kind.INTEGER, value=int(text))
    if "e" in text.lower():
        try:
            value = float(text)
        except ValueError:
            return None
        return Constant(kind=Kind.DOUBLE, value=value) if math.isfinite(value) else None  # an error in Spark
    if DECIMAL_TEXT.fullmatch(text) and text != ".":
        exact = Decimal(text)
        fits = max(len(exact.as_tuple().digits), -int(exact.as_tuple().exponent)) <= MAX_DIGITS
        return Constant(kind=Kind.DECIMAL, value=exact) if fits else None
    return None


def hexadecimal(text: str) -> Constant | None:
    """Parse X'1F'; an odd number of digits gets a leading zero."""
    try:
        return Constant(kind=Kind.BINARY, value=bytes.fromhex(text if len(text) % 2 == 0 else "0" + text))
    except ValueError:
        return None


def negate(value: Constant | None) -> Constant | None:
    """Negate a number; NULL stays NULL."""
    if value is None or value.kind is Kind.NULL:
        return value
    if value.kind in {Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE}:
        return Constant(
            kind=value.kind, value=value.value.copy_negate() if value.kind is Kind.DECIMAL else -value.value
        )
    return None


INTEGER_BITS = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
INSTANTS = {exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMP}
"""sqlglot reads the type `TIMESTAMP` as TIMESTAMPTZ, and the functions `timestamp` and `to_timestamp` as TIMESTAMP."""


def cast(value: Constant | None, to: exp.DataType, zone: TimeZone) -> Constant | None:
    """Cast a constant if the cast cannot fail or differ between modes; also DATE '...', 1L and the like."""
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
    if kind is exp.DType.TIME and value.kind is Kind.STRING:
        micros = text_time(value.value)
        return None if micros is None else Constant(kind=Kind.TIME, value=micros)
    return None


def cast_integer(value: Constant, bits: int) -> Constant | None:
    """Cast to an integer of a number of bits."""
    if value.kind is Kind.STRING and INTEGER_TEXT.fullmatch(value.value):
        result = int(value.value)
    elif value.kind is Kind.INTEGER:
        result = value.value
    else:
        return None
    limit = 1 << (bits - 1)
    return Constant(kind=Kind.INTEGER, value=result) if -limit <= result < limit else None


def cast_decimal(value: Constant, to: exp.DataType) -> Constant | None:
    """Cast to DECIMAL(p, s), without rounding."""
    sizes = [parameter.this for parameter in to.expressions]
    if not all(isinstance(size, exp.Literal) and size.this.isdigit() for size in sizes):
        return None
    precision, scale = ([int(size.this) for size in sizes] + [10, 0][len(sizes) :])[:2]
    plain = value.kind is Kind.STRING and EXACT_TEXT.fullmatch(value.value)
    if not plain and value.kind not in {Kind.INTEGER, Kind.DECIMAL}:
        return None
    try:
        with localcontext(prec=80):
            exact = Decimal(value.value)
            result = exact.quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return None
    fits = result == exact and len(result.as_tuple().digits) <= precision
    return Constant(kind=Kind.DECIMAL, value=result) if fits else None


def cast_double(value: Constant, *, single: bool) -> Constant | None:
    """Cast to DOUBLE or FLOAT."""
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
    """Cast to STRING."""
    if value.kind is Kind.STRING:
        return value
    return Constant(kind=Kind.STRING, value=str(value.value)) if value.kind is Kind.INTEGER else None


def cast_date(value: Constant) -> Constant | None:
    """Cast to DATE."""
    if value.kind is Kind.DATE:
        return value
    days = text_date(value.value) if value.kind is Kind.STRING else None
    return None if days is None else Constant(kind=Kind.DATE, value=days)


def cast_timestamp(value: Constant, zone: TimeZone, *, instant: bool) -> Constant | None:
    """Cast to TIMESTAMP or TIMESTAMP_NTZ."""
    kind = Kind.TIMESTAMP if instant else Kind.TIMESTAMP_NTZ
    if value.kind is kind:
        return value
    micros = None
    if value.kind is Kind.STRING:
        micros = text_timestamp(value.value, zone if instant else None)
    elif value.kind is Kind.DATE:
        local = value.value * MICROS_OF_DAY
        micros = zone.instant(local) if instant else local
    return None if micros is None else Constant(kind=kind, value=micros)


def text_date(text: str) -> int | None:
    """Parse a full date, `2020-01-31`, to days since 1970; a time of day after it is ignored.

    As in Spark, years have up to 7 digits and a sign, and any text after a blank or a T is ignored.
    """
    match = DATE_TEXT.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(part) for part in match.group(2, 3, 4))
    # The calendar repeats every 400 years, of 146,097 days. Python's dates only have the years 1 to 9999.
    cycles, known = divmod(-year if match[1] == "-" else year, 400)
    try:
        days = dt.date(known + 400, month, day).toordinal() - 719_163 + (cycles - 1) * 146_097
    except ValueError:
        return None
    return days if -(1 << 31) <= days < 1 << 31 else None


def text_time(text: str) -> int | None:
    """Parse a full time, `12:34` or `12:34:56.789`, to microseconds since midnight."""
    match = TIME_TEXT.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.group(1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((match[4] or "").ljust(6, "0"))


def text_timestamp(text: str, zone: TimeZone | None) -> int | None:
    """Parse a full timestamp to microseconds since 1970.

    Args:
        text: `2020-01-31 12:34:56.789`, with or without a zone.
        zone: The zone of a text without one, for an instant; None for a local time, whose text must have none.
    """
    match = TIMESTAMP_TEXT.fullmatch(text)
    days = text_date(match[1]) if match else None
    if match is None or days is None:
        return None
    time = 0 if match[2] is None else text_time(match[2])
    if time is None:
        return None
    local, written = days * MICROS_OF_DAY + time, match[3] or match[4]
    if not -MICROS_LIMIT <= local < MICROS_LIMIT:
        return None
    if zone is None:
        return local if written is None else None
    if zone.certain and match[4] is not None:  # Java may lack a name that Python has
        return None
    return (zone if written is None else TimeZone.of(written, certain=zone.certain)).instant(local)
