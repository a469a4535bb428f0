"""Expressions over the columns of a row, as frozen values that the driver makes and tasks evaluate.

A value has one result per row. A predicate selects rows: it is True where SQL's condition is TRUE, and False where that
is FALSE or NULL. There is no NOT: over a two-valued result it would turn NULL into TRUE. The translator carries
negation down to the leaves, which have a negated form.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "FALSE",
    "TRUE",
    "And",
    "Arithmetic",
    "CaseWhen",
    "Column",
    "Comparison",
    "InSet",
    "IsNaN",
    "IsNull",
    "Literal",
    "Operator",
    "Or",
    "Predicate",
    "RowCall",
    "RowFunction",
    "StartsWith",
    "TypeCast",
    "Value",
    "all_of",
    "any_of",
    "column_ids",
]


class Operator(StrEnum):
    """Arithmetic operators, as SQL writes them."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The value of a column.

    Attributes:
        field_id: The field id of a top-level column. The source of a MERGE has negative ids (`dml.rows.program`).
        type: The Arrow type of the values.
    """

    field_id: int
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """The same value for each row.

    Attributes:
        value: The value, as `pa.scalar` takes it; None for NULL.
        type: The Arrow type.
    """

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Arithmetic by Spark's rules for the type of the result.

    Attributes:
        operator: The operator. The right side of a division or a remainder is a literal other than 0.
        left: The left side.
        right: The right side.
        type: int32, int64 or float64. Both sides are cast to it first.
    """

    operator: Operator
    left: "Value"
    right: "Value"
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCast:
    """A cast. A number that does not fit the type is an overflow.

    Attributes:
        value: The value.
        type: The Arrow type. Numbers are cast to integers or to types that are not narrower, integers also to strings.
    """

    value: "Value"
    type: pa.DataType


class RowFunction(StrEnum):
    """Functions whose results do not depend on the session, by Spark's names."""

    ABS = "abs"
    COALESCE = "coalesce"
    CONCAT = "concat"
    DAY = "day"
    LENGTH = "length"
    LOWER = "lower"
    MONTH = "month"
    NEGATIVE = "negative"
    SUBSTRING = "substring"
    UPPER = "upper"
    YEAR = "year"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCall:
    """A function call.

    Attributes:
        function: The function.
        arguments: Arguments in the types that the function expects. Those of `COALESCE` have the type of the result;
            those of `SUBSTRING` after the first are non-NULL int literals.
        type: The Arrow type of the result.
    """

    function: RowFunction
    arguments: tuple["Value", ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseWhen:
    """The value of the first branch whose condition is True. A value is computed for the rows of its branch only.

    Attributes:
        branches: Conditions, each of which reads a column, with their values.
        default: The value of rows in no branch.
        type: The Arrow type of the result, and of each value.
    """

    branches: tuple[tuple["Predicate", "Value"], ...]
    default: "Value"
    type: pa.DataType


Value = Column | Literal | Arithmetic | TypeCast | RowCall | CaseWhen


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison by Spark's order of values: NaN equals NaN and is the greatest number.

    Attributes:
        operator: `=`, `<>`, `<`, `<=`, `>` or `>=`.
        left: The left side.
        right: The right side.
        type: Both sides are cast to it first.
    """

    operator: str
    left: Value
    right: Value
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """IS NULL, or IS NOT NULL."""

    column: Column
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNaN:
    """True for NaN; negated, for numbers other than NaN."""

    column: Column
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InSet:
    """IN, or NOT IN. A type with -0.0 and NaN is not supported: Arrow's hash tables distinguish them.

    Attributes:
        column: The column.
        values: Values other than NULL, in the type of the column.
        negated: True for NOT IN.
    """

    column: Column
    values: tuple[Any, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsWith:
    """A test of the first characters of a string."""

    column: Column
    prefix: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """AND; True without parts."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR; False without parts."""

    parts: tuple["Predicate", ...]


Predicate = Comparison | IsNull | IsNaN | InSet | StartsWith | And | Or

TRUE: Final = And(())
FALSE: Final = Or(())


def all_of(parts: Iterable[Predicate]) -> Predicate:
    """Return the conjunction, flat and without repetitions."""
    found: dict[Predicate, None] = {}
    for part in parts:
        if part == FALSE:
            return FALSE
        found.update(dict.fromkeys(part.parts if isinstance(part, And) else (part,)))
    return next(iter(found)) if len(found) == 1 else And(tuple(found))


def any_of(parts: Iterable[Predicate]) -> Predicate:
    """Return the disjunction, flat and without repetitions."""
    found: dict[Predicate, None] = {}
    for part in parts:
        if part == TRUE:
            return TRUE
        found.update(dict.fromkeys(part.parts if isinstance(part, Or) else (part,)))
    return next(iter(found)) if len(found) == 1 else Or(tuple(found))


def column_ids(expression: Value | Predicate) -> frozenset[int]:
    """Return the field ids of the columns that an expression reads."""
    match expression:
        case Column(field_id=field_id):
            return frozenset({field_id})
        case Literal():
            return frozenset()
        case TypeCast(value=value):
            return column_ids(value)
        case RowCall(arguments=arguments):
            return frozenset[int]().union(*map(column_ids, arguments))
        case CaseWhen(branches=branches, default=default):
            return column_ids(default).union(*(column_ids(part) for branch in branches for part in branch))
        case Arithmetic(left=left, right=right) | Comparison(left=left, right=right):
            return column_ids(left) | column_ids(right)
        case And(parts) | Or(parts):
            return frozenset[int]().union(*map(column_ids, parts))
        case IsNull(column=column) | IsNaN(column=column) | InSet(column=column) | StartsWith(column=column):
            return column_ids(column)
