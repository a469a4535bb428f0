"""Table metadata of format version 3, written by the client: what PyIceberg lacks, on its private names. Driver.

Input: a PyIceberg catalog. Output: the same catalog, able to create, upgrade and commit version 3 tables, and tables
created with the default values of their columns, which PyIceberg loses when it gives columns fresh ids.

PyIceberg 0.12 reads, updates and validates version 3 metadata, but refuses to serialise it, to upgrade to it, and does
not start `next-row-id` at 0. A REST catalog does all that on its server. The catalogs that write metadata themselves
(SQL, Glue, Hive, DynamoDB, BigQuery: `MetastoreCatalog`) get their two methods for it replaced, on the instance alone.
`tests/dml/catalog` has tests that fail as soon as PyIceberg can do it, so that this goes away.

Source: Iceberg specification, "Table Metadata Fields", "Row Lineage".
"""

import gzip
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCreate,
    SetLocationUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import IcebergBaseModel, Identifier
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from sqlalchemy.exc import DBAPIError

from dml.errors import DmlError, storage_failure
from dml.files.file_io import delete_files, with_single_puts
from dml.files.schemes import check_location
from dml.files.table_metadata import only_adds_a_snapshot, with_known_texts, with_snapshots_of, without_snapshots
from dml.options import FORMAT_VERSION

__all__ = [
    "changed_metadata",
    "commit_table",
    "create_table",
    "metadata_json",
    "next_row_id",
    "stage_table",
    "support_format_version_3",
    "taken_numbers",
]

Stage = Callable[
    [Table | None, Identifier, tuple[TableRequirement, ...], tuple[TableUpdate, ...]],
    StagedTable,
]

LOG = logging.getLogger(__name__)
WRITTEN: ContextVar[list[tuple[FileIO, str]] | None] = ContextVar("WRITTEN", default=None)
# Errors of ours come from what we put into the catalog: then it was not asked to take the commit.
LOST = (CommitFailedException, TableAlreadyExistsError, DmlError)
ROW_LINEAGE_VERSION: Final = 3

SQLITE_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# serialization_failure, deadlock_detected, lock_not_available
TRANSACTION_ROLLBACK: Final = frozenset({"40001", "40P01", "55P03"})


def support_format_version_3(catalog: Catalog) -> Catalog:
    """Let a catalog that writes table metadata itself create, upgrade and commit tables of format version 3.

    Args:
        catalog: Any catalog; one that leaves the metadata to a server is returned as it is.

    Returns:
        The same catalog.
    """
    if isinstance(catalog, MetastoreCatalog):
        stage: Stage = catalog._update_and_stage_table  # noqa: SLF001

        def stage_any_version(
            current_table: Table | None,
            table_identifier: Identifier,
            requirements: tuple[TableRequirement, ...],
            updates: tuple[TableUpdate, ...],
        ) -> StagedTable:
            return stage_update(catalog, stage, current_table, table_identifier, requirements, updates)

        setattr(catalog, "_update_and_stage_table", stage_any_version)  # noqa: B010 - a method, on this object alone
        setattr(catalog, "_write_metadata", partial(write_metadata, overwrite=False))  # noqa: B010
        if hasattr(catalog, "_write_metadata_no_exist_check"):
            setattr(catalog, "_write_metadata_no_exist_check", partial(write_metadata, overwrite=True))  # noqa: B010
    return catalog


def create_table(
    catalog: Catalog,
    identifier: Identifier,
    schema: Schema,
    *,
    partition_spec: PartitionSpec,
    sort_order: SortOrder,
    location: str | None,
    properties: dict[str, str],
) -> Table:
    """Create a table, default values of its columns included.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        schema: Columns; they get fresh ids.
        partition_spec: By the ids of `schema`.
        sort_order: By the ids of `schema`.
        location: Root of the table's files; None lets the catalog choose.
        properties: Table properties, `format-version` among them.

    Raises:
        Exception: PyIceberg's, as the catalog raises them.
    """
    if not has_defaults(schema.as_struct()):
        with no_metadata_of_lost_commits(catalog, identifier):
            return catalog.create_table(identifier, schema, location, partition_spec, sort_order, properties)
    staged, updates = stage_table(
        catalog,
        identifier,
        schema,
        partition_spec=partition_spec,
        sort_order=sort_order,
        location=location,
        properties=properties,
    )
    commit_table(catalog, staged, (AssertCreate(),), updates)
    return catalog.load_table(identifier)


def stage_table(
    catalog: Catalog,
    identifier: Identifier,
    schema: Schema,
    *,
    partition_spec: PartitionSpec,
    sort_order: SortOrder,
    location: str | None,
    properties: dict[str, str],
) -> tuple[Table, tuple[TableUpdate, ...]]:
    """A table that the catalog does not have yet, and the updates that create it.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        schema: Columns; they get fresh ids.
        partition_spec: By the ids of `schema`.
        sort_order: By the ids of `schema`.
        location: Root of the table's files; None lets the catalog choose.
        properties: Table properties, `format-version` among them.

    Raises:
        Exception: PyIceberg's, as the catalog raises them.
    """
    version = int(properties[FORMAT_VERSION])
    if version < ROW_LINEAGE_VERSION and has_defaults(schema.as_struct()):
        raise ValueError(f"default values of columns need format version 3, and the table has {version}")
    staged = two_part_name(catalog, identifier)
    transaction = catalog.create_table_transaction(staged, schema, location, partition_spec, sort_order, properties)
    updates = tuple(
        AddSchemaUpdate(schema_=schema_with_defaults(update.schema_, schema))
        if isinstance(update, AddSchemaUpdate)
        else update
        for update in transaction._updates  # noqa: SLF001
    )
    return transaction._table, updates  # noqa: SLF001


def two_part_name(catalog: Catalog, identifier: Identifier) -> Identifier:
    """The name under which a SQL catalog stages a table.

    It stores a namespace as one text with dots, but staging takes names of two parts only, and unlike the creation of a
    table does not look whether the namespace is there.
    """
    if not isinstance(catalog, SqlCatalog):
        return identifier
    namespace = Catalog.namespace_from(identifier)
    if not catalog.namespace_exists(namespace):
        raise NoSuchNamespaceError(f"Namespace does not exist: {namespace}")
    return Catalog.namespace_to_string(namespace), Catalog.table_name_from(identifier)


def commit_table(
    catalog: Catalog, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> CommitTableResponse:
    """Commit, and delete the metadata files that fell out of the metadata log, where the table's properties ask for it.

    A server looks after its metadata files itself. For other catalogs PyIceberg does so in its own transactions alone.

    Args:
        catalog: The catalog.
        table: The table as it was when the updates were made.
        requirements: What has to be true of it.
        updates: What changes.

    Raises:
        DmlError: it failed before the catalog was asked; no file is left.
        Exception: PyIceberg's, as the catalog raises them; nothing is raised once the commit is done.
    """
    try:
        with no_metadata_of_lost_commits(catalog, table.name()), busy_database_as_lost_race():
            response = catalog.commit_table(table, requirements, updates)
    except CommitFailedException as error:
        # A creation requires nothing else than that there is no such table.
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            raise TableAlreadyExistsError(f"Table {'.'.join(table.name())} already exists") from error
        raise
    if isinstance(catalog, MetastoreCatalog):
        try:
            catalog._delete_old_metadata(table.io, table.metadata, response.metadata)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - the commit stands, whatever the storage says of old files
            LOG.warning("Could not delete old metadata files of '%s': %s", ".".join(table.name()), error)
    return response


@contextmanager
def busy_database_as_lost_race() -> Iterator[None]:
    """A catalog's database that let another transaction go first has rolled this one back: it may be tried again."""
    try:
        yield
    except DBAPIError as error:
        # The primary code of SQLite; psycopg2 and psycopg have the state under two names.
        primary = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
        if primary in SQLITE_BUSY or state in TRANSACTION_ROLLBACK:
            raise CommitFailedException(f"The catalog's database is busy: {error.orig}") from error
        raise


@contextmanager
def no_metadata_of_lost_commits(catalog: Catalog, identifier: Identifier) -> Iterator[None]:
    """Delete the metadata files that are written inside, if the commit that they were written for is lost."""
    written: list[tuple[FileIO, str]] = []
    token = WRITTEN.set(written)
    try:
        yield
    except LOST:
        if written:
            delete_unused_metadata(catalog, identifier, written)
        raise
    finally:
        WRITTEN.reset(token)


def delete_unused_metadata(catalog: Catalog, identifier: Identifier, written: list[tuple[FileIO, str]]) -> None:
    # A client that sends a request again may lose against itself: the table says which files are in use.
    try:
        used = metadata_files(catalog, identifier)
        for io, location in written:
            if location not in used:
                delete_files(io, (location,))
    except Exception as error:  # noqa: BLE001 - the lost commit is what is to be reported
        files = ", ".join(location for _, location in written)
        LOG.warning("Could not delete the metadata of a lost commit (%s): %s", files, error)


def metadata_files(catalog: Catalog, identifier: Identifier) -> set[str]:
    """The metadata files of a table; none of one that is not there, because its creation failed."""
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        return set()
    return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def has_defaults(field_type: IcebergType) -> bool:
    match field_type:
        case StructType():
            return any(
                field.initial_default is not None or field.write_default is not None or has_defaults(field.field_type)
                for field in field_type.fields
            )
        case ListType():
            return has_defaults(field_type.element_type)
        case MapType():
            return has_defaults(field_type.value_type)
        case _:
            return False


def schema_with_defaults(fresh: Schema, original: Schema) -> Schema:
    struct = with_defaults(fresh.as_struct(), original.as_struct())
    assert isinstance(struct, StructType)
    return Schema(*struct.fields, schema_id=fresh.schema_id, identifier_field_ids=fresh.identifier_field_ids)


def with_defaults(fresh: IcebergType, original: IcebergType) -> IcebergType:
    """A type with its own ids and another's defaults; both have the same shape."""
    match fresh, original:
        case StructType(), StructType():
            return StructType(*map(field_with_defaults, fresh.fields, original.fields))
        case ListType(), ListType():
            return ListType(
                fresh.element_id,
                with_defaults(fresh.element_type, original.element_type),
                element_required=fresh.element_required,
            )
        case MapType(), MapType():
            return MapType(
                fresh.key_id,
                fresh.key_type,
                fresh.value_id,
                with_defaults(fresh.value_type, original.value_type),
                value_required=fresh.value_required,
            )
        case _:
            return fresh


def field_with_defaults(fresh: NestedField, original: NestedField) -> NestedField:
    # Both are model fields already parsed: a copy does not parse them again as JSON.
    return fresh.model_copy(
        update={
            "field_type": with_defaults(fresh.field_type, original.field_type),
            "initial_default": original.initial_default,
            "write_default": original.write_default,
        }
    )


def next_row_id(metadata: TableMetadata) -> int:
    """The first row id that the next snapshot may assign; 0 where no snapshot has assigned any.

    Metadata that PyIceberg made, rather than read, may lack the field although snapshots have assigned ids.
    """
    if not isinstance(metadata, TableMetadataV3):
        return 0
    if metadata.next_row_id is not None:
        return metadata.next_row_id
    return max(
        ((snapshot.first_row_id or 0) + (snapshot.added_rows or 0) for snapshot in metadata.snapshots), default=0
    )


def taken_numbers(metadata: TableMetadata, snapshot: Snapshot) -> str | None:
    """Which numbers of a new snapshot other snapshots have taken meanwhile: they count for all branches together.

    Args:
        metadata: The table as it is now.
        snapshot: What is to be added.

    Returns:
        Words for an error; None where the snapshot can be added.
    """
    if metadata.format_version == 1:
        return None
    if snapshot.sequence_number is not None and snapshot.sequence_number <= metadata.last_sequence_number:
        return (
            f"sequence number {snapshot.sequence_number} is not above the table's last, {metadata.last_sequence_number}"
        )
    if snapshot.first_row_id is not None and snapshot.first_row_id < next_row_id(metadata):
        return f"first row id {snapshot.first_row_id} is below the table's next, {next_row_id(metadata)}"
    return None


def metadata_json(metadata: TableMetadata) -> str:
    """Table metadata as JSON, in every format version."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata.model_dump_json()
    # The method of the base class: that of the version 3 class only says that it is not supported.
    return IcebergBaseModel.model_dump_json(with_next_row_id(metadata))


def with_next_row_id(metadata: TableMetadata) -> TableMetadata:
    """The metadata with the field that it may lack; version 3 requires it."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata
    return metadata.model_copy(update={"next_row_id": next_row_id(metadata)})


def write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str, *, overwrite: bool) -> None:
    # The next row id may have to be worked out of the snapshots, which the text of the rest is made without.
    text = with_known_texts(metadata_json, with_next_row_id(metadata), metadata_path).encode()
    content = gzip.compress(text) if metadata_path.endswith(".gz.metadata.json") else text
    written = WRITTEN.get()
    if written is not None:
        written.append((io, metadata_path))
    try:
        with with_single_puts(io).new_output(metadata_path).create(overwrite=overwrite) as stream:
            stream.write(content)
    except OSError as error:
        raise storage_failure("Writing the metadata file", metadata_path, error) from error


def stage_update(
    catalog: MetastoreCatalog,
    stage: Stage,
    current_table: Table | None,
    table_identifier: Identifier,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
) -> StagedTable:
    """Apply updates to the newest metadata, as PyIceberg does, and version 3's rules, which it leaves out."""
    if current_table is not None:
        check_snapshots_are_new(current_table.metadata, updates)
    if current_table is not None and only_adds_a_snapshot(current_table.metadata, updates):
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        bare = with_metadata(current_table, without_snapshots(current_table.metadata))
        staged = stage(bare, table_identifier, (), updates)
        staged.metadata = with_snapshots_of(current_table.metadata, staged.metadata)
    elif not upgrades(updates, current_table.metadata if current_table else None):
        staged = stage(current_table, table_identifier, requirements, updates)
    else:
        # PyIceberg refuses the upgrade itself, so it is done before; the requirements are about the table as it was.
        for requirement in requirements:
            requirement.validate(current_table.metadata if current_table else None)
        upgraded = upgraded_table(catalog, current_table, table_identifier, updates)
        staged = stage(upgraded, table_identifier, (), without_upgrade(updates, upgraded.metadata.location))
        if current_table is None:
            staged.metadata = TableMetadataUtil.parse_obj(staged.metadata.model_dump())
    # A property of the table says where its metadata goes: the place has to be one that the table may have files in.
    io = catalog._load_file_io(location=staged.metadata.location) if current_table is None else current_table.io  # noqa: SLF001
    check_location(io, staged.metadata_location)
    if isinstance(staged.metadata, TableMetadataV3) and staged.metadata.next_row_id is None:
        staged.metadata = staged.metadata.model_copy(update={"next_row_id": next_row_id(staged.metadata)})
    return staged


def check_snapshots_are_new(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> None:
    # A commit to another branch satisfies every requirement, and yet takes the sequence number and the row ids.
    for update in updates:
        taken = taken_numbers(metadata, update.snapshot) if isinstance(update, AddSnapshotUpdate) else None
        if taken is not None:
            raise CommitFailedException(f"Requirement failed: {taken}")


def changed_metadata(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """A table's metadata as it will be when a catalog has applied updates."""
    if not upgrades(updates, metadata):
        return update_table_metadata(metadata, updates)
    return update_table_metadata(as_version_3(metadata), without_upgrade(updates, metadata.location))


def upgrades(updates: tuple[TableUpdate, ...], metadata: TableMetadata | None) -> bool:
    version = metadata.format_version if metadata else 0
    return version < ROW_LINEAGE_VERSION and any(
        isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == ROW_LINEAGE_VERSION
        for update in updates
    )


def upgraded_table(
    catalog: MetastoreCatalog, current_table: Table | None, identifier: Identifier, updates: tuple[TableUpdate, ...]
) -> Table:
    """The table with version 3 metadata; a table that is being created starts from nothing."""
    if current_table is None:
        location = next(update.location for update in updates if isinstance(update, SetLocationUpdate))
        metadata = TableMetadataV3.model_construct(last_column_id=-1, location=location, next_row_id=0)
        io = catalog._load_file_io(location=location)  # noqa: SLF001
        return Table(identifier=identifier, metadata=metadata, metadata_location="", io=io, catalog=catalog)
    return with_metadata(current_table, as_version_3(current_table.metadata))


def with_metadata(table: Table, metadata: TableMetadata) -> Table:
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def as_version_3(metadata: TableMetadata) -> TableMetadataV3:
    fields = {**dict(metadata), "format_version": ROW_LINEAGE_VERSION, "next_row_id": 0}
    return TableMetadataV3.model_construct(
        **{name: value for name, value in fields.items() if name in TableMetadataV3.model_fields}
    )


def without_upgrade(updates: tuple[TableUpdate, ...], location: str) -> tuple[TableUpdate, ...]:
    # The location stays what it is, but it counts as a change, so the metadata log and the time stamp move on.
    return tuple(
        SetLocationUpdate(location=location) if isinstance(update, UpgradeFormatVersionUpdate) else update
        for update in updates
    )
