"""Dispatch statements to the parts of the engine, and to Spark. Driver."""

import re
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import dml.engine
from dml import ddl
from dml.catalog.file_access import metadata_read_once
from dml.catalog.tables import namespace_exists
from dml.catalog.translation import is_unreachable
from dml.catalog.translation import translate as translate_foreign
from dml.commit import CommitKey
from dml.ddl.tables import NO_ROWS, DdlResult, load_table
from dml.engine.create_as_select import create_table
from dml.engine.empty_branch import create_empty_branch
from dml.engine.engine import Engine, StatementSettings
from dml.engine.explain import explain
from dml.engine.insert import insert_options, run_insert
from dml.engine.located import locate_error
from dml.engine.ownership import (
    DEFAULT_NAMESPACE,
    TABLE_KEYWORDS,
    enter,
    follow_spark,
    leaves_ours,
    names_ours,
    spark_has,
    table_of,
)
from dml.engine.publish import run_once
from dml.engine.query import create_view, run_query, temporary_view
from dml.engine.row_level import run_row_level, run_truncate
from dml.engine.target import start_statement
from dml.errors import AnalysisError, DmlError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean, page
from dml.result import Result
from dml.spark.bridge.gateway import Py4JError
from dml.spark.bridge.sessions import empty_frame
from dml.spark.errors import is_jvm_exit, jvm_exit_error, translate
from dml.sqlparse import check_first_word, dotted_names, first_keyword
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.statements import (
    AlterTable,
    AnalyzeTable,
    CallStatement,
    CreateTable,
    DeleteStatement,
    Explain,
    InsertStatement,
    MergeStatement,
    Query,
    RefreshTable,
    Statement,
    TableReference,
    Truncate,
    UnknownStatement,
    UpdateStatement,
    Use,
)

__all__ = ["RowChange", "execute", "frame_of_rows"]

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
        "RESTORE",
        "SET",
        "SHOW",
        "UNCACHE",
        "VACUUM",
    ]
)
"""Statements of Spark and of other engines about tables, which may be meant for a RowDelta table."""


MAINTENANCE: Final = {
    "OPTIMIZE": ("rewrite_data_files",),
    "RESTORE": ("rollback_to_snapshot", "rollback_to_timestamp"),
    "VACUUM": ("expire_snapshots", "remove_orphan_files"),
}
"""The procedures that do what other engines have statements for."""

RowChange = DeleteStatement | UpdateStatement | MergeStatement | InsertStatement | Truncate
"""Statements that change the rows of a table."""


def execute(
    engine: Engine, statement: Statement, text: str, idempotency_key: CommitKey | None = None
) -> DataFrame | DdlResult | Result:
    """Run a statement.

    Args:
        engine: The session and its catalogs.
        statement: The statement, parsed.
        text: Its text.
        idempotency_key: The key that keeps the statement from being applied twice.

    Raises:
        DmlError: the statement failed; the cause is Spark's own exception if Spark raised it.
    """
    try:
        with metadata_read_once():
            return execute_and_translate(engine, statement, text, idempotency_key)
    except DmlError:
        raise
    except Exception as error:
        if spark_has_exited(error, engine):
            raise jvm_exit_error() from error
        raise


def execute_and_translate(
    engine: Engine, statement: Statement, text: str, idempotency_key: CommitKey | None
) -> DataFrame | DdlResult | Result:
    """Run a statement; translate errors of Spark, catalogs and storage to RowDelta's."""
    try:
        if idempotency_key is not None:
            return apply_once(engine, statement, text, idempotency_key)
        return dispatch(engine, statement, text)
    except DmlError as error:
        raise locate_error(error, statement, text, engine)  # noqa: B904 - it is the same error
    except ValueError as error:
        if not str(error).startswith("Invalid schema"):
            raise
        # PyIceberg indexes columns by dotted names: a column `a.b` collides with a field `b` of a column `a`.
        raise AnalysisError(str(error), sql=text, hint="Rename columns so that every dotted name is unique") from error
    except (PySparkException, Py4JError) as error:
        if spark_has_exited(error, engine):
            raise
        raise locate_error(translate(error), statement, text, engine) from error
    except Exception as error:
        if not is_unreachable(error) or spark_has_exited(error, engine):
            raise
        properties = {name: catalog.properties for name, catalog in engine.registry.catalogs.items()}
        raise translate_foreign(error, "The statement", properties) from None  # the cause may hold credentials


def spark_has_exited(error: BaseException, engine: Engine) -> bool:
    """Return whether the exit of Spark's JVM caused an error."""
    return engine.lazy_session.is_started and is_jvm_exit(error, engine.spark)


def dispatch(engine: Engine, statement: Statement, text: str) -> DataFrame | DdlResult | Result:
    """Run a statement without translating Spark's exceptions."""
    match statement:
        case Query():
            return run_query(engine, statement, text)
        case DeleteStatement() | UpdateStatement() | MergeStatement() | InsertStatement() | Truncate():
            return change_rows(engine, statement, text)
        case Use():
            run_use(engine, statement, text)
            return empty_frame(engine.spark, StructType([]))
        case Explain():
            return explain(engine, statement, text)
        case CallStatement(catalog=catalog):
            if catalog is not None and catalog not in engine.registry.catalogs:
                return run_in_spark(engine, text)
            return dml.engine.procedures.run_call(engine, statement, text)
        case UnknownStatement():
            if engine.lazy_session.is_deferred:  # Spark would reject it too, but would have to start first
                check_first_word(text)
            view = temporary_view(text)
            if view is not None and names_ours(engine, view.query):
                return create_view(engine, view)
            return run_in_spark(engine, qualify_cached_table(engine, text))
        case CreateTable():
            if not is_iceberg_table(engine, statement):
                return spark_sql(engine, text)
            return create_table(engine, statement, text)
        case _:
            return table_statement(engine, statement, text)


def change_rows(engine: Engine, statement: RowChange, text: str, idempotency_key: CommitKey | None = None) -> Result:
    match statement:
        case DeleteStatement() | UpdateStatement() | MergeStatement():
            return run_row_level(engine, statement, text, idempotency_key)
        case InsertStatement():
            return run_insert(engine, statement, text, idempotency_key)
        case Truncate():
            return run_truncate(engine, statement, text, idempotency_key)


def apply_once(engine: Engine, statement: Statement, text: str, idempotency_key: CommitKey) -> Result:
    """Run a statement with an idempotency key.

    Raises:
        NotSupportedError: it does not change the rows of an existing table.
    """
    if not isinstance(statement, RowChange):
        raise NotSupportedError(
            "An idempotency key requires a DELETE, UPDATE, MERGE, INSERT or TRUNCATE",
            sql=text,
            position=0,
            length=len(text.split("\n", maxsplit=1)[0]),
            hint="Other statements have IF EXISTS and IF NOT EXISTS, or change nothing",
        )
    options = insert_options(statement.options) if isinstance(statement, InsertStatement) else None
    start = start_statement(
        engine,
        statement.target,
        text,
        "INSERT" if isinstance(statement, InsertStatement) else first_keyword(text),  # WITH may precede INSERT
        branch_option=None if options is None else options.branch,
        idempotency_key=idempotency_key,
    )
    return run_once(
        engine, start.target, idempotency_key, lambda: change_rows(engine, statement, text, idempotency_key)
    )


ABOUT_CACHES: Final = re.compile(
    r"\s*(CACHE(\s+LAZY)?\s+TABLE|UNCACHE\s+TABLE(\s+IF\s+EXISTS)?|REFRESH(\s+TABLE)?)\s+(?P<name>[\w.`]+)\s*;?\s*",
    re.IGNORECASE,
)


def qualify_cached_table(engine: Engine, text: str) -> str:
    """Qualify the RowDelta table of a statement about Spark's cache with the name under which Spark has it."""
    found = ABOUT_CACHES.fullmatch(text)
    if found is None:
        return text
    parts = name_parts(found["name"])
    if not parts or spark_has(engine, parts):
        return text
    resolved = engine.registry.resolve(parts)
    if resolved is None or resolved.is_part:
        return text
    return text[: found.start("name")] + quote_name((resolved.catalog_name, *resolved.identifier))


CALLED: Final = re.compile(r"\s*CALL\s+((?:`(?:[^`]|``)*`|[\w.])+)", re.IGNORECASE)


def run_in_spark(engine: Engine, text: str) -> DataFrame:
    """Run a statement in Spark; if it fails and names a RowDelta table, raise an error that explains it.

    Raises:
        NotSupportedError: Spark failed, and the statement names a RowDelta table.
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
        if called := CALLED.match(text):
            name = called[1].replace("`", "")
            hint = suggest_procedure(engine, name.split("."))
            raise NotSupportedError(
                f"There is no procedure '{name}'",
                sql=text,
                position=called.start(1),
                length=len(called[1]),
                hint=hint,
            ) from error
        raise NotSupportedError(
            f"The statement is not supported for the table '{'.'.join(named)}'",
            sql=text,
            position=0,
            length=len(text.split("\n", maxsplit=1)[0]),
            hint=suggest_call(engine, keyword, named)
            or f"{page('SQL reference')} lists the statements on Iceberg tables; query metadata in tables such as "
            f"'{'.'.join(named)}.snapshots'",
        ) from error


def suggest_call(engine: Engine, keyword: str, table: tuple[str, ...]) -> str | None:
    """Suggest the procedures to call instead of another engine's statement; None if there are none."""
    procedures = MAINTENANCE.get(keyword)
    resolved = engine.registry.resolve(table)
    if procedures is None or resolved is None:
        return None
    name = ".".join(resolved.identifier)
    calls = [f"CALL {resolved.catalog_name}.system.{procedure}('{name}', ...)" for procedure in procedures]
    return f"Use {' or '.join(calls)}; {page('SQL reference')} has their arguments"


def suggest_procedure(engine: Engine, names: list[str]) -> str:
    """Suggest what to call instead of an unknown procedure."""
    catalogs = engine.registry.catalogs
    if len(names) == 3 and names[0] not in catalogs:
        return f"There is no catalog '{names[0]}'. {did_you_mean(names[0], catalogs)}"
    procedures = dml.engine.procedures.PROCEDURES
    if names[-1].lower() in procedures:
        return f"Did you mean 'system.{names[-1].lower()}'?"
    return did_you_mean(names[-1].lower(), sorted(procedures))


def spark_sql(engine: Engine, text: str) -> DataFrame:
    return engine.spark.sql(text)


def run_use(engine: Engine, statement: Use, text: str) -> None:
    """Change the current catalog or namespace of the session, and Spark's.

    Raises:
        NotFoundError: there is no such catalog or namespace.
    """
    registry = engine.registry
    follow_spark(engine)
    name = statement.name
    if leaves_ours(engine, name):
        spark_sql(engine, text)
        registry.is_current_on_connect = False
        return
    if statement.catalog_only or (len(name) == 1 and name[0] in registry.catalogs):
        registry.catalog(name[0])
        catalog_name, namespace = name[0], DEFAULT_NAMESPACE
    elif name[0] in registry.catalogs:
        catalog_name, namespace = name[0], name[1:]
    else:
        catalog_name, namespace = registry.current_catalog, name
    # JDBC clients and PyHive run USE default when they connect, whether it exists or not.
    if namespace != DEFAULT_NAMESPACE and not namespace_exists(registry.catalog(catalog_name), namespace):
        known = [".".join(found) for found in registry.catalog(catalog_name).list_namespaces()]
        raise NotFoundError(
            f"There is no namespace '{'.'.join(namespace)}' in the catalog '{catalog_name}'",
            sql=text,
            position=statement.span.start,
            length=statement.span.end - statement.span.start,
            hint=did_you_mean(".".join(namespace), known),
        )
    registry.current_catalog, registry.current_namespace = catalog_name, namespace
    enter(engine, catalog_name, namespace)


def table_statement(engine: Engine, statement: Any, text: str) -> DataFrame | DdlResult:
    reference = table_of(statement)
    if reference is not None and is_spark_table(engine, reference):
        return spark_sql(engine, text)
    if isinstance(statement, RefreshTable):
        return refresh_table(engine, statement)
    if isinstance(statement, AnalyzeTable):
        dml.engine.procedures.analyze_table(engine, statement)
        return NO_ROWS
    if isinstance(statement, AlterTable) and create_empty_branch(engine, statement):
        return NO_ROWS
    time_zone = StatementSettings.of(engine).time_zone
    return ddl.execute(statement, engine.registry, time_zone=time_zone)


def frame_of_rows(engine: Engine, result: DdlResult) -> DataFrame:
    """Return the rows of a statement about tables as a DataFrame."""
    if not result.columns:
        return empty_frame(engine.spark, StructType([]))
    schema = ", ".join(f"`{name}` {kind}" for name, kind in result.columns)
    return engine.spark.createDataFrame(list(result.rows), schema)


def refresh_table(engine: Engine, statement: RefreshTable) -> DataFrame:
    """Invalidate what Spark has cached of a table. RowDelta itself loads the newest metadata for each statement.

    Raises:
        NotFoundError: no such table.
    """
    catalog_name, identifier = engine.registry.split(statement.table.parts)
    load_table(engine.registry.catalog(catalog_name), identifier)
    name = (catalog_name, *identifier)
    if not engine.runtime.is_connect and spark_has(engine, name):
        spark_sql(engine, f"REFRESH TABLE {quote_name(name)}")
    return empty_frame(engine.spark, StructType([]))


def is_spark_table(engine: Engine, reference: TableReference) -> bool:
    """Return whether Spark has a table and RowDelta does not."""
    if engine.registry.resolve(reference.parts) is not None:
        return False
    name = ".".join(map(quoted, reference.parts))
    return bool(engine.spark.catalog.tableExists(name))


def is_iceberg_table(engine: Engine, statement: CreateTable) -> bool:
    """Return whether CREATE TABLE makes an Iceberg table: by its provider or its catalog, or as the default."""
    provider = statement.provider
    named = len(statement.table.parts) > 1 and statement.table.parts[0] in engine.registry.catalogs
    return named or provider is None or provider.lower() == "iceberg"
