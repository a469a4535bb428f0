"""Iceberg expressions, bound to a schema and folded into whatever they are to become. Worker-safe.

Input: an unbound expression. Output: a bound one without NOT; a value made of it from the leaves up.
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

__all__ = ["bound_filter", "folded", "optional_schema"]

Folded = TypeVar("Folded")


def folded(
    expression: BooleanExpression,
    *,
    leaf: Callable[[BoundPredicate], Folded],
    both: Callable[[Folded, Folded], Folded],
    either: Callable[[Folded, Folded], Folded],
    always: Folded,
    never: Folded,
) -> Folded:
    """What a bound expression becomes.

    Args:
        expression: A bound expression without NOT.
        leaf: What a predicate becomes.
        both: What AND makes of its sides.
        either: What OR makes of its sides.
        always: What stands for TRUE.
        never: What stands for FALSE.
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
    - It binds a comparison that holds for every value of the type, such as `i > -3000000000`, to TRUE. Here it is NOT
      NULL. A projection may have such literals: the one before the least date is none.
    """
    return bound_to(optional_schema(schema), expression, case_sensitive=case_sensitive)


def bound_to(fields: Schema, expression: BooleanExpression, *, case_sensitive: bool) -> BooleanExpression:
    """As `bound_filter`, with a schema of which every field is optional."""

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
    """The schema with every field optional."""
    return Schema(*map(optional_field, schema.fields), schema_id=schema.schema_id)


def optional_field(field: NestedField) -> NestedField:
    """The field as optional, and so all inside it."""
    return NestedField(field.field_id, field.name, optional_type(field.field_type), required=False)


def optional_type(field_type: IcebergType) -> IcebergType:
    """A type with every field inside it optional."""
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
