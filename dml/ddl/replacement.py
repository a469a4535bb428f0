"""A table that is replaced together with the snapshot of its first rows. Driver.

Input: the table, and what is to become of its metadata. Output: its state for each attempt to commit. The rows are
written before the commit, by the schema and partition spec that the replaced table has then: where another commit would
change these, the statement fails. Source: `Transactions.replaceTableTransaction`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from dml.catalog import TableState
from dml.ddl.commit import MetadataChange
from dml.ddl.quoting import quote_name
from dml.ddl.tables import load_table
from dml.errors import CommitConflictError
from dml.iceberg import changed_metadata

__all__ = ["Replacement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A replacement that is not committed yet.

    Attributes:
        catalog: The catalog.
        identifier: Namespace and name.
        change: From the table's metadata to what is to change.
        schema: By which rows are written.
        spec: By which they are partitioned.
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
        """The replacement of a table as it is now.

        Raises:
            NotFoundError: there is no such table.
            DmlError: the definition does not fit the table.
        """
        metadata = load_table(catalog, identifier).metadata
        replaced = changed_metadata(metadata, change(metadata).updates)
        return cls(
            catalog=catalog, identifier=identifier, change=change, schema=replaced.schema(), spec=replaced.spec()
        )

    def load(self) -> TableState:
        """The table as it is now, replaced.

        Raises:
            CommitConflictError: rows that were written do not fit the replaced table any more.
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
        return TableState(
            table=Table(
                identifier=table.name(),
                metadata=metadata,
                metadata_location=table.metadata_location,
                io=table.io,
                catalog=self.catalog,
                config=table.config,
            ),
            updates=change.updates,
            requirements=(
                AssertTableUUID(uuid=base.table_uuid),
                *change.requirements,
                *(AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in heads.items()),
            ),
        )
