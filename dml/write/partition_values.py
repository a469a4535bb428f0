"""Split batches by partition. Worker.

Input: batches of the file layout. Output: the partition tuples in a batch, each with its rows. Spec: "Partition
Transforms"; tuples hold Iceberg's internal form of values (days as int, timestamps as microseconds, ...).

A row whose partition value does not fit the type of the partition field is rejected: see decision 037.
"""

import math
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import IcebergType, NestedField, StructType

from dml.errors import DataError, ErrorKind, NotSupportedError
from dml.model.transforms import array_transform, exact_range, is_reproducible, source_value_text

__all__ = ["PartitionRouter"]

Codes = npt.NDArray[np.int64]
INT32_TYPES = (pa.date32(), pa.time32("s"), pa.time32("ms"))
MAX_CODE = 2**62
MAX_SHORT_CODE = 2**16
DECIMAL_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldValues:
    """How to compute one partition field from a batch.

    Attributes:
        path: The index of the source column, then the indexes of fields in structs.
        transform: Transforms the values of the source; None if the partition value is always NULL.
        check: Raises DataError for values that the transform cannot represent.
    """

    path: tuple[int, ...]
    transform: Callable[[pa.Array], pa.Array] | None
    check: Callable[[pa.Array], None] | None = None


class PartitionRouter:
    """Split batches by partition.

    Args:
        spec: The partition spec.
        columns: The columns of the batches.

    Raises:
        NotSupportedError: The spec has an unknown transform.
    """

    def __init__(self, spec: PartitionSpec, columns: tuple[NestedField, ...]) -> None:
        self._fields = tuple(field_values(field, columns) for field in spec.fields)
        self.source_ids = frozenset(
            columns[values.path[0]].field_id for values in self._fields if values.transform is not None
        )

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Yield the partitions of a batch in order of first appearance, each with its rows in order."""
        if not batch.num_rows:
            return
        encoded = [self._encoded(batch, field) for field in self._fields]
        codes = combine_codes([codes for codes, _ in encoded], batch.num_rows)
        for first, rows in groups(batch, codes):
            yield tuple(values[int(field_codes[first])] for field_codes, values in encoded), rows

    def _encoded(self, batch: pa.RecordBatch, field: FieldValues) -> tuple[Codes, list[Any]]:
        """Return the code of each row, and the value of each code. The last code is that of NULL."""
        if field.transform is None:
            return np.zeros(batch.num_rows, dtype=np.int64), [None]
        values = batch.column(field.path[0])
        for place in field.path[1:]:
            values = pc.struct_field(values, [place])
        if field.check is not None:
            field.check(partition_form(values))
        storage = partition_form(field.transform(align_decimals(values)))
        as_uuid = values.type == pa.uuid() and storage.type == pa.binary(16)
        encoded = storage.dictionary_encode()
        distinct = [internal(value, as_uuid=as_uuid) for value in encoded.dictionary.to_pylist()]
        indices = encoded.indices
        if indices.null_count:
            indices = indices.fill_null(pa.scalar(len(distinct), indices.type))
        return indices.to_numpy(zero_copy_only=False).astype(np.int64), [*distinct, None]


def field_values(field: PartitionField, columns: tuple[NestedField, ...]) -> FieldValues:
    """Return how to compute a partition field.

    Raises:
        NotSupportedError: Its transform is unknown, or engines disagree about it.
    """
    if isinstance(field.transform, UnknownTransform):
        raise NotSupportedError(
            f"Cannot write using unsupported transforms: the partition field '{field.name}' is {field.transform}",
            hint="Upgrade RowDelta, or replace the partition field",
        )
    found = None if isinstance(field.transform, VoidTransform) else find_source(field.source_id, columns)
    if found is None:  # the source column of a void field may be dropped
        return FieldValues(path=(), transform=None)
    path, source = found
    if not is_reproducible(field.transform, source):
        raise NotSupportedError(
            f"Cannot write to the partition field '{field.name}': engines disagree about {field.transform} of an INT",
            hint="Replace the partition field with one whose width is at most 1073741824",
        )
    limits = exact_range(field.transform, source)
    check = None if limits is None else partial(check_range, field=field, source=source, limits=limits)
    return FieldValues(path=path, transform=array_transform(field.transform, source), check=check)


def check_range(values: pa.Array, *, field: PartitionField, source: IcebergType, limits: tuple[Any, Any]) -> None:
    """Reject values whose partition value would not fit its type.

    Java and Rust wrap such partition values around silently, and scans then prune the file.

    Raises:
        DataError: There is such a value.
    """
    extremes = pc.min_max(values)
    least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
    if least is None or (limits[0] <= least and greatest <= limits[1]):
        return
    value = least if least < limits[0] else greatest
    text, first, last = (source_value_text(source, found) for found in (value, *limits))
    raise DataError(
        f"The value {text} is out of range for the partition field '{field.name}': {field.transform} of it does not "
        "fit the type of the field",
        kind=ErrorKind.OVERFLOW,
        hint=f"Write values from {first} to {last}, or replace the partition field",
        partition_field=field.name,
    )


def find_source(field_id: int, columns: tuple[NestedField, ...]) -> tuple[tuple[int, ...], IcebergType] | None:
    """Return the path to a source column (column index, then field indexes in structs) and its type."""
    for place, column in enumerate(columns):
        if column.field_id == field_id:
            return (place,), column.field_type
        if isinstance(column.field_type, StructType):
            inner = find_source(field_id, column.field_type.fields)
            if inner is not None:
                return (place, *inner[0]), inner[1]
    return None


def align_decimals(values: pa.Array) -> pa.Array:
    """Align decimals to 16 bytes, which `pyiceberg_core` requires. Spark aligns them to 8."""
    if not pa.types.is_decimal(values.type) or values.buffers()[1].address % DECIMAL_BYTES == 0:
        return values
    return pa.concat_arrays([values, values[:0]])


def partition_form(values: pa.Array) -> pa.Array:
    """Convert values to the form of partition tuples."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type in INT32_TYPES:
        return values.cast(pa.int32())
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int64())
    return values


def internal(value: Any, *, as_uuid: bool) -> Any:
    """Return a value that works as part of a key: every NaN becomes the same object."""
    if as_uuid:
        return uuid.UUID(bytes=value)
    if isinstance(value, float) and math.isnan(value):
        return math.nan
    return value


def combine_codes(codes: list[Codes], rows: int) -> Codes:
    """Return one code for each combination of codes."""
    result = np.zeros(rows, dtype=np.int64)
    size = 1
    for field_codes in codes:
        width = int(field_codes.max()) + 1
        if size * width > MAX_CODE:
            result = np.unique(result, return_inverse=True)[1].astype(np.int64)
            size = int(result.max()) + 1
        result = result * width + field_codes
        size *= width
    return result


def groups(batch: pa.RecordBatch, codes: Codes) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each code with the index of the first, in the order of these indexes.

    Groups have buffers of their own: a slice would keep the whole batch in memory until the smallest of its partitions
    has enough rows to be written.
    """
    if (codes == codes[0]).all():
        yield 0, batch
        return
    # NumPy uses a radix sort for 16-bit integers, and a slower comparison sort for wider ones.
    order = np.argsort(codes.astype(np.uint16) if codes.max() < MAX_SHORT_CODE else codes, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes[order])) + 1])
    first, ends = order[starts], np.append(starts[1:], len(order))
    for group in np.argsort(first).tolist():
        yield int(first[group]), batch.take(pa.array(order[starts[group] : ends[group]]))
