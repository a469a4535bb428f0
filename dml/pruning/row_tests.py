"""Which rows can match a filter, by bounds and counts alone. Worker-safe.

Input: an Iceberg expression and, for each column, what is known of its values: from a manifest's partition summary, a
partition tuple, a data file's metrics or a Parquet row group. Output: whether any row may match, or all must.
Spec: "Scan Planning"; "Manifests", on bounds and counts.

Semantics are SQL's: a predicate on NULL is not true, NaN is greater than every other value, -0.0 equals 0.0. Bounds
leave NaN out, so a column that may hold NaN may match `>`, whatever its bounds say.

Tests ask for bounds first and for counts last: bounds decide most, and a file's metrics are worked out when asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyiceberg.expressions import (
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundStartsWith,
)
from pyiceberg.schema import Schema

from dml.pruning.bound_expressions import bound_filter, folded

__all__ = ["Bounds", "BoundsOf", "ColumnBounds", "RowTest", "all_match", "any_match"]


class ColumnBounds(Protocol):
    """What is known of a column's values in some set of rows."""

    @property
    def lower(self) -> Any:
        """No value is less (NaN apart); None where unknown. In Iceberg's internal form."""

    @property
    def upper(self) -> Any:
        """No value is greater (NaN apart); None where unknown."""

    @property
    def nulls(self) -> bool:
        """Whether there may be NULLs."""

    @property
    def nans(self) -> bool:
        """Whether there may be NaNs."""

    @property
    def values(self) -> bool:
        """Whether there may be values that are neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`ColumnBounds` that are at hand; what is missing is unknown."""

    lower: Any = None
    upper: Any = None
    nulls: bool = True
    nans: bool = True
    values: bool = True


BoundsOf = Callable[[int], ColumnBounds]
"""What is known of the column with a field id."""

RowTest = Callable[[BoundsOf], bool]
Leaf = Callable[[ColumnBounds], bool]


def any_match(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> RowTest:
    """A test that is False only where no row can satisfy the expression.

    Args:
        expression: An unbound expression.
        schema: The schema that its names belong to.
        case_sensitive: How names match.
    """
    return compiled(bound_filter(expression, schema, case_sensitive=case_sensitive), may_match)


def all_match(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> RowTest:
    """A test that is True only where every row satisfies the expression.

    Args:
        expression: An unbound expression.
        schema: The schema that its names belong to.
        case_sensitive: How names match.
    """
    return compiled(bound_filter(expression, schema, case_sensitive=case_sensitive), must_match)


def compiled(expression: BooleanExpression, leaf: Callable[[BoundPredicate], Leaf]) -> RowTest:
    """A bound expression as nested functions: one walk over the tree, however many files it is asked of."""

    def on_column(predicate: BoundPredicate) -> RowTest:
        field_id, test = predicate.term.ref().field.field_id, leaf(predicate)
        return lambda bounds_of: test(bounds_of(field_id))

    def both(left: RowTest, right: RowTest) -> RowTest:
        return lambda bounds_of: left(bounds_of) and right(bounds_of)

    def either(left: RowTest, right: RowTest) -> RowTest:
        return lambda bounds_of: left(bounds_of) or right(bounds_of)

    return folded(expression, leaf=on_column, both=both, either=either, always=lambda _: True, never=lambda _: False)


# ---- may a row match? -----------------------------------------------------------------------------------------


def may_match(predicate: BoundPredicate) -> Leaf:
    """Whether a row may satisfy a predicate."""
    match predicate:
        case BoundIsNull():
            return lambda b: b.nulls
        case BoundNotNull():
            return lambda b: b.values or b.nans
        case BoundIsNaN():
            return lambda b: b.nans
        case BoundNotNaN():
            return lambda b: b.values
        case BoundEqualTo():
            return may_equal([predicate.literal.value])
        case BoundIn():
            return may_equal(sorted(predicate.value_set))
        case BoundLessThan():
            value = predicate.literal.value
            return lambda b: ((lower := b.lower) is None or bool(lower < value)) and b.values
        case BoundLessThanOrEqual():
            value = predicate.literal.value
            return lambda b: ((lower := b.lower) is None or bool(lower <= value)) and b.values
        case BoundGreaterThan():
            value = predicate.literal.value
            return lambda b: (((upper := b.upper) is None or bool(upper > value)) and b.values) or b.nans
        case BoundGreaterThanOrEqual():
            value = predicate.literal.value
            return lambda b: (((upper := b.upper) is None or bool(upper >= value)) and b.values) or b.nans
        case BoundStartsWith():
            return may_start(str(predicate.literal.value))
        case BoundNotStartsWith():
            return may_not_start(str(predicate.literal.value))
        case BoundNotEqualTo() | BoundNotIn():
            return may_differ(predicate)
    return lambda _: True


def may_differ(predicate: BoundNotEqualTo | BoundNotIn) -> Leaf:
    """Whether a row may have a value that is none of these: not if all rows have one value, and it is one of them.

    Bounds that were cut off differ, so equal ones are the value itself.
    """
    values = {predicate.literal.value} if isinstance(predicate, BoundNotEqualTo) else predicate.value_set

    def test(bounds: ColumnBounds) -> bool:
        lower = bounds.lower
        one_value = lower is not None and lower == bounds.upper
        return bounds.nans or (bounds.values and not (one_value and lower in values))

    return test


def may_equal(values: Sequence[Any]) -> Leaf:
    """Whether a row may have one of these values, which ascend."""

    def test(bounds: ColumnBounds) -> bool:
        lower = bounds.lower
        place = 0 if lower is None else bisect_left(values, lower)
        if place == len(values):
            return False
        upper = bounds.upper
        return (upper is None or bool(values[place] <= upper)) and bounds.values

    return test


def may_start(prefix: str) -> Leaf:
    """Whether a row may start with the prefix; bounds may be cut off, the upper one is then rounded up."""
    length = len(prefix)

    def test(bounds: ColumnBounds) -> bool:
        lower, upper = bounds.lower, bounds.upper
        return (
            (lower is None or lower[:length] <= prefix) and (upper is None or upper[:length] >= prefix)
        ) and bounds.values

    return test


def may_not_start(prefix: str) -> Leaf:
    """Whether a row may have another start: not if both bounds have this one."""

    def test(bounds: ColumnBounds) -> bool:
        return not both_start(bounds, prefix) and bounds.values

    return test


# ---- must every row match? ------------------------------------------------------------------------------------


def must_match(predicate: BoundPredicate) -> Leaf:
    """Whether every row satisfies a predicate."""
    match predicate:
        case BoundIsNull():
            return lambda b: not b.values and not b.nans
        case BoundNotNull():
            return lambda b: not b.nulls
        case BoundIsNaN():
            return lambda b: not b.values and not b.nulls
        case BoundNotNaN():
            return lambda b: not b.nans and not b.nulls
        case BoundEqualTo():
            return must_equal([predicate.literal.value])
        case BoundIn():
            return must_equal(sorted(predicate.value_set))
        case BoundNotEqualTo():
            return must_differ([predicate.literal.value])
        case BoundNotIn():
            return must_differ(sorted(predicate.value_set))
        case BoundStartsWith():
            prefix = str(predicate.literal.value)
            return lambda b: not b.nulls and both_start(b, prefix)
        case BoundNotStartsWith():
            starts = may_start(str(predicate.literal.value))
            return lambda b: not b.nulls and not starts(b)
    return must_compare(predicate)


def must_compare(predicate: BoundPredicate) -> Leaf:
    """Whether every row is on one side of a value; NaN is above all."""
    match predicate:
        case BoundLessThan():
            value = predicate.literal.value
            return lambda b: (upper := b.upper) is not None and bool(upper < value) and not b.nulls and not b.nans
        case BoundLessThanOrEqual():
            value = predicate.literal.value
            return lambda b: (upper := b.upper) is not None and bool(upper <= value) and not b.nulls and not b.nans
        case BoundGreaterThan():
            value = predicate.literal.value
            return lambda b: (lower := b.lower) is not None and bool(lower > value) and not b.nulls
        case BoundGreaterThanOrEqual():
            value = predicate.literal.value
            return lambda b: (lower := b.lower) is not None and bool(lower >= value) and not b.nulls
    return lambda _: False


def must_equal(values: Sequence[Any]) -> Leaf:
    """Whether every row has the same value, one of these, which ascend."""

    def test(bounds: ColumnBounds) -> bool:
        lower = bounds.lower
        if lower is None or lower != bounds.upper or bounds.nulls or bounds.nans:
            return False
        place = bisect_left(values, lower)
        return place < len(values) and bool(values[place] == lower)

    return test


def must_differ(values: Sequence[Any]) -> Leaf:
    """Whether no row has one of these values."""
    equal = may_equal(values)
    return lambda bounds: not bounds.nulls and not equal(bounds)


def both_start(bounds: ColumnBounds, prefix: str) -> bool:
    """Whether every value starts with the prefix because both bounds do."""
    lower, upper = bounds.lower, bounds.upper
    return lower is not None and upper is not None and lower.startswith(prefix) and upper.startswith(prefix)
