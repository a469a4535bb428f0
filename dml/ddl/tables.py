"""Loads and drops tables, and builds errors for missing ones. Driver.

Input: a catalog and an identifier. Output: PyIceberg tables, errors that suggest similar names, and `DdlResult`, the
small table of values that a statement returns. DROP TABLE without PURGE keeps the files, as in Iceberg's Spark catalog.
Source: Iceberg's Spark DDL, "DROP TABLE"; `gc.enabled` of Iceberg's configuration.
"""

from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml import catalog as catalogs
from dml.errors import AlreadyExistsError, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.options import GC_ENABLED
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import DropTable

__all__ = ["NO_ROWS", "DdlResult", "drop_table", "existing_table", "load_table", "missing_namespace", "missing_table"]


def load_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """Load a table.

    Raises:
        NotFoundError: The table does not exist; the hint lists similar names.
        DmlError: The catalog or the storage failed.
    """
    try:
        return catalogs.load_table(catalog, identifier)
    except NotFoundError:
        raise missing_table(catalog, identifier) from None


def missing_table(catalog: Catalog, identifier: tuple[str, ...]) -> NotFoundError:
    """Build the error for a missing table, with similar names as its hint."""
    namespace = identifier[:-1]
    if not catalogs.namespace_exists(catalog, namespace):
        return missing_namespace(catalog, namespace)
    names = [name[-1] for name in catalogs.list_tables(catalog, namespace)]
    hint = did_you_mean(identifier[-1], names) if names else "The namespace is empty: create a table with CREATE TABLE"
    message = f"There is no table '{'.'.join(identifier)}' in the catalog '{catalog.name}'"
    return NotFoundError(message, hint=hint, table=quote_name(identifier))


def missing_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> NotFoundError:
    """Build the error for a missing namespace, with similar names as its hint."""
    try:
        known = [name[-1] for name in catalogs.list_namespaces(catalog, namespace[:-1])]
    except NotFoundError:
        known = []
    name = quote_name(namespace)
    hint = did_you_mean(namespace[-1], known) if known and namespace else f"Create it with CREATE NAMESPACE {name}"
    message = f"There is no namespace '{'.'.join(namespace)}' in the catalog '{catalog.name}'"
    return NotFoundError(message, hint=hint, namespace=name)


def existing_table(identifier: tuple[str, ...]) -> AlreadyExistsError:
    """Build the error for an existing table."""
    name = quote_name(identifier)
    return AlreadyExistsError(
        f"The table {name} already exists",
        hint="Use CREATE TABLE IF NOT EXISTS, CREATE OR REPLACE TABLE, or another name",
        table=name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlResult:
    """Rows with named, typed columns.

    Attributes:
        columns: Name and Spark type text of each column, `("col_name", "string")`.
        rows: The rows, one value for each column.
    """

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


NO_ROWS = DdlResult()


def drop_table(statement: DropTable, catalog: Catalog, identifier: tuple[str, ...]) -> DdlResult:
    """Drop a table; PURGE also deletes its files.

    Args:
        statement: The statement.
        catalog: The catalog.
        identifier: Namespace and name.

    Returns:
        No rows.

    Raises:
        NotFoundError: The table does not exist, and IF EXISTS is missing.
        NotSupportedError: PURGE of a table that may share its files (`gc.enabled` = false).
    """
    try:
        if statement.purge:
            refuse_shared_files(catalog, identifier)
        catalogs.drop_table(catalog, identifier, purge=statement.purge)
    except NotFoundError:
        if not statement.if_exists:
            raise missing_table(catalog, identifier) from None
    return NO_ROWS


def refuse_shared_files(catalog: Catalog, identifier: tuple[str, ...]) -> None:
    properties = load_table(catalog, identifier).properties
    if properties.get(GC_ENABLED, "true").strip().lower() == "false":
        raise NotSupportedError(
            f"The table {quote_name(identifier)} has {GC_ENABLED} = false: its files may belong to other tables",
            hint="DROP TABLE without PURGE keeps the files",
        )
