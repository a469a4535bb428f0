"""Changes that other writers make to a table while a test looks on."""

from collections.abc import Collection, Mapping

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from dml.ddl.alter_table import set_properties as set_change
from dml.ddl.alter_table import unset_properties as unset_change
from dml.ddl.commit import MetadataChange, commit_change
from dml.sqlparse.statements import SetProperties, UnsetProperties

__all__ = ["set_properties"]


def set_properties(table: Table, updates: Mapping[str, str], removals: Collection[str] = ()) -> Table:
    """Set and remove properties in one commit, as ALTER TABLE does; `format-version` upgrades the table."""

    def change(metadata: TableMetadata) -> MetadataChange:
        changed = set_change(SetProperties(properties=tuple(updates.items())), metadata)
        removed = unset_change(UnsetProperties(keys=tuple(removals)), metadata)
        return MetadataChange(updates=(*changed.updates, *removed.updates))

    return commit_change(table.catalog, table.name(), change)
