"""The deleted positions of one data file, as a compressed set. Worker-safe.

Input: positions from deletion vectors, position delete files and delta rows. Output: masks for readers, positions
and bitmaps for writers. A position is the ordinal of a row in its data file (Iceberg specification, "Position
Delete Files", "Deletion Vectors").
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from dml.errors import DataError

__all__ = ["MAX_KEY", "MAX_POSITION", "PositionDeleteIndex", "Positions"]

MAX_KEY = 2**31 - 2
"""Iceberg's Java library stores the bitmaps in an array, whose length is at most 2**31 - 1."""
MAX_POSITION = (MAX_KEY + 1 << 32) - 1

Positions: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.uint64] | pa.Array | pa.ChunkedArray | Iterable[int]


class PositionDeleteIndex:
    """A set of positions from 0 to `MAX_POSITION`, as 32-bit roaring bitmaps by the high half of the position.

    Indexes with equal positions are equal. Not hashable, because it is mutable.
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("_bitmaps",)

    def __init__(self) -> None:
        self._bitmaps: dict[int, BitMap] = {}

    @staticmethod
    def from_positions(positions: Positions) -> "PositionDeleteIndex":
        """Create an index of positions, in any order, with or without duplicates.

        Raises:
            DataError: a position is null, negative, too great or not an integer.
        """
        index = PositionDeleteIndex()
        index.add_many(positions)
        return index

    @staticmethod
    def from_bitmaps(bitmaps: Mapping[int, BitMap]) -> "PositionDeleteIndex":
        """Create an index from bitmaps by key, and take ownership of the bitmaps."""
        index = PositionDeleteIndex()
        for key, bitmap in bitmaps.items():
            if bitmap:
                index._bitmaps[key] = bitmap
        return index

    @property
    def bitmaps(self) -> Mapping[int, BitMap]:
        """The bitmaps by key, none of them empty; the caller must not change them."""
        return self._bitmaps

    def copy(self) -> "PositionDeleteIndex":
        """Return an independent copy."""
        return PositionDeleteIndex.from_bitmaps({key: bitmap.copy() for key, bitmap in self._bitmaps.items()})

    def add(self, position: int) -> None:
        """Add one position.

        Raises:
            DataError: it is negative or too great.
        """
        check_range(position, position)
        self._bitmap(position >> 32).add(position & 0xFFFFFFFF)

    def add_many(self, positions: Positions) -> None:
        """Add positions, in any order, with or without duplicates.

        Raises:
            DataError: a position is null, negative, too great or not an integer.
        """
        values = as_integers(positions)
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        check_range(low, high)
        if high >> 32 == low >> 32:
            self._add_to_key(low >> 32, values)
            return
        keys = values.astype(np.uint64) >> np.uint64(32)
        for key in np.unique(keys).tolist():
            self._add_to_key(key, values[keys == key])

    def add_range(self, start: int, stop: int) -> None:
        """Add the positions from `start` to `stop`, exclusive.

        Raises:
            DataError: a position is negative or too great.
        """
        if start >= stop:
            return
        check_range(start, stop - 1)
        for key, low, high in parts_of(start, stop):
            self._bitmap(key).add_range(low, high)

    def update(self, other: "PositionDeleteIndex") -> None:
        """Add all positions of another index."""
        for key, bitmap in other.bitmaps.items():
            self._bitmap(key).update(bitmap)

    def union(self, other: "PositionDeleteIndex") -> "PositionDeleteIndex":
        """Return the positions in either index."""
        result = self.copy()
        result.update(other)
        return result

    def intersection(self, other: "PositionDeleteIndex") -> "PositionDeleteIndex":
        """Return the positions in both indexes."""
        shared = self._bitmaps.keys() & other.bitmaps.keys()
        return PositionDeleteIndex.from_bitmaps({key: self._bitmaps[key] & other.bitmaps[key] for key in shared})

    def difference(self, other: "PositionDeleteIndex") -> "PositionDeleteIndex":
        """Return the positions of this index that are not in the other."""
        nothing = BitMap()
        return PositionDeleteIndex.from_bitmaps(
            {key: bitmap - other.bitmaps.get(key, nothing) for key, bitmap in self._bitmaps.items()}
        )

    def to_numpy(self) -> npt.NDArray[np.int64]:
        """Return all positions in ascending order."""
        parts = [
            np.frombuffer(self._bitmaps[key].to_array(), np.uint32).astype(np.int64) + (key << 32)
            for key in sorted(self._bitmaps)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def deleted_mask(self, start: int, length: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the `length` rows from position `start`, True for deleted rows."""
        mask = np.zeros(length, dtype=np.bool_)
        for key, low, high in parts_of(start, start + length):
            bitmap = self._bitmaps.get(key)
            if bitmap is None:
                continue
            first, last = bitmap.rank(low - 1) if low else 0, bitmap.rank(high - 1)
            if first == last:
                continue
            window = mask[(key << 32) + low - start : (key << 32) + high - start]
            if last - first == high - low:
                window[:] = True
            else:
                window[np.frombuffer(bitmap[first:last].to_array(), np.uint32) - np.uint32(low)] = True
        return mask

    @property
    def is_empty(self) -> bool:
        """True if no position is deleted."""
        return not self._bitmaps

    def min(self) -> int | None:
        """Return the least position, or None if the index is empty."""
        if not self._bitmaps:
            return None
        key = min(self._bitmaps)
        return (key << 32) + int(self._bitmaps[key].min())

    def max(self) -> int | None:
        """Return the greatest position, or None if the index is empty."""
        if not self._bitmaps:
            return None
        key = max(self._bitmaps)
        return (key << 32) + int(self._bitmaps[key].max())

    def __contains__(self, position: int) -> bool:
        bitmap = self._bitmaps.get(position >> 32)
        return bitmap is not None and position & 0xFFFFFFFF in bitmap

    def __len__(self) -> int:
        return sum(map(len, self._bitmaps.values()))

    def __bool__(self) -> bool:
        return bool(self._bitmaps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionDeleteIndex):
            return NotImplemented
        return self._bitmaps == other.bitmaps

    def __repr__(self) -> str:
        return f"PositionDeleteIndex({len(self)} positions from {self.min()} to {self.max()})"

    def _bitmap(self, key: int) -> BitMap:
        bitmap = self._bitmaps.get(key)
        if bitmap is None:
            bitmap = self._bitmaps[key] = BitMap()
        return bitmap

    def _add_to_key(self, key: int, values: npt.NDArray[np.integer[Any]]) -> None:
        # pyroaring reads an array.array in one step, any other sequence element by element; sorted input is far faster.
        bitmap = BitMap(array("I", np.sort(values.astype(np.uint32)).tobytes()))
        if key in self._bitmaps:
            self._bitmaps[key].update(bitmap)
        else:
            self._bitmaps[key] = bitmap


def parts_of(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    while start < stop:
        key = start >> 32
        end = min(stop, key + 1 << 32)
        yield key, start & 0xFFFFFFFF, end - (key << 32)
        start = end


def check_range(low: int, high: int) -> None:
    if low < 0 or high > MAX_POSITION:
        wrong = low if low < 0 else high
        raise DataError(
            f"The position {wrong} cannot be a row of a data file: positions go from 0 to {MAX_POSITION}",
            position=wrong,
        )


def as_integers(positions: Positions) -> npt.NDArray[np.integer[Any]]:
    values: npt.NDArray[Any]
    if isinstance(positions, (pa.Array, pa.ChunkedArray)):
        if positions.null_count:
            raise DataError(f"{positions.null_count} positions of deleted rows are null")
        values = np.asarray(positions)
    elif isinstance(positions, np.ndarray):
        values = positions
    else:
        values = from_iterable(positions)
    if len(values) and not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"Positions of deleted rows are integers, not {values.dtype}")
    return values


def from_iterable(positions: Iterable[int]) -> npt.NDArray[Any]:
    values = list(positions)
    if values:
        check_range(min(values), max(values))
    return np.array(values)
