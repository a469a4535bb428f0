"""Finds rows of a table by the values of some of its columns, each combination of which occurs once. Worker-safe.

Input: key columns without floats. Output: for rows of another table, the place of the row with their key.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NOWHERE", "KeyIndex", "Places", "as_int64", "is_whole_number"]

Places = npt.NDArray[np.int64]
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
        self._index = WholeNumbers(columns[0]) if single else Combinations(columns)
        self.is_unique = self._index.is_unique

    def places(self, columns: Sequence[pa.Array]) -> Places:
        """Where the keys of some rows are; -1 where there is no such key.

        Args:
            columns: The key columns of the rows, in the types of the index.
        """
        return self._index.places(columns)


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


class Combinations:
    """The places of combinations of values.

    A combination is one number: the place of its first value among all first values, and so on.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._dictionaries: list[pa.Array] = []
        self._known: list[Places] = []
        codes = np.zeros(len(columns[0]), np.int64)
        for column in columns:
            dictionary = column.unique().drop_null()
            self._dictionaries.append(dictionary)
            combined = combine(codes, column, dictionary)
            known = np.unique(combined)
            self._known.append(known[known != NOWHERE])
            codes = located(combined, self._known[-1])
        self._places = np.full(len(self._known[-1]), NOWHERE, np.int64)
        rows = np.flatnonzero(codes != NOWHERE)
        self._places[codes[rows]] = rows
        self.is_unique = len(rows) == len(self._places)

    def places(self, columns: Sequence[pa.Array]) -> Places:
        """As `KeyIndex.places`."""
        codes = np.zeros(len(columns[0]), np.int64)
        for column, dictionary, known in zip(columns, self._dictionaries, self._known, strict=True):
            codes = located(combine(codes, column, dictionary), known)
        found = self._places[codes] if len(self._places) else np.full(len(codes), NOWHERE, np.int64)
        found[codes == NOWHERE] = NOWHERE
        return found


def combine(codes: Places, column: pa.Array, dictionary: pa.Array) -> Places:
    """The numbers of combinations with one more column; -1 where it has no such value."""
    places = pc.index_in(column, value_set=dictionary, skip_nulls=True)
    added: Places = places.fill_null(NOWHERE).to_numpy(zero_copy_only=False).astype(np.int64)
    combined = codes * max(1, len(dictionary)) + added
    combined[(codes == NOWHERE) | (added == NOWHERE)] = NOWHERE
    return combined


def located(combined: Places, known: Places) -> Places:
    """Where numbers are among ascending ones; -1 where they are not."""
    if not len(known):
        return np.full(len(combined), NOWHERE, np.int64)
    places = np.minimum(np.searchsorted(known, combined), len(known) - 1)
    return np.where((known[places] == combined) & (combined != NOWHERE), places, NOWHERE)
