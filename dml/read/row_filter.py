"""A filter over the rows of a batch, where Arrow and Spark agree. Worker-safe.

Input: an Iceberg expression and a batch's columns. Output: a mask that is False only for rows for which the expression
is not true. Spark evaluates the whole condition afterwards: this only keeps rows from crossing into the JVM in vain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml.pruning.bound_expressions import bound_filter, folded
from dml.read.arrow_types import arrow_type

__all__ = ["RowFilter", "RowMask", "row_filter"]

RowMask = Callable[[Mapping[int, pa.Array]], pa.Array]
"""From top-level columns, by field id, to a boolean mask without nulls."""

Leaf = Callable[[pa.Array], pa.Array]

COMPARED = (BooleanType, IntegerType, LongType, DateType, TimestampType, TimestamptzType, StringType, DecimalType)
FLOATING = (FloatType, DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """A filter over the rows of a batch.

    Attributes:
        mask: False for rows that can be left out.
        columns: Field ids of the top-level columns that it reads.
    """

    mask: RowMask
    columns: frozenset[int]


def row_filter(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> RowFilter | None:
    """The filter of an expression; None if it would keep all rows.

    Args:
        expression: An unbound expression.
        schema: The table's schema.
        case_sensitive: How names match.
    """
    top_level = {field.field_id for field in schema.fields}

    def on_column(predicate: BoundPredicate) -> RowFilter | None:
        field_id, test = predicate.term.ref().field.field_id, leaf(predicate)
        return None if test is None or field_id not in top_level else column_filter(field_id, test)

    bound = bound_filter(expression, schema, case_sensitive=case_sensitive)
    # Binding folds AND and OR, so that TRUE and FALSE stand alone; for "never" the planner makes no task.
    return folded(bound, leaf=on_column, both=both, either=either, always=None, never=None)


def both(left: RowFilter | None, right: RowFilter | None) -> RowFilter | None:
    """AND; a side that is None excludes nothing."""
    if left is None or right is None:
        return left or right
    one, other = left.mask, right.mask
    return RowFilter(mask=lambda arrays: pc.and_(one(arrays), other(arrays)), columns=left.columns | right.columns)


def either(left: RowFilter | None, right: RowFilter | None) -> RowFilter | None:
    """OR; with a side that is None any row may match."""
    if left is None or right is None:
        return None
    one, other = left.mask, right.mask
    return RowFilter(mask=lambda arrays: pc.or_(one(arrays), other(arrays)), columns=left.columns | right.columns)


def column_filter(field_id: int, test: Leaf) -> RowFilter:
    """A test of one column; where it gives NULL the predicate is not true."""

    def mask(arrays: Mapping[int, pa.Array]) -> pa.Array:
        result = test(arrays[field_id])
        return result.fill_null(False) if result.null_count else result

    return RowFilter(mask=mask, columns=frozenset({field_id}))


def leaf(predicate: BoundPredicate) -> Leaf | None:
    """The test of one column's values; None where Arrow's answer might not be Spark's."""
    field_type = predicate.term.ref().field.field_type
    match predicate:
        case BoundIsNull():
            return lambda array: array.is_null()
        case BoundNotNull():
            return lambda array: array.is_valid()
    if not isinstance(field_type, (*COMPARED, *FLOATING)):
        return None
    match predicate:
        case BoundIsNaN() if isinstance(field_type, FLOATING):
            return nan_mask
        case BoundNotNaN() if isinstance(field_type, FLOATING):
            return lambda array: pc.invert(pc.is_nan(array))
        case BoundIn() | BoundNotIn():
            return set_leaf(predicate, field_type)
        case BoundStartsWith() | BoundNotStartsWith() if isinstance(field_type, StringType):
            prefix, negated = str(predicate.literal.value), isinstance(predicate, BoundNotStartsWith)
            return lambda array: negate_if(pc.starts_with(array, prefix), negated=negated)
    return comparison(predicate, field_type)


def nan_mask(array: pa.Array) -> pa.Array:
    """Which values are NaN."""
    return pc.is_nan(array)


def negate_if(array: pa.Array, *, negated: bool) -> pa.Array:
    """The array, or its negation; NULL stays NULL."""
    return pc.invert(array) if negated else array


def set_leaf(predicate: BoundPredicate, field_type: PrimitiveType) -> Leaf | None:
    """IN and NOT IN; floats are left to Spark, as Arrow tells -0.0 from 0.0 there."""
    if isinstance(field_type, FLOATING):
        return None
    assert isinstance(predicate, (BoundIn, BoundNotIn))
    values = pa.array(sorted(predicate.value_set), arrow_type(field_type, spark=False))
    if isinstance(predicate, BoundIn):
        return lambda array: pc.is_in(array, value_set=values)
    return lambda array: pc.and_not(array.is_valid(), pc.is_in(array, value_set=values))


COMPARISONS: dict[type[BoundPredicate], Callable[..., pa.Array]] = {
    BoundEqualTo: pc.equal,
    BoundNotEqualTo: pc.not_equal,
    BoundLessThan: pc.less,
    BoundLessThanOrEqual: pc.less_equal,
    BoundGreaterThan: pc.greater,
    BoundGreaterThanOrEqual: pc.greater_equal,
}


def comparison(predicate: BoundPredicate, field_type: PrimitiveType) -> Leaf | None:
    """=, <>, <, <=, >, >= with a literal."""
    compare = COMPARISONS.get(type(predicate))
    if compare is None:
        return None
    scalar = literal_scalar(predicate.literal.value, field_type)  # type: ignore[attr-defined]
    if isinstance(field_type, FLOATING) and isinstance(predicate, (BoundGreaterThan, BoundGreaterThanOrEqual)):
        # To Spark, NaN is greater than any value.
        return lambda array: pc.or_(compare(array, scalar), pc.is_nan(array))
    return lambda array: compare(array, scalar)


def literal_scalar(value: Any, field_type: PrimitiveType) -> pa.Scalar:
    """A literal as the column's type; a float column is compared as double, as Spark does."""
    return pa.scalar(value, pa.float64() if isinstance(field_type, FLOATING) else arrow_type(field_type, spark=False))
