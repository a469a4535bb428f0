"""Define row programs: what a task computes from the rows that it reads. The driver makes them; tasks run them.

| program      | statement                                         | output rows                                     |
| ---          | ---                                               | ---                                             |
| `Projection` | INSERT ... SELECT                                 | computed values                                 |
| `Changes`    | DELETE, UPDATE, MERGE                             | a row delta: operation, position, new values    |
| `Groups`     | SELECT with aggregates                            | partial aggregates, which Spark combines        |

Programs consist of expressions over the columns of a row, as frozen values. A value has one result per row. A predicate
selects rows: it is True where SQL's condition is TRUE, and False where that is FALSE or NULL. There is no NOT: over a
two-valued result it would turn NULL into TRUE. The translator pushes negation down to the leaves, which have a negated
form.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "FALSE",
    "TRUE",
    "Aggregate",
    "AggregateFunction",
    "And",
    "Arithmetic",
    "CaseWhen",
    "Changes",
    "Clause",
    "Column",
    "Comparison",
    "Groups",
    "InSet",
    "IsNaN",
    "IsNull",
    "Join",
    "Literal",
    "Operator",
    "Or",
    "Predicate",
    "Program",
    "Projection",
    "RowCall",
    "RowFunction",
    "StartsWith",
    "TypeCast",
    "Value",
    "all_of",
    "any_of",
    "column_ids",
    "source_id",
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
        field_id: The field id of a top-level column. The source of a MERGE has negative ids (`source_id`).
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


def source_id(place: int) -> int:
    """Return the id of the source's column at a place; it takes the role of a field id."""
    return -1 - place


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Compute values from each row.

    Attributes:
        values: The values.
    """

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """The change of the rows that satisfy a condition: a WHEN clause, or all of a DELETE or UPDATE.

    Attributes:
        operation: The code of the operation (`dml.model.columns.RowOperation`), with `BY_SOURCE` if it has that.
        condition: Selects rows among those that no earlier clause took.
        values: The new values, in the order of the delta's value columns; None for a column without one.
    """

    operation: int
    condition: Predicate = TRUE
    values: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A broadcast hash join of a table's rows with a source whose keys are unique.

    Attributes:
        key_ids: Columns of the table that equal the first columns of the source, in that order.
        null_safe: Indices of keys in which NULL equals NULL.
        residual: The condition that two rows with equal keys must also satisfy to match.
    """

    key_ids: tuple[int, ...]
    null_safe: tuple[int, ...] = ()
    residual: Predicate = TRUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Choose a clause for each row, and compute the new values.

    Attributes:
        value_types: The Arrow types of the delta's value columns.
        matched: Clauses for the rows that are read; with a join, for those that match.
        not_matched: Clauses for rows of the source that match no row.
        not_matched_by_source: Clauses for target rows without a match in the source.
        join: The join with the source; None without a source.
    """

    value_types: tuple[pa.DataType, ...]
    matched: tuple[Clause, ...]
    not_matched: tuple[Clause, ...] = ()
    not_matched_by_source: tuple[Clause, ...] = ()
    join: Join | None = None


class AggregateFunction(StrEnum):
    """Aggregate functions, by the names of Spark's classes."""

    COUNT_ROWS = "CountStar"
    COUNT = "Count"
    MIN = "Min"
    MAX = "Max"
    SUM = "Sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A function of a column.

    Attributes:
        function: The function.
        place: The index of the column among those that the task reads; None for `COUNT_ROWS`.
    """

    function: AggregateFunction
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Aggregate the rows of a task, as the partial step of a hash aggregate.

    Attributes:
        by: The indices of the grouping columns among those that the task reads. Without any there is one group, even
            if there is no row.
        aggregates: The aggregates of each group.
    """

    by: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]


Program = Projection | Changes | Groups
