"""Conditions without columns as values, where they are certain: `21 = 21`, `1 > NULL`. Pure; driver.

Input: sqlglot's tree. Output: TRUE, FALSE or NULL, as Spark's optimiser would fold it, or None: "not certain".
"""

import math
from collections.abc import Callable
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from sqlglot import exp

from dml.sqlparse.constants import Constant, Kind, TimeZone, boolean, constant

__all__ = ["fold"]

NUMBERS = {Kind.INTEGER, Kind.DECIMAL}
ORDERED = {Kind.STRING, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.BINARY}

OPERATORS: dict[type[exp.Expression], Callable[[Any, Any], bool]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
}


def fold(node: exp.Expression, zone: TimeZone) -> Constant | None:
    """The value of a condition without columns: a constant of kind boolean or null; None where it is not certain.

    Args:
        node: The condition; AND, OR and NOT are taken apart by the caller.
        zone: The session's time zone.
    """
    match node:
        case exp.Boolean() | exp.Null() | exp.Cast():
            value = constant(node, zone)
            return value if value is not None and value.kind in {Kind.BOOLEAN, Kind.NULL} else None
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return compared(OPERATORS[type(node)], constant(node.this, zone), constant(node.expression, zone))
        case exp.Is() if isinstance(node.expression, exp.Null):
            value = constant(node.this, zone)
            return None if value is None else boolean(value.kind is Kind.NULL)
        case exp.NullSafeEQ():
            return null_safe(constant(node.this, zone), constant(node.expression, zone))
    return None


def compared(operator: Callable[[Any, Any], bool], left: Constant | None, right: Constant | None) -> Constant | None:
    """A comparison of two constants of comparable types."""
    if left is None or right is None:
        return None
    if Kind.NULL in {left.kind, right.kind}:
        return Constant(kind=Kind.NULL)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return boolean(operator(Decimal(left.value), Decimal(right.value)))
    if left.kind is right.kind and left.kind in ORDERED:
        return boolean(operator(comparable(left), comparable(right)))
    if left.kind is right.kind is Kind.DOUBLE and not math.isnan(left.value) and not math.isnan(right.value):
        return boolean(operator(left.value, right.value))
    return None


def comparable(value: Constant) -> Any:
    """A value in Spark's order: strings by their bytes."""
    return value.value.encode() if value.kind is Kind.STRING else value.value


def null_safe(left: Constant | None, right: Constant | None) -> Constant | None:
    """`<=>`."""
    if left is None or right is None:
        return None
    if Kind.NULL in {left.kind, right.kind}:
        return boolean(left.kind is right.kind)
    return compared(eq, left, right)
