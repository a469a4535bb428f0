"""Run statements and invalidate what Spark has cached of the tables that they change. Driver.

Input: a statement. Output: the engine's outcome. Afterwards Spark refreshes its caches of the changed table; after a
DataFrame write it does so by itself.
"""

from contextlib import suppress

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import dml.connector
import dml.engine
from dml.commit import CommitKey
from dml.ddl import DdlResult
from dml.engine.dispatch import execute, frame_of_rows
from dml.engine.engine import Engine
from dml.engine.reruns import run_with_reruns
from dml.result import Result
from dml.spark.bridge.gateway import Py4JError
from dml.spark.bridge.sessions import cache_manager
from dml.spark.versions import Feature
from dml.sqlparse import Statement
from dml.sqlparse.quoting import quoted
from dml.sqlparse.statements import (
    AlterTable,
    CallStatement,
    CreateTable,
    DeleteStatement,
    DropTable,
    InsertStatement,
    MergeStatement,
    TableReference,
    Truncate,
    UpdateStatement,
)

__all__ = ["execute_and_refresh", "run_and_refresh"]


def execute_and_refresh(
    engine: Engine,
    statement: Statement,
    text: str,
    idempotency_key: CommitKey | None = None,
    reruns: int | None = None,
) -> DataFrame | Result:
    """Do `run_and_refresh`, and return rows as a DataFrame."""
    outcome = run_and_refresh(engine, statement, text, idempotency_key, reruns)
    return frame_of_rows(engine, outcome) if isinstance(outcome, DdlResult) else outcome


def run_and_refresh(
    engine: Engine,
    statement: Statement,
    text: str,
    idempotency_key: CommitKey | None = None,
    reruns: int | None = None,
) -> DataFrame | DdlResult | Result:
    """Run a statement, then refresh what Spark has cached of the table that it changed.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        text: Its text.
        idempotency_key: The key that keeps the statement from being applied twice.
        reruns: Maximum reruns after a conflict; None uses the setting of the session or the table.
    """

    def run() -> DataFrame | DdlResult | Result:
        if engine.lazy_session.is_deferred:
            return execute(engine, statement, text, idempotency_key)
        with dml.connector.state.load_tables_once(engine.spark):
            return execute(engine, statement, text, idempotency_key)

    outcome = run_with_reruns(engine, statement, text, run, reruns)
    changed = changed_table(engine, statement)
    if changed is not None and not engine.lazy_session.is_deferred:
        refresh_caches(engine, changed.parts, columns_may_differ=isinstance(statement, AlterTable | CreateTable))
    return outcome


def changed_table(engine: Engine, statement: Statement) -> TableReference | None:
    """Return the table that a statement changes, without a name if that is not known; None if it changes none."""
    match statement:
        case (
            DeleteStatement(target=table)
            | UpdateStatement(target=table)
            | MergeStatement(target=table)
            | InsertStatement(target=table)
            | Truncate(target=table)
            | CreateTable(table=table)
            | AlterTable(table=table)
            | DropTable(table=table)
        ):
            return table
        case CallStatement(catalog=catalog) if (
            catalog is None or catalog in engine.registry.catalogs
        ) and dml.engine.procedures.PROCEDURES[statement.procedure].changes_table:
            return dml.engine.procedures.table_of_call(statement) or TableReference(parts=(), span=statement.span)
        case _:
            return None


def refresh_caches(engine: Engine, parts: tuple[str, ...], *, columns_may_differ: bool) -> None:
    """Invalidate the rows that Spark has cached of a table and of every plan that reads it.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, as in the statement that changed it; empty if the argument of a CALL computes it.
        columns_may_differ: True if the statement may have changed its columns.
    """
    try:
        if engine.runtime.is_connect or cache_manager(engine.spark).isEmpty():
            return
        registry = engine.registry
        resolved = registry.resolve(parts) if parts else None
        if resolved is None or (columns_may_differ and Feature.TABLE_RELOAD not in engine.runtime.features):
            # REFRESH needs a name, and a dropped or renamed table has none. Before Spark 4.1 it also misses entries
            # cached with other columns, which would be used again once the table has those columns again.
            engine.spark.catalog.clearCache()
            return
        catalog_name, rest = registry.split(parts)
        for name in {(catalog_name, *rest), (resolved.catalog_name, *resolved.identifier)}:
            engine.spark.sql(f"REFRESH TABLE {'.'.join(map(quoted, name))}")
    except Exception:  # noqa: BLE001 - see below
        # The statement has been committed. Errors from here on, such as an unreachable catalog, must not look like its
        # failure: the user would run it again.
        with suppress(PySparkException, Py4JError, OSError):
            engine.spark.catalog.clearCache()
