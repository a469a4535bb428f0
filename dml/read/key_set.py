"""The join keys that matter to a scan, asked of many rows at once. Worker-safe.

Input: key columns. Output: a mask of the rows whose key is in the set; a key with a NULL is in no set.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml.deletes.equality import EqualityDeleteSet

__all__ = ["KeySet"]

MAX_TABLE = 1 << 26
"""Greatest span of integer keys for which a table with one byte a value is held."""

Mask = npt.NDArray[np.bool_]


class KeySet:
    """Keys of one or more columns.

    Args:
        columns: The columns of the keys, all of one length, in the types of the rows that will be asked for. Floats
            are no keys: -0.0 and 0.0 are told apart here, which a join does not.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        names = [str(place) for place in range(len(columns))]
        self.schema = pa.schema(list(zip(names, (column.type for column in columns), strict=True)))
        self.integers: IntegerSet | None = None
        self.others: EqualityDeleteSet | None = None
        if len(columns) == 1 and (pa.types.is_integer(columns[0].type) or pa.types.is_date32(columns[0].type)):
            self.integers = IntegerSet(columns[0].drop_null())
        else:
            self.others = EqualityDeleteSet([pa.RecordBatch.from_arrays(columns, schema=self.schema)], self.schema)

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        """Which rows have a key of the set.

        Args:
            columns: The rows' key columns.
        """
        if self.integers is not None:
            return self.integers.contains(columns[0])
        assert self.others is not None
        mask: Mask = self.others.mask(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        for column in columns:
            if column.null_count:
                mask &= to_numpy(column.is_valid())
        return mask


class IntegerSet:
    """Integers as a table of bytes where they lie close, else sorted: no hash table has to be built for each batch."""

    def __init__(self, values: pa.Array) -> None:
        keys = np.sort(as_int64(values))
        self.least, self.greatest = (int(keys[0]), int(keys[-1])) if len(keys) else (0, -1)
        span = self.greatest - self.least + 1
        self.table: Mask | None = None
        self.keys = keys
        if 0 < span <= MAX_TABLE and span <= max(1 << 20, 256 * len(keys)):
            self.table = np.zeros(span, np.bool_)
            self.table[keys - self.least] = True

    def contains(self, column: pa.Array) -> Mask:
        """Which values are in the set; NULL is not."""
        if self.greatest < self.least:
            return np.zeros(len(column), np.bool_)
        values = as_int64(column.fill_null(0) if column.null_count else column)
        inside = (values >= self.least) & (values <= self.greatest)
        if column.null_count:
            inside &= to_numpy(column.is_valid())
        found = values[inside]
        if self.table is not None:
            inside[inside] = self.table[found - self.least]
        else:
            inside[inside] = self.keys[np.searchsorted(self.keys, found)] == found
        return inside


def as_int64(array: pa.Array) -> npt.NDArray[np.int64]:
    """Integers or dates as 64-bit integers."""
    plain = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
    return np.asarray(plain.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def to_numpy(mask: pa.Array) -> Mask:
    """A boolean array without nulls as numpy's, which can be written to."""
    return np.array(mask.to_numpy(zero_copy_only=False), np.bool_)
