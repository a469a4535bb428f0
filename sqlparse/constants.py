"""Constant expressions: one walk through them, for all who want their values. Pure; driver.

Input: sqlglot's tree, and what its parts become. Output: the value. Conditions want values that are certain in every
mode of Spark (`dml.plan.literals`); DEFAULT takes more, and says why a constant does not fit (`dml.ddl.literals`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlglot import exp

__all__ = ["Values", "evaluated"]

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(Generic[V]):
    """What the parts of a constant expression become.

    Attributes:
        null: NULL.
        boolean: Of TRUE and FALSE.
        text: Of a string.
        number: Of a number, as written without its sign and suffix.
        binary: Of the digits of X'1F'.
        negated: Of a value after a minus sign.
        cast: Of a value and the type of its CAST; DATE '2020-01-31' and 5L are casts too.
        other: Of an expression that is no constant.
    """

    null: V
    boolean: Callable[[bool], V]
    text: Callable[[str], V]
    number: Callable[[str], V]
    binary: Callable[[str], V]
    negated: Callable[[V], V]
    cast: Callable[[V, exp.DataType], V]
    other: Callable[[], V]


def evaluated(node: Any, values: Values[V]) -> V:
    """The value of an expression.

    Args:
        node: Its tree.
        values: What its parts become.
    """
    match node:
        case exp.Literal():
            return values.text(node.this) if node.is_string else values.number(node.this)
        case exp.Neg():
            return values.negated(evaluated(node.this, values))
        case exp.Cast():
            return values.cast(evaluated(node.this, values), node.to)
        case exp.Paren():
            return evaluated(node.this, values)
        case exp.Null():
            return values.null
        case exp.Boolean():
            return values.boolean(bool(node.this))
        case exp.HexString():
            return values.binary(node.this)
    return values.other()
