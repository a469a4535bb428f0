"""Adds support for writing format version 3 to PyIceberg, through its private names. Driver.

Input: a PyIceberg catalog. Output: the same catalog, able to create, upgrade and commit version 3 tables, to remove
snapshots as Java does, and to compress metadata files; and tables created with default values of columns, which
PyIceberg loses when it assigns fresh ids.

PyIceberg 0.12 reads, updates and validates version 3 metadata, but it refuses to serialize it or to upgrade to it, and
does not start `next-row-id` at 0. REST catalogs do all that on their server. For catalogs that write metadata
themselves (SQL, Glue, Hive, DynamoDB, BigQuery: `MetastoreCatalog`) this module replaces the methods for it, per
instance. Tests in `tests/dml/catalog` fail once PyIceberg supports version 3; then remove this.

Source: Iceberg specification, "Table Metadata Fields", "Row Lineage".
"""

import gzip
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
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
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCreate,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetLocationUpdate,
    SetSnapshotRefUpdate,
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
from dml.files.table_metadata import cached_metadata_json, only_adds_a_snapshot, prepend_history, without_snapshots
from dml.options import FORMAT_VERSION, METADATA_COMPRESSION

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
# RowDelta's errors come from the replaced methods, before the catalog receives the commit.
LOST = (CommitFailedException, TableAlreadyExistsError, DmlError)
ROW_LINEAGE_VERSION: Final = 3
PLAIN_METADATA: Final = ".metadata.json"
GZIP_METADATA: Final = ".gz.metadata.json"
REMOVALS: Final = (
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
)

SQLITE_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# serialization_failure, deadlock_detected, lock_not_available
TRANSACTION_ROLLBACK: Final = frozenset({"40001", "40P01", "55P03"})


def support_format_version_3(catalog: Catalog) -> Catalog:
    """Let a catalog that writes table metadata itself create, upgrade and commit tables of format version 3.

    Args:
        catalog: Any catalog; one whose server writes the metadata is not changed.

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

        setattr(catalog, "_update_and_stage_table", stage_any_version)  # noqa: B010 - on this object only
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
    """Create a table, including the default values of its columns, with compressed metadata if a property asks for it.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        schema: The columns; they get fresh ids.
        partition_spec: The spec, by the ids of `schema`.
        sort_order: The order, by the ids of `schema`.
        location: The root of the table's files; None lets the catalog choose.
        properties: Table properties, including `format-version`.

    Raises:
        Exception: PyIceberg's exceptions, unchanged.
    """
    compresses = isinstance(catalog, MetastoreCatalog) and METADATA_COMPRESSION in properties
    if not has_defaults(schema.as_struct()) and not compresses:
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
    """Stage a table, and return it with the updates that create it.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        schema: The columns; they get fresh ids.
        partition_spec: The spec, by the ids of `schema`.
        sort_order: The order, by the ids of `schema`.
        location: The root of the table's files; None lets the catalog choose.
        properties: Table properties, including `format-version`.

    Raises:
        Exception: PyIceberg's exceptions, unchanged.
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
    """Return the identifier for staging a table; a SQL catalog gets its namespace as one part with dots.

    PyIceberg only stages names of two parts there, and does not check that the namespace exists, which creating a
    table does.
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
    """Commit updates, then delete metadata files that left the metadata log, if the table's properties enable it.

    Servers delete their metadata files themselves. For other catalogs PyIceberg does so only in its own transactions.

    Args:
        catalog: The catalog.
        table: The table that the updates are based on.
        requirements: The requirements of the commit.
        updates: The updates.

    Raises:
        DmlError: The commit failed before the catalog received it; no file is left.
        Exception: PyIceberg's exceptions, unchanged; nothing is raised after the commit landed.
    """
    try:
        with no_metadata_of_lost_commits(catalog, table.name()), busy_database_as_lost_race():
            response = catalog.commit_table(table, requirements, updates)
    except CommitFailedException as error:
        # The only requirement of a creation is that the table does not exist.
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            raise TableAlreadyExistsError(f"Table {'.'.join(table.name())} already exists") from error
        raise
    if isinstance(catalog, MetastoreCatalog):
        try:
            catalog._delete_old_metadata(table.io, table.metadata, response.metadata)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - the commit landed, even if the storage cannot delete old files
            LOG.warning("Could not delete old metadata files of '%s': %s", ".".join(table.name()), error)
    return response


@contextmanager
def busy_database_as_lost_race() -> Iterator[None]:
    """Translate a rolled-back transaction of a busy database to a lost race, which is retried."""
    try:
        yield
    except DBAPIError as error:
        # SQLite's primary result code; psycopg2 and psycopg name the SQL state differently.
        primary = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
        if primary in SQLITE_BUSY or state in TRANSACTION_ROLLBACK:
            raise CommitFailedException(f"The catalog's database is busy: {error.orig}") from error
        raise


@contextmanager
def no_metadata_of_lost_commits(catalog: Catalog, identifier: Identifier) -> Iterator[None]:
    """Delete the metadata files that the block writes if its commit is lost."""
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
    # A client that resends a request may lose to itself, so the table is checked for files in use.
    try:
        used = metadata_files(catalog, identifier)
        for io, location in written:
            if location not in used:
                delete_files(io, (location,))
    except Exception as error:  # noqa: BLE001 - the lost commit is reported instead
        files = ", ".join(location for _, location in written)
        LOG.warning("Could not delete the metadata of a lost commit (%s): %s", files, error)


def metadata_files(catalog: Catalog, identifier: Identifier) -> set[str]:
    """Return the metadata files of a table; none if it does not exist because its creation failed."""
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
    """Return a type with its own ids and the defaults of another type of the same shape."""
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
    # The fields are parsed models: a copy avoids parsing their values again as JSON.
    return fresh.model_copy(
        update={
            "field_type": with_defaults(fresh.field_type, original.field_type),
            "initial_default": original.initial_default,
            "write_default": original.write_default,
        }
    )


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first row id that the next snapshot may assign; 0 if no snapshot has assigned any.

    Metadata that PyIceberg built, rather than read, may lack the field although snapshots have assigned ids.
    """
    if not isinstance(metadata, TableMetadataV3):
        return 0
    if metadata.next_row_id is not None:
        return metadata.next_row_id
    return max(
        ((snapshot.first_row_id or 0) + (snapshot.added_rows or 0) for snapshot in metadata.snapshots), default=0
    )


def taken_numbers(metadata: TableMetadata, snapshot: Snapshot) -> str | None:
    """Describe the numbers of a new snapshot that other snapshots have taken; all branches share these numbers.

    Args:
        metadata: The table's newest metadata.
        snapshot: The snapshot to add.

    Returns:
        A text for an error; None if the snapshot can be added.
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
    """Serialize table metadata as JSON, in every format version."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata.model_dump_json()
    # The method of the base class: the version 3 class overrides it to raise an error.
    return IcebergBaseModel.model_dump_json(with_next_row_id(metadata))


def with_next_row_id(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with `next-row-id`, which version 3 requires and it may lack."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata
    return metadata.model_copy(update={"next_row_id": next_row_id(metadata)})


def write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str, *, overwrite: bool) -> None:
    # `next_row_id` may need the snapshots, which `cached_metadata_json` serializes separately.
    text = cached_metadata_json(metadata_json, with_next_row_id(metadata), metadata_path).encode()
    content = gzip.compress(text) if metadata_path.endswith(GZIP_METADATA) else text
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
    """Apply updates to the newest metadata, like PyIceberg, plus rules of version 3 and of removals that it lacks."""
    if current_table is not None:
        check_snapshots_are_new(current_table.metadata, updates)
        if any(isinstance(update, REMOVALS) for update in updates):
            for requirement in requirements:
                requirement.validate(current_table.metadata)
            requirements = ()
            metadata, updates = remove_snapshots(current_table.metadata, updates)
            check_removed_specs(current_table.io, metadata, updates)
            current_table = with_metadata(current_table, metadata)
    if current_table is not None and only_adds_a_snapshot(current_table.metadata, updates):
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        bare = with_metadata(current_table, without_snapshots(current_table.metadata))
        staged = stage(bare, table_identifier, (), updates)
        staged.metadata = prepend_history(current_table.metadata, staged.metadata)
    elif not has_upgrade(updates, current_table.metadata if current_table else None):
        staged = stage(current_table, table_identifier, requirements, updates)
    else:
        # PyIceberg refuses the upgrade, so it is applied first. The requirements refer to the table before it.
        for requirement in requirements:
            requirement.validate(current_table.metadata if current_table else None)
        upgraded = upgraded_table(catalog, current_table, table_identifier, updates)
        staged = stage(upgraded, table_identifier, (), without_upgrade(updates, upgraded.metadata.location))
        if current_table is None:
            staged.metadata = TableMetadataUtil.parse_obj(staged.metadata.model_dump())
    staged.metadata_location = with_codec(staged.metadata_location, staged.metadata.properties)
    # A table property may set the folder for metadata, so its location must be checked.
    io = catalog._load_file_io(location=staged.metadata.location) if current_table is None else current_table.io  # noqa: SLF001
    check_location(io, staged.metadata_location)
    if isinstance(staged.metadata, TableMetadataV3) and staged.metadata.next_row_id is None:
        staged.metadata = staged.metadata.model_copy(update={"next_row_id": next_row_id(staged.metadata)})
    return staged


def check_snapshots_are_new(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> None:
    # A commit to another branch satisfies all requirements, but takes the sequence number and row ids.
    for update in updates:
        taken = taken_numbers(metadata, update.snapshot) if isinstance(update, AddSnapshotUpdate) else None
        if taken is not None:
            raise CommitFailedException(f"Requirement failed: {taken}")


def changed_metadata(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return a table's metadata after a catalog has applied updates."""
    if not has_upgrade(updates, metadata):
        return update_table_metadata(metadata, updates)
    return update_table_metadata(as_version_3(metadata), without_upgrade(updates, metadata.location))


def remove_snapshots(
    metadata: TableMetadata, updates: tuple[TableUpdate, ...]
) -> tuple[TableMetadata, tuple[TableUpdate, ...]]:
    """Apply the updates that remove snapshots, with their refs and statistics, as Java does.

    PyIceberg 0.12 drops the parent ids of remaining snapshots, keeps entries of the snapshot log from before a removed
    one, which makes time travel return wrong snapshots, drops branches and tags of removed snapshots, and keeps their
    partition statistics.

    Args:
        metadata: The newest metadata.
        updates: All updates of a commit.

    Returns:
        The metadata without what is removed, and the other updates.

    Raises:
        CommitFailedException: Another commit landed first and uses what is to be removed, or has removed it.
    """
    removed = {one for update in updates if isinstance(update, RemoveSnapshotsUpdate) for one in update.snapshot_ids}
    check_removals(metadata, updates, removed)
    if not removed:
        return metadata, updates
    refs = {update.ref_name for update in updates if isinstance(update, RemoveSnapshotRefUpdate)}
    others = tuple(
        update
        for update in updates
        if not isinstance(update, RemoveSnapshotsUpdate | RemoveSnapshotRefUpdate)
        and not (
            isinstance(update, RemoveStatisticsUpdate | RemovePartitionStatisticsUpdate)
            and update.snapshot_id in removed
        )
    )
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in removed]
    remaining = {snapshot.snapshot_id for snapshot in snapshots}
    log: list[SnapshotLogEntry] = []
    for entry in metadata.snapshot_log:
        # With a gap, an older entry would seem to be current until the next one.
        log = [*log, entry] if entry.snapshot_id in remaining else []
    changed = metadata.model_copy(
        update={
            "snapshots": snapshots,
            "snapshot_log": log,
            "refs": {name: ref for name, ref in metadata.refs.items() if name not in refs},
            "current_snapshot_id": None if MAIN_BRANCH in refs else metadata.current_snapshot_id,
            "statistics": [one for one in metadata.statistics if one.snapshot_id not in removed],
            "partition_statistics": [one for one in metadata.partition_statistics if one.snapshot_id not in removed],
        }
    )
    # Setting the same location counts as a change, so the metadata log and the timestamp are updated.
    return changed, (SetLocationUpdate(location=metadata.location), *others)


def check_removals(metadata: TableMetadata, updates: tuple[TableUpdate, ...], removed: set[int]) -> None:
    """Check that no remaining part of the newest metadata uses what is removed, and that it is still there.

    PyIceberg reports the same as invalid updates, which are not retried.

    Raises:
        CommitFailedException: It is not.
    """
    dropped = {one.ref_name for one in updates if isinstance(one, RemoveSnapshotRefUpdate | SetSnapshotRefUpdate)}
    heads = {name: ref.snapshot_id for name, ref in metadata.refs.items() if name not in dropped}
    heads |= {update.ref_name: update.snapshot_id for update in updates if isinstance(update, SetSnapshotRefUpdate)}
    for name, snapshot_id in heads.items():
        if snapshot_id in removed:
            raise CommitFailedException(f"Cannot remove the snapshot {snapshot_id}: '{name}' is at it")
    used_schemas = {one.schema_id for one in metadata.snapshots if one.snapshot_id not in removed}
    schemas, specs = {one.schema_id for one in metadata.schemas}, {one.spec_id for one in metadata.partition_specs}
    statistics = {one.snapshot_id for one in metadata.statistics}
    partition_statistics = {one.snapshot_id for one in metadata.partition_statistics}
    for update in updates:
        match update:
            case RemoveSchemasUpdate(schema_ids=ids) if not set(ids) <= schemas - used_schemas - {
                metadata.current_schema_id
            }:
                raise CommitFailedException(f"Cannot remove the schemas {ids}: a snapshot uses one, or it is removed")
            case RemovePartitionSpecsUpdate(spec_ids=ids) if not set(ids) <= specs - {metadata.default_spec_id}:
                raise CommitFailedException(f"Cannot remove the partition specs {ids}: one is in use, or is removed")
            case RemoveStatisticsUpdate(snapshot_id=one) if one not in statistics:
                raise CommitFailedException(f"The statistics of the snapshot {one} are removed already")
            case RemovePartitionStatisticsUpdate(snapshot_id=one) if one not in partition_statistics:
                raise CommitFailedException(f"The partition statistics of the snapshot {one} are removed already")


def check_removed_specs(io: FileIO, metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> None:
    """Check that no remaining manifest has a partition spec that is removed: a commit may have staged one meanwhile.

    Raises:
        CommitFailedException: One has.
    """
    removed = {one for update in updates if isinstance(update, RemovePartitionSpecsUpdate) for one in update.spec_ids}
    for snapshot in metadata.snapshots if removed else ():
        for manifest in snapshot.manifests(io):
            if manifest.partition_spec_id in removed:
                raise CommitFailedException(
                    f"Cannot remove the partition spec {manifest.partition_spec_id}: the snapshot "
                    f"{snapshot.snapshot_id} uses it"
                )


def with_codec(location: str, properties: Mapping[str, str]) -> str:
    """Return the location of a new metadata file, with the extension of the table's compression codec.

    An unknown codec is ignored: a commit must not fail because of the compression of a small file.
    """
    codec = properties.get(METADATA_COMPRESSION, "none").strip().lower()
    if codec not in {"gzip", "none"}:
        LOG.warning("%s is '%s', not none or gzip: metadata is not compressed", METADATA_COMPRESSION, codec)
    if codec != "gzip" or location.endswith(GZIP_METADATA):
        return location
    return location.removesuffix(PLAIN_METADATA) + GZIP_METADATA


def has_upgrade(updates: tuple[TableUpdate, ...], metadata: TableMetadata | None) -> bool:
    version = metadata.format_version if metadata else 0
    return version < ROW_LINEAGE_VERSION and any(
        isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == ROW_LINEAGE_VERSION
        for update in updates
    )


def upgraded_table(
    catalog: MetastoreCatalog, current_table: Table | None, identifier: Identifier, updates: tuple[TableUpdate, ...]
) -> Table:
    """Return the table with version 3 metadata; a table to be created starts with empty metadata."""
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
    # Setting the same location counts as a change, so the metadata log and the timestamp are updated.
    return tuple(
        SetLocationUpdate(location=location) if isinstance(update, UpgradeFormatVersionUpdate) else update
        for update in updates
    )
