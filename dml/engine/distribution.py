"""How new rows are spread over writing tasks, and in which order they come. Driver.

Input: rows to insert, the table's spec, sort order and `write.distribution-mode`. Output: the same rows, distributed.
Source: Iceberg documentation, "Writing distribution modes"; docs/semantics.md, F1 to F7.
"""

from collections.abc import Mapping, Sequence

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf

from dml.model.columns import value_name
from dml.model.manifest import is_unpartitioned
from dml.options import DistributionMode, choice
from dml.write.partition_values import PartitionHash, partition_sources
from dml.write.sorting import row_order

__all__ = ["distribute_rows", "distribution_mode", "orders_rows", "partition_column", "sorts"]


def distribution_mode(table: Table, properties: Mapping[str, str]) -> DistributionMode:
    """The mode of an INSERT: `write.distribution-mode`, else range for sorted, hash for partitioned tables."""
    spec, sorted_table = table.spec(), not table.sort_order().is_unsorted
    default = DistributionMode.NONE
    if sorted_table:
        default = DistributionMode.RANGE
    elif not is_unpartitioned(spec):
        default = DistributionMode.HASH
    mode = choice(properties, "write.distribution-mode", DistributionMode, default)
    if mode is DistributionMode.RANGE and is_unpartitioned(spec) and not sorted_table:
        return DistributionMode.NONE
    if mode is DistributionMode.HASH and is_unpartitioned(spec):
        return DistributionMode.NONE
    return mode


def sorts(table: Table) -> bool:
    """Whether files are written in the table's sort order: it has one, and its columns are there."""
    return not table.sort_order().is_unsorted and row_order(table.sort_order(), table.schema().fields) is not None


def orders_rows(table: Table) -> bool:
    """Whether Spark can bring rows in the table's sort order: every field of it is a column as it is."""
    order = table.sort_order()
    return not order.is_unsorted and len(sort_columns(table)) == len(order.fields)


def distribute_rows(rows: DataFrame, table: Table, properties: Mapping[str, str]) -> DataFrame:
    """Distribute and order the rows of an INSERT.

    Args:
        rows: Columns `v0`, `v1`, ... for the table's columns, in its order.
        table: The table.
        properties: Its properties, the statement's own options over them.
    """
    mode, spec, schema = distribution_mode(table, properties), table.spec(), table.schema()
    partition = [] if is_unpartitioned(spec) else [partition_column(spec, schema)]
    order = sort_columns(table) if orders_rows(table) else []
    match mode:
        case DistributionMode.HASH if partition:
            rows = rows.repartition(*partition)
        case DistributionMode.RANGE if partition or order:
            rows = rows.repartitionByRange(*partition, *order)
        case _:
            pass
    return rows.sortWithinPartitions(*partition, *order) if order else rows


def partition_column(spec: PartitionSpec, schema: Schema) -> Column:
    """A number that is equal for rows of one partition; the rows' columns are `v0`, `v1`, ... in the schema's order."""
    sources = partition_sources(spec, schema)
    places = {field.field_id: place for place, field in enumerate(schema.fields)}
    partition_hash = PartitionHash(schema_json=schema.model_dump_json(), spec_json=spec.model_dump_json())
    # PySpark's stub knows functions only, not callable objects, which pickle by reference to this package.
    hashed: Column = arrow_udf(partition_hash, "int")(  # type: ignore[call-overload]
        *(col(value_name(places[field_id])) for field_id in sources)
    )
    return hashed


def sort_columns(table: Table) -> list[Column]:
    """The table's sort order over the value columns; fields with a transform are left out."""
    places = {field.field_id: place for place, field in enumerate(table.schema().fields)}
    fields: Sequence[SortField] = table.sort_order().fields
    return [
        ordered(col(value_name(places[field.source_id])), field)
        for field in fields
        if isinstance(field.transform, IdentityTransform) and field.source_id in places
    ]


def ordered(column: Column, field: SortField) -> Column:
    """A column in the direction and null order of a sort field."""
    first = field.null_order == NullOrder.NULLS_FIRST
    if field.direction == SortDirection.ASC:
        return column.asc_nulls_first() if first else column.asc_nulls_last()
    return column.desc_nulls_first() if first else column.desc_nulls_last()
