"""Tables and namespaces of a catalog: load, create, list, change, drop and rename. Driver.

Input: a catalog and an identifier (namespace and name). Output: PyIceberg tables; `CommitBase`, the table that a commit
is based on, which the same commit may create or replace; RowDelta's errors instead of PyIceberg's.
Source: Iceberg specification, "Format Versioning".
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError, NoSuchTableError, ServerError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AssertCreate,
    TableRequirement,
    TableUpdate,
)

from dml import iceberg
from dml.catalog.file_access import check_new_location, metadata_at
from dml.catalog.translation import translate_errors
from dml.errors import AnalysisError, ErrorKind, NotFoundError, expired_at
from dml.files.schemes import check_location
from dml.hints import did_you_mean
from dml.manifests.read import entries_of, read_manifest_list
from dml.options import FORMAT_VERSION

__all__ = [
    "DEFAULT_FORMAT_VERSION",
    "CommitBase",
    "LoadState",
    "change_namespace_properties",
    "create_namespace",
    "create_table",
    "drop_namespace",
    "drop_table",
    "list_namespaces",
    "list_tables",
    "load_table",
    "namespace_exists",
    "namespace_properties",
    "register_table",
    "rename_table",
    "stage_table",
    "table_exists",
    "with_live_credentials",
]

Namespace = tuple[str, ...]


def create_namespace(
    catalog: Catalog, namespace: Namespace, properties: Mapping[str, str] | None = None, *, exists_ok: bool = False
) -> None:
    """Create a namespace.

    Args:
        catalog: The catalog.
        namespace: The parts of its name.
        properties: The properties of the namespace.
        exists_ok: Do nothing if the namespace exists.

    Raises:
        AlreadyExistsError: The namespace exists, and `exists_ok` is False.
        DmlError: The catalog failed.
    """
    with translate_errors(f"Creating the namespace '{dotted_name(namespace)}'", catalog):
        if exists_ok:
            catalog.create_namespace_if_not_exists(namespace, dict(properties or {}))
        else:
            catalog.create_namespace(namespace, dict(properties or {}))


def drop_namespace(catalog: Catalog, namespace: Namespace) -> None:
    """Drop an empty namespace.

    Raises:
        NotFoundError: The namespace does not exist.
        AnalysisError: The namespace is not empty.
        DmlError: The catalog failed.
    """
    with translate_errors(f"Dropping the namespace '{dotted_name(namespace)}'", catalog):
        catalog.drop_namespace(namespace)


def namespace_exists(catalog: Catalog, namespace: Namespace) -> bool:
    """Return True if the catalog has the namespace.

    Raises:
        DmlError: the catalog failed.
    """
    with translate_errors(f"Looking for the namespace '{dotted_name(namespace)}'", catalog):
        return catalog.namespace_exists(namespace)


def list_namespaces(catalog: Catalog, parent: Namespace = ()) -> list[Namespace]:
    """Return the direct children of a namespace, or the top-level namespaces, sorted.

    Raises:
        NotFoundError: The parent does not exist.
        DmlError: the catalog failed.
    """
    with translate_errors("Listing namespaces", catalog):
        return sorted(tuple(namespace) for namespace in catalog.list_namespaces(parent))


def namespace_properties(catalog: Catalog, namespace: Namespace) -> dict[str, str]:
    """Return the properties of a namespace.

    Raises:
        NotFoundError: the namespace does not exist.
        DmlError: the catalog failed.
    """
    with translate_errors(f"Reading the namespace '{dotted_name(namespace)}'", catalog):
        return dict(catalog.load_namespace_properties(namespace))


def change_namespace_properties(
    catalog: Catalog, namespace: Namespace, updates: Mapping[str, str], removals: Iterable[str] = ()
) -> None:
    """Set and remove properties of a namespace.

    Raises:
        NotFoundError: the namespace does not exist.
        DmlError: the catalog failed.
    """
    with translate_errors(f"Changing the namespace '{dotted_name(namespace)}'", catalog):
        catalog.update_namespace_properties(namespace, set(removals), dict(updates))


Identifier = tuple[str, ...]

LOGGER = logging.getLogger(__name__)

FORMAT_VERSIONS: Final = (1, 2, 3)
DEFAULT_FORMAT_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBase:
    """The table on which a commit is based, with metadata changes that belong to the same commit.

    Attributes:
        table: The table, with these changes applied.
        updates: The changes.
        requirements: Requirements on the table without the changes; None to use those of the snapshot.
        further_requirements: Requirements in addition to those of the snapshot.
    """

    table: Table = field(repr=False)
    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] | None = None
    further_requirements: tuple[TableRequirement, ...] = ()


LoadState = Callable[[], CommitBase]
"""Loads the newest table, once per commit attempt."""


def load_table(catalog: Catalog, identifier: Identifier) -> Table:
    """Load a table.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.

    Raises:
        NotFoundError: The table does not exist; the hint suggests a similar name.
        DmlError: The catalog or the storage failed.
    """
    with translate_errors(f"Loading the table '{dotted_name(identifier)}'", catalog):
        try:
            return catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise NotFoundError(
                f"There is no table '{dotted_name(identifier)}' in the catalog '{catalog.name}'",
                hint=did_you_mean(identifier[-1], table_names(catalog, identifier[:-1])),
                table=dotted_name(identifier),
            ) from None


def with_live_credentials(table: Table) -> Table:
    """Return a table, loaded again if a credential that its catalog vended for the files has expired.

    Raises:
        DmlError: As for `load_table`.
    """
    if expired_at(table.io.properties) is None or isinstance(table, StagedTable):
        return table
    return load_table(table.catalog, table.name())


def table_exists(catalog: Catalog, identifier: Identifier) -> bool:
    """Return True if the catalog has the table.

    Raises:
        DmlError: the catalog failed.
    """
    with translate_errors(f"Looking for the table '{dotted_name(identifier)}'", catalog):
        try:
            return catalog.table_exists(identifier)
        except NoSuchNamespaceError:
            return False


def list_tables(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """Return the identifiers of a namespace's tables, sorted.

    Raises:
        NotFoundError: The namespace does not exist.
        DmlError: the catalog failed.
    """
    with translate_errors(f"Listing the tables of '{dotted_name(namespace)}'", catalog):
        return sorted(tuple(identifier) for identifier in catalog.list_tables(namespace))


def create_table(
    catalog: Catalog,
    identifier: Identifier,
    schema: Schema,
    *,
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    sort_order: SortOrder = UNSORTED_SORT_ORDER,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Create a table.

    Args:
        catalog: The catalog; the namespace must exist.
        identifier: Namespace and name.
        schema: The columns; PyIceberg assigns fresh ids.
        partition_spec: The spec, by the ids of `schema`.
        sort_order: The order, by the ids of `schema`.
        location: The root of the table's files; by default the catalog chooses.
        properties: Table properties; `format-version` sets the format version, by default 2.

    Raises:
        AlreadyExistsError: A table with that name exists.
        NotFoundError: The namespace does not exist.
        AnalysisError: The format version is invalid, or a type or a default needs a later one.
        NotSupportedError: The catalog is not configured for the location, or cannot build one from the names.
        DmlError: The catalog or the storage failed.
    """
    with translate_errors(f"Creating the table '{dotted_name(identifier)}'", catalog):
        check_new_location(catalog, identifier, location, properties or {})
        return iceberg.create_table(
            catalog,
            identifier,
            schema,
            location=location,
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=with_format_version(properties),
        )


def stage_table(
    catalog: Catalog,
    identifier: Identifier,
    schema: Schema,
    *,
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> CommitBase | None:
    """Stage a table, which the commit of its first snapshot creates.

    Args:
        catalog: The catalog; the namespace must exist.
        identifier: Namespace and name.
        schema: The columns; PyIceberg assigns fresh ids.
        partition_spec: The spec, by the ids of `schema`.
        location: The root of the table's files; by default the catalog chooses.
        properties: Table properties; `format-version` sets the format version, by default 2.

    Returns:
        The table; None if the catalog's server cannot stage tables.

    Raises:
        AlreadyExistsError: A table with that name exists.
        NotFoundError: The namespace does not exist.
        AnalysisError: The format version is invalid, or a type or a default needs a later one.
        NotSupportedError: The catalog is not configured for the location, or cannot build one from the names.
        DmlError: The catalog or the storage failed.
    """
    with translate_errors(f"Creating the table '{dotted_name(identifier)}'", catalog):
        check_new_location(catalog, identifier, location, properties or {})
        try:
            table, updates = iceberg.stage_table(
                catalog,
                identifier,
                schema,
                partition_spec=partition_spec,
                sort_order=UNSORTED_SORT_ORDER,
                location=location,
                properties=with_format_version(properties),
            )
        except (BadRequestError, ServerError) as error:
            # Some servers do not support `stage-create`. After any other error, creating the table raises it again.
            LOGGER.warning("'%s' cannot stage tables, so a table is created before its rows: %s", catalog.name, error)
            return None
    return CommitBase(table=table, updates=updates, requirements=(AssertCreate(),))


def drop_table(catalog: Catalog, identifier: Identifier, *, purge: bool = False) -> None:
    """Drop a table.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        purge: Also delete its files, if the catalog can.

    Raises:
        NotFoundError: The table does not exist.
        CorruptFileError: The files to delete cannot be listed; the table is kept.
        NotSupportedError: A file is outside the allowed locations; the table is kept.
        DmlError: The catalog failed.
    """
    with translate_errors(f"Dropping the table '{dotted_name(identifier)}'", catalog):
        if not purge:
            catalog.drop_table(identifier)
        elif isinstance(catalog, MetastoreCatalog):
            purge_files(catalog, identifier)
        else:
            catalog.purge_table(identifier)


def purge_files(catalog: Catalog, identifier: Identifier) -> None:
    """Drop a table and delete its files, like PyIceberg, but only at allowed locations."""
    table = catalog.load_table(identifier)
    locations = files_of(table)
    for location in locations:
        check_location(table.io, location)
    catalog.drop_table(identifier)
    for location in locations:
        try:
            table.io.delete(location)
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 - storages raise anything, and the table is already dropped
            LOGGER.warning(
                "Could not delete '%s' of the dropped table '%s': %s", location, dotted_name(identifier), error
            )


def files_of(table: Table) -> list[str]:
    """Return all files that a table's snapshots and metadata log name: data files first, the newest metadata last."""
    lists = dict.fromkeys(snapshot.manifest_list for snapshot in table.metadata.snapshots)
    manifests = {
        manifest.manifest_path: manifest for location in lists for manifest in read_manifest_list(table.io, location)
    }
    data = dict.fromkeys(
        entry.data_file.path for manifest in manifests.values() for entry in entries_of(manifest, table.io)
    )
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    statistics = [file.statistics_path for file in (*table.metadata.statistics, *table.metadata.partition_statistics)]
    return list(dict.fromkeys([*data, *manifests, *lists, *statistics, *log, table.metadata_location]))


def register_table(catalog: Catalog, identifier: Identifier, metadata_location: str) -> Table:
    """Add a table to a catalog by its metadata file.

    Raises:
        AlreadyExistsError: The catalog has a table of that name.
        NotFoundError: The namespace does not exist.
        CorruptFileError: The metadata file is missing or invalid.
        NotSupportedError: The file is outside the allowed locations, or the catalog cannot register tables.
        DmlError: The catalog failed.
    """
    with translate_errors(f"Registering the table '{dotted_name(identifier)}'", catalog):
        if isinstance(catalog, MetastoreCatalog):
            # These catalogs store any location, and could not load the table afterwards.
            metadata_at(catalog, metadata_location)
        return catalog.register_table(identifier, metadata_location)


def rename_table(catalog: Catalog, old: Identifier, new: Identifier) -> Table:
    """Rename a table; its files are not moved.

    Raises:
        NotFoundError: The table or the new namespace does not exist.
        AlreadyExistsError: The new name is taken.
        DmlError: The catalog failed.
    """
    with translate_errors(f"Renaming the table '{dotted_name(old)}' to '{dotted_name(new)}'", catalog):
        return catalog.rename_table(old, new)


def format_version(text: str) -> int:
    """Parse the format version of a table property.

    Raises:
        AnalysisError: The text is not a format version.
    """
    version = next((version for version in FORMAT_VERSIONS if str(version) == text.strip()), None)
    if version is None:
        raise AnalysisError(
            f"The table property '{FORMAT_VERSION}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be 1, 2 or 3",
            property=FORMAT_VERSION,
        )
    return version


def with_format_version(properties: Mapping[str, str] | None) -> dict[str, str]:
    settings = dict(properties or {})
    version = format_version(settings.get(FORMAT_VERSION, str(DEFAULT_FORMAT_VERSION)))
    return {**settings, FORMAT_VERSION: str(version)}


def table_names(catalog: Catalog, namespace: Identifier) -> list[str]:
    try:
        return [identifier[-1] for identifier in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []


def dotted_name(identifier: Identifier) -> str:
    return ".".join(identifier)
