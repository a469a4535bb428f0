"""Which rows of a batch a filter and a join's keys leave, where Arrow and Spark agree. Worker-safe.

Input: an Iceberg expression or the keys that matter, and a batch's columns. Output: a mask that is False only for rows
for which the expression is not true, or whose key is not among them. Spark evaluates the whole condition afterwards:
this only keeps rows from crossing into the JVM in vain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt
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

from dml.deletes.equality import EqualityDeleteSet
from dml.pruning.bound_expressions import bound_filter, folded
from dml.read.key_index import as_int64, is_whole_number
from dml.read.projection import arrow_type

__all__ = ["KeySet", "RowFilter", "RowMask", "filters_exactly", "row_filter"]

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


def filters_exactly(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> bool:
    """Whether the filter of an expression leaves no row for which it is not true, so that nobody need look again.

    Args:
        expression: An unbound expression.
        schema: The table's schema.
        case_sensitive: How names match.
    """
    top_level = {field.field_id for field in schema.fields}

    def decides(predicate: BoundPredicate) -> bool:
        return predicate.term.ref().field.field_id in top_level and leaf(predicate) is not None

    bound = bound_filter(expression, schema, case_sensitive=case_sensitive)
    return folded(bound, leaf=decides, both=and_, either=and_, always=True, never=False)


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
    """IN and NOT IN; floats are left to Spark, as Arrow distinguishes -0.0 from 0.0 there."""
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


MAX_TABLE = 1 << 26
"""Greatest span of integer keys for which a table with one byte a value is held."""

Mask = npt.NDArray[np.bool_]


class KeySet:
    """Keys of one or more columns.

    Args:
        columns: The columns of the keys, all of one length, in the types of the rows that will be asked for. Floats
            are no keys: -0.0 and 0.0 are distinguished here, which a join does not.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        names = [str(place) for place in range(len(columns))]
        self.schema = pa.schema(list(zip(names, (column.type for column in columns), strict=True)))
        self.integers: IntegerSet | None = None
        self.others: EqualityDeleteSet | None = None
        if len(columns) == 1 and is_whole_number(columns[0].type):
            self.integers = IntegerSet(columns[0].drop_null())
        else:
            self.others = EqualityDeleteSet([pa.RecordBatch.from_arrays(columns, schema=self.schema)], self.schema)

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        """Which rows have a key of the set.

        Args:
            columns: The rows' key columns.
        """
        if self.integers is not None:
            return self.integers.contains(columns[0])
        assert self.others is not None
        mask: Mask = self.others.mask(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        for column in columns:
            if column.null_count:
                mask &= to_numpy(column.is_valid())
        return mask


class IntegerSet:
    """Integers as a table of bytes where they lie close, else sorted: no hash table has to be built for each batch."""

    def __init__(self, values: pa.Array) -> None:
        keys = np.sort(as_int64(values))
        self.least, self.greatest = (int(keys[0]), int(keys[-1])) if len(keys) else (0, -1)
        span = self.greatest - self.least + 1
        self.table: Mask | None = None
        if 0 < span <= MAX_TABLE and span <= max(1 << 20, 256 * len(keys)):
            self.table = np.zeros(span, np.bool_)
            self.table[keys - self.least] = True
        self.keys = keys if self.table is None else np.empty(0, np.int64)

    def contains(self, column: pa.Array) -> Mask:
        """Which values are in the set; NULL is not."""
        if self.greatest < self.least:
            return np.zeros(len(column), np.bool_)
        values = as_int64(column.fill_null(0) if column.null_count else column)
        inside = (values >= self.least) & (values <= self.greatest)
        if column.null_count:
            inside &= to_numpy(column.is_valid())
        found = values[inside]
        if self.table is not None:
            inside[inside] = self.table[found - self.least]
        else:
            inside[inside] = self.among_sorted(found)
        return inside

    def among_sorted(self, values: npt.NDArray[np.int64]) -> Mask:
        """Which values between the least and the greatest key are keys.

        Of many keys each search is a walk through memory, so values are looked up in their order.
        """
        order = np.argsort(values)
        ascending = values[order]
        found = np.empty(len(values), np.bool_)
        found[order] = self.keys[np.searchsorted(self.keys, ascending)] == ascending
        return found


def to_numpy(mask: pa.Array) -> Mask:
    """A boolean array without nulls as numpy's, which can be written to."""
    return np.array(mask.to_numpy(zero_copy_only=False), np.bool_)
