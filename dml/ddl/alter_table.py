"""ALTER TABLE. Driver.

Input: one action and the table's metadata. Output: metadata updates and their requirements. `alter_table` commits them,
and reruns the action on newer metadata if another commit lands first. Source: Iceberg's Spark DDL, "ALTER TABLE";
Iceberg specification, "Schema Evolution", "Partition Evolution".
"""

from collections.abc import Mapping
from typing import assert_never

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from dml import catalog as catalogs
from dml.ddl.columns import (
    altered_column,
    check_format_version,
    refuse_reserved_name,
    with_columns,
    with_replaced_columns,
    without_columns,
)
from dml.ddl.commit import (
    MetadataChange,
    commit_change,
    schema_updates,
    sort_order_updates,
    spec_updates,
    upgrade_updates,
)
from dml.ddl.identifier_fields import with_identifier_fields
from dml.ddl.partition_specs import (
    add_partition_field,
    check_partition_names,
    drop_partition_field,
    replace_partition_field,
)
from dml.ddl.properties import check_properties, check_removals, split_format_version
from dml.ddl.schema_change import name_mapping_updates, rename_field
from dml.ddl.snapshot_references import reference_change
from dml.ddl.tables import existing_table, missing_namespace, missing_table
from dml.ddl.terms import distribution_mode, new_sort_order
from dml.errors import NotSupportedError
from dml.options import WRITE_DISTRIBUTION_MODE
from dml.sqlparse.diagnosis import at
from dml.sqlparse.statements import (
    AddColumns,
    AddPartitionField,
    AlterAction,
    AlterColumn,
    AlterColumns,
    DropColumns,
    DropIdentifierFields,
    DropPartitionField,
    DropReference,
    RenameColumn,
    RenameTable,
    ReplacePartitionField,
    SetIdentifierFields,
    SetProperties,
    SetReference,
    SetWriteOrder,
    UnsetProperties,
)

__all__ = ["alter_table", "evolution_change", "metadata_change", "replaced_columns"]


def alter_table(
    action: AlterAction,
    catalog: Catalog,
    identifier: tuple[str, ...],
    *,
    catalog_name: str | None = None,
    time_zone: str = "UTC",
) -> None:
    """Run an ALTER TABLE action.

    Args:
        action: The change.
        catalog: The catalog.
        identifier: Namespace and name.
        catalog_name: The catalog's name in the session, for RENAME TO.
        time_zone: The session's time zone, for TIMESTAMP defaults.

    Raises:
        NotFoundError: The table or a partition field does not exist.
        AlreadyExistsError: A name is taken.
        AnalysisError: A column does not exist, or a type, a default or a property is invalid.
        NotSupportedError: The format does not allow the change.
        CommitConflictError: Other commits landed first on every attempt.
        CommitStateUnknownError: The commit may have landed.
    """
    if isinstance(action, RenameTable):
        rename_table(action, catalog, identifier, catalog_name or catalog.name)
    else:
        commit_change(catalog, identifier, lambda metadata: metadata_change(action, metadata, time_zone=time_zone))


def metadata_change(action: AlterAction, metadata: TableMetadata, *, time_zone: str = "UTC") -> MetadataChange:
    """Return the metadata updates of an action.

    Args:
        action: The change; no RENAME TO.
        metadata: The table's newest metadata.
        time_zone: The session's time zone, for TIMESTAMP defaults.

    Returns:
        The updates; empty if the table already has them.

    Raises:
        AnalysisError: As for `alter_table`.
    """
    match action:
        case SetProperties():
            return set_properties(action, metadata)
        case UnsetProperties():
            return unset_properties(action, metadata)
        case AddColumns():
            return schema_change(metadata, with_columns(action, metadata, time_zone))
        case DropColumns():
            return schema_change(metadata, without_columns(action, metadata))
        case RenameColumn():
            if len(action.column) == 1:
                refuse_reserved_name(action.new_name)
            return schema_change(metadata, rename_field(metadata.schema(), action.column, action.new_name))
        case AlterColumn():
            return schema_change(metadata, with_altered((action,), metadata.schema(), metadata, time_zone))
        case AlterColumns():
            return schema_change(metadata, with_altered(action.columns, metadata.schema(), metadata, time_zone))
        case SetIdentifierFields() | DropIdentifierFields():
            return schema_change(metadata, with_identifier_fields(action, metadata.schema()))
        case AddPartitionField() | DropPartitionField() | ReplacePartitionField():
            return spec_change(metadata, changed_spec(action, metadata))
        case SetWriteOrder():
            return write_order(action, metadata)
        case SetReference() | DropReference():
            return reference_change(action, metadata)
        case RenameTable():
            raise NotSupportedError("RENAME TO changes the catalog, not the table")
        case _:
            assert_never(action)


def evolution_change(
    added: AddColumns, altered: AlterColumns, metadata: TableMetadata, *, time_zone: str = "UTC"
) -> MetadataChange:
    """Return ADD COLUMNS and ALTER COLUMN as one schema change.

    Args:
        added: New columns, perhaps none.
        altered: Changed columns, perhaps none.
        metadata: The table's newest metadata.
        time_zone: The session's time zone, for TIMESTAMP defaults.

    Returns:
        The updates; empty if the table already has them.

    Raises:
        AnalysisError: As for `alter_table`.
    """
    grown = with_columns(added, metadata, time_zone)
    return schema_change(metadata, with_altered(altered.columns, grown, metadata, time_zone))


def replaced_columns(metadata: TableMetadata, columns: Schema, *, case_sensitive: bool) -> MetadataChange:
    """Replace all columns of a table whose rows are all replaced.

    A column keeps its id and attributes if the name matches and the old type can be widened to the new one. Otherwise
    it is a new column: it reads no values from the files of other branches and snapshots.

    Args:
        metadata: The table's newest metadata.
        columns: The new columns; their ids are ignored.
        case_sensitive: Compare names case-sensitively.

    Returns:
        The updates; empty if the table already has them.

    Raises:
        NotSupportedError: The table is partitioned, sorted or identified by a removed column, or a name is reserved.
        AlreadyExistsError: Two columns have the same name.
    """
    return schema_change(metadata, with_replaced_columns(metadata, columns, case_sensitive=case_sensitive))


# ---- properties -----------------------------------------------------------------------------------------------


def set_properties(action: SetProperties, metadata: TableMetadata) -> MetadataChange:
    version, properties = split_format_version(action.properties)
    check_properties(properties)
    changed = {key: value for key, value in properties.items() if metadata.properties.get(key) != value}
    return MetadataChange(updates=(*upgrade_updates(metadata, version), *property_updates(changed)))


def unset_properties(action: UnsetProperties, metadata: TableMetadata) -> MetadataChange:
    check_removals(action.keys)
    present = [key for key in dict.fromkeys(action.keys) if key in metadata.properties]
    return MetadataChange(updates=(RemovePropertiesUpdate(removals=present),) if present else ())


def property_updates(properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
    return (SetPropertiesUpdate(updates=dict(properties)),) if properties else ()


# ---- schema, partitioning and order ---------------------------------------------------------------------------


def with_altered(actions: tuple[AlterColumn, ...], schema: Schema, metadata: TableMetadata, time_zone: str) -> Schema:
    for action in actions:
        schema = altered_column(action, schema, metadata.format_version, time_zone)
    return schema


def schema_change(metadata: TableMetadata, schema: Schema) -> MetadataChange:
    updates = schema_updates(metadata, schema)
    if not updates:
        return MetadataChange()
    check_format_version(schema, metadata.format_version)
    check_partition_names((metadata.spec(),), schema)
    return MetadataChange(
        updates=(*updates, *name_mapping_updates(metadata, schema)),
        requirements=(
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        ),
    )


def changed_spec(
    action: AddPartitionField | DropPartitionField | ReplacePartitionField, metadata: TableMetadata
) -> PartitionSpec:
    with at(action.old.span if isinstance(action, ReplacePartitionField) else action.term.span):
        match action:
            case AddPartitionField():
                return add_partition_field(metadata, action.term)
            case DropPartitionField():
                return drop_partition_field(metadata, action.term)
            case ReplacePartitionField():
                return replace_partition_field(metadata, action.old, action.new)


def spec_change(metadata: TableMetadata, spec: PartitionSpec) -> MetadataChange:
    return MetadataChange(
        updates=spec_updates(metadata, spec),
        requirements=(
            AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        ),
    )


def write_order(action: SetWriteOrder, metadata: TableMetadata) -> MetadataChange:
    order = new_sort_order(metadata, action.terms)
    mode = distribution_mode(action)
    changed = mode is not None and metadata.properties.get(WRITE_DISTRIBUTION_MODE) != mode
    properties = {WRITE_DISTRIBUTION_MODE: mode.value} if mode is not None and changed else {}
    return MetadataChange(
        updates=(*sort_order_updates(metadata, order), *property_updates(properties)),
        requirements=(
            AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        ),
    )


# ---- the name -------------------------------------------------------------------------------------------------


def rename_table(action: RenameTable, catalog: Catalog, identifier: tuple[str, ...], catalog_name: str) -> None:
    parts = action.new_name
    if len(parts) > 1 and parts[0] == catalog_name:
        parts = parts[1:]
    target = (*identifier[:-1], parts[0]) if len(parts) == 1 else parts
    if target == identifier:
        return
    if not catalogs.table_exists(catalog, identifier):
        raise missing_table(catalog, identifier)
    if not catalogs.namespace_exists(catalog, target[:-1]):
        raise missing_namespace(catalog, target[:-1])
    if catalogs.table_exists(catalog, target):
        raise existing_table(target)
    catalogs.rename_table(catalog, identifier, target)
