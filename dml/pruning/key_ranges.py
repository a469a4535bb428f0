"""Turn the keys of one side of a join into a filter for the rows and files of the other. Worker-safe.

Input: the keys of a column as an Arrow array, or their minimum and maximum. Output: an Iceberg expression that is true
for every row whose value equals a key, and for few others. It lists the keys if they are few, and has ranges otherwise.

A range ends where a wide gap between neighbouring keys begins, so keys of January and December do not open the files of
June.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import (
    DateLiteral,
    Literal,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
    literal,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml import limits

__all__ = ["KeyRanges", "range_between", "ranges_of"]


GREATEST: Final[dict[type[IcebergType], float]] = {
    DoubleType: float(np.finfo(np.float64).max),
    FloatType: float(np.finfo(np.float32).max),
}
"""The greatest finite value: PyIceberg cannot compare with infinity."""

LITERALS: Final[dict[type[IcebergType], Callable[[Any], Literal[Any]]]] = {
    DateType: DateLiteral,
    TimestampType: TimestampLiteral,
    TimestamptzType: TimestampLiteral,
    TimeType: TimeLiteral,
    UUIDType: UUIDLiteral,
}
"""Types whose internal values need a specific literal; PyIceberg selects the others by the value's Python type."""


LIMITS: Final[dict[type[IcebergType], int]] = {DateType: 1 << 31, TimestampType: 1 << 63}
"""The first number that is too large for the internal form of a type; its negation is the least number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRanges:
    """Ranges that contain all keys of a column.

    Attributes:
        field_type: The column's type.
        ranges: Minimum and maximum of each range, in Iceberg's internal form, ascending; without NaN.
        nulls: Whether NULL is a key, which only a null-safe join has.
        nans: Whether NaN is a key.
        unknown: Whether any value may be a key.
    """

    field_type: IcebergType
    ranges: tuple[tuple[Any, Any], ...] = ()
    nulls: bool = False
    nans: bool = False
    unknown: bool = False

    def widen(self, margin: int) -> "KeyRanges":
        """Return the ranges, widened at both ends by a margin in units of the internal form (days or microseconds)."""
        limit = LIMITS[type(self.field_type)]
        ranges = tuple(
            (max(least - margin, -limit), min(greatest + margin, limit - 1)) for least, greatest in self.ranges
        )
        return replace(self, ranges=ranges)

    def expression(self, name: str) -> BooleanExpression:
        """Return a predicate on the column that is true for every value that equals a key.

        Args:
            name: The column's full name in its schema.
        """
        if self.unknown:
            return AlwaysTrue()
        term = Reference(name)
        listed = {self._literal(least) for least, greatest in self.ranges if self._is_single(least, greatest)}
        parts: list[BooleanExpression] = [In(term=term, literals=listed)] if listed else []
        parts += [
            self._range(term, least, greatest)
            for least, greatest in self.ranges
            if not self._is_single(least, greatest)
        ]
        parts += [IsNaN(term=term)] if self.nans else []
        parts += [IsNull(term=term)] if self.nulls else []
        return reduce(Or, parts) if parts else AlwaysFalse()

    def _is_single(self, least: Any, greatest: Any) -> bool:
        most = GREATEST.get(type(self.field_type))
        return bool(least == greatest) and (most is None or abs(least) <= most)

    def _range(self, term: Reference, least: Any, greatest: Any) -> BooleanExpression:
        most = GREATEST.get(type(self.field_type))
        above: BooleanExpression = GreaterThanOrEqual(
            term=term, value=self._literal(least if most is None else min(least, most))
        )
        below: BooleanExpression = LessThanOrEqual(
            term=term, value=self._literal(greatest if most is None else max(greatest, -most))
        )
        if most is not None and least < -most:
            return below
        return above if most is not None and greatest > most else And(above, below)

    def _literal(self, value: Any) -> Literal[Any]:
        kind = LITERALS.get(type(self.field_type))
        return literal(value) if kind is None else kind(value)


def ranges_of(
    field_type: IcebergType, keys: pa.ChunkedArray, *, most_listed: int = limits.MAX_LISTED_KEYS
) -> KeyRanges:
    """Return ranges that contain some keys.

    Args:
        field_type: The type of the column that the keys are compared with.
        keys: The keys, as Spark returns values of this type; a UUID as its 16 bytes.
        most_listed: Up to this many distinct keys, each is a range of one value.
    """
    values = internal(keys)
    if not is_decodable(values):
        return KeyRanges(field_type=field_type, unknown=True)
    nulls, nans = values.null_count > 0, False
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        is_nan = pc.is_nan(values)
        nans = bool(pc.any(is_nan, min_count=0).as_py())
        values = values.filter(pc.invert(is_nan)) if nans else values
    return KeyRanges(field_type=field_type, ranges=tuple(ranges(values, most_listed)), nulls=nulls, nans=nans)


def range_between(
    field_type: IcebergType, least: pa.ChunkedArray, greatest: pa.ChunkedArray, *, nulls: bool, nans: bool
) -> KeyRanges:
    """Return one range from the least to the greatest key.

    Args:
        field_type: The type of the column that the keys are compared with.
        least: An array of one value, the least key; NULL if there is none.
        greatest: An array of one value, the greatest key; NULL if there is none.
        nulls: Whether NULL is a key.
        nans: Whether NaN is a key.
    """
    first, last = internal(least), internal(greatest)
    if not (is_decodable(first) and is_decodable(last)):
        return KeyRanges(field_type=field_type, unknown=True)
    ends = first[0].as_py(), last[0].as_py()
    return KeyRanges(field_type=field_type, ranges=() if None in ends else (ends,), nulls=nulls, nans=nans)


def internal(keys: pa.ChunkedArray) -> pa.Array:
    """Return values in Iceberg's internal form: dates and times as numbers, because Python's types cannot hold all."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):  # together they may have more than 2 GiB
        keys = keys.cast(pa.large_string() if pa.types.is_string(kind) else pa.large_binary())
    values = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], keys.type)
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    return values.cast(pa.time64("us")).cast(pa.int64()) if pa.types.is_time(kind) else values


def is_decodable(values: pa.Array) -> bool:
    """Return whether all strings are UTF-8, as those of Spark need not be."""
    if not pa.types.is_large_string(values.type):
        return True
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def ranges(values: pa.Array, most_listed: int) -> Iterable[tuple[Any, Any]]:
    """Return the ranges of values without NULL and NaN."""
    if len(values) <= most_listed * 10 or pa.types.is_boolean(values.type):
        distinct = pc.unique(values)
        if len(distinct) <= most_listed:
            return ((value, value) for value in sorted(distinct.to_pylist()))
    numbers = as_numbers(values)
    spans = pa.table({"part": parts_of(numbers, len(values)), "key": values})
    ends = spans.group_by("part").aggregate([("key", "min"), ("key", "max")]).sort_by("key_min")
    return merge_neighbours(ends.column("key_min").combine_chunks(), ends.column("key_max").combine_chunks())


def as_numbers(values: pa.Array) -> npt.NDArray[np.float64] | None:
    """Return approximate positions of values, to measure gaps; None if they are not numbers, or one is infinite."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers if len(numbers) and bool(np.isfinite(numbers).all()) else None


def parts_of(numbers: npt.NDArray[np.float64] | None, count: int) -> npt.NDArray[np.int32]:
    """Return the part of the span that each value is in. Rounding may select a neighbour: ranges use exact values."""
    if numbers is None:
        return np.zeros(count, np.int32)
    least, greatest = float(numbers.min()), float(numbers.max())
    width = (
        greatest / limits.KEY_RANGE_PARTS - least / limits.KEY_RANGE_PARTS
    )  # the difference of two doubles may be infinite
    if width <= 0:
        return np.zeros(count, np.int32)
    return ((numbers / width) - (least / width)).astype(np.int32)


def merge_neighbours(least: pa.Array, greatest: pa.Array) -> list[tuple[Any, Any]]:
    """Merge neighbouring ranges unless the gap between them is wide.

    Args:
        least: The least value of each range, ascending.
        greatest: The greatest value of each range.
    """
    lower, upper = as_numbers(least), as_numbers(greatest)
    cuts: Sequence[int] = ()
    if lower is not None and upper is not None and len(lower) > 1:
        lower, upper = lower / 2, upper / 2  # the difference of two doubles may be infinite
        gaps = (lower[1:] - upper[:-1]) / (upper[-1] - lower[0])
        widest = np.argsort(gaps)[::-1][: limits.MAX_KEY_RANGES - 1]
        cuts = sorted(int(place) + 1 for place in widest if gaps[place] > limits.MIN_KEY_GAP)
    edges = [0, *cuts, len(least)]
    return [(least[start].as_py(), greatest[end - 1].as_py()) for start, end in pairwise(edges) if start < end]
