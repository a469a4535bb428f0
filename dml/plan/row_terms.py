"""Translate values and comparisons for tasks, if Arrow computes them as Spark does. Driver.

Input: sqlglot's tree of an expression (made only where it certainly reads as Spark does). Output: a `Value` or a
`Predicate`; None if it is not certain that Arrow's result equals Spark's.

    k + 1, id % 100, amt * 1.5, -5            values
    coalesce(k, 0), upper(s), year(day)       values (`dml.plan.row_functions`)
    id % 100 = 7, k + 1 > j, a < b            comparisons

Numbers are int, bigint and double: `int` with `int` is int, with `bigint` bigint; a double or the operator `/` makes
both sides doubles. Decimals have their own rules and those of floats depend on `spark.sql.ansi.enabled`: Spark computes
both.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp

from dml import limits
from dml.plan.comparisons import ComparisonOperator
from dml.plan.row_functions import DOUBLE, INT, LONG, CallParts, function_value, widen_literal
from dml.read.projection import arrow_type
from dml.rows.program import (
    Arithmetic,
    CaseWhen,
    Column,
    Comparison,
    Literal,
    Operator,
    Predicate,
    RowCall,
    RowFunction,
    TypeCast,
    Value,
    all_of,
    any_of,
)
from dml.sqlparse.constants import Constant, Kind, TimeZone, constant

__all__ = [
    "INTEGER_DIGITS",
    "MAX_PRECISION",
    "Columns",
    "Scope",
    "compared_terms",
    "literal",
    "member_term",
    "number",
    "row_term",
    "selected_value",
    "sql_text",
    "stored_value",
    "strip_parentheses",
    "uncomputed_part",
    "value_term",
]

Columns = Callable[[exp.Expression], NestedField | None]
"""Returns the table's top-level column that an expression refers to; None if that is uncertain."""

MAX_SHOWN: Final = 40
"""The limit for the parts of an expression that EXPLAIN shows as SQL."""

FLOAT: Final = pa.float32()
INTEGER_DIGITS: Final = {INT: 10, LONG: 20}
MAX_PRECISION: Final = 38

OPERATORS: Final[dict[type[exp.Expression], Operator]] = {
    exp.Add: Operator.ADD,
    exp.Sub: Operator.SUBTRACT,
    exp.Mul: Operator.MULTIPLY,
    exp.Div: Operator.DIVIDE,
    exp.Mod: Operator.REMAINDER,
}
COMPARED: Final = (IntegerType, LongType, DoubleType, StringType, DateType, TimestampType, TimestamptzType)
STORED: Final = (*COMPARED, BooleanType, FloatType, DecimalType, BinaryType)
LITERALS: Final = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}
"""The Arrow types of constants other than numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The names and settings that expressions are translated with.

    Attributes:
        columns: Finds the columns.
        condition: Translates a condition nested in a value; returns None if tasks cannot evaluate it.
        zone: The session's time zone.
    """

    columns: Columns
    condition: Callable[[exp.Expression], Predicate | None]
    zone: TimeZone


def row_term(node: exp.Expression, scope: Scope, depth: int = 0) -> Value | None:
    """Translate an operand of arithmetic or of a comparison: a column, a number, an operator or a function call.

    Args:
        node: The operand.
        scope: The names and settings.
        depth: The number of enclosing operators.
    """
    if depth > limits.MAX_TERM_DEPTH:
        return None
    match node:
        case exp.Paren():
            return row_term(node.this, scope, depth + 1)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            return arithmetic(node, scope, depth)
        case exp.Literal() | exp.Neg() | exp.Cast():
            found = number(node)
            if found is not None or isinstance(node, exp.Literal):
                return found
    column = scope.columns(node)
    if column is None:
        return function_value(
            node, CallParts(value=lambda part: argument(part, scope, depth + 1), condition=scope.condition)
        )
    if not isinstance(column.field_type, COMPARED):
        return None
    return Column(field_id=column.field_id, type=arrow_type(column.field_type, spark=False))


def argument(node: exp.Expression, scope: Scope, depth: int) -> Value | None:
    """Translate a function argument. Unlike an operand, it may have any type and may be a constant."""
    node = strip_parentheses(node)
    column = scope.columns(node)
    if column is not None and not isinstance(column.field_type, STORED):
        return None
    found = selected_value(node, scope, depth)
    has_unknown_type = found is not None and found.type == pa.null() and not isinstance(node, exp.Null)  # CAST(NULL ..)
    return None if has_unknown_type else found


def uncomputed_part(node: exp.Expression, scope: Scope) -> exp.Expression:
    """Return the innermost part that tasks cannot compute of an expression that they cannot compute."""
    for part, is_condition in parts_of(node):
        if isinstance(part, exp.Column | exp.Identifier | exp.Literal):
            continue
        if is_condition:
            if scope.condition(part) is None:
                return uncomputed_part(part, scope)
        elif row_term(part, scope) is None and constant(part, scope.zone) is None:
            return uncomputed_part(part, scope)
    return node


def parts_of(node: exp.Expression) -> Iterator[tuple[exp.Expression, bool]]:
    """Return the operands of an expression, each with a flag for conditions."""
    match node:
        case exp.Dot():
            return
        case exp.If():
            yield node.this, True
            yield from ((part, False) for name in ("true", "false") if (part := node.args.get(name)))
        case exp.Case(this=None):
            for branch in node.args["ifs"]:
                yield from parts_of(branch)
            yield from ((part, False) for part in (node.args.get("default"),) if part)
        case exp.Case():
            for branch in node.args["ifs"]:
                yield from ((part, False) for part in (branch.this, branch.args["true"]))
            yield from ((part, False) for part in (node.this, node.args.get("default")) if part)
        case _:
            # sqlglot wraps the argument of `year` in a `to_date` that is not in the statement.
            inner: Iterable[Any] = (
                part.this if type(part) is exp.TsOrDsToDate else part for part in node.iter_expressions()
            )
            yield from ((part, False) for part in inner if is_operand(part))


def is_operand(part: Any) -> bool:
    return isinstance(part, exp.Condition) and not isinstance(part, exp.Query | exp.PropertyEQ | exp.Kwarg)


def sql_text(node: exp.Expression) -> str:
    """Return an expression as SQL for messages, or only its kind if it is long."""
    if any(place >= MAX_SHOWN for place, _ in enumerate(node.walk())):
        return f"a long {node.key.upper()}"
    return node.sql(dialect="spark")


def arithmetic(node: exp.Expression, scope: Scope, depth: int) -> Value | None:
    """Translate an operator between two numbers."""
    operator = OPERATORS[type(node)]
    left, right = row_term(node.this, scope, depth + 1), row_term(node.expression, scope, depth + 1)
    if left is None or right is None:
        return None
    kinds = {left.type, right.type}
    if DECIMAL in kinds and DOUBLE not in kinds:
        return None
    if operator is Operator.DIVIDE:
        kinds.add(DOUBLE)
    kind = next((kind for kind in (DOUBLE, LONG) if kind in kinds), INT)
    left, right = convert_operand(left, kind), convert_operand(right, kind)
    if left is None or right is None or (isinstance(left, Literal) and isinstance(right, Literal)):
        return None
    if operator in {Operator.DIVIDE, Operator.REMAINDER} and (
        not isinstance(right, Literal) or not right.value or (operator is Operator.REMAINDER and kind == DOUBLE)
    ):
        return None
    return Arithmetic(operator=operator, left=left, right=right, type=kind)


def convert_operand(term: Value, kind: pa.DataType) -> Value | None:
    """Convert a number to the type in which an operator computes; None if Spark would use another type."""
    if isinstance(term, Literal):
        return as_number(term, kind)
    return term if term.type in {INT, LONG, kind} and (kind != INT or term.type == INT) else None


def as_number(term: Literal, kind: pa.DataType) -> Literal | None:
    """Convert a constant number to another type; None if Spark would not."""
    if isinstance(term.value, Decimal):  # Spark casts it to double beside a double
        return widen_literal(term, kind) if kind == DOUBLE else None
    return widen_literal(term, kind) if term.type in {INT, LONG, kind} else None


DECIMAL: Final = pa.decimal256(76, 38)
"""The placeholder type of a number with a decimal point until the other operand is known. No column has it."""


def number(node: exp.Expression) -> Literal | None:
    """Return a number literal in Spark's type; None for other expressions, such as casts of columns.

    Spark reads a minus sign as part of the number behind it: -2147483648 is an int, -(2147483648) is not.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    negative = isinstance(node, exp.Neg)
    if negative:
        node = node.this
    kind = None
    if isinstance(node, exp.Cast):  # `5L` and `2D`
        kind = node.to.this
        node = node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    found = constant(node, UTC)
    if found is None:
        return None
    sign = -1 if negative else 1
    match found.kind, kind:
        case Kind.INTEGER, None if found.value < (1 << 31) + negative:
            return Literal(value=sign * found.value, type=INT)
        # -(2^63) is a bigint, but the cast of 2^63 overflows: in `-CAST(...)` the sign applies after the cast.
        case Kind.INTEGER, None | exp.DataType.Type.BIGINT if found.value < (1 << 63) + (negative and kind is None):
            return Literal(value=sign * found.value, type=LONG)
        case ((Kind.INTEGER | Kind.DECIMAL | Kind.DOUBLE), exp.DataType.Type.DOUBLE):
            return Literal(value=sign * float(found.value), type=DOUBLE)
        case Kind.DOUBLE, None:
            return Literal(value=sign * found.value, type=DOUBLE)
        case Kind.DECIMAL, None:
            return Literal(value=found.value.copy_negate() if negative else found.value, type=DECIMAL)
    return None


UTC: Final = TimeZone.of("UTC")
COMPARED_VALUES: Final = frozenset(
    {INT, LONG, DOUBLE, pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")}
)


def compared_terms(
    left: exp.Expression, operator: ComparisonOperator, right: exp.Expression, scope: Scope
) -> Predicate | None:
    """Translate a comparison of two terms; None if tasks cannot evaluate it or both are constants."""
    terms = row_term(left, scope), row_term(right, scope)
    sides = terms[0] or constant_beside(left, terms[1], scope), terms[1] or constant_beside(right, terms[0], scope)
    if sides[0] is None or sides[1] is None:
        return None
    kind = compared_type(sides[0].type, sides[1].type)
    if kind is None:
        return None
    fit = [as_number(side, kind) if isinstance(side, Literal) and side.type != kind else side for side in sides]
    if fit[0] is None or fit[1] is None or all(isinstance(side, Literal) for side in fit):
        return None
    return Comparison(operator=str(operator), left=fit[0], right=fit[1], type=kind)


def constant_beside(node: exp.Expression, other: Value | None, scope: Scope) -> Literal | None:
    """Return a constant that has the other side's type, such as a string: Spark and Arrow both compare bytes."""
    found = None if other is None else constant(node, scope.zone)
    if found is None or other is None or LITERALS.get(found.kind) != other.type:
        return None
    return Literal(value=found.value, type=other.type)


def compared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which Spark compares values of two types; None if tasks cannot compare them."""
    if left == right:
        return left if left in COMPARED_VALUES else None
    kinds = {left, right}
    if kinds == {INT, LONG}:
        return LONG
    return DOUBLE if DOUBLE in kinds and kinds <= {INT, LONG, DOUBLE, DECIMAL} else None


def member_term(
    node: exp.Expression, members: list[exp.Expression], scope: Scope, *, negated: bool
) -> Predicate | None:
    """Translate `term IN (constants)`, or NOT IN if `negated`."""
    if len(members) > limits.MAX_TERM_VALUES or any(constant(member, scope.zone) is None for member in members):
        return None
    numbers = (number(member) for member in members)
    if {LONG, DOUBLE} <= {found.type for found in numbers if found is not None}:
        return None  # Spark compares all members as doubles, which rounds large integers
    operator = ComparisonOperator.NOT_EQUAL if negated else ComparisonOperator.EQUAL
    found = [compared_terms(node, operator, member, scope) for member in members]
    parts = tuple(part for part in found if part is not None)
    if not parts or len(parts) < len(members):
        return None
    return all_of(parts) if negated else any_of(parts)


def value_term(node: exp.Expression, column: NestedField, scope: Scope) -> Value | None:
    """Translate the expression assigned to a column; None if it is uncertain what Spark would store."""
    if not isinstance(column.field_type, STORED):
        return None
    value = selected_value(node, scope)
    if value is None or (column.required and may_be_null(value, scope.columns(strip_parentheses(node)))):
        return None
    return stored_value(value, arrow_type(column.field_type, spark=True), narrows=False)


def selected_value(node: exp.Expression, scope: Scope, depth: int = 0) -> Value | None:
    """Return the value of an expression, in Spark's type for it; None if only Spark can compute it.

    A NULL has the type null, even inside a cast.

    Args:
        node: The expression.
        scope: The names and settings.
        depth: The number of enclosing operators.
    """
    node = strip_parentheses(node)
    column = scope.columns(node)
    if column is not None:
        return Column(field_id=column.field_id, type=arrow_type(column.field_type, spark=True))
    found = constant(node, scope.zone)
    return row_term(node, scope, depth) if found is None else literal(found, number(node))


def strip_parentheses(node: exp.Expression) -> exp.Expression:
    """Strip the parentheses around an expression."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def may_be_null(value: Value, column: NestedField | None) -> bool:
    """Return whether a value may be NULL; `column` is the column if the value is one, else None."""
    match value:
        case Literal():
            return value.value is None
        case RowCall(function=RowFunction.COALESCE, arguments=arguments):
            return all(may_be_null(argument, None) for argument in arguments)
        case CaseWhen(branches=branches, default=default):
            return any(may_be_null(result, None) for result in (default, *(result for _, result in branches)))
    return column is None or not column.required


def literal(found: Constant, written: Literal | None) -> Literal | None:
    """Return a constant in Spark's type for it; None if the type is uncertain.

    Args:
        found: The constant.
        written: The number literal of the constant; None if it is not a number literal.
    """
    if found.kind is Kind.NULL:
        return Literal(value=None, type=pa.null())
    if written is None:
        kind = LITERALS.get(found.kind)
        return None if kind is None else Literal(value=found.value, type=kind)
    if written.type != DECIMAL:
        return written
    digits, scale = len(written.value.as_tuple().digits), -written.value.as_tuple().exponent
    precision = max(digits, scale)
    return Literal(value=written.value, type=pa.decimal128(precision, scale)) if precision <= MAX_PRECISION else None


def stored_value(value: Value, kind: pa.DataType, *, narrows: bool) -> Value | None:
    """Return a value as Spark stores it into a column; None if only Spark can convert it.

    Args:
        value: The value, in its own type.
        kind: The column's type.
        narrows: True if an integer may be stored into a smaller type if it fits, which depends on the session's store
            assignment policy. Otherwise only widening conversions are made.
    """
    source = value.type
    if source == kind:
        return value
    if source == pa.null():
        return Literal(value=None, type=kind)
    if isinstance(value, Literal) and (pa.types.is_integer(source) or pa.types.is_decimal(source)):
        return stored_number(value, kind)
    if source not in {INT, LONG}:
        return TypeCast(value=value, type=kind) if widens(source, kind) else None
    narrowed = narrows and kind == INT
    return TypeCast(value=value, type=kind) if narrowed or widens(source, kind) else None


def stored_number(number: Literal, kind: pa.DataType) -> Literal | None:
    """Convert a numeric constant to a column's type; None if it does not fit or would be rounded."""
    value = number.value
    if kind in {INT, LONG} and pa.types.is_integer(number.type):
        limit = 1 << (kind.bit_width - 1)
        return Literal(value=value, type=kind) if -limit <= value < limit else None
    if kind == DOUBLE:
        return Literal(value=float(value) + 0.0, type=kind)  # a decimal has no negative zero
    if pa.types.is_decimal(kind):
        _, digits, exponent = Decimal(value).as_tuple()
        zeros = kind.scale + int(exponent)
        if zeros >= 0 and (len(digits) + zeros <= kind.precision or not value):
            return Literal(value=Decimal(value), type=kind)
    return None


def widens(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type can hold every number of another. Large integers are rounded to floats, as in Spark."""
    if source in {INT, LONG}:
        if pa.types.is_decimal(kind):
            return bool(kind.precision - kind.scale >= INTEGER_DIGITS[source])
        return kind in {LONG, FLOAT, DOUBLE}
    if pa.types.is_decimal(source) and pa.types.is_decimal(kind):
        whole = kind.precision - kind.scale >= source.precision - source.scale
        return bool(whole and kind.scale >= source.scale)
    return bool(source == FLOAT and kind == DOUBLE)
