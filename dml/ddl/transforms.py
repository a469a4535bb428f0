"""Transform terms bound to columns, and shown as SQL. Pure; driver.

Input: terms of PARTITIONED BY, partition field DDL and WRITE ORDERED BY, and a schema. Output: source columns and
PyIceberg transforms. Source: Iceberg specification, "Partition Transforms".
"""

from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import NestedField

from dml.ddl.quoting import quote_name
from dml.ddl.schema_change import find_field
from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind
from dml.sqlparse.statements import TransformTerm
from dml.suggestions import did_you_mean

__all__ = ["AnyTransform", "bind_term", "term_text", "transform_text"]

AnyTransform = Transform[Any, Any]

SIMPLE: dict[str, type[AnyTransform]] = {
    "identity": IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
    "void": VoidTransform,
}
SIZED: dict[str, type[AnyTransform]] = {"bucket": BucketTransform, "truncate": TruncateTransform}
PLURALS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def bind_term(term: TransformTerm, schema: Schema) -> tuple[NestedField, AnyTransform]:
    """The column and the transform of a term.

    Args:
        term: As written.
        schema: The table's schema.

    Returns:
        The source column and the transform.

    Raises:
        AnalysisError: no such column or transform, or the transform does not take the column's type.
    """
    source = find_field(schema, term.column)
    name = term.transform
    if name in SIMPLE:
        transform = SIMPLE[name]()
    elif name in SIZED:
        if term.argument is None or not 1 <= term.argument < 1 << 31:
            raise AnalysisError(
                f"{name}(...) needs a positive number first", hint=f"Write {name}(16, {term.column[-1]})"
            )
        transform = SIZED[name](term.argument)
    else:
        raise AnalysisError(f"There is no transform '{name}'", hint=did_you_mean(name, (*SIMPLE, *SIZED)))
    if not source.field_type.is_primitive or not transform.can_transform(source.field_type):
        raise AnalysisError(
            f"{name} does not take column {quote_name(term.column)} of type {type_text(source.field_type)}",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Choose another transform or column",
        )
    _refuse_inside_collection(schema, source, term)
    return source, transform


def term_text(field: PartitionField, schema: Schema) -> str:
    """A partition field as SQL, `bucket(4, id)`."""
    column = schema.find_column_name(field.source_id)
    return transform_text(field.transform, quote_name(column.split(".")) if column else f"column {field.source_id}")


def transform_text(transform: AnyTransform, column: str) -> str:
    """A transform of a column as SQL, `bucket(4, id)`."""
    match transform:
        case IdentityTransform():
            return column
        case BucketTransform():
            return f"bucket({transform.num_buckets}, {column})"
        case TruncateTransform():
            return f"truncate({transform.width}, {column})"
        case VoidTransform():
            return f"void({column})"
        case _:
            return f"{PLURALS.get(str(transform), str(transform))}({column})"


def _refuse_inside_collection(schema: Schema, source: NestedField, term: TransformTerm) -> None:
    inside = any(
        not find_field(schema, term.column[:depth]).field_type.is_struct for depth in range(1, len(term.column))
    )
    if inside:
        raise AnalysisError(
            f"Column {quote_name(term.column)} is inside an array or a map, where a row has many values",
            hint="Choose a column or a field of a struct",
            column=source.name,
        )
