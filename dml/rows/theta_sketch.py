"""Estimate the number of distinct values of columns with theta sketches. Worker-safe.

Input: Arrow arrays. Output: compact sketches, in the bytes of Apache DataSketches. A sketch holds the smallest hashes
of the values, at most `NOMINAL_ENTRIES`; theta is a bound below which it holds them all. Up to that number of values
the count is exact. Merging sketches in any order gives the sketch of all their values.

A value is hashed in the form of Iceberg's single-value serialization, like in Iceberg's Java library, so the sketches
of both can be merged. Sources: Puffin specification, "apache-datasketches-theta-v1 blob type"; Iceberg specification,
"Binary single-value serialization"; DataSketches' `PreambleUtil` and `ThetaUtil`; MurmurHash3 (x64, 128 bits).
"""

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml import limits

__all__ = ["NOMINAL_ENTRIES", "ThetaSketch", "hash_bytes", "hash_values"]

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NOMINAL_ENTRIES: Final = 4096
"""The default of DataSketches, which Iceberg's Java library uses."""

SEED: Final = 9001
"""The default of DataSketches."""

MAX_THETA: Final = 2**63 - 1


# ---- the sketch -------------------------------------------------------------------------------------------------

PREAMBLE: Final = struct.Struct("<BBBBBBH")
FORMAT, COMPACT_FAMILY = 3, 3
READ_ONLY, EMPTY, COMPACT, ORDERED, SINGLE = 2, 4, 8, 16, 32
NO_SAMPLING: Final = 1.0


class ThetaSketch:
    """A sketch of the values of one column.

    Attributes:
        theta: The bound: hashes from it on are left out.
        hashes: The distinct hashes below the bound, ascending.
    """

    def __init__(self) -> None:
        self.theta = MAX_THETA
        self.hashes: Hashes = np.empty(0, dtype=np.uint64)

    def update(self, values: pa.Array) -> None:
        """Add the values of a column; NULLs and empty strings do not count, as in Java."""
        self._add(hash_values(values))

    def merge(self, other: "ThetaSketch") -> None:
        """Add the values of another sketch."""
        if other.theta < self.theta:
            self.theta = other.theta
            self.hashes = self.hashes[self.hashes < np.uint64(other.theta)]
        self._add(other.hashes)

    @property
    def estimate(self) -> float:
        """The estimated number of distinct values; exact unless values were left out."""
        return len(self.hashes) / (self.theta / 2**63) if self.is_estimating else float(len(self.hashes))

    @property
    def is_estimating(self) -> bool:
        """Whether the sketch has left out values."""
        return self.theta < MAX_THETA

    def to_bytes(self) -> bytes:
        """Return the compact sketch."""
        count, flags = len(self.hashes), READ_ONLY | COMPACT | ORDERED
        words, rest = 1, b""
        if self.is_estimating:
            words, rest = 3, struct.pack("<ifQ", count, NO_SAMPLING, self.theta)
        elif count > 1:
            words, rest = 2, struct.pack("<if", count, NO_SAMPLING)
        else:
            flags |= SINGLE if count else EMPTY
        seed = 0 if flags & EMPTY else SEED_HASH
        preamble = PREAMBLE.pack(words, FORMAT, COMPACT_FAMILY, 0, 0, flags, seed)
        return preamble + rest + self.hashes.astype("<u8").tobytes()

    def _add(self, hashes: Hashes) -> None:
        found = hashes[(hashes < np.uint64(self.theta)) & (hashes > 0)]
        if not len(found):
            return
        self.hashes = np.union1d(self.hashes, found)
        if len(self.hashes) > NOMINAL_ENTRIES:
            self.theta = int(self.hashes[NOMINAL_ENTRIES])
            self.hashes = self.hashes[:NOMINAL_ENTRIES].copy()


# ---- values -----------------------------------------------------------------------------------------------------


def hash_values(values: pa.Array) -> Hashes:
    """Hash the values of a column that are neither NULL nor empty.

    Args:
        values: Values of a primitive type, in the lossless form in which files are copied.
    """
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    kind = values.type
    if values.null_count:
        values = values.drop_null()
    if not len(values):
        return np.empty(0, dtype=np.uint64)
    if pa.types.is_boolean(kind):
        return hash_words(np.unique(np.asarray(values.cast(pa.uint8()))).astype(np.uint64), 1)
    if pa.types.is_decimal(kind):
        return hash_bytes(*decimal_bytes(values))
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        starts = np.arange(values.offset, values.offset + len(values), dtype=np.int64) * width
        return hash_bytes(buffer_bytes(values.buffers()[1]), starts, np.full(len(values), width, dtype=np.int64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or is_large(kind):
        return hash_bytes(*text_bytes(values))
    width = kind.bit_width // 8
    numbers = np.frombuffer(values.buffers()[1], f"<u{width}")[values.offset : values.offset + len(values)]
    return hash_words(numbers.astype(np.uint64), width)


def is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def text_bytes(values: pa.Array) -> tuple[Bytes, Integers, Integers]:
    """Return the bytes of strings or binaries, and where each value that is not empty starts and how long it is."""
    _, places, data = values.buffers()
    width = np.int64 if is_large(values.type) else np.int32
    offsets = np.frombuffer(places, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    filled = lengths > 0
    return buffer_bytes(data)[first:last], (offsets[:-1] - first)[filled], lengths[filled]


def buffer_bytes(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, dtype=np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


DECIMAL_BYTES: Final = 16


def decimal_bytes(values: pa.Array) -> tuple[Bytes, Integers, Integers]:
    """Return the unscaled values of decimals, big-endian and as short as two's complement allows."""
    values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    start, stop = values.offset * DECIMAL_BYTES, (values.offset + len(values)) * DECIMAL_BYTES
    data = buffer_bytes(values.buffers()[1])[start:stop].reshape(-1, DECIMAL_BYTES)[:, ::-1]
    signs = np.where(data[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    differs = data != signs
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), DECIMAL_BYTES - 1)
    # A byte whose top bit is not the sign needs a byte of the sign before it.
    needs_sign = (data[np.arange(len(data)), first] ^ signs[:, 0]) & 0x80 != 0
    first -= needs_sign
    starts = np.arange(len(data), dtype=np.int64) * DECIMAL_BYTES
    return np.ascontiguousarray(data).reshape(-1), starts + first, DECIMAL_BYTES - first


# ---- MurmurHash3 ------------------------------------------------------------------------------------------------

C1: Final = np.uint64(0x87C37B91114253D5)
C2: Final = np.uint64(0x4CF5AD432745937F)
ADD1: Final = np.uint64(0x52DCE729)
ADD2: Final = np.uint64(0x38495AB5)
MIX1: Final = np.uint64(0xFF51AFD7ED558CCD)
MIX2: Final = np.uint64(0xC4CEB9FE1A85EC53)
FIVE: Final = np.uint64(5)
WORD_BITS: Final = 64
WORD_BYTES: Final = 8
BLOCK_BYTES: Final = 16
MASK: Final = 2**64 - 1


def hash_words(words: Hashes, length: int) -> Hashes:
    """Hash values of at most eight bytes.

    Args:
        words: The values, zero-extended.
        length: Bytes of each value.
    """
    h1 = np.uint64(SEED) ^ mixed(words, C1, C2, 31)
    return finished(h1, np.full(len(words), SEED, dtype=np.uint64), np.uint64(length))


def hash_bytes(data: Bytes, starts: Integers, lengths: Integers) -> Hashes:
    """Hash byte strings: the first half of MurmurHash3 without its lowest bit.

    Args:
        data: The bytes of all values.
        starts: The place of the first byte of each value.
        lengths: Bytes of each value.
    """
    padded = np.concatenate((data, np.zeros(BLOCK_BYTES, dtype=np.uint8)))
    words = np.ndarray((len(padded) - WORD_BYTES + 1,), "<u8", padded.data, strides=(1,))
    h1, h2 = np.full((2, len(starts)), SEED, dtype=np.uint64)
    blocks = lengths // BLOCK_BYTES
    rows, number = np.flatnonzero(blocks), 0
    while len(rows) > limits.MAX_VALUES_HASHED_ALONE:
        places = starts[rows] + number * BLOCK_BYTES
        h1[rows], h2[rows] = absorbed(h1[rows], h2[rows], words[places], words[places + WORD_BYTES])
        number += 1
        rows = rows[blocks[rows] > number]
    for row in rows.tolist():
        first, last = int(starts[row]) + number * BLOCK_BYTES, int(starts[row] + blocks[row] * BLOCK_BYTES)
        h1[row], h2[row] = absorb_run(int(h1[row]), int(h2[row]), padded[first:last])
    places, rest = starts + blocks * BLOCK_BYTES, lengths % BLOCK_BYTES
    h1 ^= mixed(words[places] & low_bytes(rest), C1, C2, 31)
    h2 ^= mixed(words[places + WORD_BYTES] & low_bytes(rest - WORD_BYTES), C2, C1, 33)
    return finished(h1, h2, lengths.astype(np.uint64))


LOW_BYTES: Final = np.array([2 ** (8 * count) - 1 for count in range(WORD_BYTES + 1)], dtype=np.uint64)


def low_bytes(counts: Integers) -> Hashes:
    """Return masks of the lowest bytes of a word."""
    found: Hashes = LOW_BYTES[np.clip(counts, 0, WORD_BYTES)]
    return found


def rotated(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(WORD_BITS - bits))


def mixed(words: Hashes, first: np.uint64, second: np.uint64, bits: int) -> Hashes:
    return rotated(words * first, bits) * second


def absorbed(h1: Hashes, h2: Hashes, low: Hashes, high: Hashes) -> tuple[Hashes, Hashes]:
    """Return the state of values after one more block of each."""
    h1 = (rotated(h1 ^ mixed(low, C1, C2, 31), 27) + h2) * FIVE + ADD1
    h2 = (rotated(h2 ^ mixed(high, C2, C1, 33), 31) + h1) * FIVE + ADD2
    return h1, h2


def absorb_run(h1: int, h2: int, data: Bytes) -> tuple[int, int]:
    """Return the state of one value after many blocks, where an array operation per block would cost too much."""
    step = limits.HASHED_PIECE_BYTES
    for start in range(0, len(data), step):
        words = np.frombuffer(data[start : start + step], "<u8")
        lows, highs = mixed(words[::2], C1, C2, 31).tolist(), mixed(words[1::2], C2, C1, 33).tolist()
        for low, high in zip(lows, highs, strict=True):
            h1 ^= low
            h1 = ((h1 << 27 | h1 >> 37) + h2) * 5 + 0x52DCE729 & MASK
            h2 ^= high
            h2 = ((h2 << 31 & MASK | h2 >> 33) + h1) * 5 + 0x38495AB5 & MASK
    return h1, h2


def finished(h1: Hashes, h2: Hashes, lengths: Hashes | np.uint64) -> Hashes:
    h1, h2 = h1 ^ lengths, h2 ^ lengths
    h1 = h1 + h2
    h2 = h2 + h1
    return (avalanche(h1) + avalanche(h2)) >> np.uint64(1)


def avalanche(words: Hashes) -> Hashes:
    words = (words ^ (words >> np.uint64(33))) * MIX1
    words = (words ^ (words >> np.uint64(33))) * MIX2
    return words ^ (words >> np.uint64(33))


SEED_HASH: Final = 0x93CC
"""The lowest 16 bits of the hash of the seed with seed 0: sketches of other seeds cannot be merged."""
