"""Bounds of a column, as manifests hold them. Worker-safe, pure.

Input: least and greatest values as Parquet's statistics have them. Output: serialised bounds. Spec: "Appendix D:
Single-value serialization", "Manifests" (bounds may be cut, as long as they stay bounds).
"""

import math
import struct
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    PrimitiveType,
    StringType,
    UUIDType,
)

__all__ = ["lower_bound", "truncated_above", "truncated_bytes_above", "upper_bound"]

FLOATS = {FloatType: struct.Struct("<f"), DoubleType: struct.Struct("<d")}
MAX_CODE_POINT = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)


def lower_bound(value: Any, field_type: PrimitiveType, length: int | None) -> bytes | None:
    """The serialised lower bound.

    Args:
        value: The least value: an int for every type that Parquet stores in one, also for decimals, and bytes for
            strings and the types of bytes.
        field_type: The column's type.
        length: To how many characters or bytes it may be cut; None keeps it whole.

    Returns:
        The bound; None where there is none (NaN, bytes that are no text).
    """
    match field_type:
        case StringType():
            text = decoded_text(value)
            return None if text is None else truncated(text, length).encode("utf-8")
        case BinaryType() | FixedType():
            return bytes(value) if length is None else bytes(value)[:length]
        case FloatType() | DoubleType():
            # Zero has two signs that compare as equal; a reader may compare bits.
            return float_bound(-0.0 if value == 0 else value, field_type)
    return serialised(value, field_type)


def upper_bound(value: Any, field_type: PrimitiveType, length: int | None) -> bytes | None:
    """The serialised upper bound.

    Args:
        value: The greatest value; see `lower_bound`.
        field_type: The column's type.
        length: To how many characters or bytes it may be cut; None keeps it whole.

    Returns:
        The bound; None where there is none (NaN, or no short value is greater).
    """
    match field_type:
        case StringType():
            text = decoded_text(value)
            above = None if text is None else truncated_above(text, length)
            return None if above is None else above.encode("utf-8")
        case BinaryType() | FixedType():
            return truncated_bytes_above(bytes(value), length)
        case FloatType() | DoubleType():
            return float_bound(0.0 if value == 0 else value, field_type)
    return serialised(value, field_type)


def truncated(text: str, length: int | None) -> str:
    """The first characters (code points) of a text: not greater than it."""
    return text if length is None else text[:length]


def truncated_above(text: str, length: int | None) -> str | None:
    """A text of at most so many characters that is not less; None where there is none.

    The last character that has a successor becomes it, and what follows is dropped. Surrogates are no characters.
    """
    if length is None or len(text) <= length:
        return text
    for end in range(length, 0, -1):
        successor = ord(text[end - 1]) + 1
        if successor in SURROGATES:
            successor = SURROGATES.stop
        if successor <= MAX_CODE_POINT:
            return text[: end - 1] + chr(successor)
    return None


def truncated_bytes_above(value: bytes, length: int | None) -> bytes | None:
    """At most so many bytes that are not less, as unsigned bytes compare; None where there are none."""
    if length is None or len(value) <= length:
        return value
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def decoded_text(value: bytes) -> str | None:
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return None  # Spark may hold bytes that are no text in a string


def float_bound(value: float, field_type: PrimitiveType) -> bytes | None:
    return None if math.isnan(value) else FLOATS[type(field_type)].pack(value)


def serialised(value: Any, field_type: PrimitiveType) -> bytes:
    match field_type:
        case UUIDType():
            return bytes(value)
        case DecimalType():
            return minimal_bytes(value)
    return to_bytes(field_type, value)


def minimal_bytes(unscaled: int) -> bytes:
    """Two's complement, big-endian, in as few bytes as hold it."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
