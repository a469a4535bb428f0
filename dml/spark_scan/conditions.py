"""Translate Spark's pushed-down predicates to Iceberg expressions. Driver, classic Spark only.

Input: `Predicate`s of Spark's connector API. Output: an Iceberg expression, and whether it covers all of them. They
become sqlglot trees like conditions in SQL, so that there is one translator to Iceberg (`dml.plan.predicates`). Names
and literals keep their types, without a detour through SQL text. An unsupported part becomes a placeholder call, which
does not affect the other parts.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyiceberg.schema import Schema
from sqlglot import exp

from dml import limits
from dml.model.transforms import date_text, timestamp_text
from dml.plan.condition import EVERY_ROW, Condition, conjunction
from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import pushable
from dml.spark.bridge.gateway import JavaObject
from dml.sqlparse.dialect import TreeReading

__all__ = ["UNKNOWN", "column", "literal", "pushable_trees", "pushed_down", "tree", "unknown"]

UNKNOWN: Final = "__rowdelta_unknown"

BINARY: Final[dict[str, type[exp.Expression]]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<=>": exp.NullSafeEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "AND": exp.And,
    "OR": exp.Or,
    "STARTS_WITH": exp.StartsWith,
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "%": exp.Mod,
}
UNARY: Final[dict[str, type[exp.Expression]]] = {
    "NOT": exp.Not,
    "-": exp.Neg,
    "ABS": exp.Abs,
    "UPPER": exp.Upper,
    "LOWER": exp.Lower,
    "CHAR_LENGTH": exp.Length,
}
DATE_PARTS: Final[dict[str, type[exp.Expression]]] = {"YEAR": exp.Year, "MONTH": exp.Month, "DAY": exp.Day}
NAMED: Final = frozenset({"AlwaysFalse", "AlwaysTrue", "And", "GeneralScalarExpression", "Not", "Or", "Predicate"})
"""Classes of nodes that have a name and children."""

CAST_TYPES: Final[dict[str, exp.DType]] = {
    "integer": exp.DType.INT,
    "long": exp.DType.BIGINT,
    "double": exp.DType.DOUBLE,
    "string": exp.DType.TEXT,
    "date": exp.DType.DATE,
}
"""Types to which tasks can cast, by their JSON names."""

WHOLE_NUMBERS: Final = frozenset({"byte", "short", "integer", "long"})
PRINTED_AS_NUMBERS: Final = WHOLE_NUMBERS | {"date", "timestamp", "timestamp_ntz"}


def pushed_down(predicates: Iterable[JavaObject], schema: Schema, rules: SqlRules) -> Condition:
    """Translate conditions that must all be true.

    Args:
        predicates: Spark's `Predicate`s; they use the schema's names with exact case.
        schema: The schema that the table is read with.
        rules: The session's rules; only the time zone and the catalogs matter here.
    """
    given = list(predicates)
    found = pushable_trees(map(tree, given[: limits.MAX_CONDITION_DEPTH]), schema, rules)
    return replace(found, pruning_is_exact=found.pruning_is_exact and len(given) <= limits.MAX_CONDITION_DEPTH)


def pushable_trees(trees: Iterable[exp.Expression], schema: Schema, rules: SqlRules) -> Condition:
    """Translate conditions given as sqlglot trees; the arguments are those of `pushed_down`."""
    # Spark has resolved the names and parsed the literals: settings of its parser have no effect on these trees.
    resolved = replace(rules, case_sensitive=True, trees=TreeReading.ALIKE)
    names = TargetNames(schema=schema, qualifiers=(), rules=resolved)
    return reduce(conjunction, (pushable(condition, names) for condition in trees), EVERY_ROW)


def tree(node: JavaObject, depth: int = 0) -> exp.Expression:
    """Convert a predicate or a value to a sqlglot tree; parts below the maximum depth become placeholders."""
    if depth > limits.MAX_CONDITION_DEPTH:
        return unknown()
    kind = str(node.getClass().getSimpleName())
    if kind == "FieldReference":
        return column(list(map(str, node.fieldNames())))
    if kind == "LiteralValue":
        return literal(node.value(), type_name(node))
    below = depth + 1
    if kind == "Cast":
        to = CAST_TYPES.get(type_name(node))
        return unknown() if to is None else typed(to, tree(node.expression(), below))
    if kind == "Extract":
        part = DATE_PARTS.get(str(node.field()))
        return unknown() if part is None else part(this=tree(node.source(), below))
    if kind not in NAMED:
        return unknown()
    name, children = str(node.name()), node.children()
    if name == "IN":  # may have a thousand values
        return exp.In(this=tree(children[0], below), expressions=listed(node, children))
    if len(children) > limits.MAX_CONDITION_DEPTH:
        return unknown()
    return call(name, [tree(child, below) for child in children])


def type_name(node: JavaObject) -> str:
    """Return the JSON name of the type of a literal or a cast."""
    return str(node.dataType().json()).strip('"')


def call(name: str, parts: list[exp.Expression]) -> exp.Expression:
    """Return the tree of an operator or a function of converted operands."""
    match name, parts:
        case _, [left, right] if name in BINARY:
            return BINARY[name](this=left, expression=right)
        case _, [operand] if name in UNARY:
            return UNARY[name](this=operand)
        case "IS_NULL", [operand]:
            return exp.Is(this=operand, expression=exp.Null())
        case "IS_NOT_NULL", [operand]:
            return exp.Not(this=exp.Is(this=operand, expression=exp.Null()))
        case "COALESCE", [first, *others]:
            return exp.Coalesce(this=first, expressions=others)
        case "CONCAT", _:
            return exp.Concat(expressions=parts)
        case "SUBSTRING", [text, start, *length] if len(length) < 2:
            return exp.Substring(this=text, start=start, length=next(iter(length), None))
        case "CASE_WHEN", _:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            branches = [exp.If(this=condition, true=value) for condition, value in pairs]
            return exp.Case(ifs=branches, default=parts[-1] if len(parts) % 2 else None)
        case (("ALWAYS_TRUE" | "ALWAYS_FALSE"), []):
            return exp.Boolean(this=name == "ALWAYS_TRUE")
    return unknown()


def listed(node: JavaObject, children: Sequence[JavaObject]) -> list[exp.Expression]:
    """Return the values of IN. Many simple values of one type are read in one call; too many become a placeholder."""
    count = len(children) - 1
    if count > limits.MAX_CONDITION_NODES:
        return [unknown()]
    if count > limits.MAX_SINGLE_VALUES and str(children[1].getClass().getSimpleName()) == "LiteralValue":
        kind = str(children[1].dataType().json()).strip('"')
        if kind in PRINTED_AS_NUMBERS:
            first, *rest = str(node.toString()).removesuffix(")").rsplit(", ", count - 1)
            texts = (first.rpartition("(")[2], *rest)
            if kind in WHOLE_NUMBERS:
                return [exp.Null() if text == "null" else number(text) for text in texts]
            return [literal(None if text == "null" else int(text), kind) for text in texts]
        plain = plain_strings(str(node.toString()), count) if kind == "string" else None
        if plain is not None:
            return [exp.Literal.string(text) for text in plain]
    return [tree(value) for value in list(children)[1:]]


def plain_strings(text: str, count: int) -> list[str] | None:
    """Return the strings at the end of the text of an IN; None if a quote or a NULL makes it ambiguous."""
    if count < 1 or text.count("'") != 2 * count or not text.endswith("')"):
        return None
    values = text[text.index("'") + 1 : -len("')")].split("', '")
    return values if len(values) == count else None


def unknown() -> exp.Expression:
    """Return the placeholder of an unsupported part."""
    return exp.Anonymous(this=UNKNOWN, expressions=[])


def column(parts: list[str]) -> exp.Expression:
    """Return the tree of a column, or of a field of one."""
    found: exp.Expression = exp.Column(this=exp.Identifier(this=parts[0], quoted=True))
    for part in parts[1:]:
        found = exp.Dot(this=found, expression=exp.Identifier(this=part, quoted=True))
    return found


def literal(value: Any, kind: str) -> exp.Expression:
    """Return the tree of a constant, from Spark's internal value and the JSON name of its type."""
    if value is None:
        return exp.Null()
    if kind.startswith("decimal("):
        precision, scale = kind[len("decimal(") : -1].split(",")
        sizes = [exp.DataTypeParam(this=exp.Literal.number(int(size))) for size in (precision, scale)]
        exact = format(Decimal(str(value)), "f")  # Java writes small ones with an exponent
        return exp.Cast(this=number(exact), to=exp.DataType(this=exp.DType.DECIMAL, expressions=sizes))
    made = LITERALS.get(kind)
    return unknown() if made is None else made(value)


def number(text: str) -> exp.Expression:
    """Return the tree of a number, whose sign is an operator in SQL."""
    if text.startswith("-"):
        return exp.Neg(this=exp.Literal.number(text[1:]))
    return exp.Literal.number(text)


def typed(kind: exp.DType, value: exp.Expression) -> exp.Expression:
    """Return the tree of a constant of a type."""
    return exp.Cast(this=value, to=exp.DataType(this=kind))


def bigint(value: int) -> exp.Expression:
    """Return the tree of a bigint. A small one needs a cast, as in `5L`, lest it is an int."""
    if not -(2**31) <= value < 2**31:
        return number(str(value))
    found = typed(exp.DType.BIGINT, exp.Literal.number(abs(value)))
    return exp.Neg(this=found) if value < 0 else found


def floating(kind: exp.DType) -> Callable[[float], exp.Expression]:
    """Return the builder of floating-point constants of a width."""

    def made(value: float) -> exp.Expression:
        if math.isnan(value):
            return typed(kind, exp.Literal.string("nan"))
        return unknown() if math.isinf(value) else typed(kind, number(repr(value)))

    return made


def date(days: int) -> exp.Expression:
    """Return the tree of a date, from days since 1970."""
    return typed(exp.DType.DATE, exp.Literal.string(date_text(days)))


def timestamp(kind: exp.DType, zone: str) -> Callable[[int], exp.Expression]:
    """Return the builder of timestamps, which Spark stores in microseconds."""

    def made(micros: int) -> exp.Expression:
        return typed(kind, exp.Literal.string(timestamp_text(micros, " ") + zone))

    return made


LITERALS: Final[dict[str, Callable[[Any], exp.Expression]]] = {
    "byte": lambda value: typed(exp.DType.TINYINT, number(str(value))),
    "short": lambda value: typed(exp.DType.SMALLINT, number(str(value))),
    "integer": lambda value: number(str(value)),
    "long": bigint,
    "boolean": lambda value: exp.Boolean(this=bool(value)),
    "float": floating(exp.DType.FLOAT),
    "double": floating(exp.DType.DOUBLE),
    "string": lambda value: exp.Literal.string(str(value)),
    "binary": lambda value: exp.HexString(this=bytes(value).hex()),
    "date": date,
    "timestamp": timestamp(exp.DType.TIMESTAMPTZ, "+00:00"),
    "timestamp_ntz": timestamp(exp.DType.TIMESTAMPNTZ, ""),
}
