"""Dispatches statements on tables and namespaces. Driver.

Input: a statement, and the session's catalogs and time zone. Output: `DdlResult`. This module resolves names and calls
the module of the statement.
"""

from typing import assert_never

from pyiceberg.table.metadata import TableMetadata

from dml.catalog.registry import CatalogRegistry
from dml.ddl.alter_table import alter_table
from dml.ddl.create_table import create_table
from dml.ddl.namespaces import (
    comment_on_namespace,
    create_namespace,
    describe_namespace,
    drop_namespace,
    show_namespaces,
    show_table_extended,
    show_tables,
)
from dml.ddl.partitions import show_partitions
from dml.ddl.show_table import describe_table, show_columns, show_create_table, show_properties
from dml.ddl.tables import NO_ROWS, DdlResult, drop_table, load_table
from dml.errors import NotSupportedError
from dml.sqlparse.diagnosis import at
from dml.sqlparse.statements import (
    AlterTable,
    CommentOnNamespace,
    CreateNamespace,
    CreateTable,
    Describe,
    DescribeNamespace,
    DropNamespace,
    DropTable,
    ShowColumns,
    ShowCreateTable,
    ShowNamespaces,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    TableReference,
)

__all__ = ["DdlStatement", "execute"]

DdlStatement = (
    AlterTable
    | CommentOnNamespace
    | CreateNamespace
    | CreateTable
    | Describe
    | DescribeNamespace
    | DropNamespace
    | DropTable
    | ShowColumns
    | ShowCreateTable
    | ShowNamespaces
    | ShowPartitions
    | ShowProperties
    | ShowTables
)


def execute(
    statement: DdlStatement, registry: CatalogRegistry, *, time_zone: str, case_sensitive: bool = False
) -> DdlResult:
    """Run a statement that changes or shows tables and namespaces.

    Args:
        statement: The statement; no CREATE TABLE ... AS SELECT, which the engine runs.
        registry: Resolves names.
        time_zone: The session's time zone, for TIMESTAMP literals without a zone.
        case_sensitive: Allow new tables with columns whose names differ by case alone.

    Returns:
        The rows in Spark's columns; none for a statement that changes something.

    Raises:
        NotFoundError: A table, namespace or partition field does not exist.
        AlreadyExistsError: A new name is taken.
        AnalysisError: A name, a type, a default or a property is invalid.
        NotSupportedError: The format or the catalog does not allow the change.
        CommitConflictError: Other commits landed first on every attempt.
        CommitStateUnknownError: The commit may have landed.
    """
    match statement:
        case CreateNamespace():
            _, catalog, namespace = registry.namespace(statement.name)
            return create_namespace(statement, catalog, namespace)
        case DropNamespace():
            _, catalog, namespace = registry.namespace(statement.name)
            return drop_namespace(statement, catalog, namespace)
        case CommentOnNamespace():
            _, catalog, namespace = registry.namespace(statement.name)
            return comment_on_namespace(statement, catalog, namespace)
        case DescribeNamespace():
            name, catalog, namespace = registry.namespace(statement.name)
            return describe_namespace(statement, catalog, name, namespace)
        case ShowTables():
            name, catalog, namespace = registry.namespace(statement.namespace)
            if statement.extended:
                return show_table_extended(statement, catalog, name, namespace)
            return show_tables(statement, catalog, namespace)
        case ShowNamespaces():
            _, catalog, parent = registry.namespace(statement.parent)
            return show_namespaces(statement, catalog, parent if statement.parent is not None else ())
        case _:
            return on_table(statement, registry, time_zone, case_sensitive=case_sensitive)


def on_table(
    statement: AlterTable
    | CreateTable
    | Describe
    | DropTable
    | ShowColumns
    | ShowCreateTable
    | ShowPartitions
    | ShowProperties,
    registry: CatalogRegistry,
    time_zone: str,
    *,
    case_sensitive: bool,
) -> DdlResult:
    catalog_name, identifier = registry.split(statement.table.parts)
    catalog = registry.catalog(catalog_name)
    full_name = (catalog_name, *identifier)
    match statement:
        case CreateTable():
            if statement.query is not None:
                raise NotSupportedError("CREATE TABLE ... AS SELECT runs with the engine that evaluates its query")
            like = None if statement.like is None else source_of(statement.like, registry)
            create_table(statement, catalog, identifier, time_zone=time_zone, case_sensitive=case_sensitive, like=like)
            return NO_ROWS
        case AlterTable():
            alter_table(statement.action, catalog, identifier, catalog_name=catalog_name, time_zone=time_zone)
            return NO_ROWS
        case DropTable():
            return drop_table(statement, catalog, identifier)
        case ShowProperties():
            return show_properties(statement, load_table(catalog, identifier))
        case ShowColumns():
            return show_columns(load_table(catalog, identifier))
        case ShowPartitions():
            return show_partitions(statement, load_table(catalog, identifier))
        case ShowCreateTable():
            return show_create_table(load_table(catalog, identifier), full_name)
        case Describe():
            return describe_table(statement, load_table(catalog, identifier), full_name)
        case _:
            assert_never(statement)


def source_of(like: TableReference, registry: CatalogRegistry) -> TableMetadata:
    catalog_name, identifier = registry.split(like.parts)
    with at(like.span):
        return load_table(registry.catalog(catalog_name), identifier).metadata
