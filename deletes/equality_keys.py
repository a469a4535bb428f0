"""Values of equality columns as codes: their places among the deleted values. Worker-safe.

Input: Arrow arrays. Output: numpy codes, -1 for a value that is not deleted.

Equal means what Iceberg's Java library (`StructLikeSet`, `Comparators`) makes of it: NULL equals NULL, every NaN equals
every NaN, and -0.0 does not equal 0.0 (`Double.compare`). Strings and binaries compare by their bytes.

The sets are kept between batches: Arrow's own `is_in` would build its hash table anew for each.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dml.errors import NotSupportedError

__all__ = ["ColumnKeys", "PairKeys", "has_variable_width"]

Int64s = npt.NDArray[np.int64]

MAX_HASHED_ANEW = 20_000
"""Up to so many values, Arrow's hash table of them is faster than a dictionary of Python's."""


class IntegerKeys:
    """A set of integers."""

    def __init__(self, values: Int64s) -> None:
        self._values = np.unique(values)

    def __len__(self) -> int:
        return len(self._values)

    def codes(self, values: Int64s) -> Int64s:
        """The code of each value, or -1."""
        if not len(self._values):
            return np.full(len(values), -1, dtype=np.int64)
        places = np.searchsorted(self._values, values)
        places[places == len(self._values)] = 0
        return np.where(self._values[places] == values, places, -1)


class PairKeys:
    """A set of pairs of codes, none of them -1."""

    def __init__(self, first: Int64s, second: Int64s) -> None:
        self._width = int(second.max(initial=0)) + 1
        self._pairs = IntegerKeys(self._fold(first, second))

    def __len__(self) -> int:
        return len(self._pairs)

    def codes(self, first: Int64s, second: Int64s) -> Int64s:
        """The code of each pair; -1 if either is -1 or the pair is not there."""
        return self._pairs.codes(self._fold(first, second))

    def _fold(self, first: Int64s, second: Int64s) -> Int64s:
        # Codes are places in arrays, so their product stays far below 2**63.
        return np.where((first < 0) | (second < 0), -1, first * self._width + second)


class WideKeys:
    """A set of values of 16 bytes, given as high and low words."""

    def __init__(self, high: Int64s, low: Int64s) -> None:
        self._high, self._low = IntegerKeys(high), IntegerKeys(low)
        self._pairs = PairKeys(self._high.codes(high), self._low.codes(low))

    def __len__(self) -> int:
        return len(self._pairs)

    def codes(self, high: Int64s, low: Int64s) -> Int64s:
        """The code of each value, or -1."""
        return self._pairs.codes(self._high.codes(high), self._low.codes(low))


class BytesKeys:
    """A set of byte strings."""

    def __init__(self, values: pa.Array) -> None:
        self._values = pc.unique(values)
        self._places: dict[bytes, int] = {}
        if len(self._values) > MAX_HASHED_ANEW:
            self._places = {value: place for place, value in enumerate(self._values.to_pylist())}

    def __len__(self) -> int:
        return len(self._values)

    def codes(self, values: pa.Array) -> Int64s:
        """The code of each value, or -1; any of a null."""
        if self._places:
            find = self._places.get
            return np.fromiter((find(value, -1) for value in values.to_pylist()), np.int64, len(values))
        places: Int64s = pc.index_in(values, value_set=self._values).fill_null(-1).to_numpy().astype(np.int64)
        return places


class ColumnKeys:
    """The distinct values of one column of deleted rows, NULL among them if it is.

    Args:
        deleted: The column.

    Raises:
        NotSupportedError: its type is nested.
    """

    def __init__(self, deleted: pa.Array) -> None:
        parts = _parts(deleted.drop_null())
        self._keys: BytesKeys | IntegerKeys | WideKeys
        if isinstance(parts, pa.Array):
            self._keys = BytesKeys(parts)
        elif len(parts) == 1:
            self._keys = IntegerKeys(*parts)
        else:
            self._keys = WideKeys(*parts)
        self._null_code = len(self._keys) if deleted.null_count else -1

    def codes(self, column: pa.Array) -> Int64s:
        """The code of each value, or -1 for one that is not deleted.

        Args:
            column: Values of the type of the deleted ones.
        """
        parts = _parts(column)
        codes = self._keys.codes(*((parts,) if isinstance(parts, pa.Array) else parts))
        if column.null_count:
            codes[column.is_null().to_numpy(zero_copy_only=False)] = self._null_code
        return codes


def has_variable_width(kind: pa.DataType) -> bool:
    """Whether values are compared as bytes, which costs more than numbers."""
    if types.is_fixed_size_binary(kind):
        return bool(kind.byte_width != 16)
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def _parts(column: pa.Array) -> pa.Array | list[Int64s]:
    # What lies under a null is left as it is: its row gets the code of NULL.
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if has_variable_width(kind):
        return column.cast(pa.large_binary())
    if types.is_null(kind):
        return [np.zeros(len(column), dtype=np.int64)]
    if types.is_boolean(kind):
        return [_numbers(column.cast(pa.int8()), "i1").astype(np.int64)]
    if types.is_fixed_size_binary(kind):
        return _words(column)
    if types.is_decimal(kind):
        return _words(column.cast(pa.decimal128(38, kind.scale)))
    if types.is_integer(kind) or types.is_temporal(kind):
        return [_numbers(column, f"i{kind.bit_width // 8}").astype(np.int64)]
    if types.is_floating(kind):
        return [_float_bits(column)]
    raise NotSupportedError(
        f"Equality deletes compare a column of type {kind}", hint="They may compare columns of primitive types only"
    )


def _float_bits(column: pa.Array) -> Int64s:
    width = column.type.bit_width // 8
    numbers = _numbers(column, f"f{width}")
    one_nan = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    return one_nan.view(f"i{width}").astype(np.int64)


def _words(column: pa.Array) -> list[Int64s]:
    words = _numbers(column, "<i8", words=2)
    return [words[1::2], words[0::2]]


def _numbers(column: pa.Array, dtype: str, words: int = 1) -> npt.NDArray[Any]:
    data = column.buffers()[1]
    if data is None:
        return np.zeros(words * len(column), dtype=dtype)
    first = words * column.offset
    return np.frombuffer(data, dtype=dtype)[first : first + words * len(column)]
