"""Translate function calls and casts that tasks can compute, from sqlglot's tree to a `Value`. Driver.

    coalesce(k, 0), CASE WHEN k > 1 THEN 'a' ELSE s END, nullif(k, 0), CAST(k AS BIGINT), upper(s), s || 'x', year(day)

A function qualifies only for types where Arrow's result equals Spark's for every value, or where a task detects the
exceptions (`dml.rows.evaluate`). Everything else translates to None and runs in Spark, including calls without a
column.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from dml import limits
from dml.rows.program import (
    FALSE,
    TRUE,
    CaseWhen,
    Literal,
    Predicate,
    RowCall,
    RowFunction,
    TypeCast,
    Value,
    column_ids,
)

__all__ = ["CallParts", "function_value", "widen_literal"]

INT: Final = pa.int32()
LONG: Final = pa.int64()
DOUBLE: Final = pa.float64()
STRING: Final = pa.string()
DATE: Final = pa.date32()
NUMBERS: Final = frozenset({INT, LONG, DOUBLE})
CASTS: Final = {
    exp.DType.INT: (INT, NUMBERS),
    exp.DType.BIGINT: (LONG, NUMBERS),
    exp.DType.DOUBLE: (DOUBLE, NUMBERS | {pa.float32()}),
    exp.DType.TEXT: (STRING, frozenset({INT, LONG, STRING})),
    exp.DType.DATE: (DATE, frozenset({DATE})),
}
"""The target type of each cast, and its source types. Doubles are not cast to strings: Java and Arrow format them
differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallParts:
    """Translators for the parts of a call. They return None if tasks cannot compute a part.

    Attributes:
        value: Translates an argument.
        condition: Translates a condition.
    """

    value: Callable[[exp.Expression], Value | None]
    condition: Callable[[exp.Expression], Predicate | None]


def widen(value: Value, kind: pa.DataType) -> Value:
    """Return a value in a type to which Spark converts it implicitly: a wider number, or a NULL of that type."""
    if value.type == kind:
        return value
    return widen_literal(value, kind) if isinstance(value, Literal) else TypeCast(value=value, type=kind)


def widen_literal(literal: Literal, kind: pa.DataType) -> Literal:
    """Like `widen`, for a literal."""
    if kind != DOUBLE or literal.type == DOUBLE or literal.value is None:
        return Literal(value=literal.value, type=kind)
    return Literal(value=float(literal.value) + 0.0, type=kind)  # a decimal has no negative zero


def common_type(values: Sequence[Value]) -> pa.DataType | None:
    """Return the type to which Spark casts the branches of a CASE, or the like; None if it is uncertain."""
    kinds = {value.type for value in values} - {pa.null()}
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {INT, LONG}:
        return LONG if kinds else None
    # Arrow and Java round differently when they convert a column of decimals to doubles.
    known = {value.type for value in values if not (isinstance(value, Literal) and pa.types.is_decimal(value.type))}
    return DOUBLE if DOUBLE in known and known - {pa.null()} <= NUMBERS else None


def unify(values: Sequence[Value | None]) -> list[Value] | None:
    """Return values in their common type, such as the branches of a CASE; None if a value is missing."""
    found = [value for value in values if value is not None]
    kind = common_type(found)
    return [widen(value, kind) for value in found] if kind is not None and len(found) == len(values) else None


def call(function: RowFunction, arguments: Sequence[Value | None], kind: pa.DataType) -> RowCall | None:
    """Return a call; None if it reads no column or tasks cannot compute an argument."""
    found = tuple(argument for argument in arguments if argument is not None)
    if len(found) < len(arguments) or not any(map(column_ids, found)):
        return None
    return RowCall(function=function, arguments=found, type=kind)


def coalesce(node: exp.Expression, parts: CallParts) -> Value | None:
    values = unify([parts.value(part) for part in (node.this, *node.expressions)])
    return None if values is None else call(RowFunction.COALESCE, values, values[0].type)


def case(node: exp.Expression, parts: CallParts) -> Value | None:
    """Translate `CASE WHEN`, and `CASE operand WHEN`, which compares with `=`."""
    operand, default = node.this, node.args.get("default")
    if operand and has_case(operand):
        return None
    branches = [
        (equation(operand, part.this) if operand else part.this, part.args["true"]) for part in node.args["ifs"]
    ]
    return case_value(branches, default, parts)


def case_value(
    branches: Sequence[tuple[exp.Expression, exp.Expression]], default: exp.Expression | None, parts: CallParts
) -> Value | None:
    """Return the value of the first branch whose condition is true."""
    if len(branches) > limits.MAX_CASE_BRANCHES:
        return None
    conditions = [parts.condition(condition) for condition, _ in branches]
    missing = Literal(value=None, type=pa.null())
    values = unify([*(parts.value(value) for _, value in branches), parts.value(default) if default else missing])
    if values is None:
        return None
    open_branches: list[tuple[Predicate, Value]] = []
    last = values[-1]
    for condition, value in zip(conditions, values[:-1], strict=True):
        if condition is None:
            return None
        if condition == TRUE:
            last = value
            break
        if condition != FALSE:
            open_branches.append((condition, value))
    return CaseWhen(branches=tuple(open_branches), default=last, type=last.type) if open_branches else None


def if_function(node: exp.Expression, parts: CallParts) -> Value | None:
    default = node.args.get("false")
    return None if default is None else case_value([(node.this, node.args["true"])], default, parts)


def nullif(node: exp.Expression, parts: CallParts) -> Value | None:
    if has_case(node.this):
        return None
    return case_value([(equation(node.this, node.expression), exp.Null())], node.this, parts)


def has_case(operand: exp.Expression) -> bool:
    """Return whether an operand contains CASE or NULLIF. Branches copy it, so nested ones would grow exponentially."""
    return operand.find(exp.Case, exp.Nullif) is not None


def equation(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return exp.EQ(this=left.copy(), expression=right.copy())


def of_number(function: RowFunction) -> "Builder":
    """Return the builder of a function of one number, whose result has the same type."""

    def build(node: exp.Expression, parts: CallParts) -> Value | None:
        value = parts.value(node.this)
        return call(function, [value], value.type) if value is not None and value.type in NUMBERS else None

    return build


def of_string(function: RowFunction, kind: pa.DataType) -> "Builder":
    """Return the builder of a function of one string."""

    def build(node: exp.Expression, parts: CallParts) -> Value | None:
        value = parts.value(node.this)
        return call(function, [value], kind) if value is not None and value.type == STRING else None

    return build


def of_date(function: RowFunction) -> "Builder":
    """Return the builder of a part of a date."""

    def build(node: exp.Expression, parts: CallParts) -> Value | None:
        value = parts.value(node.this)
        return call(function, [value], INT) if value is not None and value.type == DATE else None

    return build


def substring(node: exp.Expression, parts: CallParts) -> Value | None:
    places = [parts.value(part) for part in (node.args.get("start"), node.args.get("length")) if part is not None]
    value = parts.value(node.this)
    if value is None or value.type != STRING or not places:
        return None
    known = all(isinstance(place, Literal) and place.type == INT and place.value is not None for place in places)
    return call(RowFunction.SUBSTRING, [value, *places], STRING) if known else None


def concat(node: exp.Expression, parts: CallParts) -> Value | None:
    """Translate `concat` and `||`."""
    texts = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    values = [parts.value(text) for text in texts]
    return call(RowFunction.CONCAT, values, STRING) if all(v is not None and v.type == STRING for v in values) else None


def cast(node: exp.Expression, parts: CallParts) -> Value | None:
    to = node.args["to"]
    kind, sources = CASTS.get(to.this, (None, frozenset()))
    value = parts.value(node.this) if kind is not None and not to.expressions else None
    if value is None or value.type not in sources or not column_ids(value):
        return None
    return value if value.type == kind else TypeCast(value=value, type=kind)


def date(node: exp.Expression, parts: CallParts) -> Value | None:
    """Translate `to_date`, which sqlglot also adds around the argument of `year`."""
    value = parts.value(node.this)
    return value if value is not None and value.type == DATE else None


Builder = Callable[[exp.Expression, CallParts], Value | None]

BUILDERS: Final[dict[type[exp.Expression], tuple[Builder, frozenset[str]]]] = {
    exp.Abs: (of_number(RowFunction.ABS), frozenset({"this"})),
    exp.Case: (case, frozenset({"this", "ifs", "default"})),
    exp.Cast: (cast, frozenset({"this", "to", "safe", "_type"})),
    exp.Coalesce: (coalesce, frozenset({"this", "expressions"})),
    exp.Concat: (concat, frozenset({"expressions", "safe"})),
    exp.DPipe: (concat, frozenset({"this", "expression", "safe"})),
    exp.Day: (of_date(RowFunction.DAY), frozenset({"this"})),
    exp.DayOfMonth: (of_date(RowFunction.DAY), frozenset({"this"})),
    exp.If: (if_function, frozenset({"this", "true", "false"})),
    exp.Length: (of_string(RowFunction.LENGTH, INT), frozenset({"this"})),
    exp.Lower: (of_string(RowFunction.LOWER, STRING), frozenset({"this"})),
    exp.Month: (of_date(RowFunction.MONTH), frozenset({"this"})),
    exp.Neg: (of_number(RowFunction.NEGATIVE), frozenset({"this"})),
    exp.Nullif: (nullif, frozenset({"this", "expression"})),
    exp.Substring: (substring, frozenset({"this", "start", "length"})),
    exp.TryCast: (cast, frozenset({"this", "to", "safe", "_type"})),
    exp.TsOrDsToDate: (date, frozenset({"this", "safe"})),
    exp.Upper: (of_string(RowFunction.UPPER, STRING), frozenset({"this"})),
    exp.Year: (of_date(RowFunction.YEAR), frozenset({"this"})),
}
"""Builders of calls by the class of their tree, each with the parts that the tree may have."""


def function_value(node: exp.Expression, parts: CallParts) -> Value | None:
    """Return the value of a call; None if only Spark can compute it.

    Args:
        node: The call.
        parts: Translates its arguments.
    """
    build, allowed = BUILDERS.get(type(node), (None, frozenset()))
    if build is None or any(part and name not in allowed for name, part in node.args.items()):
        return None
    return build(node, parts)
