"""Decide which statements RowDelta runs and which Spark runs, and where names without a catalog are looked up. Driver.

Input: a statement given to `spark.sql`, or a name in a call of PySpark. Output: whether it is about a table, a
namespace or a catalog of RowDelta. The check runs for every statement of the session, so it looks at the first keyword
before it parses.

Spark has a current catalog of its own: `spark_catalog`, unless `spark.sql.defaultCatalog` or
`spark.catalog.setCurrentCatalog` names another. While it is a RowDelta catalog, the session's registry and Spark
resolve names alike: RowDelta resolves tables and namespaces without a catalog, and `USE` changes both (`follow_spark`,
`enter`). Otherwise Spark resolves them first. A Spark Connect server without RowDelta cannot have a RowDelta catalog:
there the registry records whether it was entered.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import dml.engine
from dml import limits
from dml.catalog import namespace_exists
from dml.engine.engine import Engine
from dml.engine.query import temporary_view
from dml.errors import SqlError
from dml.spark.bridge.gateway import Py4JError
from dml.spark.bridge.sessions import activate
from dml.spark.handlers import find_engine, is_temporary_view
from dml.spark.iceberg_functions import calls_iceberg_function
from dml.spark.runtime import SessionKind
from dml.spark.versions import sql_failure
from dml.sqlparse import dotted_names, parse
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.statements import (
    AlterTable,
    AnalyzeTable,
    CallStatement,
    CommentOnNamespace,
    CreateNamespace,
    CreateTable,
    DeleteStatement,
    Describe,
    DescribeNamespace,
    DropNamespace,
    DropTable,
    Explain,
    InsertStatement,
    MergeStatement,
    Query,
    RefreshTable,
    ShowColumns,
    ShowCreateTable,
    ShowNamespaces,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    Span,
    Statement,
    TableReference,
    Truncate,
    UnknownStatement,
    UpdateStatement,
    Use,
)

__all__ = [
    "DEFAULT_NAMESPACE",
    "SESSION_CATALOG",
    "TABLE_KEYWORDS",
    "engine_of",
    "enter",
    "find_table",
    "follow_spark",
    "is_current_on_connect",
    "is_ours",
    "is_query",
    "is_spark_catalog",
    "leaves_ours",
    "names_ours",
    "parse_cached",
    "qualify_namespace_name",
    "qualify_table_name",
    "spark_has",
    "table_of",
]

LOG = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final[tuple[str, ...]] = ("default",)
"""The current namespace of a catalog that has just become the current one; it need not exist."""

SESSION_CATALOG: Final = "spark_catalog"


def follow_spark(engine: Engine) -> bool:
    """Copy Spark's current catalog and namespace to the registry, if the catalog is a RowDelta catalog.

    Args:
        engine: The session and its catalogs.

    Returns:
        Whether it is.
    """
    if engine.lazy_session.is_deferred:
        return False
    kind = engine.runtime.kind
    if kind is not SessionKind.CLASSIC:
        return kind is SessionKind.CONNECT and engine.registry.is_current_on_connect
    catalog, registry = engine.spark.catalog, engine.registry
    try:
        activate(engine.spark)
        name = catalog.currentCatalog()
        if name not in registry.catalogs:
            return False
        namespace = name_parts(catalog.currentDatabase())
    except (PySparkException, Py4JError, OSError, AttributeError) as error:
        # Spark cannot create its default catalog, or the session has ended: the statement fails with the same error.
        LOG.debug("Spark cannot be asked for its current catalog: %s", error)
        return False
    registry.current_catalog, registry.current_namespace = name, namespace or DEFAULT_NAMESPACE
    return True


def enter(engine: Engine, name: str, namespace: tuple[str, ...]) -> None:
    """Make a RowDelta catalog and one of its namespaces Spark's current ones, so that `spark.table` finds short names.

    Does nothing if Spark has no such catalog: a classic session that is not enabled.

    Args:
        engine: The session and its catalogs.
        name: The catalog.
        namespace: The namespace, which exists unless it is the default one.
    """
    kind = engine.runtime.kind
    if kind is SessionKind.CONNECT:
        engine.registry.is_current_on_connect = True
    if kind is not SessionKind.CLASSIC:
        return
    catalog = engine.spark.catalog
    with suppress(PySparkException, Py4JError):
        if namespace == DEFAULT_NAMESPACE:
            catalog.setCurrentCatalog(SESSION_CATALOG)  # switching to a catalog resets its namespace to the default
        catalog.setCurrentCatalog(name)
        if namespace != DEFAULT_NAMESPACE:
            catalog.setCurrentDatabase(quote_name(namespace))


def is_spark_catalog(engine: Engine, name: str) -> bool:
    """Return whether the first part of a name is a catalog of Spark that RowDelta does not have."""
    if name in engine.registry.catalogs:
        return False
    return name == SESSION_CATALOG or engine.spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def leaves_ours(engine: Engine, name: tuple[str, ...]) -> bool:
    """Return whether `USE name` goes from a RowDelta catalog to one of Spark's, on Spark Connect."""
    return is_current_on_connect(engine) and is_spark_catalog(engine, name[0])


QUERY_KEYWORDS: Final = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES"})
ROW_LEVEL_KEYWORDS: Final = frozenset({"DELETE", "UPDATE", "MERGE", "INSERT", "TRUNCATE"})
CALL: Final = "CALL"
TABLE_KEYWORDS: Final = frozenset(
    {
        "ALTER",
        "ANALYZE",
        "COMMENT",
        "CREATE",
        "DESC",
        "DESCRIBE",
        "DROP",
        "EXPLAIN",
        "REFRESH",
        "REPLACE",
        "SET",
        "SHOW",
        "USE",
    }
)


parse_cached: Final[Callable[[str], Statement]] = lru_cache(maxsize=limits.CACHED_STATEMENTS)(parse)
"""Parse a statement; the latest are cached, because each is parsed several times."""


def is_query(text: str) -> bool:
    """Return whether a statement is a query."""
    return isinstance(parse_cached(text), Query)


def is_ours(engine: Engine, keyword: str, text: str, parse: Callable[[str], Statement]) -> bool:
    """Return whether RowDelta runs a statement given to `spark.sql`: it names a RowDelta table or catalog.

    Args:
        engine: The session and its catalogs.
        keyword: The statement's first keyword, upper case.
        text: Its text.
        parse: The parser.
    """
    if keyword in QUERY_KEYWORDS or keyword == "EXPLAIN":
        if calls_iceberg_function(text, engine.registry.catalogs):
            return True
        if keyword == "SELECT" and not reads_a_table(text):
            return False
    elif keyword not in ROW_LEVEL_KEYWORDS and keyword not in TABLE_KEYWORDS and keyword != CALL:
        return False
    try:
        statement = parse(text)
    except SqlError:
        # Spark knows neither branches nor identifier fields, and would report these words instead of the mistake.
        return (keyword in ROW_LEVEL_KEYWORDS or keyword == "ALTER") and is_meant_for_us(engine, text)
    return names_ours(engine, statement)


def reads_a_table(text: str) -> bool:
    """Return whether a SELECT can read a table at all."""
    folded = text.upper()
    return "FROM" in folded or "TABLE" in folded


def is_meant_for_us(engine: Engine, text: str) -> bool:
    """Return whether a text that does not parse names a RowDelta catalog or has a RowDelta table as target.

    The target is the first name in the text. Spark would report the table as missing instead of the mistake.
    """
    if any(f"{name}." in text for name in engine.registry.catalogs):
        return True
    in_ours = follow_spark(engine)
    named = next(iter(dotted_names(text)), None)
    if named is None:
        return in_ours
    return is_our_table(engine, TableReference(parts=named, span=Span(0, 0)), in_ours=in_ours)


def names_ours(engine: Engine, statement: Statement) -> bool:
    """Return whether a statement names a table, namespace or catalog of RowDelta."""
    return mentions_ours(engine, statement, in_ours=follow_spark(engine))


def mentions_ours(engine: Engine, statement: Statement, *, in_ours: bool) -> bool:
    """Do the work of `names_ours`; `in_ours` is true if names without a catalog are looked up in a RowDelta catalog."""
    registry = engine.registry

    def ours(reference: TableReference) -> bool:
        return is_our_table(engine, reference, in_ours=in_ours)

    def namespace_of_ours(name: tuple[str, ...] | None) -> bool:
        if name is None:
            return in_ours
        return name[0] in registry.catalogs or (in_ours and not is_spark_catalog(engine, name[0]))

    match statement:
        case Query(fragment=fragment):
            return any(map(ours, fragment.tables))
        case (
            DeleteStatement(target=target)
            | UpdateStatement(target=target)
            | MergeStatement(target=target)
            | Truncate(target=target)
        ):
            return ours(target)
        case InsertStatement(target=target, query=query):
            return ours(target) or any(map(ours, query.tables))
        case CallStatement(catalog=catalog):
            about = dml.engine.procedures.table_of_call(statement)
            # Procedures that bring in a table name one that does not exist.
            return catalog in registry.catalogs or (
                catalog is None and (in_ours or (about is not None and ours(about)))
            )
        case Explain(statement=explained):
            return mentions_ours(engine, explained, in_ours=in_ours)
        case CreateTable(query=query):
            return creates_ours(engine, statement, in_ours=in_ours) or (
                query is not None and any(map(ours, query.tables))
            )
        case ShowTables(extended=True, namespace=tuple() as name):
            # dbt lists namespaces that do not exist, and recognizes Spark's error.
            return namespace_of_ours(name) and namespace_is_there(engine, name)
        case Use(name=name) if leaves_ours(engine, name):
            return True
        case (
            CreateNamespace(name=name)
            | DropNamespace(name=name)
            | CommentOnNamespace(name=name)
            | DescribeNamespace(name=name)
            | Use(name=name)
            | ShowTables(namespace=name)
            | ShowNamespaces(parent=name)
        ):
            return namespace_of_ours(name)
        case UnknownStatement(text=text):
            view = temporary_view(text)
            return view is not None and mentions_ours(engine, view.query, in_ours=in_ours)
        case _:
            about = table_of(statement)
            return about is not None and ours(about)


def namespace_is_there(engine: Engine, name: tuple[str, ...]) -> bool:
    """Return whether a namespace exists in the RowDelta catalog in which it is looked up."""
    _, catalog, namespace = engine.registry.namespace(name)
    return bool(namespace) and namespace_exists(catalog, namespace)


def creates_ours(engine: Engine, statement: CreateTable, *, in_ours: bool) -> bool:
    """Return whether CREATE TABLE makes a table in a RowDelta catalog."""
    parts, provider = statement.table.parts, statement.provider
    if len(parts) > 1 and parts[0] in engine.registry.catalogs:
        return True
    if provider is not None and provider.lower() == "iceberg":
        return True
    return in_ours and not is_spark_catalog(engine, parts[0])


def is_our_table(engine: Engine, reference: TableReference, *, in_ours: bool) -> bool:
    """Return whether a reference is to a RowDelta table; with a RowDelta catalog in front it is, even if missing.

    Args:
        engine: The session and its catalogs.
        reference: The reference.
        in_ours: Whether names without a catalog are looked up in a RowDelta catalog: then only temporary views hide
            its tables.
    """
    parts = reference.parts
    if len(parts) > 1 and parts[0] in engine.registry.catalogs:
        return True
    if in_ours:
        hidden = len(parts) == 1 and is_temporary_view(engine.spark, parts[0])
        return not hidden and engine.registry.resolve(parts) is not None
    return not spark_has(engine, parts) and engine.registry.resolve(parts) is not None


def spark_has(engine: Engine, parts: tuple[str, ...]) -> bool:
    """Return whether Spark has a table or view of a name."""
    try:
        return bool(engine.spark.catalog.tableExists(".".join(map(quoted, parts))))
    except AnalysisException as error:
        # Spark's own catalog raises for names of three parts instead of returning False: `db.t.files`.
        if sql_failure(error).condition != "REQUIRES_SINGLE_PART_NAMESPACE":
            raise
        return False


def table_of(statement: Any) -> TableReference | None:
    """Return the existing table that a statement is about."""
    match statement:
        case (
            DropTable(table=table)
            | AlterTable(table=table)
            | Describe(table=table)
            | ShowProperties(table=table)
            | ShowCreateTable(table=table)
            | ShowColumns(table=table)
            | ShowPartitions(table=table)
            | RefreshTable(table=table)
            | AnalyzeTable(table=table)
        ):
            return table
        case _:
            return None


def engine_of(spark: SparkSession) -> Engine | None:
    """Return the engine that runs a session's calls on RowDelta tables; None if Spark runs them."""
    engine = find_engine(spark)
    return engine if isinstance(engine, Engine) else None


def find_table(spark: SparkSession, name: object) -> tuple[Engine, tuple[str, ...]] | None:
    """Find the RowDelta table of a PySpark call.

    Args:
        spark: The session of the call.
        name: The table's name, as written. PySpark rejects objects that are not strings.

    Returns:
        The engine, and the table's name with its catalog first; None if the call is Spark's.
    """
    parts = name_parts(name) if isinstance(name, str) else ()
    engine = engine_of(spark) if parts else None
    whole = () if engine is None else qualify_table_name(engine, parts)
    return None if engine is None or not whole else (engine, whole)


def qualify_table_name(engine: Engine, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name of a RowDelta table with its catalog first, or an empty tuple if the name is Spark's.

    Args:
        engine: The session and its catalogs.
        parts: The name as written.
    """
    registry = engine.registry
    if len(parts) > 1 and parts[0] in registry.catalogs:
        return parts
    if not parts or not is_current_on_connect(engine) or names_spark_catalog(engine, parts):
        return ()
    if len(parts) == 1 and is_temporary_view(engine.spark, parts[0]):
        return ()
    name, identifier = registry.split(parts)
    return (name, *identifier)


def qualify_namespace_name(engine: Engine, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name of a RowDelta namespace with its catalog first, or an empty tuple if the name is Spark's.

    Args:
        engine: The session and its catalogs.
        parts: The name as written; empty for the current namespace.
    """
    registry = engine.registry
    if len(parts) > 1 and parts[0] in registry.catalogs:
        return parts
    if not is_current_on_connect(engine) or (parts and names_spark_catalog(engine, parts)):
        return ()
    return (registry.current_catalog, *(parts or registry.current_namespace))


def is_current_on_connect(engine: Engine) -> bool:
    """Return whether names without a catalog are looked up in a RowDelta catalog, on Spark Connect."""
    return engine.runtime.is_connect and engine.registry.is_current_on_connect


def names_spark_catalog(engine: Engine, parts: tuple[str, ...]) -> bool:
    """Return whether a name begins with one of Spark's catalogs, or with its namespace of temporary views."""
    return parts[0].lower() == "global_temp" or (len(parts) > 1 and is_spark_catalog(engine, parts[0]))
