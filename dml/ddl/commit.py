"""Commits metadata changes of a table. Driver.

Input: a function from the table's metadata to updates and requirements. Output: the catalog's new state. If another
commit lands first, the function runs again on the newer metadata. An equal schema, spec or sort order of the table is
reused.

`SchemaEvolution` changes the schema in the commit of the first rows that use it; `TableReplacement` replaces a table in
the commit of its first rows. In both cases the engine writes the rows, with planned field ids and partition spec, and
commits them with the change. If another commit changes those ids or that spec, the statement fails. Source: Iceberg
specification, "Optimistic Concurrency"; REST catalog, "Commit updates to a table", "TableUpdate";
`TableMetadata.Builder`; `Transactions.replaceTableTransaction`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from dml.catalog import CommitBase, translate_errors, unmet_requirement
from dml.catalog.translation import shown_cause
from dml.ddl.tables import load_table
from dml.errors import CommitConflictError, NotFoundError, NotSupportedError
from dml.iceberg import changed_metadata, commit_table
from dml.options import FORMAT_VERSION, CommitOptions
from dml.retry import commit_retries
from dml.sqlparse.quoting import quote_name

__all__ = [
    "MetadataChange",
    "SchemaEvolution",
    "TableReplacement",
    "commit_change",
    "schema_updates",
    "sort_order_updates",
    "spec_updates",
    "table_with",
    "upgrade_updates",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """The metadata updates of a statement.

    Attributes:
        updates: The updates in order; empty if nothing changes.
        requirements: Conditions that must still hold when the catalog applies the updates.
    """

    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] = ()


def commit_change(
    catalog: Catalog, identifier: tuple[str, ...], change: Callable[[TableMetadata], MetadataChange]
) -> Table:
    """Apply a change to the newest metadata of a table.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        change: Maps the table's metadata to the change; runs once per attempt.

    Returns:
        The table after the change.

    Raises:
        NotFoundError: The table does not exist.
        CommitConflictError: Other commits landed first on every attempt.
        CommitStateUnknownError: The commit may have landed.
    """
    options = CommitOptions.from_properties(load_table(catalog, identifier).properties)
    attempts = commit_retries(options, CommitConflictError)
    try:
        return attempts(attempt, catalog, identifier, change)
    except CommitConflictError as error:
        number = attempts.statistics["attempt_number"]
        raise CommitConflictError(
            f"The table {quote_name(identifier)} was changed by others {number} times in a row",
            hint="Run the statement again",
            table=quote_name(identifier),
        ) from error


def attempt(catalog: Catalog, identifier: tuple[str, ...], change: Callable[[TableMetadata], MetadataChange]) -> Table:
    table = load_table(catalog, identifier)
    planned = change(table.metadata)
    if not planned.updates:
        return table
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), *planned.requirements)
    action = f"Changing the table '{quote_name(identifier)}'"
    with translate_errors(action, catalog):
        try:
            commit_table(catalog, table, requirements, planned.updates)
        except CommitFailedException as error:
            unmet = unmet_requirement(requirements, table.metadata, action)
            if unmet is None:
                raise
            raise unmet from shown_cause(error, catalog.properties)
    return load_table(catalog, identifier)


LAST_ADDED = -1


def schema_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return updates that make a schema the current one; none if it is."""
    known = next((known for known in metadata.schemas if is_same_schema(known, schema)), None)
    if known is not None:
        current = known.schema_id == metadata.current_schema_id
        return () if current else (SetCurrentSchemaUpdate(schema_id=known.schema_id),)
    schema_id = 1 + max(known.schema_id for known in metadata.schemas)
    added = Schema(*schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids)
    return (AddSchemaUpdate(schema_=added), SetCurrentSchemaUpdate(schema_id=LAST_ADDED))


def spec_updates(metadata: TableMetadata, spec: PartitionSpec) -> tuple[TableUpdate, ...]:
    """Return updates that make a partition spec the default one; its id determines whether the table has it."""
    if spec.spec_id in metadata.specs():
        current = spec.spec_id == metadata.default_spec_id
        return () if current else (SetDefaultSpecUpdate(spec_id=spec.spec_id),)
    return (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=LAST_ADDED))


def sort_order_updates(metadata: TableMetadata, order: SortOrder) -> tuple[TableUpdate, ...]:
    """Return updates that make a sort order the default one; its id determines whether the table has it."""
    if metadata.sort_order_by_id(order.order_id) is not None:
        current = order.order_id == metadata.default_sort_order_id
        return () if current else (SetDefaultSortOrderUpdate(sort_order_id=order.order_id),)
    return (AddSortOrderUpdate(sort_order=order), SetDefaultSortOrderUpdate(sort_order_id=order.order_id))


def upgrade_updates(metadata: TableMetadata, format_version: int | None) -> tuple[TableUpdate, ...]:
    """Return updates that raise the format version.

    Raises:
        NotSupportedError: The version is lower than the table's.
    """
    if format_version is None or format_version == metadata.format_version:
        return ()
    if format_version < metadata.format_version:
        raise NotSupportedError(
            f"The table has format version {metadata.format_version}, which cannot go back to {format_version}",
            hint="Create a new table of the lower version, and insert the rows",
            property=FORMAT_VERSION,
        )
    return (UpgradeFormatVersionUpdate(format_version=format_version),)


def is_same_schema(one: Schema, other: Schema) -> bool:
    same_identifiers = set(one.identifier_field_ids) == set(other.identifier_field_ids)
    return same_identifiers and one.as_struct() == other.as_struct()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReplacement:
    """A replacement that is not committed yet.

    Attributes:
        catalog: The catalog.
        identifier: Namespace and name.
        change: Maps the table's metadata to the change.
        schema: The schema that rows are written with.
        spec: The spec that rows are partitioned by.
    """

    catalog: Catalog
    identifier: tuple[str, ...]
    change: Callable[[TableMetadata], MetadataChange]
    schema: Schema
    spec: PartitionSpec

    @classmethod
    def of(
        cls, catalog: Catalog, identifier: tuple[str, ...], change: Callable[[TableMetadata], MetadataChange]
    ) -> Self:
        """Plan the replacement of a table on its newest metadata.

        Raises:
            NotFoundError: The table does not exist.
            DmlError: The definition does not fit the table.
        """
        metadata = load_table(catalog, identifier).metadata
        replaced = changed_metadata(metadata, change(metadata).updates)
        return cls(
            catalog=catalog, identifier=identifier, change=change, schema=replaced.schema(), spec=replaced.spec()
        )

    def load(self) -> CommitBase:
        """Load the newest table and return it replaced.

        Raises:
            CommitConflictError: The written rows no longer fit the replaced table.
            NotFoundError: the table was dropped.
        """
        table = load_table(self.catalog, self.identifier)
        base, change = table.metadata, self.change(table.metadata)
        metadata = changed_metadata(base, change.updates)
        if (metadata.schema().as_struct(), metadata.spec()) != (self.schema.as_struct(), self.spec):
            raise CommitConflictError(
                f"The columns or partitions of {quote_name(self.identifier)} were changed while it was being replaced",
                hint="Run the statement again",
                table=quote_name(self.identifier),
            )
        heads = {MAIN_BRANCH: None} | {name: ref.snapshot_id for name, ref in base.refs.items()}
        return CommitBase(
            table=table_with(table, metadata),
            updates=change.updates,
            requirements=(
                AssertTableUUID(uuid=base.table_uuid),
                *change.requirements,
                *(AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in heads.items()),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEvolution:
    """A change of a table's schema that is not committed yet.

    Attributes:
        catalog: The catalog.
        identifier: Namespace and name.
        change: Maps the table's metadata to the change.
        metadata: The table's metadata with the change, which rows are written with.
    """

    catalog: Catalog = field(repr=False)
    identifier: tuple[str, ...]
    change: Callable[[TableMetadata], MetadataChange] = field(repr=False)
    metadata: TableMetadata = field(repr=False)

    @classmethod
    def of(cls, table: Table, change: Callable[[TableMetadata], MetadataChange]) -> Self | None:
        """Plan the change of a table, or return None if nothing changes.

        Raises:
            DmlError: The change does not fit the table.
        """
        updates = change(table.metadata).updates
        if not updates:
            return None
        metadata = changed_metadata(table.metadata, updates)
        return cls(catalog=table.catalog, identifier=table.name(), change=change, metadata=metadata)

    def load(self) -> CommitBase:
        """Load the newest table and return it with the change, which it may already have.

        Raises:
            CommitConflictError: The written rows no longer fit the resulting schema.
            NotFoundError: the table was dropped.
        """
        table = load_table(self.catalog, self.identifier)
        change = self.change(table.metadata)
        metadata = changed_metadata(table.metadata, change.updates)
        if metadata.schema().as_struct() != self.metadata.schema().as_struct():
            raise CommitConflictError(
                f"The columns of {quote_name(self.identifier)} were changed by another commit while this statement was "
                "changing them too",
                hint="Run the statement again",
                table=quote_name(self.identifier),
            )
        return CommitBase(
            table=table_with(table, metadata), updates=change.updates, further_requirements=change.requirements
        )

    def commit(self) -> None:
        """Commit the schema change alone, without rows.

        Raises:
            NotFoundError: The table was dropped.
            CommitConflictError: Other commits landed first on every attempt.
            CommitStateUnknownError: The commit may have landed.
        """
        commit_change(self.catalog, self.identifier, self.same_table)

    def same_table(self, metadata: TableMetadata) -> MetadataChange:
        """Return the change of the table; raise if the table was recreated."""
        if metadata.table_uuid != self.metadata.table_uuid:
            raise NotFoundError(
                f"The table {quote_name(self.identifier)} was dropped and recreated since the statement read it",
                hint="Run the statement again",
            )
        return self.change(metadata)


def table_with(table: Table, metadata: TableMetadata) -> Table:
    """Return a table handle with other metadata."""
    return Table(
        identifier=table.name(),
        metadata=metadata,
        metadata_location=table.metadata_location,
        io=table.io,
        catalog=table.catalog,
        config=table.config,
    )
