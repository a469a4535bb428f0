"""Values as SQL literals that Spark reads back as the same value of the same type, whatever the session's settings.

Input: a value as Spark keeps it inside (days, microseconds, bytes ...) and the name of its type. Output: SQL text.
Driver.
"""

import math
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import SparkSession

from dml.errors import NotSupportedError

__all__ = ["literal_text", "string_text"]

INTEGER_SUFFIXES: Final = {"byte": "Y", "short": "S", "integer": "", "long": "L"}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL: Final = EPOCH.toordinal()


def literal_text(value: Any, kind: str) -> str:
    """A value as an SQL literal.

    Args:
        value: None, a bool, int, float, str, `Decimal` or bytes; a date as days and a timestamp as microseconds since
            1970, an interval as microseconds, a time as nanoseconds of the day.
        kind: The type as it is called in Spark's JSON schemas: `long`, `decimal(3,2)`, `timestamp_ntz` ...

    Raises:
        NotSupportedError: SQL has no literal of that type, or not of that value.
    """
    if value is None and kind == "void":
        return "NULL"
    text = None
    with suppress(OverflowError):  # years before 1 and after 9999: Spark holds them, Python's dates do not
        text = number_text(value, kind) or temporal_text(value, kind)
    if kind == "string":
        text = string_text(value)
    elif kind == "binary":
        text = f"X'{bytes(value).hex().upper()}'"
    elif kind == "boolean":
        text = "TRUE" if value else "FALSE"
    if text is None:
        raise NotSupportedError(
            f"The literal {value!r} of type {kind} cannot be written in SQL text",
            hint="Make it with SQL functions from simpler values, or give the expression as SQL text",
        )
    return text


def number_text(value: Any, kind: str) -> str | None:
    """A number as a literal; None if the type is no number."""
    if kind in INTEGER_SUFFIXES:
        return signed(f"{value}{INTEGER_SUFFIXES[kind]}")
    if kind.startswith("decimal("):
        return f"CAST('{Decimal(value):f}' AS {kind.upper()})"
    if kind not in {"float", "double"}:
        return None
    if math.isnan(value) or math.isinf(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS {kind.upper()})"
    digits = repr(float(value))
    if "e" in digits or digits == "-0.0":
        return f"CAST('{digits}' AS {kind.upper()})"
    return signed(f"{digits}{kind[0].upper()}")


def signed(digits: str) -> str:
    """A number that stands for itself beside any operator: `a - -1` would be a comment without the blank."""
    return f"({digits})" if digits.startswith("-") else digits


def temporal_text(value: Any, kind: str) -> str | None:
    """A date, time, timestamp or interval as a literal; None if the type is none of these."""
    if kind == "date":
        return f"DATE '{date.fromordinal(EPOCH_ORDINAL + checked_days(value))}'"
    if kind == "timestamp":
        return f"TIMESTAMP_LTZ '{(EPOCH + timedelta(microseconds=value)).isoformat(sep=' ')}'"
    if kind == "timestamp_ntz":
        local = (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
        return f"TIMESTAMP_NTZ '{local.isoformat(sep=' ')}'"
    if kind == "time(6)" and value % 1000 == 0:
        return f"TIME '{(EPOCH + timedelta(microseconds=value // 1000)).time().isoformat()}'"
    if kind == "interval day to second":
        seconds, micros = divmod(abs(value), 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
        return f"INTERVAL '{'-' if value < 0 else ''}{days} {clock}' DAY TO SECOND"
    return None


def checked_days(days: int) -> int:
    """The same days, if Python's calendar reaches them."""
    if not 1 <= EPOCH_ORDINAL + days <= date.max.toordinal():
        raise OverflowError(days)
    return days


def string_text(value: str) -> str:
    """A string as an SQL literal.

    Escapes depend on a setting of the session, and `${...}` is replaced by Spark before it reads a statement; a string
    that could be read otherwise is written as its bytes.
    """
    if "${" in value or (("\\" in value or "'" in value) and keeps_backslashes()):
        return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def keeps_backslashes() -> bool:
    """Whether backslashes are no escapes in the active session."""
    return SparkSession.active().conf.get("spark.sql.parser.escapedStringLiterals") != "false"
