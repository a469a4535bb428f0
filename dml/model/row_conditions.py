"""Conditions and values of rows that are computed from columns, where Arrow gives what Spark does. Worker-safe.

Made by the driver (`dml.plan.row_terms`), evaluated by the tasks that read the rows (`dml.read.computed_rows`). A
condition is true where SQL's is true, and otherwise false; NOT was carried down to the comparisons before.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

__all__ = [
    "AllOf",
    "AnyOf",
    "ArithmeticTerm",
    "ColumnTerm",
    "Compares",
    "ConstantTerm",
    "Matches",
    "Operator",
    "RowCondition",
    "RowTerm",
]


class Operator(StrEnum):
    """The arithmetic operators, as SQL writes them."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTerm:
    """The value of a column.

    Attributes:
        field_id: A top-level column.
        type: The Arrow type of its values.
    """

    field_id: int
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantTerm:
    """The same value for each row.

    Attributes:
        value: The value, as Arrow takes it; None for NULL.
        type: Its Arrow type.
    """

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticTerm:
    """Two numbers made one, by the rules of Spark for its type.

    Attributes:
        operator: The operator; the right side of a division or a remainder is a constant that is not 0.
        left: The left side.
        right: The right side.
        type: int32, int64 or float64: what both sides are made before, and what comes out.
    """

    operator: Operator
    left: "RowTerm"
    right: "RowTerm"
    type: pa.DataType


RowTerm = ColumnTerm | ConstantTerm | ArithmeticTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class Compares:
    """A comparison of two terms.

    Attributes:
        operator: `=`, `<>`, `<`, `<=`, `>` or `>=`.
        left: The left side.
        right: The right side.
        type: What both sides are made before.
    """

    operator: str
    left: RowTerm
    right: RowTerm
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What an Iceberg expression says.

    Attributes:
        expression: The unbound expression.
    """

    expression: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """AND."""

    parts: tuple["RowCondition", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """OR."""

    parts: tuple["RowCondition", ...]


RowCondition = Compares | Matches | AllOf | AnyOf
