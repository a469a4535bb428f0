"""New schemas, specs and sort orders as table updates; what the table has already is used again. Pure; driver.

Input: the table's metadata and the new state of one part of it. Output: PyIceberg's table updates, none where nothing
changes. Source: Iceberg REST catalog specification, "TableUpdate"; `TableMetadata.Builder`.
"""

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from dml.errors import NotSupportedError

__all__ = ["schema_updates", "sort_order_updates", "spec_updates", "upgrade_updates"]

LAST_ADDED = -1


def schema_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Make a schema the current one."""
    known = next((known for known in metadata.schemas if _same_schema(known, schema)), None)
    if known is not None:
        current = known.schema_id == metadata.current_schema_id
        return () if current else (SetCurrentSchemaUpdate(schema_id=known.schema_id),)
    schema_id = 1 + max(known.schema_id for known in metadata.schemas)
    added = Schema(*schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids)
    return (AddSchemaUpdate(schema_=added), SetCurrentSchemaUpdate(schema_id=LAST_ADDED))


def spec_updates(metadata: TableMetadata, spec: PartitionSpec) -> tuple[TableUpdate, ...]:
    """Make a partition spec the default one; its id says whether the table has it."""
    if spec.spec_id in metadata.specs():
        current = spec.spec_id == metadata.default_spec_id
        return () if current else (SetDefaultSpecUpdate(spec_id=spec.spec_id),)
    return (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=LAST_ADDED))


def sort_order_updates(metadata: TableMetadata, order: SortOrder) -> tuple[TableUpdate, ...]:
    """Make a sort order the default one; its id says whether the table has it."""
    if metadata.sort_order_by_id(order.order_id) is not None:
        current = order.order_id == metadata.default_sort_order_id
        return () if current else (SetDefaultSortOrderUpdate(sort_order_id=order.order_id),)
    return (AddSortOrderUpdate(sort_order=order), SetDefaultSortOrderUpdate(sort_order_id=order.order_id))


def upgrade_updates(metadata: TableMetadata, format_version: int | None) -> tuple[TableUpdate, ...]:
    """Raise the format version.

    Raises:
        NotSupportedError: the version is lower than the table's.
    """
    if format_version is None or format_version == metadata.format_version:
        return ()
    if format_version < metadata.format_version:
        raise NotSupportedError(
            f"The table has format version {metadata.format_version}, which cannot go back to {format_version}",
            hint="Create a new table of the lower version, and insert the rows",
            property="format-version",
        )
    return (UpgradeFormatVersionUpdate(format_version=format_version),)


def _same_schema(one: Schema, other: Schema) -> bool:
    same_identifiers = set(one.identifier_field_ids) == set(other.identifier_field_ids)
    return same_identifiers and one.as_struct() == other.as_struct()
