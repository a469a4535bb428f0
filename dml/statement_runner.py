"""Run the statements of one Spark session on the catalogs of RowDelta: those of `Session` and of `spark.sql`. Driver.

Input: the text of a statement. Output: a DataFrame or a `Result`. `Session` is what users hold; it calls this.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import dml.connector
import dml.engine
from dml.catalog.registry import CatalogRegistry
from dml.commit import CommitKey
from dml.connector import execute_and_refresh, run_and_refresh
from dml.ddl import DdlResult
from dml.engine.dispatch import RowChange, frame_of_rows
from dml.engine.engine import Engine
from dml.engine.ownership import follow_spark, is_ours, is_query, parse_cached
from dml.errors import AnalysisError, ErrorKind
from dml.hook_options import HookOptions
from dml.hooks import Callbacks
from dml.merge_builder import key_of, name_text
from dml.result import Result
from dml.spark import interception
from dml.spark.bridge.sessions import drop_view
from dml.spark.foreign_data import ForeignRows
from dml.spark.handlers import (
    Arguments,
    Binding,
    StatementHandler,
    active_clone,
    check_not_stopped,
    is_handler,
    names_view_of_clone,
    run_as_handler,
    session_key,
)
from dml.spark.lazy_session import LazySession
from dml.sql_values import StatementRows, parameter_sql
from dml.sqlparse import Statement, bind_parameters, first_keyword
from dml.sqlparse.names import name_parts
from dml.sqlparse.statements import Explain

__all__ = ["StatementRunner"]


def compact_after_commit(engine: Engine, parts: tuple[str, ...], options: HookOptions) -> None:
    """Compact a table, given the options of its triggers."""
    dml.engine.maintain.compact_after_commit(engine, parts, options)


def reads_foreign_rows(statement: Statement) -> bool:
    """Return whether RowDelta gives a statement its foreign rows; others need temporary views."""
    explained = statement.statement if isinstance(statement, Explain) else statement
    return isinstance(explained, RowChange)


class StatementRunner:
    """Runs the statements of one Spark session.

    Args:
        spark: The Spark session, or one that starts on first use.
        registry: The catalogs.
        progress: Show a progress bar in a terminal for long statements.
        callbacks: The functions to call after each commit; None for none.

    Attributes:
        registry: The catalogs and the current namespace.
        engine: The context of its statements.
    """

    def __init__(
        self,
        spark: SparkSession | LazySession,
        registry: CatalogRegistry,
        *,
        progress: bool = True,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.registry = registry
        self.engine = Engine(
            lazy_session=spark if isinstance(spark, LazySession) else LazySession(spark),
            registry=registry,
            progress=progress,
            callbacks=Callbacks() if callbacks is None else callbacks,
            compact=compact_after_commit,
        )

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which starts on first use.

        Raises:
            SetupError: Java is missing or too old, or Spark does not start.
        """
        return self.engine.spark

    @property
    def is_started(self) -> bool:
        """True if there is a Spark session."""
        return self.engine.lazy_session.is_started

    def run_one(
        self,
        text: str,
        args: Arguments = None,
        idempotency_key: str | None = None,
        reruns: int | None = None,
        rows: Mapping[str, StatementRows] | None = None,
    ) -> DataFrame | Result:
        """Run a text that must be one statement, for example because it contains a caller's names and conditions.

        Args:
            text: The statement.
            args: Values of its parameters.
            idempotency_key: See `sql`.
            reruns: See `sql`.
            rows: The rows that it names, by view.
        """
        outcome = self.outcome(text, args, idempotency_key, reruns, rows)
        return frame_of_rows(self.engine, outcome) if isinstance(outcome, DdlResult) else outcome

    def outcome(
        self,
        text: str,
        args: Arguments = None,
        idempotency_key: str | None = None,
        reruns: int | None = None,
        rows: Mapping[str, StatementRows] | None = None,
    ) -> DataFrame | DdlResult | Result:
        """Run one statement as `run_one` does, but return rows about tables as values, which needs no Spark."""
        with self.on_active_session(text) as runner, run_as_handler():
            bound = bind_parameters(text, args, parameter_sql)
            key = key_of(idempotency_key, bound, rows or {})
            statement = parse_cached(bound)
            return run_and_refresh(runner.engine_with(rows or {}, statement), statement, bound, key, reruns)

    def engine_with(self, rows: Mapping[str, StatementRows], statement: Statement) -> Engine:
        """Return the engine with the foreign rows of one statement."""
        foreign = {name: value for name, value in rows.items() if isinstance(value, ForeignRows)}
        return replace(self.engine, foreign_rows=foreign) if foreign and reads_foreign_rows(statement) else self.engine

    def run_over(
        self,
        text: str,
        rows: Mapping[str, StatementRows],
        args: Arguments = None,
        idempotency_key: str | None = None,
        reruns: int | None = None,
    ) -> DataFrame | Result:
        """Run one statement over rows, by the names of their views."""
        frames = {name: value for name, value in rows.items() if isinstance(value, DataFrame)}
        if len(frames) < len(rows) and not reads_foreign_rows(parse_cached(bind_parameters(text, args, parameter_sql))):
            foreign = {name: value for name, value in rows.items() if isinstance(value, ForeignRows)}
            frames |= {name: value.frame(self.spark) for name, value in foreign.items()}
        with ExitStack() as views:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
                views.callback(drop_view, frame.sparkSession, name)
            outcome = self.run_one(text, args, idempotency_key, reruns, rows)
            if isinstance(outcome, DataFrame) and self.engine.runtime.is_connect:
                views.pop_all()  # a Connect server looks up the views when the query runs
        return outcome

    def table_parts(self, table: str) -> tuple[str, ...]:
        """Parse a table's name, and sync the current namespace with Spark's.

        Raises:
            AnalysisError: The name is not valid.
        """
        follow_spark(self.engine)
        parts = name_parts(name_text(table))
        if not parts:
            raise AnalysisError(f"'{table}' is not a valid table name", kind=ErrorKind.INVALID_VALUE)
        return parts

    def change(self, text: str, idempotency_key: str | None = None) -> Result:
        """Run a statement that changes rows."""
        result = self.run_one(text, None, idempotency_key)
        assert isinstance(result, Result)
        return result

    def run_merge(self, text: str, key: CommitKey | None, rows: Mapping[str, StatementRows]) -> Result:
        """Run the MERGE of a builder, which has bound the key to the statement."""
        with self.on_active_session(text) as runner, run_as_handler():
            statement = parse_cached(text)
            result = execute_and_refresh(runner.engine_with(rows, statement), statement, text, key)
        assert isinstance(result, Result)
        return result

    def query(self, text: str) -> DataFrame:
        """Run a statement that returns rows."""
        frame = self.run_one(text)
        assert isinstance(frame, DataFrame)
        return frame

    # ---- Spark's own spark.sql

    def handles(self, text: str) -> bool:
        """Return True if RowDelta runs a statement of `spark.sql`: it changes rows, or names a RowDelta table."""
        return is_ours(self.engine, first_keyword(text), text, parse_cached)

    def run(self, text: str, args: Any = None) -> DataFrame | Result:
        """Run a statement of `spark.sql`; SQL that this passes on to Spark is not handled here again."""
        self.check_not_stopped()
        bound = bind_parameters(text, args, parameter_sql)
        return execute_and_refresh(self.engine, parse_cached(bound), bound)

    @property
    def handler(self) -> StatementHandler:
        """The handler for the Spark session's statements."""
        return StatementHandler(
            handles=self.handles,
            run=self.run,
            is_query=is_query,
            bequeath=self._inherited_binding,
            engine=self._call_engine,
            catalog=self._current_catalog,
            release=self._release,
        )

    def _current_catalog(self) -> str:
        return self.registry.current_catalog

    def _call_engine(self) -> Engine:
        """Return the engine that runs PySpark's calls on RowDelta tables."""
        return self.engine

    # ---- other Spark sessions of the application

    def on(self, spark: SparkSession) -> "StatementRunner":
        """Return the runner for another Spark session; both share the current namespace."""
        return StatementRunner(spark, self.registry, progress=self.engine.progress, callbacks=self.engine.callbacks)

    def for_data(self, *values: object) -> "StatementRunner":
        """Return the runner for the session of the first DataFrame: temporary views belong to one session."""
        frame = next((value for value in values if isinstance(value, DataFrame)), None)
        if frame is None or session_key(frame.sparkSession) == session_key(self.spark):
            return self
        return self.on(frame.sparkSession)

    @contextmanager
    def on_active_session(self, text: str) -> Iterator["StatementRunner"]:
        """Yield the runner for this thread's statement: in `foreachBatch`, one that sees the views of the batch."""
        if self.engine.lazy_session.is_deferred:
            yield self
            return
        self.check_not_stopped()
        follow_spark(self.engine)
        with active_clone(self.spark) as clone:
            if clone is None or names_view_of_clone(self.spark, text, but_not_of=clone):
                yield self
            else:
                yield self.on(clone)

    def check_not_stopped(self) -> None:
        """Raise SetupError if the Spark session was stopped."""
        if self.is_started:
            check_not_stopped(self.spark)

    def _inherited_binding(self) -> Binding:
        """Return the binding of derived Spark sessions: the same catalogs, with their own current namespace."""
        registry, engine = replace(self.registry), self.engine

        def handler(spark: SparkSession) -> StatementHandler:
            return StatementRunner(spark, registry, progress=engine.progress, callbacks=engine.callbacks).handler

        return dml.connector.install.install_in_derived_sessions(handler, registry)

    def enable(self) -> None:
        """Handle RowDelta's statements in `spark.sql`, too.

        Raises:
            SetupError: Spark's settings define a catalog of the same name with a missing class.
        """
        if not self.is_started:
            self.engine.lazy_session.announce(self.enable)
            return
        dml.connector.install.check_catalog_settings(self.spark, self.registry.catalogs)
        interception.enable(self.spark, self.handler)
        dml.connector.install.install(self.engine)
        import_module("dml.patches").patch_pyspark(self.spark)

    @property
    def is_enabled(self) -> bool:
        """True if `spark.sql` of the session calls this runner."""
        return self.is_started and is_handler(session_key(self.spark), self.handler)

    def disable(self) -> None:
        """Restore Spark's own `spark.sql`, and remove the catalogs from it."""
        if not self.is_started:
            self.engine.lazy_session.withdraw(self.enable)
            return
        is_own = self.is_enabled
        interception.disable(self.spark)
        if not is_own:  # another session's handler replaced this one, or none is enabled
            self._release()

    def _release(self) -> None:
        """Remove the catalogs from Spark."""
        dml.connector.install.uninstall(self.engine)
        self.registry.is_current_on_connect = False
