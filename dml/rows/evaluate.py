"""Evaluate expressions on Arrow arrays, with Spark's results.

Sources: Spark's SQL reference, "ANSI compliance" for the types of arithmetic, "NaN semantics" for the order of doubles;
Spark's `UTF8String` for functions of strings.

If the result depends on more than the value, evaluation raises `UncomputableValueError` and the statement falls back to
Spark:

- overflow: an error with `spark.sql.ansi.enabled`, otherwise the number wraps or becomes NULL;
- upper and lower case outside of ASCII: Java, ICU and Arrow have different tables, and Java's depend on the locale;
- bytes that are not UTF-8: Spark counts characters by lead bytes.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml.errors import DataError, ErrorKind
from dml.rows.program import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    CaseWhen,
    Column,
    Comparison,
    InSet,
    IsNaN,
    IsNull,
    Literal,
    Operator,
    Or,
    Predicate,
    RowCall,
    RowFunction,
    StartsWith,
    TypeCast,
    Value,
    column_ids,
)

__all__ = ["Columns", "CompiledPredicate", "Mask", "UncomputableValueError", "evaluate"]

Columns = Mapping[int, pa.Array]
"""Columns of one length, by field id."""

Mask = npt.NDArray[np.bool_]
Test = Callable[[Columns], pa.Array]


class UncomputableValueError(DataError):
    """Only Spark can compute a value. The engine catches this error and falls back to Spark."""

    default_kind = ErrorKind.OVERFLOW


class CompiledPredicate:
    """A predicate, prepared for many batches.

    Args:
        predicate: The predicate.
        keeps_uncomputable: Whether a comparison of a value that only Spark can compute counts as True for all rows of
            the batch, so that the result is a superset. Otherwise it raises `UncomputableValueError`.

    Attributes:
        column_ids: Field ids of the columns that it reads.
    """

    def __init__(self, predicate: Predicate, *, keeps_uncomputable: bool = False) -> None:
        self.column_ids = column_ids(predicate)
        self._keeps_uncomputable = keeps_uncomputable
        self._predicate = predicate
        self._test = None if predicate in (TRUE, FALSE) else self._compile(predicate)

    def mask(self, columns: Columns, rows: int) -> Mask:
        """Return the mask of the rows for which the predicate is True.

        Args:
            columns: The columns that the predicate reads, or more.
            rows: Their length.

        Raises:
            UncomputableValueError: Only Spark can compute a value.
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
            except UncomputableValueError:
                if not self._keeps_uncomputable:
                    raise
                return pa.repeat(pa.scalar(True), row_count(comparison, columns))

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
    """Return whether a side of a comparison may be NaN; a literal is checked without a pass over the rows."""
    return not isinstance(side, pa.Scalar) or not side.is_valid or bool(np.isnan(side.as_py()))


def double_equal(left: Any, right: Any) -> pa.Array:
    """Compute `=`, for which NaN equals NaN."""
    found = pc.equal(left, right)
    if not (may_be_nan(left) and may_be_nan(right)):
        return found
    return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def double_less(left: Any, right: Any) -> pa.Array:
    """Compute `<`, for which NaN is the greatest value."""
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
        UncomputableValueError: Only Spark can compute a value.
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
                raise UncomputableValueError(f"The result of '{operator}' does not fit {kind}") from error
        case TypeCast(value=number, type=kind):
            try:
                return cast_to(evaluate_any(number, columns), kind)
            except pa.ArrowInvalid as error:
                raise UncomputableValueError(f"A number does not fit {kind}") from error
        case RowCall(function=RowFunction.COALESCE):
            return evaluate_coalesce(value, columns)
        case RowCall(function=function, arguments=arguments):
            try:
                return FUNCTIONS[function](*(evaluate_any(argument, columns) for argument in arguments))
            except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
                raise UncomputableValueError(f"'{function}' cannot be computed: {error}") from error
        case CaseWhen():
            return evaluate_case(value, columns)


def evaluate_as(value: Value, kind: pa.DataType, columns: Columns) -> pa.Array | pa.Scalar:
    """Return values in a type that holds them. A large bigint is rounded to a double, as in Spark."""
    found = evaluate_any(value, columns)
    return found if found.type == kind else found.cast(kind, safe=False)


def row_count(expression: Value | Predicate, columns: Columns) -> int:
    """Return the number of rows in the columns that an expression reads. It must read at least one column."""
    return len(columns[next(iter(column_ids(expression)))])


def cast_to(values: Any, kind: pa.DataType) -> Any:
    """Cast numbers as Spark does: the fraction of a double is truncated, and a large integer is rounded to a float."""
    if pa.types.is_floating(values.type) and pa.types.is_integer(kind):
        limit = float(1 << (kind.bit_width - 1))
        whole = pc.trunc(values)
        # NaN compares False. Spark accepts 2^63 as a bigint by rounding; that double is left to Spark as well.
        fits = pc.and_(pc.greater_equal(whole, -limit), pc.less(whole, limit))
        if pc.all(fits).as_py() is False:
            raise UncomputableValueError(f"A number does not fit {kind}")
        return whole.cast(kind)
    return values.cast(kind, safe=not pa.types.is_floating(kind))


def evaluate_case(value: CaseWhen, columns: Columns) -> pa.Array:
    """Compute each value only for the rows of its branch, as Spark does: other rows cannot overflow."""
    rows = row_count(value, columns)
    open_rows = np.arange(rows)  # rows that no branch has taken yet
    found = pa.nulls(rows, value.type)
    for condition, result in value.branches:
        if not len(open_rows):
            break
        test = CompiledPredicate(condition)
        taken = test.mask(take_columns(columns, test.column_ids, open_rows, rows), len(open_rows))
        found = fill_places(found, result, columns, open_rows[taken])
        open_rows = open_rows[~taken]
    return fill_places(found, value.default, columns, open_rows)


def evaluate_coalesce(call: RowCall, columns: Columns) -> pa.Array:
    """Compute each argument only for the rows in which the arguments before it are NULL."""
    rows = row_count(call, columns)
    found = pa.nulls(rows, call.type)
    for argument in call.arguments:
        if not found.null_count:
            break
        found = fill_places(found, argument, columns, np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False)))
    return found


def fill_places(found: pa.Array, value: Value, columns: Columns, places: npt.NDArray[np.int64]) -> pa.Array:
    """Compute a value for the rows at `places`, and return the array with these results filled in."""
    rows = len(found)
    if not len(places) or value == Literal(value=None, type=found.type):
        return found
    values = evaluate(value, take_columns(columns, column_ids(value), places, rows), len(places))
    if len(places) == rows:
        return values
    mask = np.zeros(rows, np.bool_)
    mask[places] = True
    return pc.replace_with_mask(found, pa.array(mask), values)


def take_columns(columns: Columns, ids: Iterable[int], places: npt.NDArray[np.int64], rows: int) -> Columns:
    """Return the rows of columns at `places`, in ascending order; `rows` is the length of the columns."""
    if len(places) == rows:
        return columns
    return {field_id: columns[field_id].take(pa.array(places)) for field_id in ids}


def ascii_only(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a function to raise `UncomputableValueError` for strings outside of ASCII."""

    def compute(texts: Any) -> Any:
        if not is_ascii(texts):
            raise UncomputableValueError("Only Spark can change the case of letters outside of ASCII")
        return function(texts)

    return compute


def is_ascii(texts: Any) -> bool:
    return pc.all(pc.string_is_ascii(texts)).as_py() is not False


def check_utf8(texts: Any) -> None:
    """Raise `ArrowInvalid` for bytes that are not UTF-8, whose characters only Spark counts."""
    if not is_ascii(texts):
        texts.validate(full=True)


def length(texts: Any) -> Any:
    check_utf8(texts)
    return pc.utf8_length(texts)


MAX_INT: Final = (1 << 31) - 1


def substring(texts: Any, start: pa.Scalar, count: pa.Scalar | None = None) -> Any:
    """Compute Spark's `substring`.

    Positions start at 1, or count from the end if negative; 0 means 1. A count below 1 returns ''.
    """
    check_utf8(texts)
    first = start.as_py()
    first -= first > 0
    size = MAX_INT if count is None else max(count.as_py(), 0)
    end = first + size
    return pc.utf8_slice_codeunits(texts, first, None if first < 0 <= end and size else end)


def calendar(unit: str, within: str | None) -> Callable[[Any], Any]:
    """Return a function that extracts a part of dates: the year, or a unit within a larger unit.

    NumPy computes with 64-bit days: Arrow's functions are wrong for years beyond 16 bits, which Spark allows.
    """

    def compute(days: Any) -> Any:
        if isinstance(days, pa.Scalar):
            days = pa.array([days.as_py()], days.type)
        numbers = days.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        dates = numbers.astype("datetime64[D]")
        parts = dates.astype(f"datetime64[{unit}]")
        if within is None:
            found = parts.astype(np.int64) + 1970
        else:
            found = (parts - dates.astype(f"datetime64[{within}]").astype(f"datetime64[{unit}]")).astype(np.int64) + 1
        return pa.array(found.astype(np.int32), mask=days.is_null().to_numpy(zero_copy_only=False))

    return compute


FUNCTIONS: dict[RowFunction, Callable[..., Any]] = {
    RowFunction.ABS: pc.abs_checked,
    RowFunction.CONCAT: lambda *texts: pc.binary_join_element_wise(*texts, "", null_handling="emit_null"),
    RowFunction.DAY: calendar("D", "M"),
    RowFunction.LENGTH: length,
    RowFunction.LOWER: ascii_only(pc.ascii_lower),
    RowFunction.MONTH: calendar("M", "Y"),
    RowFunction.NEGATIVE: pc.negate_checked,
    RowFunction.SUBSTRING: substring,
    RowFunction.UPPER: ascii_only(pc.ascii_upper),
    RowFunction.YEAR: calendar("Y", None),
}


def remainder(left: Any, right: Any) -> Any:
    """Compute `%` of integers, with the sign of the left side; NULL stays NULL."""
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
