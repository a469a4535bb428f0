"""Tables of a catalog: load, create, drop and rename. Driver.

Input: a catalog and an identifier (namespace and name). Output: PyIceberg tables; `CommitBase`, a table as a commit
finds it, which may be one that the same commit creates or replaces; our errors.
Source: Iceberg specification, "Format Versioning".
"""

import logging
from collections.abc import Callable, Mapping
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
from dml.catalog.file_access import check_new_location
from dml.catalog.translation import translated
from dml.errors import AnalysisError, ErrorKind, NotFoundError, expired_at
from dml.files.schemes import check_location
from dml.manifests.read import entries_of, read_manifest_list
from dml.options import FORMAT_VERSION
from dml.suggestions import did_you_mean

__all__ = [
    "DEFAULT_FORMAT_VERSION",
    "FORMAT_VERSIONS",
    "CommitBase",
    "LoadState",
    "create_table",
    "drop_table",
    "list_tables",
    "load_table",
    "rename_table",
    "stage_table",
    "table_exists",
    "with_live_credentials",
]

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
        NotFoundError: there is no such table; the hint names one that is spelled alike.
        DmlError: the catalog or the storage failed.
    """
    with translated(f"Loading the table '{shown(identifier)}'", catalog):
        try:
            return catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise NotFoundError(
                f"There is no table '{shown(identifier)}' in the catalog '{catalog.name}'",
                hint=did_you_mean(identifier[-1], names(catalog, identifier[:-1])),
                table=shown(identifier),
            ) from None


def with_live_credentials(table: Table) -> Table:
    """Return a table, loaded again if a credential that its catalog vended for the files has expired.

    Raises:
        DmlError: as `load_table`.
    """
    if expired_at(table.io.properties) is None or isinstance(table, StagedTable):
        return table
    return load_table(table.catalog, table.name())


def table_exists(catalog: Catalog, identifier: Identifier) -> bool:
    """Whether the catalog has a table.

    Raises:
        DmlError: the catalog failed.
    """
    with translated(f"Looking for the table '{shown(identifier)}'", catalog):
        try:
            return catalog.table_exists(identifier)
        except NoSuchNamespaceError:
            return False


def list_tables(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """Identifiers of a namespace's tables, in order.

    Raises:
        NotFoundError: there is no such namespace.
        DmlError: the catalog failed.
    """
    with translated(f"Listing the tables of '{shown(namespace)}'", catalog):
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
        catalog: The catalog; the namespace has to be there.
        identifier: Namespace and name.
        schema: Columns; PyIceberg gives them fresh ids.
        partition_spec: By the ids of `schema`.
        sort_order: By the ids of `schema`.
        location: Root of the table's files; by default the catalog chooses.
        properties: Table properties; `format-version` chooses the format version, 2 without it.

    Raises:
        AlreadyExistsError: there is a table of that name.
        NotFoundError: the namespace is not there.
        AnalysisError: the format version is none, or a type or a default needs a later one.
        NotSupportedError: the catalog is not set up for files at the location, or can make none of the names.
        DmlError: the catalog or the storage failed.
    """
    with translated(f"Creating the table '{shown(identifier)}'", catalog):
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
    """Prepare a table that is to be created together with its first snapshot; the catalog does not have it until then.

    Args:
        catalog: The catalog; the namespace has to be there.
        identifier: Namespace and name.
        schema: Columns; PyIceberg gives them fresh ids.
        partition_spec: By the ids of `schema`.
        location: Root of the table's files; by default the catalog chooses.
        properties: Table properties; `format-version` chooses the format version, 2 without it.

    Returns:
        The table; None where the catalog's server cannot prepare tables.

    Raises:
        AlreadyExistsError: there is a table of that name.
        NotFoundError: the namespace is not there.
        AnalysisError: the format version is none, or a type or a default needs a later one.
        NotSupportedError: the catalog is not set up for files at the location, or can make none of the names.
        DmlError: the catalog or the storage failed.
    """
    with translated(f"Creating the table '{shown(identifier)}'", catalog):
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
            # Not every server knows the option `stage-create`; if it is something else, the creation will say so.
            LOGGER.warning("'%s' cannot stage tables, so a table is created before its rows: %s", catalog.name, error)
            return None
    return CommitBase(table=table, updates=updates, requirements=(AssertCreate(),))


def drop_table(catalog: Catalog, identifier: Identifier, *, purge: bool = False) -> None:
    """Drop a table.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        purge: Delete its files as well, where the catalog can.

    Raises:
        NotFoundError: there is no such table.
        CorruptFileError: its files are to be deleted, and cannot be listed; the table is still there.
        NotSupportedError: one of them may not be a file of this table; the table is still there.
        DmlError: the catalog failed.
    """
    with translated(f"Dropping the table '{shown(identifier)}'", catalog):
        if not purge:
            catalog.drop_table(identifier)
        elif isinstance(catalog, MetastoreCatalog):
            purge_files(catalog, identifier)
        else:
            catalog.purge_table(identifier)


def purge_files(catalog: Catalog, identifier: Identifier) -> None:
    """Drop a table and delete its files, as PyIceberg does, but only those that the table may have."""
    table = catalog.load_table(identifier)
    locations = files(table)
    for location in locations:
        check_location(table.io, location)
    catalog.drop_table(identifier)
    for location in locations:
        try:
            table.io.delete(location)
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 - every storage has errors of its own, and the table is gone
            LOGGER.warning("Could not delete '%s' of the dropped table '%s': %s", location, shown(identifier), error)


def files(table: Table) -> list[str]:
    """All files that a table's snapshots and its metadata log name, data files first and its newest metadata last."""
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


def rename_table(catalog: Catalog, old: Identifier, new: Identifier) -> Table:
    """Rename a table; its files stay where they are.

    Raises:
        NotFoundError: there is no such table, or not the new name's namespace.
        AlreadyExistsError: the new name is taken.
        DmlError: the catalog failed.
    """
    with translated(f"Renaming the table '{shown(old)}' to '{shown(new)}'", catalog):
        return catalog.rename_table(old, new)


def format_version(text: str) -> int:
    """The format version that a property names.

    Raises:
        AnalysisError: it is none.
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


def names(catalog: Catalog, namespace: Identifier) -> list[str]:
    try:
        return [identifier[-1] for identifier in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []


def shown(identifier: Identifier) -> str:
    return ".".join(identifier)
