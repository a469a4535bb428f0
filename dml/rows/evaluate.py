"""Evaluate expressions on Arrow arrays, with Spark's results.

Sources: Spark's SQL reference, "ANSI compliance" for the types of arithmetic, "NaN semantics" for the order of doubles.

Integer arithmetic that overflows raises an error, whatever `spark.sql.ansi.enabled` is: the caller then leaves the
statement to Spark, which knows whether that is an error or NULL.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml.errors import DataError, ErrorKind
from dml.rows.expressions import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Cast,
    Column,
    Comparison,
    InSet,
    IsNaN,
    IsNull,
    Literal,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Value,
    column_ids,
)

__all__ = ["Columns", "CompiledPredicate", "Mask", "NumberOverflowError", "evaluate"]

Columns = Mapping[int, pa.Array]
"""Columns of one length, by field id."""

Mask = npt.NDArray[np.bool_]
Test = Callable[[Columns], pa.Array]


class NumberOverflowError(DataError):
    """An integer does not fit its type. The engine catches it and lets Spark run the statement."""

    default_kind = ErrorKind.OVERFLOW


class CompiledPredicate:
    """A predicate, prepared for many batches.

    Args:
        predicate: The predicate.
        keeps_overflow: Whether a comparison whose arithmetic overflows counts as True for all rows of the batch, so
            that the result selects at least the right rows. Otherwise it raises an error.

    Attributes:
        column_ids: Field ids of the columns that it reads.
    """

    def __init__(self, predicate: Predicate, *, keeps_overflow: bool = False) -> None:
        self.column_ids = column_ids(predicate)
        self._keeps_overflow = keeps_overflow
        self._predicate = predicate
        self._test = None if predicate in (TRUE, FALSE) else self._compile(predicate)

    def mask(self, columns: Columns, rows: int) -> Mask:
        """Return the mask of the rows for which the predicate is True.

        Args:
            columns: The columns that the predicate reads, or more.
            rows: Their length.

        Raises:
            NumberOverflowError: An integer does not fit its type.
        """
        if self._test is None:
            return np.full(rows, self._predicate == TRUE, np.bool_)
        found: Mask = self._test(columns).to_numpy(zero_copy_only=False)
        return found

    def _compile(self, predicate: Predicate) -> Test:
        match predicate:
            case And(parts):
                return combine(pc.and_, [self._compile(part) for part in parts])
            case Or(parts):
                return combine(pc.or_, [self._compile(part) for part in parts])
            case Comparison():
                return self._comparison(predicate)
            case IsNull(column=column, negated=negated):
                return on_column(column, lambda array: array.is_valid() if negated else array.is_null())
            case IsNaN(column=column, negated=negated):
                return on_column(column, lambda array: pc.invert(pc.is_nan(array)) if negated else pc.is_nan(array))
            case StartsWith(column=column, prefix=prefix, negated=negated):
                return on_column(column, lambda array: invert_if(pc.starts_with(array, prefix), negated=negated))
            case InSet(column=column, values=values, negated=negated):
                members = pa.array(values, column.type)
                if negated:
                    return on_column(column, lambda array: pc.and_not(array.is_valid(), pc.is_in(array, members)))
                return on_column(column, lambda array: pc.is_in(array, members))

    def _comparison(self, comparison: Comparison) -> Test:
        def test(columns: Columns) -> pa.Array:
            try:
                return compare(comparison, columns)
            except NumberOverflowError:
                if not self._keeps_overflow:
                    raise
                # Any column has as many rows as the result; a comparison of literals alone cannot overflow.
                return pa.repeat(pa.scalar(True), len(columns[next(iter(column_ids(comparison)))]))

        return test


def combine(operation: Callable[[pa.Array, pa.Array], pa.Array], tests: list[Test]) -> Test:
    return lambda columns: reduce(operation, (test(columns) for test in tests))


def on_column(column: Column, test: Callable[[pa.Array], pa.Array]) -> Test:
    """Return the test of one column, with False for NULL."""

    def mask(columns: Columns) -> pa.Array:
        found = test(columns[column.field_id])
        return found.fill_null(False) if found.null_count else found

    return mask


def invert_if(mask: pa.Array, *, negated: bool) -> pa.Array:
    return pc.invert(mask) if negated else mask


def compare(comparison: Comparison, columns: Columns) -> pa.Array:
    """Return where a comparison is True, without nulls."""
    left = evaluate_as(comparison.left, comparison.type, columns)
    right = evaluate_as(comparison.right, comparison.type, columns)
    operations = DOUBLES if pa.types.is_floating(comparison.type) else COMPARISONS
    found = operations[comparison.operator](left, right)
    return found.fill_null(False) if found.null_count else found


COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def may_be_nan(side: pa.Array | pa.Scalar) -> bool:
    """Return whether a side of a comparison may be NaN; a literal tells without a pass over the rows."""
    return not isinstance(side, pa.Scalar) or not side.is_valid or bool(np.isnan(side.as_py()))


def double_equal(left: Any, right: Any) -> pa.Array:
    """`=`, for which NaN equals NaN."""
    found = pc.equal(left, right)
    if not (may_be_nan(left) and may_be_nan(right)):
        return found
    return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def double_less(left: Any, right: Any) -> pa.Array:
    """`<`, for which NaN is the greatest value."""
    found = pc.less(left, right)
    return pc.or_(found, pc.and_not(pc.is_nan(right), pc.is_nan(left))) if may_be_nan(right) else found


DOUBLES: dict[str, Callable[..., pa.Array]] = {
    "=": double_equal,
    "<>": lambda left, right: pc.invert(double_equal(left, right)),
    "<": double_less,
    "<=": lambda left, right: pc.invert(double_less(right, left)),
    ">": lambda left, right: double_less(right, left),
    ">=": lambda left, right: pc.invert(double_less(left, right)),
}


def evaluate(value: Value, columns: Columns, rows: int) -> pa.Array:
    """Return the value of each row.

    Args:
        value: The expression.
        columns: The columns that it reads, or more.
        rows: Their length.

    Raises:
        NumberOverflowError: An integer does not fit its type.
    """
    found = evaluate_any(value, columns)
    return pa.repeat(found, rows) if isinstance(found, pa.Scalar) else found


def evaluate_any(value: Value, columns: Columns) -> pa.Array | pa.Scalar:
    """Return the value of each row, or a scalar if all rows have the same."""
    match value:
        case Column(field_id=field_id):
            return columns[field_id]
        case Literal(value=literal, type=kind):
            return pa.scalar(literal, kind)
        case Arithmetic(operator=operator, left=left, right=right, type=kind):
            sides = evaluate_as(left, kind, columns), evaluate_as(right, kind, columns)
            if pa.types.is_floating(kind):
                return FLOATING[operator](*sides)
            try:
                return INTEGERS[operator](*sides)
            except pa.ArrowInvalid as error:
                raise NumberOverflowError(f"A '{operator}' gives a number that does not fit {kind}") from error
        case Cast(value=number, type=kind):
            try:
                # A large integer is rounded to a float, as in Spark.
                return evaluate_any(number, columns).cast(kind, safe=not pa.types.is_floating(kind))
            except pa.ArrowInvalid as error:
                raise NumberOverflowError(f"A number does not fit {kind}") from error


def evaluate_as(value: Value, kind: pa.DataType, columns: Columns) -> pa.Array | pa.Scalar:
    """Return values in a type that holds them. A large bigint is rounded to a double, as in Spark."""
    found = evaluate_any(value, columns)
    return found if found.type == kind else found.cast(kind, safe=False)


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
