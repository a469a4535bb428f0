"""Column metrics of a Parquet file, from its footer and from counting NaNs. Worker.

Input: the footer of a file that was just written, the modes of its columns. Output: the metrics of a `ContentFile`.
Spec: "Manifests" (fields 108 to 128).

Footers tell all but NaNs: Arrow leaves NaN out of a column's least and greatest value. Fields inside lists and maps
have sizes only, as in Iceberg's Java library: their values are not the rows'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from dml.write.bounds import lower_bound, upper_bound
from dml.write.metrics_modes import MetricsMode

__all__ = ["ColumnMetrics", "Leaf", "NanCounter", "leaves", "parquet_metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A physical column of a file.

    Attributes:
        field: The primitive field.
        path: Places of the fields that lead to it: the column, then fields of structs.
        repeated: Whether it is inside a list or map.
    """

    field: NestedField
    path: tuple[int, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMetrics:
    """The metrics of a file's columns, by field id; see `ContentFile`."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def leaves(columns: tuple[NestedField, ...]) -> tuple[Leaf, ...]:
    """The physical columns of a file, in its order."""
    return tuple(leaf for place, column in enumerate(columns) for leaf in _leaves(column, (place,), repeated=False))


def _leaves(column: NestedField, path: tuple[int, ...], *, repeated: bool) -> tuple[Leaf, ...]:
    children = _children(column.field_type)
    if not children:
        return () if isinstance(column.field_type, StructType) else (Leaf(field=column, path=path, repeated=repeated),)
    repeated = repeated or not isinstance(column.field_type, StructType)
    return tuple(
        leaf for place, child in enumerate(children) for leaf in _leaves(child, (*path, place), repeated=repeated)
    )


def _children(field_type: IcebergType) -> tuple[NestedField, ...]:
    match field_type:
        case StructType():
            return field_type.fields
        case ListType():
            return (field_type.element_field,)
        case MapType():
            return field_type.key_field, field_type.value_field
    return ()


class NanCounter:
    """Counts the NaNs of floating columns, batch by batch.

    Args:
        leaves: The file's physical columns.
        modes: The modes of its fields.
    """

    def __init__(self, leaves: tuple[Leaf, ...], modes: Mapping[int, MetricsMode]) -> None:
        self._leaves = tuple(
            leaf
            for leaf in leaves
            if isinstance(leaf.field.field_type, FloatType | DoubleType)
            and not leaf.repeated
            and leaf.field.field_id in modes
            and modes[leaf.field.field_id].counts
        )
        self.counts: dict[int, int] = dict.fromkeys((leaf.field.field_id for leaf in self._leaves), 0)

    def add(self, columns: list[pa.Array]) -> None:
        """Counts in one batch."""
        for leaf in self._leaves:
            values = columns[leaf.path[0]]
            for place in leaf.path[1:]:
                values = pc.struct_field(values, [place])  # NULL where the struct is NULL
            nans = pc.sum(pc.is_nan(values)).as_py()
            self.counts[leaf.field.field_id] += nans or 0


def parquet_metrics(
    footer: Any, leaves: tuple[Leaf, ...], modes: Mapping[int, MetricsMode], nan_counts: Mapping[int, int]
) -> ColumnMetrics:
    """The metrics of a file.

    Args:
        footer: The file's `pyarrow.parquet.FileMetaData`.
        leaves: Its physical columns, in the footer's order.
        modes: The modes of its fields; a field without one has no metrics.
        nan_counts: NaNs by field id.
    """
    result = ColumnMetrics(nan_value_counts=dict(nan_counts))
    groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
    for place, leaf in enumerate(leaves):
        field_id = leaf.field.field_id
        mode = modes.get(field_id)
        if mode is None or not mode.counts:
            continue
        chunks = [group.column(place) for group in groups]
        result.column_sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        if not leaf.repeated:
            _add_chunks(result, leaf, mode, chunks)
    return result


def _add_chunks(result: ColumnMetrics, leaf: Leaf, mode: MetricsMode, chunks: list[Any]) -> None:
    field_id, field_type = leaf.field.field_id, leaf.field.field_type
    values = sum(chunk.num_values for chunk in chunks)
    result.value_counts[field_id] = values
    statistics = [chunk.statistics for chunk in chunks]
    if any(part is None or not part.has_null_count for part in statistics):
        return
    result.null_value_counts[field_id] = sum(part.null_count for part in statistics)
    filled = [part for part, chunk in zip(statistics, chunks, strict=True) if part.null_count < chunk.num_values]
    # A chunk whose values are too long for the footer has no bounds; one that holds only NaN neither: without a look
    # at the rows the two cannot be told apart, except that the NaNs of the file are known.
    bounded = [part for part in filled if part.has_min_max]
    if not mode.bounds or not bounded or not _complete(filled, bounded, leaf):
        return
    assert isinstance(field_type, PrimitiveType)
    low = lower_bound(min(_comparable(part.min_raw, field_type) for part in bounded), field_type, mode.length)
    high = upper_bound(max(_comparable(part.max_raw, field_type) for part in bounded), field_type, mode.length)
    if low is not None:
        result.lower_bounds[field_id] = low
    if high is not None:
        result.upper_bounds[field_id] = high


def _complete(filled: list[Any], bounded: list[Any], leaf: Leaf) -> bool:
    return len(filled) == len(bounded) or isinstance(leaf.field.field_type, FloatType | DoubleType)


def _comparable(raw: Any, field_type: PrimitiveType) -> Any:
    """A value of the footer in a form that compares as the column's values do: decimals may be bytes with a sign."""
    if isinstance(field_type, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw
