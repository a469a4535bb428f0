"""Format a filter like SQL, for EXPLAIN and messages. Pure; driver.

Input: an Iceberg expression. Output: text for people, not for parsers: long lists are truncated.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from pyiceberg.expressions import (
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, StringLiteral, TimestampLiteral
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit

from dml.model.transforms import date_text, timestamp_text
from dml.pruning.bucket_predicate import InBuckets

__all__ = ["filter_text"]


MOST_VALUES: Final = 5
OPERATORS: Final[dict[type, str]] = {
    EqualTo: "{} = {}",
    NotEqualTo: "{} <> {}",
    LessThan: "{} < {}",
    LessThanOrEqual: "{} <= {}",
    GreaterThan: "{} > {}",
    GreaterThanOrEqual: "{} >= {}",
    StartsWith: "startswith({}, {})",
    NotStartsWith: "NOT startswith({}, {})",
    IsNull: "{} IS NULL",
    NotNull: "{} IS NOT NULL",
    IsNaN: "isnan({})",
    NotNaN: "NOT isnan({})",
    In: "{} IN ({})",
    NotIn: "{} NOT IN ({})",
}


def filter_text(expression: BooleanExpression, column_text: Callable[[str], str] = str) -> str:
    """Format an unbound expression for a message.

    Args:
        expression: The expression.
        column_text: Formats a column name, for example with backquotes.
    """
    return visit(expression, FilterText(column_text))


class FilterText(BooleanExpressionVisitor[str]):
    def __init__(self, column_text: Callable[[str], str]) -> None:
        self._column_text = column_text

    def visit_true(self) -> str:
        return "TRUE"

    def visit_false(self) -> str:
        return "FALSE"

    def visit_not(self, child_result: str) -> str:
        return f"NOT ({child_result})"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result} AND {right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result} OR {right_result})"

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> str:
        term = predicate.term
        name = self._column_text(term.name) if isinstance(term, Reference) else str(term)
        if isinstance(predicate, InBuckets):
            return buckets_text(predicate, name)
        return OPERATORS[type(predicate)].format(name, values(predicate))

    def visit_bound_predicate(self, predicate: BoundPredicate) -> str:
        return str(predicate)


def buckets_text(predicate: InBuckets, name: str) -> str:
    call = f"system.bucket({predicate.count}, {name})"
    single, several = (NotEqualTo, NotIn) if predicate.negated else (EqualTo, In)
    if len(predicate.buckets) == 1:
        return OPERATORS[single].format(call, *predicate.buckets)
    return OPERATORS[several].format(
        call, join_values(map(str, sorted(predicate.buckets)[:MOST_VALUES]), len(predicate.buckets))
    )


def values(predicate: UnboundPredicate) -> str:
    if isinstance(predicate, LiteralPredicate):
        return value_text(predicate.literal)
    if not isinstance(predicate, SetPredicate):
        return ""
    literals = sorted(predicate.literals, key=lambda literal: literal.value)
    return join_values([value_text(literal) for literal in literals[:MOST_VALUES]], len(literals))


def join_values(first: Iterable[str], count: int) -> str:
    more = f", and {count - MOST_VALUES} more" if count > MOST_VALUES else ""
    return ", ".join(first) + more


def value_text(literal: Literal[Any]) -> str:
    value = literal.value
    match literal:
        case DateLiteral():
            return f"'{date_text(value)}'"
        case TimestampLiteral():
            return f"'{timestamp_text(value, ' ')}'"
        case StringLiteral():
            return "'" + str(value).replace("'", "''") + "'"
    return str(value)
