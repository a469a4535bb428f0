"""CREATE, DROP, DESCRIBE and COMMENT ON NAMESPACE, SHOW NAMESPACES and SHOW TABLES. Driver.

Input: the statement, a catalog, a namespace in it. Output: `DdlResult` with Spark's columns. Source: Spark SQL
reference, "SHOW TABLES", "SHOW DATABASES", "DESCRIBE DATABASE".
"""

import re
from collections.abc import Iterable

from pyiceberg.catalog import Catalog

from dml import catalog as catalogs
from dml.ddl.show_table import table_information, view_information
from dml.ddl.tables import NO_ROWS, DdlResult, missing_namespace
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind, NotFoundError
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import (
    CommentOnNamespace,
    CreateNamespace,
    DescribeNamespace,
    DropNamespace,
    ShowNamespaces,
    ShowTables,
)

__all__ = [
    "child_namespaces",
    "comment_on_namespace",
    "create_namespace",
    "describe_namespace",
    "drop_namespace",
    "match_names",
    "show_namespaces",
    "show_table_extended",
    "show_tables",
]

COMMENT = "comment"
LOCATION = "location"
OWNER = "owner"


def create_namespace(statement: CreateNamespace, catalog: Catalog, namespace: tuple[str, ...]) -> DdlResult:
    """Run CREATE NAMESPACE.

    Raises:
        AlreadyExistsError: The namespace exists, and IF NOT EXISTS is missing.
    """
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties[COMMENT] = statement.comment
    if statement.location is not None:
        properties[LOCATION] = statement.location
    try:
        catalogs.create_namespace(catalog, namespace, properties, exists_ok=statement.if_not_exists)
    except AlreadyExistsError:
        name = quote_name(namespace)
        raise AlreadyExistsError(
            f"The namespace {name} already exists", hint="Use CREATE NAMESPACE IF NOT EXISTS", namespace=name
        ) from None
    return NO_ROWS


def drop_namespace(statement: DropNamespace, catalog: Catalog, namespace: tuple[str, ...]) -> DdlResult:
    """Run DROP NAMESPACE; CASCADE also drops its tables, its views and nested namespaces.

    Raises:
        NotFoundError: The namespace does not exist, and IF EXISTS is missing.
        AnalysisError: The namespace is not empty, and CASCADE is missing.
    """
    if not namespace or not catalogs.namespace_exists(catalog, namespace):
        if statement.if_exists:
            return NO_ROWS
        raise missing_namespace(catalog, namespace)
    if statement.cascade:
        drop_contents(catalog, namespace)
    inside = [quote_name(name) for name in [*list_relations(catalog, namespace), *child_namespaces(catalog, namespace)]]
    if inside:
        raise not_empty(namespace, sorted(inside))
    # In a catalog without namespace records, the namespace disappears with its last table.
    if catalogs.namespace_exists(catalog, namespace):
        catalogs.drop_namespace(catalog, namespace)
    return NO_ROWS


def comment_on_namespace(statement: CommentOnNamespace, catalog: Catalog, namespace: tuple[str, ...]) -> DdlResult:
    """Run COMMENT ON NAMESPACE; NULL removes the comment.

    Raises:
        NotFoundError: The namespace does not exist.
    """
    try:
        if statement.comment is not None:
            catalogs.change_namespace_properties(catalog, namespace, {COMMENT: statement.comment})
        elif COMMENT in catalogs.namespace_properties(catalog, namespace):
            catalogs.change_namespace_properties(catalog, namespace, {}, (COMMENT,))
    except NotFoundError:
        raise missing_namespace(catalog, namespace) from None
    return NO_ROWS


def show_tables(statement: ShowTables, catalog: Catalog, namespace: tuple[str, ...]) -> DdlResult:
    """Run SHOW TABLES, which also lists views, as in Spark.

    Raises:
        NotFoundError: The namespace does not exist.
    """
    try:
        names = [identifier[-1] for identifier in list_relations(catalog, namespace)]
    except NotFoundError:
        error = missing_namespace(catalog, namespace)
        if statement.namespace is None:
            error.hint = f"Write SHOW TABLES IN and a namespace, or USE one first. {error.hint}"
        raise error from None
    return DdlResult(
        columns=(("namespace", "string"), ("tableName", "string"), ("isTemporary", "boolean")),
        rows=tuple((quote_name(namespace), name, False) for name in match_names(names, statement.pattern)),
    )


def show_table_extended(
    statement: ShowTables, catalog: Catalog, catalog_name: str, namespace: tuple[str, ...]
) -> DdlResult:
    """Run SHOW TABLE EXTENDED, which lists tables and views with details.

    Raises:
        NotFoundError: The namespace does not exist.
    """
    listed = show_tables(statement, catalog, namespace)
    rows = []
    for shown, name, temporary in listed.rows:
        text = relation_information(catalog, catalog_name, (*namespace, name))
        if text is not None:
            rows.append((shown, name, temporary, text))
    return DdlResult(columns=(*listed.columns, ("information", "string")), rows=tuple(rows))


def relation_information(catalog: Catalog, catalog_name: str, identifier: tuple[str, ...]) -> str | None:
    # None for a table or view that was dropped since it was listed.
    full_name = (catalog_name, *identifier)
    try:
        return table_information(catalogs.load_table(catalog, identifier), full_name)
    except NotFoundError:
        view = catalogs.load_view(catalog, identifier)
        return None if view is None else view_information(view, full_name)


def show_namespaces(statement: ShowNamespaces, catalog: Catalog, parent: tuple[str, ...]) -> DdlResult:
    """Run SHOW NAMESPACES.

    Raises:
        NotFoundError: The parent does not exist.
    """
    try:
        names = sorted(quote_name(name) for name in child_namespaces(catalog, parent))
    except NotFoundError:
        raise missing_namespace(catalog, parent) from None
    return DdlResult(
        columns=(("namespace", "string"),), rows=tuple((name,) for name in match_names(names, statement.pattern))
    )


def describe_namespace(
    statement: DescribeNamespace, catalog: Catalog, catalog_name: str, namespace: tuple[str, ...]
) -> DdlResult:
    """Run DESCRIBE NAMESPACE.

    Raises:
        NotFoundError: The namespace does not exist.
    """
    try:
        properties = catalogs.namespace_properties(catalog, namespace)
    except NotFoundError:
        raise missing_namespace(catalog, namespace) from None
    rows = [("Catalog Name", catalog_name), ("Namespace Name", quote_name(namespace))]
    rows.extend((key.capitalize(), properties.pop(key)) for key in (COMMENT, LOCATION, OWNER) if key in properties)
    if statement.extended:
        rest = ", ".join(f"({key},{value})" for key, value in sorted(properties.items()))
        rows.append(("Properties", f"({rest})" if rest else ""))
    return DdlResult(columns=(("info_name", "string"), ("info_value", "string")), rows=tuple(rows))


def child_namespaces(catalog: Catalog, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the full names of the direct children of a namespace.

    Raises:
        NotFoundError: The namespace does not exist.
    """
    # Some catalogs return names relative to the parent, others full names.
    found = catalogs.list_namespaces(catalog, parent)
    return [name if name[: len(parent)] == parent and len(name) > len(parent) else (*parent, *name) for name in found]


def list_relations(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    # Tables and views share one name space.
    return sorted([*catalogs.list_tables(catalog, namespace), *catalogs.list_views(catalog, namespace)])


def drop_contents(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    for child in child_namespaces(catalog, namespace):
        drop_contents(catalog, child)
        if catalogs.namespace_exists(catalog, child):
            catalogs.drop_namespace(catalog, child)
    for identifier in catalogs.list_tables(catalog, namespace):
        catalogs.drop_table(catalog, identifier)
    for identifier in catalogs.list_views(catalog, namespace):
        catalogs.drop_view(catalog, identifier)


def not_empty(namespace: tuple[str, ...], inside: list[str]) -> AnalysisError:
    name = quote_name(namespace)
    held = f": it holds {', '.join(inside[:5])}" + (f" and {len(inside) - 5} more" if len(inside) > 5 else "")
    return AnalysisError(
        f"The namespace {name} is not empty" + (held if inside else ""),
        kind=ErrorKind.NOT_EMPTY,
        hint=f"DROP NAMESPACE {name} CASCADE drops all of it",
        namespace=name,
    )


def match_names(names: Iterable[str], pattern: str | None) -> list[str]:
    """Filter names by a Spark pattern: `*` matches any text, `|` separates alternatives, case is ignored."""
    if pattern is None:
        return list(names)
    parts = [re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|")]
    wanted = re.compile("|".join(f"(?:{part})" for part in parts), re.IGNORECASE | re.DOTALL)
    return [name for name in names if wanted.fullmatch(name)]
