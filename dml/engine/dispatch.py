"""Which part of the engine runs a statement, and which statements are Spark's. Driver."""

from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dml import ddl
from dml.catalog.translation import is_unreachable
from dml.catalog.translation import translate as translate_foreign
from dml.commit import IdempotencyKey
from dml.engine.call import run_call, table_of_call
from dml.engine.create_as_select import create_table
from dml.engine.engine import Engine
from dml.engine.explain import explain
from dml.engine.idempotency import run_once
from dml.engine.insert import run_insert
from dml.engine.insert_options import insert_options
from dml.engine.located import located
from dml.engine.metadata_delete import run_truncate
from dml.engine.query import run_query, statement_views
from dml.engine.row_level import run_row_level
from dml.engine.settings import StatementSettings
from dml.engine.target import resolve_target
from dml.engine.temp_view import create_view, temporary_view
from dml.engine.use import run_use
from dml.errors import AnalysisError, DmlError, ErrorKind, NotSupportedError, SqlError
from dml.result import Result
from dml.spark.ended import ended_with, spark_ended
from dml.spark.errors import translate
from dml.spark.types import quoted
from dml.sqlparse import dotted_names, first_keyword
from dml.sqlparse.statements import (
    AlterTable,
    Call,
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
    Statement,
    TableReference,
    Truncate,
    UnknownStatement,
    UpdateStatement,
    Use,
)

__all__ = ["execute", "is_ours"]

SPARKS_KEYWORDS: Final = frozenset(
    [
        "ALTER",
        "ANALYZE",
        "CACHE",
        "CALL",
        "COMMENT",
        "CREATE",
        "DESC",
        "DESCRIBE",
        "DROP",
        "EXPLAIN",
        "LOAD",
        "MSCK",
        "OPTIMIZE",
        "REFRESH",
        "REPAIR",
        "SET",
        "SHOW",
        "UNCACHE",
        "VACUUM",
    ]
)
"""Statements of Spark and of other engines about tables, which may be meant for a table of ours."""


RowChange = DeleteStatement | UpdateStatement | MergeStatement | InsertStatement | Truncate
"""Statements that change the rows of a table."""

QUERY_KEYWORDS: Final = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES"})
ROW_LEVEL_KEYWORDS: Final = frozenset({"DELETE", "UPDATE", "MERGE", "INSERT", "TRUNCATE"})
CALL: Final = "CALL"
TABLE_KEYWORDS: Final = frozenset(
    {"CREATE", "REPLACE", "DROP", "ALTER", "DESCRIBE", "DESC", "SHOW", "USE", "SET", "EXPLAIN"}
)


def execute(
    engine: Engine, statement: Statement, text: str, idempotency_key: IdempotencyKey | None = None
) -> DataFrame | Result:
    """Run a statement.

    Args:
        engine: The session's means.
        statement: The statement, parsed.
        text: Its text.
        idempotency_key: What keeps it from being applied twice.

    Raises:
        DmlError: what went wrong, with Spark's own exception as its cause where Spark raised it.
    """
    try:
        return translated_execute(engine, statement, text, idempotency_key)
    except DmlError:
        raise
    except Exception as error:
        if ended_with(error, engine.spark):
            raise spark_ended() from error
        raise


def translated_execute(
    engine: Engine, statement: Statement, text: str, idempotency_key: IdempotencyKey | None
) -> DataFrame | Result:
    """Run a statement; errors of Spark, of catalogs and of storages come out as ours."""
    try:
        if idempotency_key is not None:
            return applied_once(engine, statement, text, idempotency_key)
        return dispatched(engine, statement, text)
    except DmlError as error:
        raise located(error, statement, text, engine)  # noqa: B904 - it is the same error
    except ValueError as error:
        if not str(error).startswith("Invalid schema"):
            raise
        # PyIceberg indexes columns by dotted names: a column `a.b` and a field `b` of a column `a` are one to it.
        raise AnalysisError(str(error), sql=text, hint="Name the columns so that no dotted name means two") from error
    except (PySparkException, Py4JError) as error:
        if ended_with(error, engine.spark):
            raise
        raise located(translate(error), statement, text, engine) from error
    except Exception as error:
        if not is_unreachable(error) or ended_with(error, engine.spark):
            raise
        properties = {name: catalog.properties for name, catalog in engine.registry.catalogs.items()}
        raise translate_foreign(error, "The statement", properties) from None  # the cause may hold credentials


def dispatched(engine: Engine, statement: Statement, text: str) -> DataFrame | Result:
    """Run a statement; Spark's exceptions pass as they are."""
    match statement:
        case Query():
            return run_query(engine, statement, text)
        case DeleteStatement() | UpdateStatement() | MergeStatement() | InsertStatement() | Truncate():
            return change_rows(engine, statement, text)
        case Use():
            run_use(engine, statement, text)
            return engine.spark.createDataFrame([], StructType([]))
        case Explain():
            return explain(engine, statement, text)
        case Call(catalog=catalog):
            if catalog is not None and catalog not in engine.registry.catalogs:
                return not_ours(engine, text)
            return run_call(engine, statement, text)
        case UnknownStatement():
            view = temporary_view(text)
            if view is not None and names_ours(engine, view.query):
                return create_view(engine, view)
            return not_ours(engine, text)
        case CreateTable():
            if not is_iceberg_table(engine, statement):
                return spark_sql(engine, text)
            return create_table(engine, statement, text)
        case _:
            return table_statement(engine, statement, text)


def change_rows(
    engine: Engine, statement: RowChange, text: str, idempotency_key: IdempotencyKey | None = None
) -> Result:
    """Run a statement that changes the rows of a table."""
    match statement:
        case DeleteStatement() | UpdateStatement() | MergeStatement():
            return run_row_level(engine, statement, text, idempotency_key)
        case InsertStatement():
            return run_insert(engine, statement, text, idempotency_key)
        case Truncate():
            return run_truncate(engine, statement, text, idempotency_key)


def applied_once(engine: Engine, statement: Statement, text: str, idempotency_key: IdempotencyKey) -> Result:
    """Run a statement with an idempotency key.

    Raises:
        NotSupportedError: it does not change the rows of a table that is there.
    """
    if not isinstance(statement, RowChange):
        raise NotSupportedError(
            "An idempotency key is for DELETE, UPDATE, MERGE, INSERT and TRUNCATE",
            sql=text,
            position=0,
            length=len(text.split("\n", maxsplit=1)[0]),
            hint="Other statements have IF EXISTS and IF NOT EXISTS, or change nothing",
        )
    settings = StatementSettings.of(engine.spark)
    options = insert_options(statement.options) if isinstance(statement, InsertStatement) else None
    target = resolve_target(
        statement.target,
        text,
        statement_views(engine, text, settings),
        settings,
        "INSERT" if isinstance(statement, InsertStatement) else first_keyword(text),  # WITH may stand before INSERT
        branch_option=None if options is None else options.branch,
        idempotency_key=idempotency_key,
    )
    return run_once(target, idempotency_key, lambda: change_rows(engine, statement, text, idempotency_key))


def not_ours(engine: Engine, text: str) -> DataFrame:
    """A statement that is Spark's; where it fails and names a table of ours, that is why.

    Raises:
        NotSupportedError: Spark failed, and the statement names a table of ours.
    """
    try:
        return spark_sql(engine, text)
    except (PySparkException, Py4JError) as error:
        named = next((name for name in dotted_names(text) if engine.registry.resolve(name) is not None), None)
        keyword = first_keyword(text)
        failure = translate(error)
        misspelt = failure.kind is ErrorKind.SYNTAX and keyword in TABLE_KEYWORDS
        if named is None or misspelt or keyword not in SPARKS_KEYWORDS:
            raise failure from error
        raise NotSupportedError(
            f"The statement is not one that works on the table '{'.'.join(named)}'",
            sql=text,
            position=0,
            length=len(text.split("\n", maxsplit=1)[0]),
            hint="docs/sql-reference.md lists the statements on Iceberg tables; metadata is in its tables, such as "
            f"'{'.'.join(named)}.snapshots'",
        ) from error


def spark_sql(engine: Engine, text: str) -> DataFrame:
    """A statement as Spark understands it."""
    return engine.spark.sql(text)


def table_statement(engine: Engine, statement: Any, text: str) -> DataFrame:
    """A statement about tables and namespaces."""
    reference = table_of(statement)
    if reference is not None and is_sparks(engine, reference):
        return spark_sql(engine, text)
    time_zone = StatementSettings.of(engine.spark).time_zone
    result = ddl.execute(statement, engine.registry, time_zone=time_zone)
    schema = ", ".join(f"`{name}` {kind}" for name, kind in result.columns)
    return engine.spark.createDataFrame(list(result.rows), schema or StructType([]))


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


def is_sparks(engine: Engine, reference: TableReference) -> bool:
    """Whether a table is none of ours but one of Spark's."""
    if engine.registry.resolve(reference.parts) is not None:
        return False
    name = ".".join(map(quoted, reference.parts))
    return bool(engine.spark.catalog.tableExists(name))


def is_iceberg_table(engine: Engine, statement: CreateTable) -> bool:
    """Whether CREATE TABLE makes an Iceberg table: it says so, or says nothing, or names a catalog of ours."""
    provider = statement.provider
    named = len(statement.table.parts) > 1 and statement.table.parts[0] in engine.registry.catalogs
    return named or provider is None or provider.lower() == "iceberg"


# ---- spark.sql ------------------------------------------------------------------------------------------------


def is_ours(engine: Engine, keyword: str, text: str, parse: Callable[[str], Statement]) -> bool:
    """Whether a statement given to `spark.sql` is ours: it names a table or a catalog of ours.

    Args:
        engine: The session's means.
        keyword: The statement's first keyword, upper case.
        text: Its text.
        parse: The parser.
    """
    if keyword in QUERY_KEYWORDS:
        if keyword == "SELECT" and not reads_a_table(text):
            return False
    elif keyword not in ROW_LEVEL_KEYWORDS and keyword not in TABLE_KEYWORDS and keyword != CALL:
        return False
    try:
        statement = parse(text)
    except SqlError:
        return keyword in ROW_LEVEL_KEYWORDS and not any_spark_table(engine, text)
    return names_ours(engine, statement)


def reads_a_table(text: str) -> bool:
    """Whether a SELECT can read a table at all."""
    folded = text.upper()
    return "FROM" in folded or "TABLE" in folded


def any_spark_table(engine: Engine, text: str) -> bool:
    """Whether a text that does not parse may be meant for Spark: it names no catalog of ours."""
    return not any(f"{name}." in text for name in engine.registry.catalogs)


def names_ours(engine: Engine, statement: Statement) -> bool:
    """Whether a statement names a table, namespace or catalog of ours."""
    registry = engine.registry
    match statement:
        case Query(fragment=fragment):
            return any(is_our_table(engine, reference) for reference in fragment.tables)
        case (
            DeleteStatement(target=target)
            | UpdateStatement(target=target)
            | MergeStatement(target=target)
            | Truncate(target=target)
        ):
            return is_our_table(engine, target)
        case InsertStatement(target=target, query=query):
            return is_our_table(engine, target) or any(is_our_table(engine, table) for table in query.tables)
        case Call(catalog=catalog):
            about = table_of_call(statement)
            return catalog in registry.catalogs or (
                catalog is None and about is not None and is_our_table(engine, about)
            )
        case Explain(statement=explained):
            return names_ours(engine, explained)
        case CreateTable(table=table, provider=provider, query=query):
            if len(table.parts) > 1 and table.parts[0] in registry.catalogs:
                return True
            if provider is not None and provider.lower() == "iceberg":
                return True
            return query is not None and any(is_our_table(engine, source) for source in query.tables)
        case CreateNamespace(name=name) | DropNamespace(name=name) | DescribeNamespace(name=name) | Use(name=name):
            return name[0] in registry.catalogs
        case ShowTables(namespace=name) | ShowNamespaces(parent=name):
            return name is not None and name[0] in registry.catalogs
        case UnknownStatement(text=text):
            view = temporary_view(text)
            return view is not None and names_ours(engine, view.query)
        case _:
            about = table_of(statement)
            return about is not None and is_our_table(engine, about)


def is_our_table(engine: Engine, reference: TableReference) -> bool:
    """Whether a reference is to a table of ours; one with a catalog of ours in front is, also if it is not there."""
    parts = reference.parts
    if len(parts) > 1 and parts[0] in engine.registry.catalogs:
        return True
    if engine.spark.catalog.tableExists(".".join(map(quoted, parts))):
        return False
    return engine.registry.resolve(parts) is not None
