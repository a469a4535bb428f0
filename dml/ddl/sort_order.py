"""Sort orders and the distribution mode of WRITE ORDERED BY. Pure; driver.

Input: the clause and the table's metadata. Output: a PyIceberg sort order, and the value of `write.distribution-mode`.
Source: Iceberg specification, "Sort Orders"; Iceberg's Spark DDL, "ALTER TABLE ... WRITE ORDERED BY".
"""

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from dml.ddl.quoting import quote_name
from dml.ddl.transforms import bind_term, transform_text
from dml.options import DistributionMode
from dml.sqlparse.places import at
from dml.sqlparse.statements import SetWriteOrder, TransformTerm

__all__ = ["distribution_mode", "new_sort_order", "sort_order_text"]


def new_sort_order(metadata: TableMetadata, terms: tuple[TransformTerm, ...]) -> SortOrder:
    """The sort order of some terms.

    Args:
        metadata: The table.
        terms: As written; none is the unsorted order, whose id is always 0.

    Returns:
        The order, with the id of an equal one that the table has, else a new one.

    Raises:
        AnalysisError: a term does not bind.
    """
    schema = metadata.schema()
    fields = [_sort_field(term, schema) for term in terms]
    if not fields:
        return SortOrder(order_id=0)
    for known in metadata.sort_orders:
        if list(known.fields) == fields:
            return known
    return SortOrder(*fields, order_id=1 + max((known.order_id for known in metadata.sort_orders), default=0))


def distribution_mode(clause: SetWriteOrder) -> DistributionMode | None:
    """What the clause makes of `write.distribution-mode`; None leaves it as it is (LOCALLY ORDERED BY)."""
    if clause.distributed_by_partition:
        return DistributionMode.HASH
    if clause.unordered:
        return DistributionMode.NONE
    return None if clause.locally else DistributionMode.RANGE


def sort_order_text(order: SortOrder, schema: Schema) -> str:
    """A sort order as SQL, `dep ASC NULLS FIRST, bucket(4, id) DESC NULLS LAST`."""
    return ", ".join(_sort_field_text(field, schema) for field in order.fields)


def _sort_field(term: TransformTerm, schema: Schema) -> SortField:
    with at(term.span):
        source, transform = bind_term(term, schema)
    return SortField(
        source_id=source.field_id,
        transform=transform,
        direction=SortDirection.ASC if term.ascending else SortDirection.DESC,
        null_order=NullOrder.NULLS_FIRST if term.nulls_first else NullOrder.NULLS_LAST,
    )


def _sort_field_text(field: SortField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id)
    name = quote_name(column.split(".")) if column else f"column {field.source_id}"
    direction = "ASC" if field.direction == SortDirection.ASC else "DESC"
    nulls = "FIRST" if field.null_order == NullOrder.NULLS_FIRST else "LAST"
    return f"{transform_text(field.transform, name)} {direction} NULLS {nulls}"
