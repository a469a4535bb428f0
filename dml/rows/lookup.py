"""Look up rows by the values of their key columns, as the build side of a hash join does.

Input: key columns of primitive types. Output: for other rows, whether their key is among these, and its row. Equality
is that of Spark's joins: -0.0 equals 0.0, NaN equals NaN, and NULL equals NULL only in a null-safe key. Equality
deletes compare all columns null-safe and distinguish the zeros, as Iceberg's Java library does.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml import limits

__all__ = ["NOWHERE", "KeyLookup", "Mask", "Places", "has_length"]

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

NOWHERE: Final = -1
"""The place of a key that is absent."""


MAX_INT64_DIGITS: Final = 18
"""Maximum precision at which every decimal fits 64 bits."""

UUID_BYTES: Final = 16

INTEGERS: Final = (
    (pa.types.is_null, pa.int8()),
    (pa.types.is_boolean, pa.int8()),
    (pa.types.is_date32, pa.int32()),
    (pa.types.is_time64, pa.int64()),
    (pa.types.is_timestamp, pa.int64()),
)
"""Types whose values Arrow stores as integers, or casts to them."""


class KeyLookup:
    """Keys of one or more columns, and the row of each.

    Args:
        columns: The key columns, of one length.
        null_safe: Indices of columns in which NULL equals NULL. In the others, NULL equals nothing.
        signed_zeros: Whether -0.0 differs from 0.0.
    """

    def __init__(
        self, columns: Sequence[pa.Array], null_safe: Collection[int] = (), *, signed_zeros: bool = False
    ) -> None:
        self._signed_zeros = signed_zeros
        # If no key is NULL, NULL matches nothing in a null-safe column either.
        self._null_safe = frozenset(place for place in null_safe if columns[place].null_count)
        keys = self._comparable(columns)
        self._keys = IntegerKeys(keys[0]) if len(keys) == 1 and pa.types.is_integer(keys[0].type) else HashedKeys(keys)

    @property
    def is_unique(self) -> bool:
        """Whether no key occurs twice."""
        return self._keys.is_unique

    def places(self, columns: Sequence[pa.Array]) -> Places:
        """Return the row with the key of each row, or -1. The keys must be unique.

        Args:
            columns: The key columns, in the types of the lookup.
        """
        return self._keys.places(self._comparable(columns))

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        """Return the mask of rows whose key is in the lookup.

        Args:
            columns: As in `places`.
        """
        return self._keys.contains(self._comparable(columns))

    def _comparable(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        found = []
        for place, column in enumerate(columns):
            array = to_comparable(column, signed_zeros=self._signed_zeros)
            if place in self._null_safe:
                found += [array.is_null().cast(pa.int8()), array.fill_null(zero(array.type))]
            else:
                found.append(array)
        return found


def to_comparable(column: pa.Array, *, signed_zeros: bool = False) -> pa.Array:
    """Convert values to integers that are equal if and only if the values are; wider types keep their values."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_floating(kind):
        numbers = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
        numbers = numbers.copy() if signed_zeros else numbers + 0.0
        numbers[np.isnan(numbers)] = np.nan
        return with_nulls_of(column, numbers.view(np.int32 if kind == pa.float32() else np.int64))
    if pa.types.is_decimal128(kind) and kind.precision <= MAX_INT64_DIGITS:
        return with_nulls_of(column, np.ascontiguousarray(wide_words(column)[:, 0]).view(np.int64))
    for is_kind, integer in INTEGERS:
        if is_kind(kind):
            return column.cast(integer)
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width != UUID_BYTES:
        return column.cast(pa.binary())
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column


def with_nulls_of(column: pa.Array, values: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> pa.Array:
    """Return values as an array, with the NULLs of a column."""
    return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None)


def zero(kind: pa.DataType) -> pa.Scalar:
    """Return the zero value of a type that `to_comparable` returns."""
    if has_length(kind):
        return pa.scalar(b"").cast(kind)
    return pa.scalar(bytes(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 0, kind)


def as_int64(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return integers without NULL as 64-bit integers."""
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


class IntegerKeys:
    """Integers. A table is used if they are close together, otherwise binary search."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        self._values = as_int64(column.drop_null())
        self._least, self._greatest = (
            (int(self._values.min()), int(self._values.max())) if len(self._values) else (0, -1)
        )
        self._span = self._greatest - self._least + 1

    @property
    def is_unique(self) -> bool:
        if self._places_table is not None:
            return int(np.count_nonzero(self._places_table != NOWHERE)) == len(self._values)
        ascending, _ = self._ascending
        return not bool((ascending[1:] == ascending[:-1]).any())

    @cached_property
    def _rows(self) -> Places:
        return np.flatnonzero(self._column.is_valid().to_numpy(zero_copy_only=False))

    @cached_property
    def _places_table(self) -> npt.NDArray[np.int32] | None:
        if self._span > min(
            limits.MAX_PLACE_SPAN, max(limits.MIN_TABLE_SPAN, limits.PLACE_SPAN_PER_KEY * len(self._values))
        ):
            return None
        table = np.full(self._span, NOWHERE, np.int32)
        table[self._values - self._least] = self._rows
        return table

    @cached_property
    def _member_table(self) -> Mask | None:
        if self._span > min(
            limits.MAX_MEMBER_SPAN, max(limits.MIN_TABLE_SPAN, limits.MEMBER_SPAN_PER_KEY * len(self._values))
        ):
            return None
        table = np.zeros(self._span, np.bool_)
        table[self._values - self._least] = True
        return table

    @cached_property
    def _ascending(self) -> tuple[npt.NDArray[np.int64], Places]:
        order = np.argsort(self._values)
        return self._values[order], self._rows[order]

    def _within_range(self, column: pa.Array) -> tuple[npt.NDArray[np.int64], Places]:
        """Return the values between the least and the greatest key, and their rows."""
        values = as_int64(column.fill_null(0) if column.null_count else column)
        inside = (values >= self._least) & (values <= self._greatest)
        if column.null_count:
            inside &= column.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(inside)
        return values[rows], rows

    def places(self, columns: Sequence[pa.Array]) -> Places:
        (column,) = columns
        found = np.full(len(column), NOWHERE, np.int64)
        values, rows = self._within_range(column)
        if not len(rows):
            return found
        if self._places_table is not None:
            found[rows] = self._places_table[values - self._least]
            return found
        is_key, near, order = self._search(values)
        found[rows[order][is_key]] = self._ascending[1][near[is_key]]
        return found

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        (column,) = columns
        found = np.zeros(len(column), np.bool_)
        values, rows = self._within_range(column)
        if not len(rows):
            return found
        if self._member_table is not None:
            found[rows] = self._member_table[values - self._least]
            return found
        is_key, _, order = self._search(values)
        found[rows[order]] = is_key
        return found

    def _search(self, values: npt.NDArray[np.int64]) -> tuple[Mask, Places, Places | slice]:
        """Search values, and return which are keys, the nearest places among the keys, and the order of both."""
        keys, _ = self._ascending
        # Each search in many keys is a walk through memory: neighbouring searches share it if values are in order.
        order = np.argsort(values) if len(keys) > limits.MAX_UNORDERED_SEARCH_KEYS else slice(None)
        sought = values[order]
        near = np.searchsorted(keys, sought)
        return keys[near] == sought, near, order


class HashedKeys:
    """Keys of any type: hashes are looked up, and the values of equal hashes are compared.

    Arrow would rebuild its hash table for each batch: 0.3 s for a million strings.

    Args:
        columns: The key columns.
        seed: Changes the hashes: keys with equal hashes are looked up by other hashes.
    """

    def __init__(self, columns: Sequence[pa.Array], seed: int = 0) -> None:
        self._columns, self._seed = columns, seed
        self._longest = [longest(column) for column in columns]
        self._hashes = IntegerKeys(self._hashes_of(columns))

    def _hashes_of(self, columns: Sequence[pa.Array]) -> pa.Array:
        return key_hashes(columns, self._longest, self._seed)

    @cached_property
    def _own_places(self) -> Places:
        return self._hashes.places([self._hashes_of(self._columns)])

    @cached_property
    def _others(self) -> tuple[Places, "HashedKeys"] | None:
        """The rows of keys that another key with the same hash hides, and their lookup."""
        if self._hashes.is_unique:
            return None
        places = self._own_places.copy()
        rows = np.flatnonzero(places != NOWHERE)
        self._drop_unequal(places, self._columns)
        rows = rows[places[rows] == NOWHERE]
        if not len(rows):
            return None
        return rows, HashedKeys([column.take(pa.array(rows)) for column in self._columns], self._seed + 1)

    @property
    def is_unique(self) -> bool:
        """Whether no key occurs twice; different keys may have equal hashes."""
        if self._hashes.is_unique:
            return True
        if self._others is None:
            return False
        rows, others = self._others
        found = np.delete(self._own_places, rows)
        return others.is_unique and bool((np.diff(np.sort(found[found != NOWHERE])) > 0).all())

    def _drop_unequal(self, places: Places, columns: Sequence[pa.Array]) -> None:
        """Set places whose keys do not have the values of the row to `NOWHERE`."""
        rows = np.flatnonzero(places != NOWHERE)
        for column, keys in zip(columns, self._columns, strict=True):
            equal = pc.equal(column.take(pa.array(rows)), keys.take(pa.array(places[rows])))
            is_equal = np.asarray(equal.to_numpy(zero_copy_only=False))
            places[rows[~is_equal]] = NOWHERE
            rows = rows[is_equal]

    def places(self, columns: Sequence[pa.Array]) -> Places:
        if self._few is not None:
            found = np.full(len(columns[0]), NOWHERE, np.int64)
            rows = pc.indices_nonzero(pc.is_in(columns[0], self._few))
            found[rows] = self._places([column.take(rows) for column in columns])
            return found
        return self._places(columns)

    @cached_property
    def _few(self) -> pa.Array | None:
        """The values of the first column if they are few enough for Arrow to build their hash table in no time."""
        return pc.unique(self._columns[0]) if len(self._columns[0]) <= limits.MAX_ARROW_SET_VALUES else None

    def _places(self, columns: Sequence[pa.Array]) -> Places:
        found = self._hashes.places([self._hashes_of(columns)])
        self._drop_unequal(found, columns)
        if self._others is not None:
            rows, others = self._others
            places = others.places(columns)
            found[places != NOWHERE] = rows[places[places != NOWHERE]]
        return found

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        found: Mask = self.places(columns) != NOWHERE
        return found


SEED: Final = np.uint64(0x9E3779B97F4A7C15)


def mix_hashes(hashes: Hashes, values: Hashes) -> Hashes:
    """Mix one more value into each hash, by the finalizer of SplitMix64."""
    found = (hashes ^ values) + SEED
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def key_hashes(columns: Sequence[pa.Array], longest_texts: Sequence[int], seed: int) -> pa.Array:
    """Return the hash of each row; NULL for rows that equal no key, with a NULL or a string longer than any key's."""
    hashes = np.full(len(columns[0]), seed, np.uint64)
    is_key = np.ones(len(hashes), np.bool_)
    for column, most in zip(columns, longest_texts, strict=True):
        if column.null_count:
            is_key &= column.is_valid().to_numpy(zero_copy_only=False)
        if has_length(column.type):
            hashes = text_hashes(column, hashes, is_key, most)
        else:
            for word in words_of(column):
                hashes = mix_hashes(hashes, word)
    return pa.array(hashes.view(np.int64), mask=~is_key)


def has_length(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings or bytes of any length."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def longest(column: pa.Array) -> int:
    """Return the length in bytes of the longest string of a column; 0 for other types."""
    return (pc.max(pc.binary_length(column)).as_py() or 0) if has_length(column.type) else 0


def words_of(column: pa.Array) -> list[Hashes]:
    """Return values of a fixed-width type as 64-bit words; NULL has an arbitrary value."""
    if not pa.types.is_integer(column.type):
        words = wide_words(column)
        return [words[:, 0], words[:, 1]]
    return [as_int64(column.fill_null(0) if column.null_count else column).view(np.uint64)]


def wide_words(column: pa.Array) -> Hashes:
    """Return decimals or UUIDs as pairs of 64-bit words, the lower first; NULL has an arbitrary value."""
    words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset)
    return words.reshape(-1, 2)


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
    found = mix_hashes(hashes, lengths.view(np.uint64))
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
        found[rows] = mix_hashes(found[rows], word)
        more = left > 8
        rows, starts, left = rows[more], starts[more] + 8, left[more] - 8
    return found
