"""Equality deletes: which rows of a batch have the deleted values. Worker-safe.

Input: the rows of equality delete files as Arrow. Output: a mask for each batch of data rows. Source: Iceberg
specification, "Equality Delete Files".

A row is deleted when all its equality columns equal those of one deleted row. Equal means what Iceberg's Java library
(`StructLikeSet`, `Comparators`) makes of it: NULL equals NULL, every NaN equals every NaN, and -0.0 does not equal 0.0
(`Double.compare`). Strings and binaries compare by their bytes.

Values become codes, their places among the deleted values, -1 for a value that is not deleted. The sets are kept
between batches: Arrow's own `is_in` would build its hash table anew for each.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dml import limits
from dml.errors import DataError, ErrorKind, NotSupportedError

__all__ = ["EqualityDeleteSet"]


Int64s = npt.NDArray[np.int64]


class IntegerKeySet:
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
        self._pairs = IntegerKeySet(self._fold(first, second))

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
        self._high, self._low = IntegerKeySet(high), IntegerKeySet(low)
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
        if len(self._values) > limits.MAX_ARROW_SET_VALUES:
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
        parts = comparable_parts(deleted.drop_null())
        self._keys: BytesKeys | IntegerKeySet | WideKeys
        if isinstance(parts, pa.Array):
            self._keys = BytesKeys(parts)
        elif len(parts) == 1:
            self._keys = IntegerKeySet(*parts)
        else:
            self._keys = WideKeys(*parts)
        self._null_code = len(self._keys) if deleted.null_count else -1

    def codes(self, column: pa.Array) -> Int64s:
        """The code of each value, or -1 for one that is not deleted.

        Args:
            column: Values of the type of the deleted ones.
        """
        parts = comparable_parts(column)
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


def comparable_parts(column: pa.Array) -> pa.Array | list[Int64s]:
    # What lies under a null is left as it is: its row gets the code of NULL.
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if has_variable_width(kind):
        return column.cast(pa.large_binary())
    if types.is_null(kind):
        return [np.zeros(len(column), dtype=np.int64)]
    if types.is_boolean(kind):
        return [numbers_of(column.cast(pa.int8()), "i1").astype(np.int64)]
    if types.is_fixed_size_binary(kind):
        return words_of(column)
    if types.is_decimal(kind):
        return words_of(column.cast(pa.decimal128(38, kind.scale)))
    if types.is_integer(kind) or types.is_temporal(kind):
        return [numbers_of(column, f"i{kind.bit_width // 8}").astype(np.int64)]
    if types.is_floating(kind):
        return [float_bits(column)]
    raise NotSupportedError(
        f"Equality deletes compare a column of type {kind}", hint="They may compare columns of primitive types only"
    )


def float_bits(column: pa.Array) -> Int64s:
    width = column.type.bit_width // 8
    numbers = numbers_of(column, f"f{width}")
    one_nan = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    return one_nan.view(f"i{width}").astype(np.int64)


def words_of(column: pa.Array) -> list[Int64s]:
    words = numbers_of(column, "<i8", words=2)
    return [words[1::2], words[0::2]]


def numbers_of(column: pa.Array, dtype: str, words: int = 1) -> npt.NDArray[Any]:
    data = column.buffers()[1]
    if data is None:
        return np.zeros(words * len(column), dtype=dtype)
    first = words * column.offset
    return np.frombuffer(data, dtype=dtype)[first : first + words * len(column)]


class EqualityDeleteSet:
    """The values that equality delete files of the same columns delete.

    Columns are looked up one after the other, those of fixed width first, and only rows that match so far are looked
    at further. The code of a row so far and that of its next column make a pair, whose code is that of the longer row.

    Args:
        deletes: Rows of the delete files; columns that `schema` does not have are passed over.
        schema: The equality columns: their names, and the types in which they are compared. A field of a struct is a
            column here; the caller takes it out of its struct, in deletes and in rows alike.

    Raises:
        DataError: a column is missing, or its values do not fit the type.
        NotSupportedError: a column is of a type that values are not compared in.
    """

    def __init__(self, deletes: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema) -> None:
        assert len(schema), "equality deletes have at least one column"
        columns = columns_of(list(deletes), [without_view(field) for field in schema])
        self._count = len(columns[0][1])
        self._columns: list[tuple[pa.Field, ColumnKeys]] = []
        self._pairs: list[PairKeys] = []
        codes: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        for field, values in columns:
            keys = ColumnKeys(values)
            column_codes = keys.codes(values)
            if self._columns:
                self._pairs.append(PairKeys(codes, column_codes))
                codes = self._pairs[-1].codes(codes, column_codes)
            else:
                codes = column_codes
            self._columns.append((field, keys))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is deleted."""
        return not self._count

    def mask(self, batch: pa.RecordBatch | pa.Table) -> npt.NDArray[np.bool_]:
        """Which rows of a batch are deleted.

        Args:
            batch: Data rows; it must have the equality columns, by name.

        Returns:
            A mask with one element a row, True where the row is deleted.

        Raises:
            DataError: an equality column is missing, or its values do not fit the type.
        """
        mask = np.zeros(batch.num_rows, dtype=np.bool_)
        if self.is_empty:
            return mask
        (field, keys), *others = self._columns
        codes = keys.codes(column_of(batch, field))
        rows = np.flatnonzero(codes >= 0)
        for (field, keys), pairs in zip(others, self._pairs, strict=True):
            if not len(rows):
                break
            column = column_of(batch, field).take(pa.array(rows))
            found = pairs.codes(codes[rows], keys.codes(column))
            codes[rows] = found
            rows = rows[found >= 0]
        mask[rows] = True
        return mask


def without_view(field: pa.Field) -> pa.Field:
    # Arrow takes no rows of view arrays.
    if pa.types.is_string_view(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary_view(field.type) else field


def columns_of(deletes: list[pa.RecordBatch | pa.Table], fields: list[pa.Field]) -> list[tuple[pa.Field, pa.Array]]:
    columns = []
    for field in fields:
        parts = [column_of(batch, field) for batch in deletes]
        columns.append((field, pa.concat_arrays(parts) if parts else pa.array([], field.type)))
    return sorted(columns, key=lambda column: has_variable_width(column[0].type))


def column_of(batch: pa.RecordBatch | pa.Table, field: pa.Field) -> pa.Array:
    number = batch.schema.get_field_index(field.name)
    if number < 0:
        raise DataError(f"The rows have no column '{field.name}', which equality deletes compare", column=field.name)
    column = batch.column(number)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"The values of the column '{field.name}', which equality deletes compare, are {column.type} "
            f"and do not fit {field.type}",
            kind=ErrorKind.TYPE_MISMATCH,
            column=field.name,
        ) from error
