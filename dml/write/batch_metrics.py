"""Column metrics of a file from the rows themselves, for formats whose footers Arrow does not show. Worker.

Input: batches as they are written. Output: the metrics of a `ContentFile`, by the rules of `column_metrics`: fields
inside lists and maps have none, a field of a NULL struct is NULL.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import PrimitiveType
from pyiceberg.utils.decimal import decimal_to_unscaled

from dml.write.bounds import lower_bound, upper_bound
from dml.write.column_metrics import ColumnMetrics, Leaf, MetricsMode

__all__ = ["BatchMetrics"]


class BatchMetrics:
    """Counts and compares, batch by batch.

    Args:
        leaves: The file's physical columns.
        modes: The modes of its fields; a field without one has no metrics.
    """

    def __init__(self, leaves: tuple[Leaf, ...], modes: Mapping[int, MetricsMode]) -> None:
        self._counted = tuple(
            (leaf, modes[leaf.field.field_id])
            for leaf in leaves
            if not leaf.repeated and leaf.field.field_id in modes and modes[leaf.field.field_id].counts
        )
        self._rows = 0
        self._nulls = {leaf.field.field_id: 0 for leaf, _ in self._counted}
        self._nans: dict[int, int] = {}
        self._least: dict[int, Any] = {}
        self._greatest: dict[int, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows into account."""
        self._rows += batch.num_rows
        for leaf, mode in self._counted:
            values = batch.column(leaf.path[0])
            for place in leaf.path[1:]:
                values = pc.struct_field(values, [place])  # NULL where the struct is NULL
            self._add(leaf.field.field_id, mode, plain(values))

    def _add(self, field_id: int, mode: MetricsMode, values: pa.Array) -> None:
        self._nulls[field_id] += values.null_count
        if pa.types.is_floating(values.type):
            nans = pc.is_nan(values)
            found = pc.sum(nans).as_py() or 0
            self._nans[field_id] = self._nans.get(field_id, 0) + found
            if found:
                values = values.filter(pc.invert(nans))
        if not mode.bounds or values.null_count == len(values):
            return
        extremes = pc.min_max(values)
        least, greatest = comparable(extremes["min"]), comparable(extremes["max"])
        self._least[field_id] = min(self._least.get(field_id, least), least)
        self._greatest[field_id] = max(self._greatest.get(field_id, greatest), greatest)

    def metrics(self) -> ColumnMetrics:
        """The metrics of all rows; how large columns are is not known."""
        result = ColumnMetrics(nan_value_counts=dict(self._nans))
        for leaf, mode in self._counted:
            field_id, kind = leaf.field.field_id, leaf.field.field_type
            assert isinstance(kind, PrimitiveType)
            result.value_counts[field_id] = self._rows
            result.null_value_counts[field_id] = self._nulls[field_id]
            if field_id not in self._least:
                continue
            low = lower_bound(self._least[field_id], kind, mode.length)
            high = upper_bound(self._greatest[field_id], kind, mode.length)
            if low is not None:
                result.lower_bounds[field_id] = low
            if high is not None:
                result.upper_bounds[field_id] = high
        return result


def plain(values: pa.Array) -> pa.Array:
    """Values that Arrow compares as bounds do: numbers for days and instants, bytes for texts."""
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.view(pa.int64())
    return values.view(pa.binary()) if pa.types.is_string(kind) else values


def comparable(value: pa.Scalar) -> Any:
    """A least or greatest value as `dml.write.bounds` takes it: decimals by their digits."""
    found = value.as_py()
    # Not `scaleb`: it rounds to the 28 digits of the default context.
    return decimal_to_unscaled(found) if pa.types.is_decimal(value.type) else found
