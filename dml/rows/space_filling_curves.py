"""Compute the keys of space-filling curves: z-order and Hilbert. Worker-safe, vectorized.

Input: the Arrow arrays of the columns. Output: keys in words of 64 bits, the most significant first. Rows with similar
values in all columns have similar keys, so files that are sorted by key have narrow bounds in every column.

Values are encoded as bytes that sort like the values, as in Iceberg's Java library: 8 bytes for numbers, a prefix for
text and bytes, zeros for NULL. A z-order key interleaves the bits of all columns. A Hilbert key first turns the
coordinates so that neighbors on the curve are neighbors in space. Sources: Iceberg's `ZOrderByteUtils` and
`HilbertByteUtils`; John Skilling, "Programming the Hilbert curve" (2004).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml import limits

__all__ = ["NUMBER_BYTES", "Curve", "CurveKind", "curve_words", "hilbert_transpose", "interleave", "ordered_bytes"]

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

NUMBER_BYTES: Final = 8
"""The bytes of a number in a key, of any type, and the default length of the prefix of text."""

SIGN: Final = np.uint64(1 << 63)
TRUE: Final = np.uint64(0x81 << 56)
"""TRUE in a key; FALSE is 0, like NULL."""

NAN_BITS: Final = 0x7FF8 << 48
SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class CurveKind(StrEnum):
    """A space-filling curve, by the name of its function in a sort order."""

    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A space-filling curve over columns of a table.

    Attributes:
        kind: The curve.
        columns: The names of the columns, dotted for fields of structs.
        field_ids: Their field ids.
        prefix_bytes: The bytes of text, binaries and UUIDs in a key.
        max_key_bytes: The maximum length of a key; None for no limit.
    """

    kind: CurveKind
    columns: tuple[str, ...]
    field_ids: tuple[int, ...]
    prefix_bytes: int = NUMBER_BYTES
    max_key_bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})"


def curve_words(curve: Curve, columns: Sequence[pa.Array]) -> tuple[Words, ...]:
    """Return the key of each row, as words: the keys sort by the first word, then the second, and so on.

    Args:
        curve: The curve.
        columns: The values of its columns, of types that `ordered_bytes` accepts.
    """
    rows, step = len(columns[0]), limits.CURVE_BATCH_ROWS
    # In steps small enough for their arrays to stay in the processor's cache.
    parts = [
        words_of(curve, [column.slice(start, step) for column in columns]) for start in range(0, max(rows, 1), step)
    ]
    return tuple(np.concatenate(words) for words in zip(*parts, strict=True))


def words_of(curve: Curve, columns: Sequence[pa.Array]) -> tuple[Words, ...]:
    coordinates = [ordered_bytes(column, curve.prefix_bytes) for column in columns]
    if curve.kind is CurveKind.HILBERT:
        turned = hilbert_transpose([to_words(found)[0] for found in coordinates], 8 * NUMBER_BYTES)
        coordinates = [to_bytes(axis) for axis in turned]
    return to_words(interleave(coordinates, curve.max_key_bytes))


def to_words(key: Bytes) -> tuple[Words, ...]:
    """Convert bytes, a row each, to big-endian words; the last one is padded with zeros."""
    rows, width = key.shape
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = key
    return tuple(np.ascontiguousarray(padded.view(">u8").astype(np.uint64).T))


def to_bytes(words: Words) -> Bytes:
    return words.astype(">u8").view(np.uint8).reshape(-1, NUMBER_BYTES)


# ---- values -----------------------------------------------------------------------------------------------------


def ordered_bytes(values: pa.Array, prefix_bytes: int = NUMBER_BYTES) -> Bytes:
    """Return bytes that sort like the values, one row for each value; zeros for NULL.

    NaN is the greatest number, and -0.0 is less than 0.0. Timestamps with a time zone count in seconds, as in Java.

    Args:
        values: Numbers, booleans, dates, times, timestamps, decimals, text, binaries or UUIDs.
        prefix_bytes: The bytes of text, binaries and UUIDs to return. Shorter ones are padded with zeros.

    Raises:
        TypeError: The values are of another type.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = prefixes(values, np.int32, prefix_bytes)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        found = prefixes(values, np.int64, prefix_bytes)
    elif pa.types.is_fixed_size_binary(kind):
        found = fixed_prefixes(values, kind.byte_width, prefix_bytes)
    else:
        found = to_bytes(ordered_numbers(values))
    if values.null_count:
        found[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def prefixes(values: pa.Array, offset_type: type[np.signedinteger[Any]], width: int) -> Bytes:
    _, offset_buffer, data_buffer = values.buffers()
    found = np.zeros((len(values), width), np.uint8)
    if not len(values) or data_buffer is None or not data_buffer.size:
        return found
    offsets = np.frombuffer(offset_buffer, offset_type)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(offsets)
    for place in range(width):
        longer = np.flatnonzero(lengths > place)
        if not len(longer):
            break
        found[longer, place] = data[offsets[longer] + place]
    return found


def fixed_prefixes(values: pa.Array, length: int, width: int) -> Bytes:
    found = np.zeros((len(values), width), np.uint8)
    data = np.frombuffer(values.buffers()[1], np.uint8)
    used = min(length, width)
    start = values.offset * length
    found[:, :used] = data[start : start + len(values) * length].reshape(-1, length)[:, :used]
    return found


def ordered_numbers(values: pa.Array) -> Words:
    """Return numbers that sort like the values; an arbitrary number for NULL."""
    kind = values.type
    if pa.types.is_boolean(kind):
        flags = values.fill_null(False).to_numpy(zero_copy_only=False)
        return np.where(flags, TRUE, np.uint64(0))
    if pa.types.is_floating(kind):
        return ordered_floats(values.cast(pa.float64()).fill_null(0.0).to_numpy())
    if pa.types.is_decimal128(kind):
        numbers = leading_bits(values, kind.precision)
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        whole = values.cast(pa.int32()) if pa.types.is_date32(kind) or pa.types.is_time32(kind) else values
        numbers = whole.cast(pa.int64()).fill_null(0).to_numpy()
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            numbers = numbers // SECOND[kind.unit]
    else:
        raise TypeError(f"values of type {kind} have no place on a curve")
    return numbers.view(np.uint64) ^ SIGN


def ordered_floats(values: npt.NDArray[np.float64]) -> Words:
    bits = values.view(np.int64)
    bits = np.where(np.isnan(values), np.int64(NAN_BITS), bits)
    return (bits ^ ((bits >> 63) | np.int64(-(1 << 63)))).view(np.uint64)


def leading_bits(values: pa.Array, precision: int) -> npt.NDArray[np.int64]:
    """Return the unscaled values of decimals, shifted right so that all values of the precision fit into 63 bits."""
    start = 2 * values.offset
    words = np.frombuffer(values.buffers()[1], np.uint64)[start : start + 2 * len(values)].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    shift = max(0, (10**precision - 1).bit_length() - 63)
    if shift == 0:
        leading = low
    elif shift == 64:
        leading = high
    else:
        leading = (high << np.uint64(64 - shift)) | (low >> np.uint64(shift))
    return np.ascontiguousarray(leading).view(np.int64)


# ---- keys -------------------------------------------------------------------------------------------------------


@cache
def spread_tables(count: int) -> tuple[Bytes, ...]:
    """Return, for each of some columns, the bits of every byte spread over `count` bytes."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1)
    tables = []
    for column in range(count):
        spread = np.zeros((256, 8 * count), np.uint8)
        spread[:, column::count] = bits
        tables.append(np.packbits(spread, axis=1))
    return tuple(tables)


def interleave(columns: Sequence[Bytes], max_bytes: int | None = None) -> Bytes:
    """Interleave the bits of columns, starting with the highest bit of the first column.

    A shorter column is left out once its bytes are used up.

    Args:
        columns: The bytes of each column: an array with one row for each key.
        max_bytes: The length of the result; None for all bytes.
    """
    blocks, length = [], 0
    for place in range(max(column.shape[1] for column in columns)):
        present = [column[:, place] for column in columns if column.shape[1] > place]
        tables = spread_tables(len(present))
        block = tables[0][present[0]]
        for table, values in zip(tables[1:], present[1:], strict=True):
            block |= table[values]
        blocks.append(block)
        length += len(present)
        if max_bytes is not None and length >= max_bytes:
            break
    return np.concatenate(blocks, axis=1)[:, :max_bytes]


def hilbert_transpose(coordinates: Sequence[Words], bits: int) -> list[Words]:
    """Return the Hilbert index of points in transposed form: interleaving the bits of the result gives the index.

    Args:
        coordinates: The coordinates of the points, one array for each dimension.
        bits: The number of bits of a coordinate.
    """
    axes = [axis.copy() for axis in coordinates]
    first, one = axes[0], np.uint64(1)
    for bit in range(bits - 1, 0, -1):
        low = np.uint64((1 << bit) - 1)
        for axis in axes:
            # Where the bit is set, the lower bits of the first axis are inverted; elsewhere, they are exchanged with
            # those of this axis.
            inverted = np.negative((axis >> np.uint64(bit)) & one) & low
            if axis is first:
                first ^= inverted
                continue
            exchanged = (first ^ axis) & (inverted ^ low)
            first ^= inverted | exchanged
            np.bitwise_xor(axis, exchanged, out=axis)
    for previous, axis in pairwise(axes):
        np.bitwise_xor(axis, previous, out=axis)
    # Each bit becomes the parity of the higher bits of the last axis.
    parity = axes[-1] >> one
    for shift in (1, 2, 4, 8, 16, 32):
        parity ^= parity >> np.uint64(shift)
    for axis in axes:
        np.bitwise_xor(axis, parity, out=axis)
    return axes
