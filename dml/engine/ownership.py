"""Which statements are ours, and which are Spark's. Driver.

Input: a statement given to `spark.sql`. Output: whether it names a table, a namespace or a catalog of ours. It is asked
for every statement of the session, so it looks at the first keyword before it parses.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pyspark.errors import AnalysisException

from dml import limits
from dml.catalog import namespace_exists
from dml.engine.current import follow_spark, leaves_ours, names_a_catalog_of_spark
from dml.engine.engine import Engine
from dml.engine.procedures import table_of_call
from dml.engine.query import temporary_view
from dml.errors import SqlError
from dml.spark.handlers import is_temporary_view
from dml.spark.iceberg_functions import calls_a_function
from dml.spark.versions import sql_failure
from dml.sqlparse import dotted_names, parse
from dml.sqlparse.quoting import quoted
from dml.sqlparse.statements import (
    AlterTable,
    CallStatement,
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
    ShowCreateTable,
    ShowNamespaces,
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

__all__ = ["TABLE_KEYWORDS", "is_ours", "is_query", "names_ours", "parsed", "spark_has", "table_of"]

QUERY_KEYWORDS: Final = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES"})
ROW_LEVEL_KEYWORDS: Final = frozenset({"DELETE", "UPDATE", "MERGE", "INSERT", "TRUNCATE"})
CALL: Final = "CALL"
TABLE_KEYWORDS: Final = frozenset(
    {"CREATE", "REPLACE", "DROP", "ALTER", "DESCRIBE", "DESC", "SHOW", "USE", "SET", "EXPLAIN"}
)


parsed: Final[Callable[[str], Statement]] = lru_cache(maxsize=limits.CACHED_STATEMENTS)(parse)
"""The statement that a text is; the newest are kept, as each is asked for several times."""


def is_query(text: str) -> bool:
    """Whether a statement is a query."""
    return isinstance(parsed(text), Query)


def is_ours(engine: Engine, keyword: str, text: str, parse: Callable[[str], Statement]) -> bool:
    """Whether a statement given to `spark.sql` is ours: it names a table or a catalog of ours.

    Args:
        engine: The session and its catalogs.
        keyword: The statement's first keyword, upper case.
        text: Its text.
        parse: The parser.
    """
    if keyword in QUERY_KEYWORDS or keyword == "EXPLAIN":
        if calls_a_function(text, engine.registry.catalogs):
            return True
        if keyword == "SELECT" and not reads_a_table(text):
            return False
    elif keyword not in ROW_LEVEL_KEYWORDS and keyword not in TABLE_KEYWORDS and keyword != CALL:
        return False
    try:
        statement = parse(text)
    except SqlError:
        return keyword in ROW_LEVEL_KEYWORDS and is_meant_for_us(engine, text)
    return names_ours(engine, statement)


def reads_a_table(text: str) -> bool:
    """Whether a SELECT can read a table at all."""
    folded = text.upper()
    return "FROM" in folded or "TABLE" in folded


def is_meant_for_us(engine: Engine, text: str) -> bool:
    """Return whether a row-level text that does not parse names one of our catalogs or has one of our tables as target.

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
    """Whether a statement names a table, namespace or catalog of ours."""
    return names(engine, statement, in_ours=follow_spark(engine))


def names(engine: Engine, statement: Statement, *, in_ours: bool) -> bool:
    """As `names_ours`; names without a catalog are looked up in one of ours, or in Spark's first."""
    registry = engine.registry

    def ours(reference: TableReference) -> bool:
        return is_our_table(engine, reference, in_ours=in_ours)

    def namespace_of_ours(name: tuple[str, ...] | None) -> bool:
        if name is None:
            return in_ours
        return name[0] in registry.catalogs or (in_ours and not names_a_catalog_of_spark(engine, name[0]))

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
            about = table_of_call(statement)
            return catalog in registry.catalogs or (catalog is None and about is not None and ours(about))
        case Explain(statement=explained):
            return names(engine, explained, in_ours=in_ours)
        case CreateTable(query=query):
            return creates_ours(engine, statement, in_ours=in_ours) or (
                query is not None and any(map(ours, query.tables))
            )
        case ShowTables(extended=True, namespace=tuple() as name):
            # dbt asks for namespaces that are not there, and knows Spark's answer.
            return namespace_of_ours(name) and namespace_is_there(engine, name)
        case Use(name=name) if leaves_ours(engine, name):
            return True
        case (
            CreateNamespace(name=name)
            | DropNamespace(name=name)
            | DescribeNamespace(name=name)
            | Use(name=name)
            | ShowTables(namespace=name)
            | ShowNamespaces(parent=name)
        ):
            return namespace_of_ours(name)
        case UnknownStatement(text=text):
            view = temporary_view(text)
            return view is not None and names(engine, view.query, in_ours=in_ours)
        case _:
            about = table_of(statement)
            return about is not None and ours(about)


def namespace_is_there(engine: Engine, name: tuple[str, ...]) -> bool:
    """Whether a namespace that is looked up in our catalogs is in one."""
    _, catalog, namespace = engine.registry.namespace(name)
    return bool(namespace) and namespace_exists(catalog, namespace)


def creates_ours(engine: Engine, statement: CreateTable, *, in_ours: bool) -> bool:
    """Whether CREATE TABLE makes a table in a catalog of ours."""
    parts, provider = statement.table.parts, statement.provider
    if len(parts) > 1 and parts[0] in engine.registry.catalogs:
        return True
    if provider is not None and provider.lower() == "iceberg":
        return True
    return in_ours and not names_a_catalog_of_spark(engine, parts[0])


def is_our_table(engine: Engine, reference: TableReference, *, in_ours: bool) -> bool:
    """Whether a reference is to a table of ours; one with a catalog of ours in front is, also if it is not there.

    Args:
        engine: The session and its catalogs.
        reference: What is named.
        in_ours: Whether names without a catalog are looked up in a catalog of ours: then only temporary views hide
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
    """Whether Spark has a table or view of a name."""
    try:
        return bool(engine.spark.catalog.tableExists(".".join(map(quoted, parts))))
    except AnalysisException as error:
        # Spark's own catalog has no names of three parts, and does not say no but fails: `db.t.files`, `db.t.branch_x`.
        if sql_failure(error).condition != "REQUIRES_SINGLE_PART_NAMESPACE":
            raise
        return False


def table_of(statement: Any) -> TableReference | None:
    """The existing table that a statement is about."""
    match statement:
        case (
            DropTable(table=table)
            | AlterTable(table=table)
            | Describe(table=table)
            | ShowProperties(table=table)
            | ShowCreateTable(table=table)
        ):
            return table
        case _:
            return None
