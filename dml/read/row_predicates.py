"""Translate Iceberg expressions into predicates that tasks evaluate on rows, where Arrow and Spark agree. Worker-safe.

An Iceberg expression prunes files and row groups by their bounds. The parts of it on top-level columns of types that
Arrow compares as Spark does also select rows.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import (
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundStartsWith,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml.pruning.bound_expressions import bound_filter, fold_expression
from dml.read.projection import arrow_type
from dml.rows.program import (
    FALSE,
    TRUE,
    Column,
    Comparison,
    InSet,
    IsNaN,
    IsNull,
    Literal,
    Predicate,
    StartsWith,
    all_of,
    any_of,
)

__all__ = ["RowSelection", "select_bound_rows", "select_rows"]

FLOATING: Final = (FloatType, DoubleType)
COMPARED: Final = (
    BooleanType,
    IntegerType,
    LongType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
    DecimalType,
    *FLOATING,
)
OPERATORS: Final[dict[type[BoundPredicate], str]] = {
    BoundEqualTo: "=",
    BoundNotEqualTo: "<>",
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """The rows that an expression selects.

    Attributes:
        predicate: True for every row for which the expression is true.
        is_exact: True if the predicate is true for no other row.
    """

    predicate: Predicate
    is_exact: bool


ALL_ROWS: Final = RowSelection(predicate=TRUE, is_exact=False)


def select_rows(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> RowSelection:
    """Translate an expression.

    Args:
        expression: An unbound expression.
        schema: The table's schema.
        case_sensitive: Whether column names match case-sensitively.
    """
    return select_bound_rows(bound_filter(expression, schema, case_sensitive=case_sensitive), schema)


def select_bound_rows(expression: BooleanExpression, schema: Schema) -> RowSelection:
    """Translate an expression that is bound to a schema and has no NOT."""
    top_level = {field.field_id for field in schema.fields}

    def leaf(predicate: BoundPredicate) -> RowSelection:
        found = leaf_predicate(predicate) if predicate.term.ref().field.field_id in top_level else None
        return ALL_ROWS if found is None else RowSelection(predicate=found, is_exact=True)

    return fold_expression(
        expression,
        leaf=leaf,
        both=lambda left, right: RowSelection(
            predicate=all_of((left.predicate, right.predicate)), is_exact=left.is_exact and right.is_exact
        ),
        either=lambda left, right: RowSelection(
            predicate=any_of((left.predicate, right.predicate)), is_exact=left.is_exact and right.is_exact
        ),
        always=RowSelection(predicate=TRUE, is_exact=True),
        never=RowSelection(predicate=FALSE, is_exact=True),
    )


def leaf_predicate(predicate: BoundPredicate) -> Predicate | None:
    """Translate a predicate on a column, or return None if Arrow's result might differ from Spark's."""
    field = predicate.term.ref().field
    kind = field.field_type
    match predicate:
        case BoundIsNull() | BoundNotNull():
            # IS NULL does not depend on the Arrow type of the column.
            return IsNull(
                column=Column(field_id=field.field_id, type=pa.null()), negated=isinstance(predicate, BoundNotNull)
            )
    if not isinstance(kind, COMPARED):
        return None
    column = Column(field_id=field.field_id, type=arrow_type(kind, spark=False))
    match predicate:
        case BoundIsNaN() | BoundNotNaN() if isinstance(kind, FLOATING):
            return IsNaN(column=column, negated=isinstance(predicate, BoundNotNaN))
        case BoundIn() | BoundNotIn() if not isinstance(kind, FLOATING):
            return InSet(
                column=column, values=tuple(sorted(predicate.value_set)), negated=isinstance(predicate, BoundNotIn)
            )
        case BoundStartsWith() | BoundNotStartsWith() if isinstance(kind, StringType):
            return StartsWith(
                column=column,
                prefix=str(predicate.literal.value),
                negated=isinstance(predicate, BoundNotStartsWith),
            )
    operator = OPERATORS.get(type(predicate))
    if operator is None:
        return None
    # A float column is compared as double, as in Spark.
    compared = pa.float64() if isinstance(kind, FLOATING) else column.type
    value = predicate.literal.value  # type: ignore[attr-defined]
    return Comparison(operator=operator, left=column, right=Literal(value=value, type=compared), type=compared)
