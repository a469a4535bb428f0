"""DROP TABLE. Driver.

Input: the statement, a catalog, an identifier. Output: no rows. Without PURGE the files stay, as with Iceberg's Spark
catalog. Source: Iceberg's Spark DDL, "DROP TABLE"; `gc.enabled` of Iceberg's configuration.
"""

from pyiceberg.catalog import Catalog

from dml import catalog as catalogs
from dml.ddl.quoting import quote_name
from dml.ddl.result import NO_ROWS, DdlResult
from dml.ddl.tables import load_table, missing_table
from dml.errors import NotFoundError, NotSupportedError
from dml.sqlparse.statements import DropTable

__all__ = ["drop_table"]

GC_ENABLED = "gc.enabled"


def drop_table(statement: DropTable, catalog: Catalog, identifier: tuple[str, ...]) -> DdlResult:
    """Drop a table; PURGE deletes its files, too.

    Args:
        statement: The statement.
        catalog: The catalog.
        identifier: Namespace and name.

    Returns:
        No rows.

    Raises:
        NotFoundError: it is not there, and IF EXISTS is not.
        NotSupportedError: PURGE of a table whose files are not its own (`gc.enabled` = false).
    """
    try:
        if statement.purge:
            _refuse_shared_files(catalog, identifier)
        catalogs.drop_table(catalog, identifier, purge=statement.purge)
    except NotFoundError:
        if not statement.if_exists:
            raise missing_table(catalog, identifier) from None
    return NO_ROWS


def _refuse_shared_files(catalog: Catalog, identifier: tuple[str, ...]) -> None:
    properties = load_table(catalog, identifier).properties
    if properties.get(GC_ENABLED, "true").strip().lower() == "false":
        raise NotSupportedError(
            f"The table {quote_name(identifier)} has {GC_ENABLED} = false: its files may belong to others",
            hint="DROP TABLE without PURGE keeps the files",
        )
