"""Finds rows of a table by the values of some of its columns, each combination of which occurs once. Worker-safe.

Input: key columns without floats. Output: for rows of another table, the place of the row with their key.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NOWHERE", "KeyIndex", "Places"]

Places = npt.NDArray[np.int64]
NOWHERE = -1
"""The place of a key that is not there."""


class KeyIndex:
    """Keys and their places.

    A combination of values is one number: the place of its first value among all first values, and so on.

    Args:
        columns: The key columns, of one length. A key with NULL equals nothing, and is not found.
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
        """Where the keys of some rows are; -1 where there is no such key.

        Args:
            columns: The key columns of the rows, in the types of the index.
        """
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
