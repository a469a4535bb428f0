"""Equality deletes: which rows of a batch have the deleted values. Worker-safe.

Input: the rows of equality delete files as Arrow. Output: a mask for each batch of data rows. Source: Iceberg
specification, "Equality Delete Files".

A row is deleted when all its equality columns equal those of one deleted row.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml.deletes.equality_keys import ColumnKeys, PairKeys, has_variable_width
from dml.errors import DataError, ErrorKind

__all__ = ["EqualityDeleteSet"]


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
        columns = _columns_of(list(deletes), [_without_view(field) for field in schema])
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
        codes = keys.codes(_column(batch, field))
        rows = np.flatnonzero(codes >= 0)
        for (field, keys), pairs in zip(others, self._pairs, strict=True):
            if not len(rows):
                break
            column = _column(batch, field).take(pa.array(rows))
            found = pairs.codes(codes[rows], keys.codes(column))
            codes[rows] = found
            rows = rows[found >= 0]
        mask[rows] = True
        return mask


def _without_view(field: pa.Field) -> pa.Field:
    # Arrow takes no rows of view arrays.
    if pa.types.is_string_view(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary_view(field.type) else field


def _columns_of(deletes: list[pa.RecordBatch | pa.Table], fields: list[pa.Field]) -> list[tuple[pa.Field, pa.Array]]:
    columns = []
    for field in fields:
        parts = [_column(batch, field) for batch in deletes]
        columns.append((field, pa.concat_arrays(parts) if parts else pa.array([], field.type)))
    return sorted(columns, key=lambda column: has_variable_width(column[0].type))


def _column(batch: pa.RecordBatch | pa.Table, field: pa.Field) -> pa.Array:
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
