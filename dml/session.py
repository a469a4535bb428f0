"""`Session`: a Spark session bound to catalogs, the user's handle. Driver.

lake = dml.connect("./warehouse")
lake.sql("DELETE FROM db.flights WHERE dep_time IS NULL")
lake.update("db.flights", {"dest": "'BOS'"}, "dest = 'Boston'")
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession

import dml.connector
import dml.engine
from dml.call_text import Argument, CallText
from dml.catalog.loading import load
from dml.catalog.registry import CatalogRegistry
from dml.engine.engine import StatementSettings
from dml.engine.ownership import follow_spark
from dml.errors import AnalysisError, DataError, ErrorKind
from dml.hooks import Callbacks
from dml.merge_builder import (
    Condition,
    MergeBuilder,
    MergeText,
    Source,
    Value,
    alias_of,
    columns_of,
    condition_text,
    equal_columns,
    identifier_columns,
    name_text,
    resolve_target,
    set_argument,
    source_of,
    table_argument,
    where_clause,
)
from dml.plan.insert import ADD_COLUMNS_HINT
from dml.result import (
    AddedFiles,
    Ancestor,
    BranchMove,
    ConvertedEqualityDeletes,
    CurrentSnapshot,
    Decision,
    ExpiredSnapshots,
    ImportedFiles,
    MaintenanceDecision,
    MaintenanceReport,
    PublishedSnapshot,
    RegisteredTable,
    Result,
    RewrittenDataFiles,
    RewrittenDeleteFiles,
    RewrittenManifests,
    RewrittenTablePath,
)
from dml.spark.handlers import (
    check_not_stopped,
)
from dml.spark.lazy_session import LazySession
from dml.sql_values import StatementRows, fill_placeholders, parameter_sql, view_name
from dml.sqlparse import split_statements
from dml.sqlparse.quoting import quote_identifier, quoted
from dml.statement_runner import StatementRunner
from dml.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from dml.merge_stream import StreamMerge
    from dml.table_health import TableHealth
    from dml.verification import Verification

__all__ = ["ACTIVE", "Session", "runner_of"]


def argument_sql(value: Any) -> str:
    """Convert an argument of a procedure to SQL text; a time without a zone is read in the session's zone."""
    if isinstance(value, Mapping):
        pairs = ((argument_sql(name), map_value_sql(one)) for name, one in value.items())
        return f"map({', '.join(part for pair in pairs for part in pair)})"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"array({', '.join(map(argument_sql, value))})"
    return parameter_sql(value.isoformat() if isinstance(value, datetime) else value)


def map_value_sql(value: Any) -> str:
    """Convert a value of a map to SQL text: a string, as all values of a map have one type."""
    text = argument_sql(value)
    return text if isinstance(value, str) else f"CAST({text} AS STRING)"


ACTIVE: Final[list["Session"]] = []
"""The session that `dml.connect` opened last, or empty if it was closed."""


@short_tracebacks
class Session:
    """Row-level DML, queries and table statements on the catalogs of a session.

    Args:
        spark: The Spark session that runs the work, or one that starts on first use.
        registry: The catalogs.
        progress: Show a progress bar in a terminal for long statements.
        callbacks: The functions to call after each commit; None for none.

    Attributes:
        registry: The catalogs and the current namespace.
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
        self._runner = StatementRunner(spark, registry, progress=progress, callbacks=callbacks)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which starts on first use unless `dml.connect` was given one.

        Raises:
            SetupError: Java is missing or too old, or Spark does not start.
        """
        return self._runner.spark

    def __repr__(self) -> str:
        catalogs = ", ".join(self.registry.catalogs)
        return f"Session(catalogs: {catalogs}; current: {self.registry.current_catalog})"

    # ---- SQL

    def sql(
        self,
        text: str,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        idempotency_key: str | None = None,
        reruns: int | None = None,
        **values: Any,
    ) -> DataFrame | Result:
        """Run SQL statements.

        Examples:
            >>> lake.sql("SELECT * FROM db.people WHERE age > :age", {"age": 21}).show()
            >>> lake.sql("INSERT INTO db.people BY NAME SELECT * FROM {rows}", rows=pandas_frame)

        Args:
            text: A query, a row-level statement, INSERT, CREATE / ALTER / DROP, ...; other statements go to Spark
                unchanged. Several statements, separated by semicolons, run in order; with any other argument the text
                must be one statement.
            args: Values of `:name` or `?` parameters, as in PySpark's `spark.sql`.
            idempotency_key: Run a statement that changes rows only once: if the history of the branch has the key,
                nothing is done, and the result is that of the first run, with `replayed` set. A key belongs to one
                statement: the same text, with the same values; a DataFrame counts by its columns.
            reruns: How often a statement that changes rows may run again on the newest snapshot after a conflict with
                another commit. None for the limits of the session or the table: by default, only after a compaction.
            **values: Values of `{name}` placeholders: DataFrames of Spark, pandas or Polars and Arrow data as tables,
                Columns, and constants.

        Returns:
            A DataFrame for queries and statements that list something; a `Result` for statements that change rows.
            With several statements, the result of the last one; `script` returns all.

        Raises:
            DmlError: The statement is invalid, does not fit the table, or failed; the table is unchanged. The first of
                several statements that fails stops the rest, and the error reports how many ran before it.
        """
        if not isinstance(text, str):
            raise AnalysisError(f"sql() expects a string, got {type(text).__name__}")
        if reruns is not None and (isinstance(reruns, bool) or not isinstance(reruns, int) or reruns < 0):
            raise AnalysisError(f"reruns must be a whole number, 0 or more, not {reruns!r}")
        if values:
            self._runner.check_not_stopped()
            runner = self._runner.for_data(*values.values())
            filled = fill_placeholders(text, values)
            with filled.restore_placeholders():
                return runner.run_over(filled.text, filled.rows, args, idempotency_key, reruns)
        if args or idempotency_key is not None or reruns is not None:
            return self._runner.run_one(text, args, idempotency_key, reruns)
        return self._run_all(text, args)[-1]

    def script(self, text: str) -> tuple[DataFrame | Result, ...]:
        """Run the statements of a text in order, each with its own commit, and return their results.

        The syntax of RowDelta's statements is checked before the first one runs.

        Args:
            text: The statements, separated by semicolons, for example a file's.

        Returns:
            A DataFrame or `Result` for each statement, as from `sql`.

        Raises:
            DmlError: As `sql`; statements before the failed one have run, and the error reports how many.
        """
        if not isinstance(text, str):
            raise AnalysisError(f"script() expects a string, got {type(text).__name__}")
        return self._run_all(text)

    def _run_all(
        self, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> tuple[DataFrame | Result, ...]:
        outcomes: list[DataFrame | Result] = []
        for statement in split_statements(text):
            with statement.report_position():
                outcomes.append(self._runner.run_one(statement.text, args))
        return tuple(outcomes)

    # ---- rows and files, from Python

    def table(self, name: str) -> DataFrame:
        """Return a table as a DataFrame of its current snapshot, or of a branch or tag (`db.t.branch_audit`).

        Examples:
            >>> lake.table("db.people").where("age > 21").show()

        Raises:
            NotFoundError: The table does not exist.
        """
        with self._runner.on_active_session(name_text(name)) as runner:
            planned = dml.connector.table.table_frame(runner.engine, name)
        call = CallText("SELECT * FROM ", Argument("the argument 'name'", name))
        with call.locate_errors():
            return self._runner.query(call.text) if planned is None else planned

    def delete(self, table: str, condition: Condition | None = None, *, idempotency_key: str | None = None) -> Result:
        """Delete the rows of a table for which a condition is TRUE; without a condition, all rows.

        Examples:
            >>> lake.delete("db.people", "age < 0")

        Args:
            table: The name of the table, with an alias if the condition uses one.
            condition: SQL text or a PySpark Column.
            idempotency_key: Run it only once under this key; see `sql`.
        """
        return self._change(
            CallText("DELETE FROM ", table_argument(table), *where_clause(condition, "condition")), idempotency_key
        )

    def _change(self, call: CallText, idempotency_key: str | None) -> Result:
        with call.locate_errors():
            return self._runner.change(call.text, idempotency_key)

    def update(
        self,
        table: str,
        set: Mapping[str, Value],  # noqa: A002
        where: Condition | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Result:
        """Update the rows of a table for which a condition is TRUE; without a condition, all rows.

        Examples:
            >>> lake.update("db.people", {"name": "upper(name)", "home.city": "'Rome'"}, "id = 1")

        Args:
            table: The name of the table, with an alias if the condition uses one.
            set: New values by column or nested field: SQL text, a PySpark Column, a number, a boolean or None.
            where: SQL text or a PySpark Column.
            idempotency_key: Run it only once under this key; see `sql`.
        """
        return self._change(
            CallText("UPDATE ", table_argument(table), " SET ", set_argument(set), *where_clause(where, "where")),
            idempotency_key,
        )

    def insert(self, table: str, rows: Source, *, idempotency_key: str | None = None) -> Result:
        """Insert rows by column name; a missing column gets its default.

        Examples:
            >>> lake.insert("db.people", pandas_frame)

        Args:
            table: The name of the table.
            rows: A DataFrame of Spark, pandas or Polars, Arrow data, a table's name, or a query in parentheses.
            idempotency_key: Run it only once under this key; see `sql`.

        Raises:
            DmlError: As for `INSERT INTO table BY NAME`; the table is unchanged.
        """
        self._runner.check_not_stopped()
        source, view = source_of(rows), view_name()
        named = Argument("the argument 'rows'", source) if isinstance(source, str) else view
        given = {} if isinstance(source, str) else {view: source}
        call = CallText("INSERT INTO ", table_argument(table), " BY NAME SELECT * FROM ", named)
        try:
            with call.locate_errors():
                outcome = self._runner.for_data(source).run_over(call.text, given, None, idempotency_key)
        except AnalysisError as error:
            # insert() takes no write options, so the option in this hint is replaced.
            hint = "ALTER TABLE ... ADD COLUMNS adds new columns"
            error.hint = error.hint and error.hint.replace(ADD_COLUMNS_HINT, hint)
            raise
        assert isinstance(outcome, Result)
        return outcome

    def upsert(
        self,
        table: str,
        rows: Source,
        on: str | Sequence[str] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Result:
        """Update the rows of a table whose key is in `rows`, and insert the other new rows.

        Examples:
            >>> lake.upsert("db.people", pandas_frame, on="id")

        It is a MERGE with `UPDATE SET *` and `INSERT *`, so the rows need all columns of the table. Use `merge_into` to
        change only some columns, to delete rows or to add columns.

        Args:
            table: The name of the table.
            rows: A DataFrame of Spark, pandas or Polars, Arrow data, a table's name, or a query in parentheses.
            on: The columns that identify a row, in the table and in `rows`; by default the table's identifier fields.
                NULL equals nothing: a row without a key is inserted.
            idempotency_key: Run it only once under this key; see `sql`.

        Raises:
            AnalysisError: A column does not exist, or there is no `on` and the table has no identifier fields.
            DataError: Several new rows match one row of the table.
            DmlError: As for `MERGE`; the table is unchanged.
        """
        self._runner.check_not_stopped()
        follow_spark(self._runner.engine)
        target, source = resolve_target(self._runner.engine, table), source_of(rows)
        names = columns_of(source, identifier_columns(target) if on is None else on, "on")
        alias = "source" if target.alias.lower() != quoted("source") else "rows"
        builder = self._merge_rows_into(source, table, equal_columns(target, alias, names), alias)
        try:
            return builder.whenMatched().updateAll().whenNotMatched().insertAll().merge(idempotency_key=idempotency_key)
        except AnalysisError as error:
            column, place = error.context.get("column"), error.context.get("argument", "")
            if column is None or error.kind is not ErrorKind.UNRESOLVED_COLUMN or not place.startswith("clause"):
                raise
            raise AnalysisError(
                f"The rows lack the table's column '{column}'",
                kind=error.kind,
                hint="Add it to the rows, or use merge_into to assign only some columns",
                column=column,
            ) from error
        except DataError as error:
            if error.kind is not ErrorKind.CARDINALITY_VIOLATION:
                raise
            raise DataError(
                f"Several new rows match one row of the table: they have the same {' and '.join(names)}",
                kind=error.kind,
                hint=f"Keep one of them, for example with rows.dropDuplicates({list(names)}); nothing was changed",
            ) from error

    def merge_into(self, source: Source, table: str, on: Condition, *, source_alias: str = "source") -> MergeBuilder:
        """Begin a MERGE; see `MergeBuilder` for the clauses, and end with `.merge()`.

        Examples:
            >>> (
            ...     lake.merge_into(changes, "db.people t", "t.id = c.id", source_alias="c")
            ...     .whenMatched("c.is_deleted").delete()
            ...     .whenMatched().updateAll()
            ...     .whenNotMatched().insertAll()
            ...     .merge()
            ... )

        Args:
            source: A DataFrame of Spark, pandas or Polars, Arrow data, a table's name, or a query in parentheses.
            table: The name of the table, with an alias if the conditions use one.
            on: The condition that matches source rows with target rows: SQL text or a PySpark Column.
            source_alias: The alias of the source in conditions and values.
        """
        return self._merge_rows_into(source_of(source), table, on, source_alias)

    def _merge_rows_into(self, rows: StatementRows | str, table: str, on: Condition, source_alias: str) -> MergeBuilder:
        text = MergeText(target=name_text(table), source_alias=alias_of(source_alias), on=condition_text(on))
        return MergeBuilder(text, rows, self._runner.for_data(rows).run_merge)

    def stream_merge(
        self,
        source: DataFrame,
        table: str,
        on: Condition | Sequence[str],
        *,
        keys: Sequence[str] | str | None = None,
        latest_by: Sequence[str] | str | None = None,
        source_alias: str = "source",
    ) -> "StreamMerge":
        """Begin a MERGE of each micro-batch of a stream; see `StreamMerge`, and end with `.start(checkpoint)`.

        Each micro-batch is merged once, even if Spark runs it again.

        Examples:
            >>> stream = lake.stream_merge(changes, "db.people", on=["id"], latest_by="changed_at")
            >>> stream.whenMatched().updateAll().whenNotMatched().insertAll().start("checkpoints/people")

        Args:
            source: A streaming DataFrame.
            table: The name of the table, with an alias if the conditions use one.
            on: The names of columns that must be equal in source and target, or a condition as in `merge_into`.
            keys: The columns that identify source rows, if `on` is a condition.
            latest_by: Of rows of a micro-batch with equal `on` or `keys`, merge the one with the greatest value in this
                column, or in these columns; NULL is the least value. Without it such rows are an error.
            source_alias: The alias of the source in conditions and values.

        Raises:
            AnalysisError: The source is not a stream, or lacks the columns.
            NotFoundError: The table does not exist.
        """
        check_not_stopped(self.spark)
        follow_spark(self._runner.engine)
        return import_module("dml.merge_stream").stream_merge(  # type: ignore[no-any-return]
            self._runner.engine,
            source,
            table,
            on,
            keys=keys,
            latest_by=latest_by,
            source_alias=alias_of(source_alias),
        )

    def verify(self, table: str, snapshot_id: int | None = None, *, every_file: bool = False) -> "Verification":
        """Verify a snapshot: compare its summary and manifests with the rows and deletes in its files.

        Args:
            table: The name of the table, with a branch or tag suffix to verify its snapshot.
            snapshot_id: The snapshot; by default the current one.
            every_file: Open all data files of the snapshot, not only those that it touched.

        Returns:
            The counts and problems: see `Verification.ok` and `Verification.raise_for_problems`.

        Raises:
            NotFoundError: The table, branch, tag or snapshot does not exist.
            CorruptFileError: A manifest is missing or damaged, so that the files are unknown.
            ExecutionError: The storage failed.
        """
        if snapshot_id is not None and (isinstance(snapshot_id, bool) or not isinstance(snapshot_id, int)):
            raise AnalysisError(
                f"The id of a snapshot is a whole number, not {type(snapshot_id).__name__}",
                kind=ErrorKind.INVALID_VALUE,
                hint="Take one from the table's metadata table 'snapshots'",
            )
        return dml.engine.procedures.verify_table(
            self._runner.engine, self._runner.table_parts(table), snapshot_id, every_file=every_file
        )

    def health(self, table: str, branch: str | None = None) -> "TableHealth":
        """Measure the health of a table: file sizes, deleted rows, overlap, manifests, snapshots, and advice.

        Only metadata is read, and nothing is changed. The advice is what `maintain` would do with the branch.

        Args:
            table: The name of the table, with a branch or tag suffix to measure its snapshot.
            branch: The branch or tag; by default that of the name, or else the current snapshot.

        Raises:
            NotFoundError: The table, branch or tag does not exist.
            AnalysisError: A property of the table is invalid.
            CorruptFileError: A metadata file is missing or damaged.
            ExecutionError: The storage failed.
        """
        return dml.engine.procedures.table_health(self._runner.engine, self._runner.table_parts(table), branch)

    def remove_orphan_files(
        self,
        table: str,
        older_than: datetime | None = None,
        location: str | None = None,
        dry_run: bool = False,
        **options: Any,
    ) -> tuple[str, ...]:
        """Remove the files below a table's folders that its metadata does not need.

        Args:
            table: The name of the table.
            older_than: Only files that were written before this time, by default three days ago; at least a day ago
                unless `dry_run` is set. Without a time zone it is in the Spark session's zone.
            location: Only files below this folder of the table.
            dry_run: List the files without deleting them.
            **options: `max_concurrent_deletes`, `equal_schemes`, `equal_authorities` and `prefix_mismatch_mode` of the
                procedure.

        Returns:
            The locations of the orphans. `call("remove_orphan_files", table=..., dry_run=True)` returns the reasons.

        Raises:
            DmlError: The table does not exist, its orphans cannot be determined, or some could not be deleted.
        """
        parts = self._runner.table_parts(table)
        if isinstance(older_than, datetime) and older_than.tzinfo is None:
            older_than = older_than.replace(tzinfo=ZoneInfo(StatementSettings.of(self._runner.engine).time_zone))
        values = {"older_than": older_than, "location": location, "dry_run": dry_run, **options}
        return dml.engine.procedures.remove_orphans(self._runner.engine, parts, values).orphans

    def rewrite_data_files(
        self,
        table: str,
        strategy: str | None = None,
        sort_order: str | None = None,
        options: Mapping[str, Any] | None = None,
        where: str | None = None,
        branch: str | None = None,
        *,
        dry_run: bool = False,
    ) -> RewrittenDataFiles:
        """Rewrite small files, and files with deleted rows, into files of the target size.

        Args:
            table: The name of the table; it may end with a branch.
            strategy: `binpack`, the default, or `sort`.
            sort_order: The order of rows, for the strategy `sort`: `day, id DESC`, `zorder(a, b)` or `hilbert(a, b)`.
            options: The options of the procedure, by name.
            where: A condition over the table's columns. Only files that may contain matching rows are considered, and
                they are rewritten as a whole.
            branch: The branch; by default the branch in the table's name, or else main.
            dry_run: Return the decision about each group and file, with its reason, and write nothing.

        Raises:
            NotFoundError: The table or the branch does not exist.
            AnalysisError: An argument or an option is invalid.
            CommitConflictError: Another commit changed the files meanwhile, and the change cannot be taken over.
            DmlError: Reading, writing or a commit failed. New files that are not committed are deleted.
        """
        return RewrittenDataFiles(
            **self._explained(
                "rewrite_data_files",
                table=table,
                strategy=strategy,
                sort_order=sort_order,
                options=options,
                where=where,
                branch=branch,
                dry_run=dry_run or None,
            )
        )

    def maintain(self, table: str, *, plan: bool = False, budget: str | None = None) -> MaintenanceReport:
        """Do the maintenance that a table needs: expire, compact, clean up. A second run does nothing.

        Args:
            table: The name of the table. A branch at its end is the one whose files are maintained, instead of main.
            plan: Return the decisions with their reasons, and change nothing.
            budget: The time after which no new work starts, such as `5m`; the report has what is left.

        Raises:
            NotFoundError: The table or the branch does not exist.
            AnalysisError: A property of the table or the budget is invalid.
            CommitConflictError: Another maintainer is at work on the table.
            ExecutionError: A step failed; the other steps ran.
            DmlError: Metadata is damaged, or the storage failed.
        """
        rows = self.call("maintain", table=table, plan=plan or None, budget=budget).collect()
        decisions = tuple(MaintenanceDecision(**row.asDict()) for row in rows)
        return MaintenanceReport(table=table, decisions=decisions)

    # ---- procedures

    def call(self, procedure: str, /, **arguments: Any) -> DataFrame:
        """Run a procedure: `lake.call("rollback_to_snapshot", table="db.orders", snapshot_id=1)`.

        Args:
            procedure: The name of a procedure of the namespace `system`.
            **arguments: Its arguments; None leaves one out. A `datetime` without a time zone is in the Spark session's
                zone.

        Returns:
            The rows of the procedure.

        Raises:
            DmlError: The procedure or an argument does not exist, a value is invalid, or the procedure failed.
        """
        given = [
            (f"{name} => ", Argument(f"the argument '{name}'", argument_sql(value)), ", ")
            for name, value in arguments.items()
            if value is not None
        ]
        pieces = [piece for argument in given for piece in argument][:-1]
        call = CallText(f"CALL system.{quote_identifier(procedure)}(", *pieces, ")")
        with call.locate_errors():
            return self._runner.query(call.text)

    def expire_snapshots(
        self,
        table: str,
        older_than: datetime | None = None,
        retain_last: int | None = None,
        max_concurrent_deletes: int | None = None,
        stream_results: bool | None = None,
        snapshot_ids: Sequence[int] | None = None,
        clean_expired_metadata: bool | None = None,
        dry_run: bool = False,
    ) -> ExpiredSnapshots:
        """Remove old snapshots, branches and tags, and the files that only they need.

        Args:
            table: The name of the table.
            older_than: Snapshots that were committed before this time expire, by default after five days (the table
                property `history.expire.max-snapshot-age-ms`). Without a time zone it is in the Spark session's zone.
            retain_last: The number of snapshots that each branch keeps regardless of their age, by default one (the
                table property `history.expire.min-snapshots-to-keep`).
            max_concurrent_deletes: The number of files to delete at once.
            stream_results: Accepted for compatibility; files are always deleted in batches.
            snapshot_ids: Further snapshots to expire; no remaining branch or tag may be at one.
            clean_expired_metadata: Also remove partition specs and schemas that no remaining snapshot uses.
            dry_run: Return the decisions with their reasons, and change nothing.

        Raises:
            DmlError: The table does not exist, has `gc.enabled` = false or is damaged, an argument is invalid, other
                commits landed first on every attempt, or some files could not be deleted.
        """
        return ExpiredSnapshots(
            **self._explained(
                "expire_snapshots",
                table=table,
                older_than=older_than,
                retain_last=retain_last,
                max_concurrent_deletes=max_concurrent_deletes,
                stream_results=stream_results,
                snapshot_ids=snapshot_ids,
                clean_expired_metadata=clean_expired_metadata,
                dry_run=dry_run,
            )
        )

    def _explained(self, procedure: str, **arguments: Any) -> dict[str, Any]:
        """Return the values of a procedure's only row, and the decisions of its dry run."""
        first, *rest = self.call(procedure, **arguments).collect()
        values = {name: value for name, value in first.asDict().items() if name not in Decision.__slots__}
        decisions = (Decision(decision=row.decision, object=row.object, reason=row.reason) for row in rest)
        return {**values, "decisions": tuple(decisions)}

    def _only_row(self, procedure: str, **arguments: Any) -> dict[str, Any]:
        (row,) = self.call(procedure, **arguments).collect()
        return row.asDict()

    def rollback_to_snapshot(self, table: str, snapshot_id: int) -> CurrentSnapshot:
        """Move main back to one of its earlier snapshots; schema and properties stay.

        Args:
            table: The name of the table.
            snapshot_id: An ancestor of the current snapshot.

        Raises:
            NotFoundError: The table or the snapshot does not exist.
            ValidationFailedError: The snapshot is not an ancestor of the current one.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return CurrentSnapshot(**self._only_row("rollback_to_snapshot", table=table, snapshot_id=snapshot_id))

    def rollback_to_timestamp(self, table: str, timestamp: datetime) -> CurrentSnapshot:
        """Move main back to its newest snapshot before a time; schema and properties stay.

        Args:
            table: The name of the table.
            timestamp: The snapshot is older than this, to the millisecond. Without a time zone it is in the Spark
                session's zone.

        Raises:
            NotFoundError: The table does not exist.
            ValidationFailedError: The history of main has no snapshot before that time.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return CurrentSnapshot(**self._only_row("rollback_to_timestamp", table=table, timestamp=timestamp))

    def set_current_snapshot(
        self, table: str, snapshot_id: int | None = None, ref: str | None = None
    ) -> CurrentSnapshot:
        """Move main to any snapshot, or to that of a branch or tag; schema and properties stay.

        Args:
            table: The name of the table.
            snapshot_id: The snapshot.
            ref: The branch or tag, instead of `snapshot_id`.

        Raises:
            AnalysisError: Both or none of the two are given.
            NotFoundError: The table, the snapshot, or the branch or tag does not exist.
            CommitConflictError: Other commits landed first on every attempt.
        """
        row = self._only_row("set_current_snapshot", table=table, snapshot_id=snapshot_id, ref=ref)
        return CurrentSnapshot(**row)

    def cherrypick_snapshot(self, table: str, snapshot_id: int) -> PublishedSnapshot:
        """Commit the changes of a staged snapshot to main, once.

        Main moves to the snapshot if it directly follows main's head. Otherwise the files of an append, or of a dynamic
        overwrite whose partitions did not change meanwhile, are committed again as a new snapshot.

        Args:
            table: The name of the table.
            snapshot_id: The staged snapshot.

        Raises:
            NotFoundError: The table or the snapshot does not exist.
            ValidationFailedError: Main has the changes already, or they cannot be applied to its newest state.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return PublishedSnapshot(**self._only_row("cherrypick_snapshot", table=table, snapshot_id=snapshot_id))

    def publish_changes(self, table: str, wap_id: str) -> PublishedSnapshot:
        """Commit the changes that were staged under a WAP id to main, once; see `cherrypick_snapshot`.

        Args:
            table: The name of the table.
            wap_id: The value that `spark.wap.id` had when they were staged.

        Raises:
            NotFoundError: The table does not exist, or nothing was staged under this id.
            ValidationFailedError: Several snapshots have the id; or as `cherrypick_snapshot`.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return PublishedSnapshot(**self._only_row("publish_changes", table=table, wap_id=wap_id))

    def fast_forward(self, table: str, branch: str, to: str) -> BranchMove:
        """Move a branch to the head of another one that descends from it.

        Args:
            table: The name of the table.
            branch: The branch to move; it is created if it does not exist.
            to: The branch or tag with the new head.

        Raises:
            NotFoundError: The table or `to` does not exist.
            AnalysisError: `branch` is a tag.
            ValidationFailedError: `branch` has commits that `to` lacks.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return BranchMove(**self._only_row("fast_forward", table=table, branch=branch, to=to))

    def rewrite_manifests(
        self,
        table: str,
        *,
        spec_id: int | None = None,
        sort_by: Sequence[str] | None = None,
        branch: str | None = None,
        dry_run: bool = False,
    ) -> RewrittenManifests:
        """Replace the manifests of a partition spec with manifests that list each partition together.

        Their target size is `commit.manifest.target-size-bytes`.

        Args:
            table: The name of the table, with or without a branch.
            spec_id: The partition spec; the current one if not given.
            sort_by: Names of partition fields, such as `ts_day`, to sort by before the others.
            branch: The branch; main if not given.
            dry_run: Return the decision about each manifest, with its reason, and change nothing.

        Raises:
            NotFoundError: The table or the branch does not exist.
            AnalysisError: The table has no such spec, or the spec has no such fields.
            CommitConflictError: Another commit replaced a manifest, or landed first on every attempt.
        """
        return RewrittenManifests(
            **self._explained(
                "rewrite_manifests", table=table, spec_id=spec_id, sort_by=sort_by, branch=branch, dry_run=dry_run
            )
        )

    def rewrite_position_delete_files(
        self,
        table: str,
        *,
        options: Mapping[str, Any] | None = None,
        where: str | None = None,
        branch: str | None = None,
        dry_run: bool = False,
    ) -> RewrittenDeleteFiles:
        """Merge small position delete files, and drop positions of data files that are no longer live.

        In format version 3, the files become deletion vectors.

        Args:
            table: The name of the table, with or without a branch.
            options: Options of the procedure, such as `{"rewrite-all": "true"}`.
            where: A condition. Only files of partitions that may contain matching rows are rewritten.
            branch: The branch; main if not given.
            dry_run: Return what would happen to each file, with reasons, and change nothing.

        Raises:
            NotFoundError: The table or the branch does not exist.
            AnalysisError: An option is unknown or invalid.
            NotSupportedError: The condition has more than comparisons of columns with constants.
            CommitConflictError: Another commit removed a file, or landed first on every attempt.
        """
        return RewrittenDeleteFiles(
            **self._explained(
                "rewrite_position_delete_files",
                table=table,
                options=options,
                where=where,
                branch=branch,
                dry_run=dry_run,
            )
        )

    def convert_equality_deletes(
        self, table: str, *, where: str | None = None, branch: str | None = None, dry_run: bool = False
    ) -> ConvertedEqualityDeletes:
        """Replace the equality deletes of other engines by deletion vectors, in format version 2 by position deletes.

        Readers no longer compare the keys of all rows, and rows keep their ids.

        Args:
            table: The name of the table, with or without a branch.
            where: A condition. Only delete files that may delete matching rows are converted.
            branch: The branch; main if not given.
            dry_run: Return what would happen to each file, with reasons, and change nothing.

        Raises:
            NotFoundError: The table or the branch does not exist.
            NotSupportedError: The condition has more than comparisons of columns with constants.
            CommitConflictError: Other commits changed the files on every attempt.
            DmlError: A file could not be read or written. Nothing was changed.
        """
        return ConvertedEqualityDeletes(
            **self._explained("convert_equality_deletes", table=table, where=where, branch=branch, dry_run=dry_run)
        )

    def ancestors_of(self, table: str, snapshot_id: int | None = None) -> tuple[Ancestor, ...]:
        """Return a snapshot and its ancestors, newest first.

        Args:
            table: The name of the table.
            snapshot_id: The snapshot; the current one if not given.

        Raises:
            NotFoundError: The table or the snapshot does not exist.
        """
        rows = self.call("ancestors_of", table=table, snapshot_id=snapshot_id).collect()
        return tuple(Ancestor(**row.asDict()) for row in rows)

    def compute_table_stats(
        self, table: str, snapshot_id: int | None = None, columns: Sequence[str] | None = None
    ) -> str | None:
        """Estimate the number of distinct values of columns, and add a statistics file to the table's metadata.

        Args:
            table: The name of the table.
            snapshot_id: The snapshot; the current one if not given.
            columns: Names of columns, dotted for fields of structs; all columns of primitive types if not given.

        Returns:
            The location of the statistics file; None for a table without snapshots.

        Raises:
            NotFoundError: The table or the snapshot does not exist.
            AnalysisError: A column does not exist, or is not of a primitive type.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return self._only_location("compute_table_stats", table=table, snapshot_id=snapshot_id, columns=columns)

    def compute_partition_stats(self, table: str, snapshot_id: int | None = None) -> str | None:
        """Count the files and rows of each partition, and add a statistics file to the table's metadata.

        Args:
            table: The name of the table.
            snapshot_id: The snapshot; the current one if not given.

        Returns:
            The location of the file; None for a table without files.

        Raises:
            NotFoundError: The table or the snapshot does not exist.
            ValidationFailedError: The table is not partitioned.
            CommitConflictError: Other commits landed first on every attempt.
        """
        return self._only_location("compute_partition_stats", table=table, snapshot_id=snapshot_id)

    def _only_location(self, procedure: str, **arguments: Any) -> str | None:
        row = self.call(procedure, **arguments).first()
        return None if row is None else str(row[0])

    def create_changelog_view(
        self,
        table: str,
        changelog_view: str | None = None,
        options: Mapping[str, Any] | None = None,
        compute_updates: bool | None = None,
        identifier_columns: Sequence[str] | None = None,
        net_changes: bool | None = None,
    ) -> str:
        """Create or replace a temporary view of the rows that changed between two snapshots.

        Args:
            table: The name of the table.
            changelog_view: The name of the view; by default the table's name followed by `_changes`.
            options: `start-snapshot-id` (exclusive), `end-snapshot-id` (inclusive), or `start-timestamp` and
                `end-timestamp` in milliseconds since 1970.
            compute_updates: Show a removed and an added row of one snapshot with the same identifiers as
                `UPDATE_BEFORE` and `UPDATE_AFTER`; by default if `identifier_columns` are given.
            identifier_columns: The columns that identify a row, by default the table's identifier fields.
            net_changes: Leave out changes that later snapshots undo.

        Returns:
            The name of the view, for use in SQL.

        Raises:
            NotFoundError: The table, a snapshot or a column does not exist.
            AnalysisError: An argument is invalid, or the rows cannot be compared.
            ValidationFailedError: The start is not in the history of the end.
            NotSupportedError: A snapshot of the range has delete files.
        """
        row = self._only_row(
            "create_changelog_view",
            table=table,
            changelog_view=changelog_view,
            options=options,
            compute_updates=compute_updates,
            identifier_columns=identifier_columns,
            net_changes=net_changes,
        )
        return str(row["changelog_view"])

    def register_table(self, table: str, metadata_file: str) -> RegisteredTable:
        """Add a table to the catalog by its metadata file.

        Args:
            table: The name of the new table.
            metadata_file: The location of the metadata file.

        Raises:
            AlreadyExistsError: There is a table of that name.
            NotFoundError: The namespace does not exist.
            CorruptFileError: The file is missing or is not a metadata file.
            NotSupportedError: The catalog is not configured for files there, or cannot register tables.
        """
        return RegisteredTable(**self._only_row("register_table", table=table, metadata_file=metadata_file))

    def add_files(
        self,
        table: str,
        source_table: str,
        partition_filter: Mapping[str, Any] | None = None,
        *,
        parallelism: int | None = None,
        dry_run: bool = False,
    ) -> AddedFiles:
        """Append the data files of a folder, or of a table of Spark, to a table, without copying them.

        Args:
            table: The name of the table, optionally followed by a branch to append to.
            source_table: A folder or file with its format, "parquet.`/data/orders`", or a table of `spark_catalog`.
            partition_filter: Values by partition column; only files of matching partitions are added.
            parallelism: The number of files that the driver reads at once; many files are read by Spark tasks.
            dry_run: Return what would happen to each file, with reasons, and change nothing.

        Raises:
            NotFoundError: The table, its branch or the source does not exist.
            AnalysisError: The source's partitions do not fit the table, or the table cannot read a file.
            ValidationFailedError: A file is already in the table.
            CorruptFileError: A file is damaged or has another format.
            CommitConflictError: The table's columns were changed meanwhile, or other commits landed first each time.
        """
        return AddedFiles(
            **self._explained(
                "add_files",
                table=table,
                source_table=source_table,
                partition_filter=partition_filter or None,
                parallelism=parallelism,
                dry_run=dry_run,
            )
        )

    def snapshot(
        self,
        source_table: str,
        table: str,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        parallelism: int | None = None,
        ignore_missing_files: bool = False,
        dry_run: bool = False,
    ) -> ImportedFiles:
        """Create a table that reads the files of a table of Spark, to try it without changing the source.

        Args:
            source_table: A Parquet, ORC or Avro table of `spark_catalog`.
            table: The name of the new table.
            location: The folder of its own files; by default the catalog chooses.
            properties: Its properties, in addition to those of the source.
            parallelism: The number of files that the driver reads at once; many files are read by Spark tasks.
            ignore_missing_files: Skip partitions whose folder does not exist.
            dry_run: Return what would happen to each file, with reasons, and create nothing.

        Raises:
            NotFoundError: The source or the namespace does not exist.
            AlreadyExistsError: The table exists.
            AnalysisError: The new table cannot read a file, or its location overlaps with that of the source.
            NotSupportedError: The source is a view, has buckets, or is of another provider.
            CorruptFileError: A file is damaged.
        """
        return ImportedFiles(
            **self._explained(
                "snapshot",
                source_table=source_table,
                table=table,
                location=location,
                properties=properties or None,
                parallelism=parallelism,
                ignore_missing_files=ignore_missing_files,
                dry_run=dry_run,
            )
        )

    # ---- commits

    def rewrite_table_path(
        self,
        table: str,
        source_prefix: str,
        target_prefix: str,
        start_version: str | None = None,
        end_version: str | None = None,
        staging_location: str | None = None,
        *,
        create_file_list: bool = True,
        dry_run: bool = False,
    ) -> RewrittenTablePath:
        """Stage copies of a table's metadata for another location, and list the files to copy there.

        The table does not change. Copy the listed files with another tool, and call `register_table` with the copy of
        the newest metadata file.

        Args:
            table: The name of the table.
            source_prefix: The folder of all files of the table.
            target_prefix: The new folder of these files.
            start_version: The name of the metadata file up to which the table was copied before; None to copy all.
            end_version: The name of the newest metadata file to copy; by default the table's newest one.
            staging_location: The folder for the copies, by default a new one in the folder of the table's metadata.
            create_file_list: Write the list of the files to copy.
            dry_run: Return the decision about each file, with its reason, and write nothing.

        Raises:
            DmlError: The table does not exist, one of its files is not below the prefix or is damaged, an argument is
                invalid, or the storage failed.
        """
        return RewrittenTablePath(
            **self._explained(
                "rewrite_table_path",
                table=table,
                source_prefix=source_prefix,
                target_prefix=target_prefix,
                start_version=start_version,
                end_version=end_version,
                staging_location=staging_location,
                create_file_list=create_file_list,
                dry_run=dry_run,
            )
        )

    def after_commit(self, callback: Callable[[Result], object]) -> Callable[[], None]:
        """Register a function to call with the `Result` after each commit of this session.

        Commits are those of statements, DataFrame writes and micro-batches of streams, including Spark sessions that
        derive from this one's. The function runs in its own thread, and the statement waits for it. Its errors are
        logged as warnings, because the snapshot is committed. It may run statements, even on the same table; their
        commits call no functions.

        Args:
            callback: The function.

        Returns:
            A function that removes the callback.

        Raises:
            AnalysisError: The callback is not a function.
        """
        return self._runner.engine.callbacks.add(callback)

    # ---- Spark's own spark.sql

    def enable(self, spark: SparkSession | None = None) -> "Session":
        """Handle RowDelta's statements in `spark.sql`, too.

        Args:
            spark: Another Spark session of the application, or of the same Connect server, to use the catalogs in; by
                default the session's own.

        Raises:
            SetupError: Spark's settings define a catalog of the same name with a missing class.
        """
        (self._runner if spark is None or spark is self.spark else self._runner.on(spark)).enable()
        return self

    def disable(self) -> None:
        """Restore Spark's own `spark.sql`, and remove the catalogs from it."""
        self._runner.disable()

    # ---- catalogs

    @property
    def catalog(self) -> Catalog:
        """The current catalog, as PyIceberg's `Catalog`; `registry.catalogs` holds all of them by name.

        Examples:
            >>> lake.catalog.load_table("db.people").scan().to_arrow()
        """
        follow_spark(self._runner.engine)
        return self.registry.catalogs[self.registry.current_catalog]

    def close(self) -> None:
        """Restore Spark's own `spark.sql` and close the catalogs' connections; the Spark session stays open."""
        if self._runner.is_enabled or not self._runner.is_started:
            self.disable()
        for catalog in self.registry.catalogs.values():
            catalog.close()
        if self in ACTIVE:
            ACTIVE.remove(self)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close()

    def add_catalog(self, name: str, **properties: str) -> Catalog:
        """Add a catalog to this session, for names such as `prod.db.t`.

        Args:
            name: The name; without properties, also the name in PyIceberg's configuration.
            **properties: PyIceberg's catalog properties (`type`, `uri`, `warehouse`, ...).

        Raises:
            SetupError: The catalog cannot be loaded.
        """
        if self._runner.is_started:
            dml.connector.install.check_catalog_settings(self.spark, (name,))
        catalog = load(name, **properties)
        self.registry.catalogs[name] = catalog
        if self._runner.is_enabled:
            dml.connector.install.install(self._runner.engine)
        return catalog


def runner_of(session: Session) -> StatementRunner:
    """Return what runs a session's statements: for modules and tests of the package, not for users."""
    return session._runner  # noqa: SLF001
