"""Conditions and values that are computed from the columns of a batch, as Spark computes them. Worker-safe.

Input: a condition or a term, and columns by field id. Output: a mask without nulls, or an array. Source: Spark's SQL
reference, "ANSI compliance" for the types of arithmetic, "NaN semantics" for the order of doubles.

What does not fit its type is an error here whatever `spark.sql.ansi.enabled` says: whoever asked lets Spark do it then.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.schema import Schema

from dml.errors import DataError, ErrorKind
from dml.model.row_conditions import (
    AllOf,
    AnyOf,
    ArithmeticTerm,
    ColumnTerm,
    Compares,
    ConstantTerm,
    Matches,
    Operator,
    RowCondition,
    RowTerm,
)
from dml.pruning.bound_expressions import bound_filter
from dml.read.row_filter import RowFilter, RowMask, filters_exactly, row_filter

__all__ = ["computed", "condition_filter", "decides_exactly", "is_too_large"]

Columns = Mapping[int, pa.Array]


def condition_filter(condition: RowCondition, schema: Schema, *, case_sensitive: bool) -> RowFilter | None:
    """The filter of a condition; None if it would keep all rows.

    Args:
        condition: The condition.
        schema: The table's schema.
        case_sensitive: How the names of its Iceberg expressions match.

    Raises:
        DataError: from the filter's mask, of kind `OVERFLOW`: a number does not fit its type.
    """
    match condition:
        case Matches(expression=expression):
            if is_never(expression, schema, case_sensitive=case_sensitive):
                return RowFilter(mask=no_row, columns=frozenset())
            return row_filter(expression, schema, case_sensitive=case_sensitive)
        case Compares():
            columns = columns_of(condition.left) | columns_of(condition.right)
            return RowFilter(mask=lambda arrays: compared(condition, arrays), columns=columns)
        case AllOf(parts=parts):
            found = [condition_filter(part, schema, case_sensitive=case_sensitive) for part in parts]
            return joined(pc.and_, [part for part in found if part is not None])
        case AnyOf(parts=parts):
            found = [condition_filter(part, schema, case_sensitive=case_sensitive) for part in parts]
            known = [part for part in found if part is not None]
            return joined(pc.or_, known) if len(known) == len(found) else None


def is_never(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> bool:
    """Whether an expression is true for no row, whatever is in it."""
    return isinstance(bound_filter(expression, schema, case_sensitive=case_sensitive), AlwaysFalse)


def no_row(arrays: Columns) -> pa.Array:
    """Not true for any row; some other part of the condition has columns."""
    return pa.repeat(pa.scalar(False), len(next(iter(arrays.values()))))


def joined(combine: Callable[[pa.Array, pa.Array], pa.Array], filters: list[RowFilter]) -> RowFilter | None:
    """Filters as one; None for none."""
    if not filters:
        return None
    masks: list[RowMask] = [part.mask for part in filters]
    return RowFilter(
        mask=lambda arrays: reduce(combine, (mask(arrays) for mask in masks)),
        columns=frozenset().union(*(part.columns for part in filters)),
    )


def decides_exactly(condition: RowCondition, schema: Schema, *, case_sensitive: bool) -> bool:
    """Whether the filter of a condition leaves no row for which it is not true.

    Args:
        condition: The condition.
        schema: The table's schema.
        case_sensitive: How the names of its Iceberg expressions match.
    """
    match condition:
        case Matches(expression=expression):
            return is_never(expression, schema, case_sensitive=case_sensitive) or filters_exactly(
                expression, schema, case_sensitive=case_sensitive
            )
        case Compares():
            return True
        case AllOf(parts=parts) | AnyOf(parts=parts):
            return all(decides_exactly(part, schema, case_sensitive=case_sensitive) for part in parts)


def columns_of(term: RowTerm) -> frozenset[int]:
    """Field ids of the columns that a term reads."""
    match term:
        case ColumnTerm(field_id=field_id):
            return frozenset({field_id})
        case ArithmeticTerm(left=left, right=right):
            return columns_of(left) | columns_of(right)
        case ConstantTerm():
            return frozenset()


def compared(condition: Compares, arrays: Columns) -> pa.Array:
    """Where a comparison is true."""
    left, right = as_type(condition.left, condition.type, arrays), as_type(condition.right, condition.type, arrays)
    compare = DOUBLES if pa.types.is_floating(condition.type) else COMPARISONS
    result = compare[condition.operator](left, right)
    return result.fill_null(False) if result.null_count else result


COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def double_equal(left: Any, right: Any) -> pa.Array:
    """`=`, to which NaN is equal to NaN."""
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def double_less(left: Any, right: Any) -> pa.Array:
    """`<`, to which NaN is the greatest value."""
    return pc.or_(pc.less(left, right), pc.and_not(pc.is_nan(right), pc.is_nan(left)))


DOUBLES: dict[str, Callable[..., pa.Array]] = {
    "=": double_equal,
    "<>": lambda left, right: pc.invert(double_equal(left, right)),
    "<": double_less,
    "<=": lambda left, right: pc.invert(double_less(right, left)),
    ">": lambda left, right: double_less(right, left),
    ">=": lambda left, right: pc.invert(double_less(left, right)),
}


def computed(term: RowTerm, arrays: Columns, rows: int) -> pa.Array:
    """The value of a term for each row.

    Args:
        term: The term.
        arrays: The columns that it reads.
        rows: How many rows there are.

    Raises:
        DataError: of kind `OVERFLOW`: a number does not fit its type.
    """
    found = evaluated(term, arrays)
    return pa.repeat(found, rows) if isinstance(found, pa.Scalar) else found


def evaluated(term: RowTerm, arrays: Columns) -> pa.Array | pa.Scalar:
    """The value of a term; a scalar where it is the same for each row."""
    match term:
        case ColumnTerm(field_id=field_id):
            return arrays[field_id]
        case ConstantTerm(value=value, type=kind):
            return pa.scalar(value, kind)
        case ArithmeticTerm(operator=operator, left=left, right=right, type=kind):
            sides = as_type(left, kind, arrays), as_type(right, kind, arrays)
            if pa.types.is_floating(kind):
                return FLOATING[operator](*sides)
            try:
                return INTEGERS[operator](*sides)
            except pa.ArrowInvalid as error:
                raise too_large(operator, kind) from error


def as_type(term: RowTerm, kind: pa.DataType, arrays: Columns) -> pa.Array | pa.Scalar:
    """The value of a term in a type that holds it; a great bigint as a double is rounded, as Spark does it."""
    found = evaluated(term, arrays)
    return found if found.type == kind else found.cast(kind, safe=False)


def too_large(operator: Operator, kind: pa.DataType) -> DataError:
    """The error for a number that does not fit its type."""
    return DataError(f"A '{operator}' gives a number that does not fit {kind}", kind=ErrorKind.OVERFLOW)


def is_too_large(error: DataError) -> bool:
    """Whether an error says that a number does not fit its type."""
    return error.kind is ErrorKind.OVERFLOW


def remainder(left: Any, right: Any) -> Any:
    """`%` of integers, with the sign of the left side; NULL stays NULL."""
    divisor = right.as_py()
    if isinstance(left, pa.Scalar):
        return pa.scalar(None if left.as_py() is None else int(np.fmod(left.as_py(), divisor)), left.type)
    values = (left.fill_null(0) if left.null_count else left).to_numpy(zero_copy_only=False)
    found = np.fmod(values, values.dtype.type(divisor))
    return pa.array(found, left.type, mask=left.is_null().to_numpy(zero_copy_only=False) if left.null_count else None)


INTEGERS: dict[Operator, Callable[..., Any]] = {
    Operator.ADD: pc.add_checked,
    Operator.SUBTRACT: pc.subtract_checked,
    Operator.MULTIPLY: pc.multiply_checked,
    Operator.REMAINDER: remainder,
}
FLOATING: dict[Operator, Callable[..., Any]] = {
    Operator.ADD: pc.add,
    Operator.SUBTRACT: pc.subtract,
    Operator.MULTIPLY: pc.multiply,
    Operator.DIVIDE: pc.divide,
}
