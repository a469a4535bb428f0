"""Test filters on the bounds and counts of a set of rows. Worker-safe.

Input: an Iceberg expression and the bounds of each column, from a manifest's partition summary, a partition tuple, a
data file's metrics or a Parquet row group. Output: whether any row may match, or all must.
Spec: "Scan Planning"; "Manifests", on bounds and counts.

Semantics are SQL's: a predicate on NULL is not true, NaN is greater than every other value, -0.0 equals 0.0. Bounds
exclude NaN, so a column that may hold NaN may match `>` for any bounds.

Tests read bounds first and counts last: bounds decide most, and a file's metrics are decoded on demand.
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

from dml.pruning.bound_expressions import bound_filter, fold_expression

__all__ = ["Bounds", "BoundsOf", "ColumnBounds", "RowTest", "all_match", "any_match"]


class ColumnBounds(Protocol):
    """Bounds and counts of a column's values in a set of rows."""

    @property
    def lower(self) -> Any:
        """A lower bound of the values except NaN, in Iceberg's internal form; None if unknown."""

    @property
    def upper(self) -> Any:
        """An upper bound of the values except NaN, in Iceberg's internal form; None if unknown."""

    @property
    def nulls(self) -> bool:
        """True if there may be NULLs."""

    @property
    def nans(self) -> bool:
        """True if there may be NaNs."""

    @property
    def values(self) -> bool:
        """True if there may be values other than NULL and NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`ColumnBounds` as plain values. The defaults mean unknown."""

    lower: Any = None
    upper: Any = None
    nulls: bool = True
    nans: bool = True
    values: bool = True


BoundsOf = Callable[[int], ColumnBounds]
"""Returns the bounds of the column with a field id."""

RowTest = Callable[[BoundsOf], bool]
Leaf = Callable[[ColumnBounds], bool]


def any_match(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> RowTest:
    """Return a test that is False only if no row can satisfy the expression.

    Args:
        expression: An unbound expression.
        schema: The schema of its names.
        case_sensitive: Whether names match case-sensitively.
    """
    return compile_test(bound_filter(expression, schema, case_sensitive=case_sensitive), may_match)


def all_match(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> RowTest:
    """Return a test that is True only if every row satisfies the expression.

    Args:
        expression: An unbound expression.
        schema: The schema of its names.
        case_sensitive: Whether names match case-sensitively.
    """
    return compile_test(bound_filter(expression, schema, case_sensitive=case_sensitive), must_match)


def compile_test(expression: BooleanExpression, leaf: Callable[[BoundPredicate], Leaf]) -> RowTest:
    """Compile a bound expression to nested functions, so that the tree is walked once for all files."""

    def on_column(predicate: BoundPredicate) -> RowTest:
        field_id, test = predicate.term.ref().field.field_id, leaf(predicate)
        return lambda bounds_of: test(bounds_of(field_id))

    def both(left: RowTest, right: RowTest) -> RowTest:
        return lambda bounds_of: left(bounds_of) and right(bounds_of)

    def either(left: RowTest, right: RowTest) -> RowTest:
        return lambda bounds_of: left(bounds_of) or right(bounds_of)

    return fold_expression(
        expression, leaf=on_column, both=both, either=either, always=lambda _: True, never=lambda _: False
    )


# ---- may a row match? -----------------------------------------------------------------------------------------


def may_match(predicate: BoundPredicate) -> Leaf:
    """Return the test of whether a row may satisfy a predicate."""
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
    """Return the test of whether a row may have another value: not if all rows have one value that is excluded.

    Truncated bounds differ from each other, so equal bounds are the value itself.
    """
    values = {predicate.literal.value} if isinstance(predicate, BoundNotEqualTo) else predicate.value_set

    def test(bounds: ColumnBounds) -> bool:
        lower = bounds.lower
        one_value = lower is not None and lower == bounds.upper
        return bounds.nans or (bounds.values and not (one_value and lower in values))

    return test


def may_equal(values: Sequence[Any]) -> Leaf:
    """Return the test of whether a row may have one of the values, which are in ascending order."""

    def test(bounds: ColumnBounds) -> bool:
        lower = bounds.lower
        place = 0 if lower is None else bisect_left(values, lower)
        if place == len(values):
            return False
        upper = bounds.upper
        return (upper is None or bool(values[place] <= upper)) and bounds.values

    return test


def may_start(prefix: str) -> Leaf:
    """Return the test of whether a row may start with the prefix. Bounds may be truncated, the upper one rounded up."""
    length = len(prefix)

    def test(bounds: ColumnBounds) -> bool:
        lower, upper = bounds.lower, bounds.upper
        return (
            (lower is None or lower[:length] <= prefix) and (upper is None or upper[:length] >= prefix)
        ) and bounds.values

    return test


def may_not_start(prefix: str) -> Leaf:
    """Return the test of whether a row may start differently: not if both bounds start with the prefix."""

    def test(bounds: ColumnBounds) -> bool:
        return not both_start(bounds, prefix) and bounds.values

    return test


# ---- must every row match? ------------------------------------------------------------------------------------


def must_match(predicate: BoundPredicate) -> Leaf:
    """Return the test of whether every row satisfies a predicate."""
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
    """Return the test of whether every row is on one side of a value. NaN is above all values."""
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
    """Return the test of whether all rows have one value that is in the list, which is in ascending order."""

    def test(bounds: ColumnBounds) -> bool:
        lower = bounds.lower
        if lower is None or lower != bounds.upper or bounds.nulls or bounds.nans:
            return False
        place = bisect_left(values, lower)
        return place < len(values) and bool(values[place] == lower)

    return test


def must_differ(values: Sequence[Any]) -> Leaf:
    """Return the test of whether no row has one of the values, which are in ascending order, or NULL."""
    equal = may_equal(values)
    return lambda bounds: not bounds.nulls and not equal(bounds)


def both_start(bounds: ColumnBounds, prefix: str) -> bool:
    """Return whether both bounds start with the prefix, and so every value does."""
    lower, upper = bounds.lower, bounds.upper
    return lower is not None and upper is not None and lower.startswith(prefix) and upper.startswith(prefix)
