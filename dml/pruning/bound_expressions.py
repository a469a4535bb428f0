"""Bind Iceberg expressions to a schema and fold them bottom-up. Worker-safe.

Input: an unbound expression. Output: a bound one without NOT; the value that it folds to.
"""

from collections.abc import Callable
from typing import TypeVar

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    LiteralPredicate,
    NotNull,
    Or,
)
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

__all__ = ["bound_filter", "fold_expression", "optional_schema"]

Folded = TypeVar("Folded")


def fold_expression(
    expression: BooleanExpression,
    *,
    leaf: Callable[[BoundPredicate], Folded],
    both: Callable[[Folded, Folded], Folded],
    either: Callable[[Folded, Folded], Folded],
    always: Folded,
    never: Folded,
) -> Folded:
    """Fold a bound expression bottom-up.

    Args:
        expression: A bound expression without NOT.
        leaf: Converts a predicate.
        both: Combines the sides of AND.
        either: Combines the sides of OR.
        always: The value of TRUE.
        never: The value of FALSE.
    """

    def fold(part: BooleanExpression) -> Folded:
        match part:
            case AlwaysTrue():
                return always
            case AlwaysFalse():
                return never
            case And():
                return both(fold(part.left), fold(part.right))
            case Or():
                return either(fold(part.left), fold(part.right))
            case BoundPredicate():
                return leaf(part)
        raise TypeError(f"{type(part).__name__} is not a bound expression without NOT")

    return fold(expression)


def bound_filter(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> BooleanExpression:
    """Return the expression without NOT, bound to the schema.

    PyIceberg's `bind` ignores NULL in two cases, in which its result would be wrong:

    - It binds IS NULL on a required field to FALSE, although the field is NULL wherever an optional struct around it
      is. Therefore the schema has no required fields here.
    - It binds a comparison that holds for every value of the type, such as `i > -3000000000`, to TRUE. Here it binds to
      NOT NULL. Projections may have such literals, such as the day before the least date.
    """
    return bound_to(optional_schema(schema), expression, case_sensitive=case_sensitive)


def bound_to(fields: Schema, expression: BooleanExpression, *, case_sensitive: bool) -> BooleanExpression:
    """Like `bound_filter`, for a schema whose fields are all optional."""

    def bound(part: BooleanExpression) -> BooleanExpression:
        match part:
            case And():
                return And(bound(part.left), bound(part.right))
            case Or():
                return Or(bound(part.left), bound(part.right))
        found = bind(fields, part, case_sensitive)
        if isinstance(part, LiteralPredicate) and isinstance(found, AlwaysTrue):
            return bind(fields, NotNull(term=part.term), case_sensitive)
        return found

    return bound(rewrite_not(expression))


def optional_schema(schema: Schema) -> Schema:
    """Return the schema with every field optional, nested ones included."""
    return Schema(*map(optional_field, schema.fields), schema_id=schema.schema_id)


def optional_field(field: NestedField) -> NestedField:
    """Return the field as optional, with all fields inside it."""
    return NestedField(field.field_id, field.name, optional_type(field.field_type), required=False)


def optional_type(field_type: IcebergType) -> IcebergType:
    """Return a type with every field inside it optional."""
    match field_type:
        case StructType():
            return StructType(*map(optional_field, field_type.fields))
        case ListType():
            return ListType(field_type.element_id, optional_type(field_type.element_type), element_required=False)
        case MapType():
            return MapType(
                field_type.key_id,
                optional_type(field_type.key_type),
                field_type.value_id,
                optional_type(field_type.value_type),
                value_required=False,
            )
    return field_type
