"""Conditions of Spark's connector API as SQL text. Driver, classic Spark only.

Input: `Predicate`s, which Spark made of a condition and has checked: columns, literals and comparisons. Output: a
fragment of SQL, which `dml.plan.predicates` reads as it reads a statement's condition. What SQL text cannot say
exactly is said to be unknown, never guessed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from py4j.java_gateway import JavaObject, is_instance_of

from dml.connector.java import CONNECTOR
from dml.errors import NotSupportedError
from dml.spark.column_text import literal_text
from dml.spark.jvm import gateway
from dml.sqlparse import parse
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import Fragment, Query, Span

__all__ = ["predicate_text", "predicates_fragment"]

EXPRESSIONS: Final = CONNECTOR + "expressions."
COMPARISONS: Final = frozenset({"=", "<=>", "<>", "<", "<=", ">", ">="})
CONSTANTS: Final = {"ALWAYS_TRUE": "TRUE", "ALWAYS_FALSE": "FALSE"}


def predicates_fragment(predicates: Iterable[JavaObject]) -> Fragment:
    """Conditions that all have to hold, as one condition of a statement.

    Raises:
        NotSupportedError: one is none that SQL text can say.
    """
    texts = []
    for predicate in predicates:
        text = predicate_text(predicate)
        if text is None:
            raise NotSupportedError(
                f"The condition {predicate.describe()} is none of comparisons of columns with constants",
                hint="Use columns, literals, isin(), isNull(), and, or, not",
            )
        texts.append(text)
    text = " AND ".join(texts)
    statement = parse(f"SELECT {text}")
    assert isinstance(statement, Query)
    tree = statement.fragment.ast
    return replace(
        statement.fragment,
        text=text,
        span=Span(0, len(text)),
        ast=None if tree is None else tree.expressions[0],
    )


def predicate_text(predicate: JavaObject) -> str | None:
    """A condition as SQL text in parentheses; None where SQL text cannot say it exactly."""
    name, children = str(predicate.name()), list(predicate.children())
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in {"AND", "OR", "NOT"}:
        parts = [predicate_text(child) for child in children]
        return None if None in parts else connected(name, [part for part in parts if part is not None])
    return of_operands(name, [operand_text(child) for child in children])


def connected(name: str, parts: Sequence[str]) -> str:
    """Conditions, connected."""
    return f"(NOT {parts[0]})" if name == "NOT" else "(" + f" {name} ".join(parts) + ")"


def of_operands(name: str, operands: Sequence[str | None]) -> str | None:
    """A comparison as SQL text; None where it is none that is known, or an operand is none."""
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    match name, known:
        case comparison, [left, right] if comparison in COMPARISONS:
            return f"({left} {comparison} {right})"
        case "IS_NULL", [column]:
            return f"({column} IS NULL)"
        case "IS_NOT_NULL", [column]:
            return f"({column} IS NOT NULL)"
        case "IN", [column, *values] if values:
            return f"({column} IN ({', '.join(values)}))"
        case "STARTS_WITH", [column, prefix]:
            return f"startswith({column}, {prefix})"
    return None


def operand_text(expression: JavaObject) -> str | None:
    """A column or a literal as SQL text; None for anything else."""
    if is_instance_of(gateway(), expression, EXPRESSIONS + "NamedReference"):
        return quote_name(tuple(map(str, expression.fieldNames())))
    if is_instance_of(gateway(), expression, EXPRESSIONS + "Literal"):
        return constant_text(expression.value(), str(expression.dataType().json()).strip('"'))
    return None


def constant_text(value: object, kind: str) -> str | None:
    """A value, as Spark keeps it inside, as SQL text; None where there is no such literal."""
    if isinstance(value, JavaObject):  # Spark's own strings and decimals
        value = Decimal(value.toString()) if kind.startswith("decimal(") else value.toString()
    try:
        return literal_text(value, kind)
    except NotSupportedError:
        return None
