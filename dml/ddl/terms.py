"""Binds terms of PARTITIONED BY, partition field DDL and WRITE ORDERED BY, and formats them as SQL. Pure; driver.

Input: terms as written, and the table's schema or metadata. Output: source columns with PyIceberg transforms, sort
orders, and the value of `write.distribution-mode`. Source: Iceberg specification, "Partition Transforms", "Sort
Orders"; Iceberg's Spark DDL, "ALTER TABLE ... WRITE ORDERED BY".
"""

from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
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

from dml.ddl.schema_change import find_field
from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.options import DistributionMode
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import SetWriteOrder, TransformTerm

__all__ = [
    "AnyTransform",
    "bind_term",
    "distribution_mode",
    "new_sort_order",
    "sort_order_text",
    "term_text",
    "transform_text",
]

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
    """Bind a term to its column and transform.

    Args:
        term: The term as written.
        schema: The table's schema.

    Returns:
        The source column and the transform.

    Raises:
        AnalysisError: The column or transform does not exist, or the transform does not take the column's type.
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
    refuse_inside_collection(schema, source, term)
    return source, transform


def term_text(field: PartitionField, schema: Schema) -> str:
    """Format a partition field as SQL, `bucket(4, id)`."""
    column = schema.find_column_name(field.source_id)
    return transform_text(field.transform, quote_name(column.split(".")) if column else f"column {field.source_id}")


def transform_text(transform: AnyTransform, column: str) -> str:
    """Format a transform of a column as SQL, `bucket(4, id)`."""
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


def refuse_inside_collection(schema: Schema, source: NestedField, term: TransformTerm) -> None:
    inside = any(
        not find_field(schema, term.column[:depth]).field_type.is_struct for depth in range(1, len(term.column))
    )
    if inside:
        raise AnalysisError(
            f"Column {quote_name(term.column)} is inside an array or a map, where a row has many values",
            hint="Choose a column or a field of a struct",
            column=source.name,
        )


def new_sort_order(metadata: TableMetadata, terms: tuple[TransformTerm, ...]) -> SortOrder:
    """Return the sort order of WRITE ORDERED BY.

    Args:
        metadata: The table.
        terms: The terms as written; without any the order is unsorted, with id 0.

    Returns:
        The order, with the id of an equal order of the table, else a new one.

    Raises:
        AnalysisError: A term cannot be bound.
    """
    schema = metadata.schema()
    fields = [sort_field(term, schema) for term in terms]
    if not fields:
        return SortOrder(order_id=0)
    for known in metadata.sort_orders:
        if list(known.fields) == fields:
            return known
    return SortOrder(*fields, order_id=1 + max((known.order_id for known in metadata.sort_orders), default=0))


def distribution_mode(clause: SetWriteOrder) -> DistributionMode | None:
    """Return the new `write.distribution-mode`, or None to keep it (LOCALLY ORDERED BY)."""
    if clause.distributed_by_partition:
        return DistributionMode.HASH
    if clause.unordered:
        return DistributionMode.NONE
    return None if clause.locally else DistributionMode.RANGE


def sort_order_text(order: SortOrder, schema: Schema) -> str:
    """Format a sort order as SQL, `dep ASC NULLS FIRST, bucket(4, id) DESC NULLS LAST`."""
    return ", ".join(sort_field_text(field, schema) for field in order.fields)


def sort_field(term: TransformTerm, schema: Schema) -> SortField:
    with at(term.span):
        source, transform = bind_term(term, schema)
    return SortField(
        source_id=source.field_id,
        transform=transform,
        direction=SortDirection.ASC if term.ascending else SortDirection.DESC,
        null_order=NullOrder.NULLS_FIRST if term.nulls_first else NullOrder.NULLS_LAST,
    )


def sort_field_text(field: SortField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id)
    name = quote_name(column.split(".")) if column else f"column {field.source_id}"
    direction = "ASC" if field.direction == SortDirection.ASC else "DESC"
    nulls = "FIRST" if field.null_order == NullOrder.NULLS_FIRST else "LAST"
    return f"{transform_text(field.transform, name)} {direction} NULLS {nulls}"
