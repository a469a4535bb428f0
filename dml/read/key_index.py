"""Finds rows of a table by the values of some of its columns, each combination of which occurs once. Worker-safe.

Input: key columns without floats. Output: for rows of another table, the place of the row with their key.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NOWHERE", "KeyIndex", "Places", "as_int64", "is_whole_number"]

Places = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
NOWHERE = -1
"""The place of a key that is not there."""

MAX_SPAN = 1 << 24
"""Greatest span of whole numbers for which a table with a place for each of them is held."""


def is_whole_number(kind: pa.DataType) -> bool:
    """Whether values of a type are whole numbers, or dates, which are counted in days."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))


def as_int64(array: pa.Array) -> npt.NDArray[np.int64]:
    """Whole numbers or dates, without NULL, as 64-bit integers."""
    plain = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
    return np.asarray(plain.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


class KeyIndex:
    """Keys and their places.

    Args:
        columns: The key columns, of one length. A key with NULL equals nothing, and is not found.

    Attributes:
        is_unique: Whether no key without NULL comes twice; only then each row's place is that of its key.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        single = len(columns) == 1 and is_whole_number(columns[0].type)
        self._index = WholeNumbers(columns[0]) if single else HashedKeys(columns)
        self.is_unique = self._index.is_unique

    def places(self, columns: Sequence[pa.Array]) -> Places:
        """Where the keys of some rows are; -1 where there is no such key.

        Args:
            columns: The key columns of the rows, in the types of the index.
        """
        return self._index.places(columns)

    def contains(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows whose key is in the index."""
        found: npt.NDArray[np.bool_] = self.places(columns) != NOWHERE
        return found


class WholeNumbers:
    """The places of whole numbers: a table where they lie close, else sorted."""

    def __init__(self, column: pa.Array) -> None:
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        keys = as_int64(column.drop_null())
        self._least, self._greatest = (int(keys.min()), int(keys.max())) if len(keys) else (0, -1)
        span = self._greatest - self._least + 1
        self._table: npt.NDArray[np.int32] | None = None
        if span <= min(MAX_SPAN, max(1 << 20, 8 * len(keys))):
            self._table = np.full(span, NOWHERE, np.int32)
            self._table[keys - self._least] = rows
            self.is_unique = int(np.count_nonzero(self._table != NOWHERE)) == len(keys)
            return
        order = np.argsort(keys)
        self._keys, self._rows = keys[order], rows[order]
        self.is_unique = not bool((self._keys[1:] == self._keys[:-1]).any())

    def places(self, columns: Sequence[pa.Array]) -> Places:
        """As `KeyIndex.places`."""
        (column,) = columns
        found = np.full(len(column), NOWHERE, np.int64)
        if self._greatest < self._least:
            return found
        values = as_int64(column.fill_null(0) if column.null_count else column)
        inside = (values >= self._least) & (values <= self._greatest)
        if column.null_count:
            inside &= column.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(inside)
        sought = values[rows]
        if self._table is not None:
            found[rows] = self._table[sought - self._least]
            return found
        # Of many keys each search is a walk through memory, so values are looked up in their order.
        order = np.argsort(sought)
        rows, sought = rows[order], sought[order]
        near = np.searchsorted(self._keys, sought)
        known = self._keys[near] == sought
        found[rows[known]] = self._rows[near[known]]
        return found


class HashedKeys:
    """The places of keys of any type: hashes are looked up, and values with equal hashes are compared.

    Arrow would build its hash table again for each batch: 0.3 s for a million strings.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        self._longest = [longest(column) for column in columns]
        # Different keys with the same hash count as duplicates. That is rare, and the statement falls back to Spark.
        self._index = WholeNumbers(key_hashes(columns, self._longest))
        self.is_unique = self._index.is_unique

    def places(self, columns: Sequence[pa.Array]) -> Places:
        """As `KeyIndex.places`."""
        found = self._index.places([key_hashes(columns, self._longest)])
        rows = np.flatnonzero(found != NOWHERE)
        for column, keys in zip(columns, self._columns, strict=True):
            equal = pc.equal(column.take(pa.array(rows)), keys.take(pa.array(found[rows])))
            is_equal = np.asarray(equal.to_numpy(zero_copy_only=False))
            found[rows[~is_equal]] = NOWHERE
            rows = rows[is_equal]
        return found


SEED: Final = np.uint64(0x9E3779B97F4A7C15)


def mixed(hashes: Hashes, values: Hashes) -> Hashes:
    """Mix one more value into each hash, by the finalizer of SplitMix64."""
    found = (hashes ^ values) + SEED
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def key_hashes(columns: Sequence[pa.Array], longest_texts: Sequence[int]) -> pa.Array:
    """Return the hash of each row; NULL for rows that equal no key, with a NULL or a string longer than any key's."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    is_key = np.ones(len(hashes), np.bool_)
    for column, most in zip(columns, longest_texts, strict=True):
        if column.null_count:
            is_key &= column.is_valid().to_numpy(zero_copy_only=False)
        if has_length(column.type):
            hashes = text_hashes(column, hashes, is_key, most)
        else:
            for word in words_of(column):
                hashes = mixed(hashes, word)
    return pa.array(hashes.view(np.int64), mask=~is_key)


def has_length(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings or bytes of any length."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def longest(column: pa.Array) -> int:
    """Return the length in bytes of the longest string of a column; 0 for other types."""
    return (pc.max(pc.binary_length(column)).as_py() or 0) if has_length(column.type) else 0


def words_of(column: pa.Array) -> list[Hashes]:
    """Return values of a fixed-width type as 64-bit words; NULL has an arbitrary value."""
    kind = column.type
    if pa.types.is_decimal128(kind) or (pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16):  # a UUID
        data = column.buffers()[1]
        pairs = np.frombuffer(data, np.uint64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
        return [pairs[:, 0], pairs[:, 1]]
    if not is_whole_number(kind):
        column = column.cast(pa.int64())
    return [as_int64(column.fill_null(0) if column.null_count else column).view(np.uint64)]


def text_hashes(column: pa.Array, hashes: Hashes, is_key: npt.NDArray[np.bool_], most: int) -> Hashes:
    """Mix one more string into each hash, eight bytes at a time.

    Args:
        column: The strings.
        hashes: The hashes so far.
        is_key: The mask of rows that may equal a key; rows with a string longer than `most` are removed in place.
        most: The maximum length of a key, in bytes.
    """
    large = column.cast(pa.large_binary())
    _, ends, data = large.buffers()
    offsets = np.frombuffer(ends, np.int64, len(large) + 1, 8 * large.offset)
    lengths = np.diff(offsets)
    is_key &= lengths <= most
    found = mixed(hashes, lengths.view(np.uint64))
    rows = np.flatnonzero(is_key & (lengths > 0))
    if not len(rows):
        return found
    padded = np.zeros(int(offsets[-1] - offsets[0]) + 8, np.uint8)
    padded[:-8] = np.frombuffer(data, np.uint8, len(padded) - 8, int(offsets[0]))
    # A word starts at every byte.
    words: Hashes = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
    starts, left = offsets[rows] - offsets[0], lengths[rows]
    while len(rows):
        word = words[starts]
        short = left < 8
        word[short] &= (np.uint64(1) << (left[short].astype(np.uint64) * np.uint64(8))) - np.uint64(1)
        found[rows] = mixed(found[rows], word)
        more = left > 8
        rows, starts, left = rows[more], starts[more] + 8, left[more] - 8
    return found
