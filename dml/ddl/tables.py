"""Tables and namespaces in a catalog, found or said to be missing. Driver.

Input: a catalog and an identifier. Output: PyIceberg tables, and errors that name what could have been meant.
"""

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml import catalog as catalogs
from dml.ddl.quoting import quote_name
from dml.errors import AlreadyExistsError, NotFoundError
from dml.suggestions import did_you_mean

__all__ = ["existing_table", "load_table", "missing_namespace", "missing_table"]


def load_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """The table, as it is now.

    Raises:
        NotFoundError: there is none of the name; near names are given.
        DmlError: the catalog or the storage failed.
    """
    try:
        return catalogs.load_table(catalog, identifier)
    except NotFoundError:
        raise missing_table(catalog, identifier) from None


def missing_table(catalog: Catalog, identifier: tuple[str, ...]) -> NotFoundError:
    """The error that says that a table is not there, and which are."""
    namespace = identifier[:-1]
    if not catalogs.namespace_exists(catalog, namespace):
        return missing_namespace(catalog, namespace)
    names = [name[-1] for name in catalogs.list_tables(catalog, namespace)]
    hint = did_you_mean(identifier[-1], names) if names else "The namespace is empty: CREATE TABLE makes tables"
    name = quote_name(identifier)
    return NotFoundError(f"There is no table {name} in catalog '{catalog.name}'", hint=hint, table=name)


def missing_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> NotFoundError:
    """The error that says that a namespace is not there, and which are."""
    try:
        known = [name[-1] for name in catalogs.list_namespaces(catalog, namespace[:-1])]
    except NotFoundError:
        known = []
    name = quote_name(namespace)
    hint = did_you_mean(namespace[-1], known) if known and namespace else f"CREATE NAMESPACE {name} makes it"
    return NotFoundError(f"There is no namespace {name} in catalog '{catalog.name}'", hint=hint, namespace=name)


def existing_table(identifier: tuple[str, ...]) -> AlreadyExistsError:
    """The error that says that a table is there already."""
    name = quote_name(identifier)
    return AlreadyExistsError(
        f"The table {name} is there already",
        hint="Use CREATE TABLE IF NOT EXISTS, CREATE OR REPLACE TABLE, or another name",
        table=name,
    )
