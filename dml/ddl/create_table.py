"""CREATE TABLE, CREATE OR REPLACE TABLE and REPLACE TABLE. Driver.

Input: the statement, a catalog, an identifier, and for AS SELECT the schema of the query. Output: the table. A replaced
table keeps its history: columns of the same name keep their ids, snapshots remain, and the branch `main` is removed.
Source: Iceberg specification, "Table Metadata"; `TableMetadata.newTableMetadata` and `buildReplacement`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    RemoveSnapshotRefUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import NestedField

from dml import catalog as catalogs
from dml.catalog import LoadState
from dml.ddl.columns import check_format_version, field_of, refuse_reserved_name
from dml.ddl.commit import (
    MetadataChange,
    TableReplacement,
    commit_change,
    schema_updates,
    sort_order_updates,
    spec_updates,
    upgrade_updates,
)
from dml.ddl.new_schema import assign_field_ids, counting_ids, ids_by_name, schema_of
from dml.ddl.partition_specs import new_spec, reuse_partition_ids
from dml.ddl.properties import (
    COMMENT,
    check_location_is_absolute,
    check_properties,
    split_format_version,
)
from dml.ddl.show_table import live_fields
from dml.ddl.tables import existing_table, load_table, missing_namespace, missing_table
from dml.errors import AlreadyExistsError, AnalysisError, NotSupportedError
from dml.options import FORMAT_VERSION, OPTION_PREFIX, PARQUET_COMPRESSION
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import ColumnDefinition, CreateTable

__all__ = ["create_table", "stage_table"]

DEFAULT_FORMAT_VERSION = 2
PATH_OPTION = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    # The validated content of the statement; the schema has fresh ids, or those of the table of LIKE.
    schema: Schema
    spec: PartitionSpec
    format_version: int
    properties: dict[str, str]
    location: str | None
    order: SortOrder = UNSORTED_SORT_ORDER

    @property
    def stored_properties(self) -> dict[str, str]:
        """The properties of a new table."""
        # Iceberg's Java library sets the same codec for new tables, so that all engines compress alike.
        return {PARQUET_COMPRESSION: "zstd"} | self.properties | {FORMAT_VERSION: str(self.format_version)}


def create_table(
    statement: CreateTable,
    catalog: Catalog,
    identifier: tuple[str, ...],
    schema: Schema | None = None,
    *,
    time_zone: str = "UTC",
    case_sensitive: bool = False,
    like: TableMetadata | None = None,
) -> Table:
    """Create a table, or replace one.

    This does not write the rows of AS SELECT: the engine writes them into the returned table.

    Args:
        statement: The statement.
        catalog: The catalog.
        identifier: Namespace and name.
        schema: The schema of the query of AS SELECT; None without a query.
        time_zone: The session's time zone, for TIMESTAMP defaults.
        case_sensitive: Allow columns of the statement whose names differ by case alone.
        like: The table of LIKE.

    Returns:
        The new table; with IF NOT EXISTS, perhaps the existing one.

    Raises:
        AlreadyExistsError: The table exists, or a column or partition field is repeated.
        NotFoundError: The namespace does not exist, or the table of REPLACE TABLE does not.
        AnalysisError: A type, a default, a transform or a property is invalid.
        NotSupportedError: The provider is not Iceberg, or the format version lacks a feature.
    """
    check_clauses(statement, schema if like is None else like.schema())
    exists = catalogs.table_exists(catalog, identifier)
    if exists and statement.if_not_exists:
        return load_table(catalog, identifier)
    if replaces(statement, catalog, identifier, exists=exists):
        change = replacement_change(statement, schema, time_zone, case_sensitive=case_sensitive)
        return commit_change(catalog, identifier, change)
    if like is None:
        definition = read_definition(
            statement, schema, time_zone, DEFAULT_FORMAT_VERSION, case_sensitive=case_sensitive
        )
    else:
        definition = definition_like(statement, like)
    try:
        return catalogs.create_table(
            catalog,
            identifier,
            definition.schema,
            partition_spec=definition.spec,
            sort_order=definition.order,
            location=definition.location,
            properties=definition.stored_properties,
        )
    except AlreadyExistsError:
        # Another writer created the table after `table_exists`.
        if statement.if_not_exists:
            return load_table(catalog, identifier)
        raise existing_table(identifier) from None


def stage_table(
    statement: CreateTable, catalog: Catalog, identifier: tuple[str, ...], schema: Schema, *, time_zone: str = "UTC"
) -> LoadState | None:
    """Prepare the table of CREATE TABLE ... AS SELECT, to be created or replaced in the commit of its rows.

    Args:
        statement: The statement. With IF NOT EXISTS, the table must not exist.
        catalog: The catalog.
        identifier: Namespace and name.
        schema: The schema of the query.
        time_zone: The session's time zone, for TIMESTAMP defaults.

    Returns:
        A loader of the table for each commit attempt; None if the catalog cannot stage a table.

    Raises:
        AlreadyExistsError, NotFoundError, AnalysisError, NotSupportedError: As for `create_table`.
    """
    check_clauses(statement, schema)
    if replaces(statement, catalog, identifier, exists=catalogs.table_exists(catalog, identifier)):
        return TableReplacement.of(catalog, identifier, replacement_change(statement, schema, time_zone)).load
    definition = read_definition(statement, schema, time_zone, DEFAULT_FORMAT_VERSION)
    state = catalogs.stage_table(
        catalog,
        identifier,
        definition.schema,
        partition_spec=definition.spec,
        location=definition.location,
        properties=definition.stored_properties,
    )
    return None if state is None else lambda: state


def replaces(statement: CreateTable, catalog: Catalog, identifier: tuple[str, ...], *, exists: bool) -> bool:
    """Return True if the table exists and is to be replaced, False if it is to be created."""
    if exists and not (statement.or_replace or statement.replace_only):
        raise existing_table(identifier)
    if not exists and statement.replace_only:
        raise missing_table(catalog, identifier)
    if not exists and not catalogs.namespace_exists(catalog, identifier[:-1]):
        raise missing_namespace(catalog, identifier[:-1])
    return exists


def check_clauses(statement: CreateTable, schema: Schema | None) -> None:
    name = quote_name(statement.table.parts)
    if statement.provider is not None and statement.provider.lower() != "iceberg":
        raise NotSupportedError(
            f"USING {statement.provider} is not possible for {name}", hint="Tables of this catalog are USING iceberg"
        )
    if statement.if_not_exists and statement.or_replace:
        raise AnalysisError("OR REPLACE and IF NOT EXISTS contradict each other", hint="Remove one of them")
    if schema is not None and statement.columns:
        raise AnalysisError(
            "CREATE TABLE ... AS SELECT takes its columns from the query", hint="Name and cast the columns in the query"
        )
    if schema is None and not statement.columns:
        raise AnalysisError(f"{name} has no columns", hint="Write CREATE TABLE name (column type, ...)")


def read_definition(
    statement: CreateTable,
    schema: Schema | None,
    time_zone: str,
    default_version: int,
    *,
    case_sensitive: bool = False,
) -> Definition:
    location, options = split_path(statement)
    version, properties = split_format_version((*statement.properties, *options))
    format_version = version or default_version
    if statement.comment is not None:
        properties[COMMENT] = statement.comment
    check_properties(properties)
    if location is not None:
        check_location_is_absolute(location)
    if schema is None:
        fields = tuple(field_with_place(column, format_version, time_zone) for column in statement.columns)
        places = tuple(column.span for column in statement.columns)
        schema = schema_of(fields, places, case_sensitive=case_sensitive)
    else:
        schema = Schema(*assign_field_ids(schema.fields, counting_ids(1)))
        for field in schema.fields:
            refuse_reserved_name(field.name)
    check_format_version(schema, format_version)
    return Definition(
        schema=schema,
        spec=new_spec(statement.partitioning, schema),
        format_version=format_version,
        properties=properties,
        location=location,
    )


def definition_like(statement: CreateTable, like: TableMetadata) -> Definition:
    """Return the definition of LIKE: columns, identifier fields, partitions, write order and format version."""
    # Like Spark's CREATE TABLE LIKE: the properties and the comment of the other table are not copied.
    version, properties = split_format_version(statement.properties)
    format_version = version or like.format_version
    check_properties(properties)
    if statement.location is not None:
        check_location_is_absolute(statement.location)
    check_format_version(like.schema(), format_version)
    return Definition(
        schema=like.schema(),
        spec=PartitionSpec(*live_fields(like)),
        order=like.sort_order(),
        format_version=format_version,
        properties=properties,
        location=statement.location,
    )


def split_path(statement: CreateTable) -> tuple[str | None, list[tuple[str, str]]]:
    """Return the location, which OPTIONS may give as `path`, and the properties that OPTIONS set."""
    # Like Iceberg's Spark catalog: each option sets two table properties, under its name and with the prefix `option.`.
    # An option `comment` does not set the table's comment.
    location, properties = statement.location, list[tuple[str, str]]()
    for key, value in statement.options:
        if key.lower() == PATH_OPTION:
            if location is not None:
                raise AnalysisError(
                    f"The location is given twice: '{location}' and '{value}'",
                    hint="Leave out LOCATION, or 'path' of OPTIONS",
                )
            location = value
        else:
            properties += [(OPTION_PREFIX + key, value), *([(key, value)] if key != COMMENT else [])]
    return location, properties


def field_with_place(column: ColumnDefinition, format_version: int, time_zone: str) -> NestedField:
    with at(column.span):
        return field_of(column, format_version=format_version, time_zone=time_zone)


def replacement_change(
    statement: CreateTable, schema: Schema | None, time_zone: str, *, case_sensitive: bool = False
) -> Callable[[TableMetadata], MetadataChange]:
    def change(metadata: TableMetadata) -> MetadataChange:
        definition = read_definition(
            statement, schema, time_zone, metadata.format_version, case_sensitive=case_sensitive
        )
        return replacement(definition, metadata)

    return change


def replacement(definition: Definition, metadata: TableMetadata) -> MetadataChange:
    ids = counting_ids(metadata.last_column_id + 1, ids_by_name(metadata.schema().fields))
    schema = Schema(*assign_field_ids(definition.schema.fields, ids))
    spec = reuse_partition_ids(metadata, rebind_spec(definition.spec, definition.schema, schema), schema)
    updates: list[TableUpdate] = [*upgrade_updates(metadata, definition.format_version)]
    if MAIN_BRANCH in metadata.refs:
        updates.append(RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH))
    updates += schema_updates(metadata, schema)
    updates += spec_updates(metadata, spec)
    updates += sort_order_updates(metadata, UNSORTED_SORT_ORDER)
    if definition.location is not None and definition.location.rstrip("/") != metadata.location:
        updates.append(SetLocationUpdate(location=definition.location.rstrip("/")))
    if definition.properties:
        updates.append(SetPropertiesUpdate(updates=definition.properties))
    return MetadataChange(
        updates=tuple(updates),
        requirements=(
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
            AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
        ),
    )


def rebind_spec(spec: PartitionSpec, old: Schema, new: Schema) -> PartitionSpec:
    # Rebinds a spec to another schema with the same names.
    ids = {old_id: ids_by_name(new.fields)[name] for name, old_id in ids_by_name(old.fields).items()}
    return PartitionSpec(*(field.model_copy(update={"source_id": ids[field.source_id]}) for field in spec.fields))
