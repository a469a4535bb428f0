"""Run INSERT INTO and INSERT OVERWRITE, and write the rows of CREATE TABLE AS SELECT. Driver.

The steps are: read options, run the query, align columns, write, commit. Unknown options are rejected: a silently
ignored option might write rows to the wrong place. Source: Iceberg documentation, "Spark write options".
"""

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyspark.sql import DataFrame

from dml.catalog import LoadState
from dml.commit import (
    Action,
    AppendFiles,
    CommitKey,
    OverwriteByFilter,
    ReplacePartitions,
    StreamEpoch,
    conservation_summary,
)
from dml.engine.by_tasks import fits_driver, write_batch, write_by_tasks
from dml.engine.delta_query import value_sql
from dml.engine.distribution import distribute_rows, distribution_mode, orders_rows, scatters, sorts
from dml.engine.engine import Engine, StatementSettings
from dml.engine.publish import Outcome, publish
from dml.engine.query import statement_views
from dml.engine.replaced_rows import Replaced, replaced_rows
from dml.engine.row_level_commit import check_rows
from dml.engine.row_level_plan import run_or_fall_back
from dml.engine.scanned_rows import (
    ScannedRows,
    foreign_batch,
    literal_batch,
    plain_targets,
    scanned_rows,
    selected_foreign_rows,
)
from dml.engine.schema_evolution import COLUMN_OPTIONS, ColumnOptions, Fitted, accepts_any_schema, fit_insert
from dml.engine.target import SNAPSHOT_PROPERTY, StatementStart, Target, check_snapshot_properties, start_statement
from dml.engine.writes import (
    WRITE_OPTIONS,
    UncommittedFiles,
    WriteOutcome,
    output_spec,
    run_writer,
    write_context,
    write_properties,
)
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.model.columns import DeltaLayout, value_name
from dml.model.manifest import is_unpartitioned
from dml.model.summary_keys import ROWS_INSERTED
from dml.model.write_task import WriteContext
from dml.options import SPARK_FANOUT_ENABLED, DistributionMode, IsolationLevel, choice, integer
from dml.plan.insert import InsertPlan, plan_insert, query_with_defaults
from dml.plan.literal_rows import is_of_constants, literal_columns
from dml.plan.row_delta_plan import RawValue, ThroughSpark, ValueSource, raw_name
from dml.progress import progress_bar
from dml.result import Result
from dml.spark.store_assignment import Assign, StoreAssignmentPolicy, default_sql
from dml.sqlparse import parse
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.spellings import is_surely_spark
from dml.sqlparse.statements import InsertMode, InsertStatement
from dml.views import StatementViews
from dml.write.delta_writer import WriteTask
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable

__all__ = [
    "PLAIN",
    "GivenRows",
    "InsertOptions",
    "PlannedInsert",
    "RowsWrite",
    "commit_rows",
    "plan_driver_insert",
    "plan_insert_statement",
    "plan_rows_write",
    "rows_by_name",
    "run_insert",
    "run_write",
    "write_rows",
]

OWN_OPTIONS: Final = ("branch", "overwrite-mode", "isolation-level", "output-spec-id", "validate-from-snapshot-id")
WITHOUT_EFFECT: Final = frozenset({"delete-granularity"})
"""Iceberg's option about delete files, which new rows never need."""
ONLY_DEFAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "use-table-distribution-and-ordering": ("true", "Set the option 'distribution-mode' to 'none'"),
}
"""Iceberg's options of which RowDelta supports only the default, and the hint for other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertOptions:
    """The options of a statement.

    Attributes:
        branch: The branch to write to.
        write: Options that override table properties for this write alone, by name.
        output_spec_id: The partition spec of the new files; None for the table's.
        summary: Keys of the snapshot's summary.
        dynamic: `overwrite-mode`: True for dynamic, False for static, None if absent.
        isolation_level: The isolation level that an overwrite validates.
        starting_snapshot_id: The snapshot after which an overwrite validates.
        columns: The options about columns that the table lacks.
    """

    branch: str | None = None
    write: Mapping[str, str] = field(default_factory=dict)
    output_spec_id: int | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    dynamic: bool | None = None
    isolation_level: IsolationLevel | None = None
    starting_snapshot_id: int | None = None
    columns: ColumnOptions = field(default_factory=ColumnOptions)


def insert_options(options: Sequence[tuple[str, str]]) -> InsertOptions:
    """Read the options of a statement.

    Raises:
        NotSupportedError: an option is unknown.
        AnalysisError: an option has an invalid value.
    """
    given = {key.lower(): value for key, value in options}
    known = {*OWN_OPTIONS, *WRITE_OPTIONS}
    for key, value in given.items():
        default, hint = ONLY_DEFAULTS.get(key, ("", ""))
        if key in ONLY_DEFAULTS and value.strip().lower() != default:
            raise NotSupportedError(f"The write option '{key}' cannot be '{value}'", hint=hint, option=key)
        accepted = {*known, *COLUMN_OPTIONS, *WITHOUT_EFFECT, *ONLY_DEFAULTS}
        if key not in accepted and not key.startswith(SNAPSHOT_PROPERTY):
            raise NotSupportedError(
                f"The write option '{key}' is not known",
                hint=f"Known are {', '.join(sorted({*known, *COLUMN_OPTIONS.values()}))} and snapshot-property.*",
                option=key,
            )
    mode = given.get("overwrite-mode")
    if mode is not None and mode.lower() not in {"static", "dynamic"}:
        raise AnalysisError(
            f"The write option 'overwrite-mode' is '{mode}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be 'static' or 'dynamic'",
            option="overwrite-mode",
        )
    summary = {
        key[len(SNAPSHOT_PROPERTY) :]: value for key, value in options if key.lower().startswith(SNAPSHOT_PROPERTY)
    }
    check_snapshot_properties(summary, "There is the write option", SNAPSHOT_PROPERTY)
    snapshot_id = given.get("validate-from-snapshot-id")
    return InsertOptions(
        branch=given.get("branch"),
        write={key: value for key, value in given.items() if key in WRITE_OPTIONS},
        output_spec_id=None if "output-spec-id" not in given else integer(given, "output-spec-id", 0),
        summary=summary,
        dynamic=None if mode is None else mode.lower() == "dynamic",
        isolation_level=None
        if "isolation-level" not in given
        else choice(given, "isolation-level", IsolationLevel, IsolationLevel.SERIALIZABLE),
        starting_snapshot_id=None if snapshot_id is None else integer(given, "validate-from-snapshot-id", 0),
        columns=ColumnOptions.of(given),
    )


PLAIN: Final = InsertOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRows:
    """The rows of an INSERT that come from a DataFrame, and the full names of the tables that it reads."""

    frame: DataFrame
    tables: Collection[tuple[str, ...]] = ()


def run_insert(
    engine: Engine,
    statement: InsertStatement,
    sql: str,
    idempotency_key: CommitKey | None = None,
    given: GivenRows | None = None,
) -> Result:
    """Run an INSERT. The arguments are those of `plan_insert_statement`.

    Raises:
        DmlError: The statement does not fit the table, or failed; nothing is changed then, and no file is left.
    """
    if given is None:
        in_driver = plan_driver_insert(engine, statement, sql, idempotency_key)
        if in_driver is not None:
            return in_driver.run()
    planned = plan_insert_statement(engine, statement, sql, idempotency_key, given)
    return run_write(planned.write, planned.rows, planned.frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInsert:
    """A planned INSERT of rows that the driver holds.

    Attributes:
        write: The write.
        batch: The rows, as they are stored.
        spec: What the driver writes.
    """

    write: "RowsWrite"
    batch: pa.RecordBatch = field(repr=False)
    spec: WriterSpec = field(repr=False)

    def run(self) -> Result:
        """Write the rows and commit them.

        Raises:
            DmlError: Writing or committing failed. No files are left behind.
        """
        return commit_rows(
            self.write, write_batch(self.write.engine.lazy_session, self.batch, self.write.target.table, self.spec)
        )


def plan_driver_insert(
    engine: Engine, statement: InsertStatement, sql: str, idempotency_key: CommitKey | None = None
) -> DriverInsert | None:
    """Plan to append constants or foreign rows in the driver. Return None if Spark must convert, move or reject them.

    Raises:
        DmlError: As `run_insert`.
    """
    started, query = time.perf_counter(), statement.query
    if statement.mode is not InsertMode.APPEND or statement.with_schema_evolution or statement.ctes is not None:
        return None
    foreign = selected_foreign_rows(engine.foreign_rows, query)
    is_held = (
        is_of_constants(query) and not query.tables and not statement.by_name
        if foreign is None
        else fits_driver(engine.lazy_session, (), foreign.table.nbytes)
    )
    if statement.options or statement.partition or not is_held or not is_surely_spark(sql):
        return None
    start = start_statement(engine, statement.target, sql, "INSERT", idempotency_key=idempotency_key)
    target, policy = start.target, start.settings.policy
    table = target.table
    if policy is not StoreAssignmentPolicy.ANSI or not table.sort_order().is_unsorted or accepts_any_schema(table):
        return None
    if foreign is not None:
        names, convert = foreign.columns, partial(foreign_batch, foreign)
    else:
        columns = literal_columns(query, start.settings.rules)
        if columns is None:
            return None
        names, convert = [f"col{place}" for place in range(1, len(columns) + 1)], partial(literal_batch, columns)
    targets = plain_targets(plan_insert(statement, target.names, names))
    batch = None if isinstance(targets, ThroughSpark) else convert(targets, policy)
    if batch is None or isinstance(targets, ThroughSpark):
        return None
    write = plan_rows_write(engine, target, "INSERT", started)
    mode = distribution_mode(table, write.context.properties)
    if mode is DistributionMode.RANGE or write.context.options.fanout is False:
        return None
    layout = DeltaLayout(value_ids=tuple(column.field_id for column, _ in targets))
    return DriverInsert(write=write, batch=batch, spec=replace(write.task.spec, layout=layout))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInsert:
    """A planned INSERT.

    Attributes:
        write: The write.
        plan: The source of each column's value.
        rows: The rows that tasks compute, or the reason why Spark computes them.
        frame: Returns the DataFrame of the rows: columns `v0`, `v1`, ... for the table's columns, in its order.
        query: The text of the statement's query, for Spark.
    """

    write: "RowsWrite"
    plan: InsertPlan
    rows: ScannedRows | ThroughSpark
    frame: Callable[[], DataFrame]
    query: str


def plan_insert_statement(
    engine: Engine,
    statement: InsertStatement,
    sql: str,
    idempotency_key: CommitKey | None = None,
    given: GivenRows | None = None,
) -> PlannedInsert:
    """Plan an INSERT.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        sql: Its text.
        idempotency_key: The key that keeps the statement from being applied twice.
        given: The rows, if a DataFrame replaces the statement's query.

    Raises:
        DmlError: The statement does not fit the table.
    """
    started = time.perf_counter()
    command = "INSERT" if statement.mode is InsertMode.APPEND else "INSERT OVERWRITE"
    options = insert_options(statement.options)
    start = start_statement(
        engine, statement.target, sql, command, branch_option=options.branch, idempotency_key=idempotency_key
    )
    settings, target = start.settings, start.target
    if given is None:
        views = insert_views(engine, start, statement)
        query = insert_query(statement, target, views)
        tables: Collection[tuple[str, ...]] = views.full_names.values()
    else:
        views, query, tables = statement_views(engine, start, ()), given.frame, given.tables
    if given is not None and accepts_any_schema(target.table):
        statement = replace(statement, by_name=True)  # as on classic Spark, which does not align such rows
    replaced = replaced_rows(statement, target, sql, settings, options.dynamic)
    fitted = fit_insert(
        statement, target, query.schema, options.columns, settings, replaced, is_given=given is not None
    )
    target = fitted.target
    plan = plan_insert(statement, target.names, query.columns)
    if replaced is not None:
        name = (target.resolved.catalog_name, *target.resolved.identifier)
        replaced = replace(replaced, reads_table=name in tables)
    write = plan_rows_write(engine, target, command, started, replaced=replaced, options=options)
    assign = fitted.assign(settings, by_name=plan.by_name)
    if given is None:
        rows = rows_of_query(engine, start, statement, query, plan, write, assign.policy)
    else:
        rows = ThroughSpark(reason="the rows come from a DataFrame")
    return PlannedInsert(
        write=write,
        plan=plan,
        rows=rows,
        frame=partial(align_rows, query, plan, views, assign, fills=fitted.fills),
        query="" if given is not None else views.text(statement.query),
    )


def rows_of_query(
    engine: Engine,
    start: StatementStart,
    statement: InsertStatement,
    query: DataFrame,
    plan: InsertPlan,
    write: "RowsWrite",
    policy: StoreAssignmentPolicy,
) -> ScannedRows | ThroughSpark:
    """Return the rows to insert, or the reason why Spark must compute them.

    Args:
        engine: The session and its catalogs.
        start: The settings, tables and target of the statement.
        statement: The statement.
        query: Its query.
        plan: The source of each column's value.
        write: The write.
        policy: The rules of store assignment.
    """
    if statement.ctes is not None:
        return ThroughSpark(reason="the query has a WITH clause")
    targets = plain_targets(plan)
    if isinstance(targets, ThroughSpark):
        return targets
    properties = write.context.properties
    return scanned_rows(
        engine,
        start.settings,
        start.tables,
        statement.query,
        query.schema,
        targets,
        write.target.table,
        properties,
        policy,
    )


def insert_views(engine: Engine, start: StatementStart, statement: InsertStatement) -> StatementViews:
    """Make the views of the tables that the new rows are computed from."""
    statics = (entry.value for entry in statement.partition)
    return statement_views(engine, start, [statement.ctes, statement.query, *statics])


def insert_query(statement: InsertStatement, target: Target, views: StatementViews) -> DataFrame:
    """Return the rows to insert, before alignment with the table's columns."""
    head = "" if statement.ctes is None else views.text(statement.ctes) + " "
    text = query_with_defaults(statement, target.names, views.text(statement.query), default_sql)
    return views.sql(f"{head}{text}")


def align_rows(
    query: DataFrame, plan: InsertPlan, views: StatementViews, assign: Assign, *, fills: bool = False
) -> DataFrame:
    """Align rows with the table's columns: `v0`, `v1`, ... in the table's order and types.

    Args:
        query: The rows.
        plan: The source of each column's value.
        views: The statement's views.
        assign: The rules of store assignment.
        fills: Whether structs may lack fields.
    """
    raw = query.toDF(*(raw_name(index) for index in range(len(query.columns))))
    if plan.statics:
        statics = [f"{views.text(value.value)} AS {name}" for name, value in plan.statics if value.value is not None]
        raw = raw.selectExpr("*", *statics)
    return store_rows(raw, plan, assign, fills=fills)


def store_rows(raw: DataFrame, plan: InsertPlan, assign: Assign, *, fills: bool) -> DataFrame:
    """Store raw columns into the table's columns."""
    types = {field.name: field.dataType for field in raw.schema.fields}
    return raw.selectExpr(
        *(
            f"{value_sql(mark_filled(source, fills=fills), field, types, assign, (field.name,))} AS {value_name(index)}"
            for index, (field, source) in enumerate(plan.columns)
        )
    )


def mark_filled(source: ValueSource, *, fills: bool) -> ValueSource:
    """Mark a value's source if its structs may lack fields."""
    return replace(source, fills=True) if fills and isinstance(source, RawValue) else source


def rows_by_name(rows: DataFrame, fitted: Fitted, settings: StatementSettings) -> DataFrame:
    """Align rows with the table's columns by name.

    Raises:
        AnalysisError: the table lacks a column of the rows, the rows lack a required one, or a value does not fit.
    """
    text = f"INSERT INTO {quote_name(fitted.target.table.name())} SELECT * FROM rows"
    statement = parse(text)
    assert isinstance(statement, InsertStatement)
    names = replace(fitted.target.names, sql=text)
    plan = plan_insert(replace(statement, by_name=True), names, rows.columns)
    raw = rows.toDF(*(raw_name(index) for index in range(len(rows.columns))))
    return store_rows(raw, plan, fitted.assign(settings, by_name=True), fills=fitted.fills)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWrite:
    """A planned write of new rows: what tasks run, and what is committed afterwards.

    Attributes:
        engine: The session and its catalogs.
        target: The table.
        command: The command, for the result.
        replaced: The rows to replace; None appends.
        options: The statement's write options.
        load_state: Loads the table for each attempt, if the same commit creates or replaces it.
        context: The table, for tasks.
        task: The function that each task runs.
        started: When the statement started, by `time.perf_counter`.
        planned: When it was planned.
    """

    engine: Engine
    target: Target
    command: str
    replaced: Replaced | None
    options: InsertOptions
    load_state: LoadState | None
    context: WriteContext
    task: WriteTask
    started: float
    planned: float

    def renew(self) -> "RowsWrite":
        """Return the same write for a second attempt, with new file names."""
        context = replace(self.context, query_id=str(uuid.uuid4()))
        return replace(self, context=context, task=WriteTask(replace(self.task.spec, context=context)))


def plan_rows_write(
    engine: Engine,
    target: Target,
    command: str,
    started: float,
    *,
    replaced: Replaced | None = None,
    options: InsertOptions = PLAIN,
    load_state: LoadState | None = None,
    by_columns: bool = False,
) -> RowsWrite:
    """Plan a write of new rows.

    Args:
        engine: The session and its catalogs.
        target: The table.
        command: The command, for the result.
        started: When the statement started, by `time.perf_counter`.
        replaced: The rows to replace; None appends.
        options: The statement's write options.
        load_state: Loads the table for each attempt, if the same commit creates or replaces it.
        by_columns: Whether Spark distributes the rows, which it can do by columns alone.

    Raises:
        NotSupportedError: the writers cannot write such files.
        AnalysisError: a property has an invalid value.
    """
    table = target.table
    overriding = write_properties(options.write, target.session, table.properties)
    output = output_spec(table, options.output_spec_id)
    if output.spec_id != table.spec().spec_id:
        overriding[SPARK_FANOUT_ENABLED] = "true"  # rows are distributed by the table's spec, not by this one
    context = write_context(
        table,
        str(uuid.uuid4()),
        sorted_by_table_order=sorts(table),
        overriding=overriding,
        output_spec_id=output.spec_id,
    )
    spec = WriterSpec(
        job=WriteJob.ROWS,
        context=context,
        layout=DeltaLayout(value_ids=tuple(field.field_id for field in table.schema().fields)),
        max_failures=engine.max_failures(),
        sorts_rows=sorts(table) and not orders_rows(table),
        joins_tasks=scatters(table, context.properties, by_columns=by_columns),
    )
    check_writable(spec)
    return RowsWrite(
        engine=engine,
        target=target,
        command=command,
        replaced=replaced,
        options=options,
        load_state=load_state,
        context=context,
        task=WriteTask(spec),
        started=started,
        planned=time.perf_counter(),
    )


def run_write(write: RowsWrite, rows: ScannedRows | ThroughSpark, frame: Callable[[], DataFrame]) -> Result:
    """Write rows and commit them.

    Args:
        write: The write.
        rows: The rows that tasks compute, or the reason why Spark computes them.
        frame: Returns the DataFrame of the same rows: columns `v0`, `v1`, ... for the table's columns, in its order.

    Raises:
        DmlError: Writing or committing failed. No files are left behind.
    """

    def run(through_spark: ThroughSpark | None) -> Result:
        computed = through_spark or rows
        attempt = write if through_spark is None else write.renew()
        return write_rows(attempt, frame() if isinstance(computed, ThroughSpark) else computed)

    return run_or_fall_back(run)


def write_rows(write: RowsWrite, rows: DataFrame | ScannedRows) -> Result:
    """Write rows and commit them.

    Args:
        write: The write.
        rows: Columns `v0`, `v1`, ... for the table's columns, in its order; or rows that tasks compute.

    Raises:
        UncomputableValueError: Only Spark can compute a value. No files are left behind.
        DmlError: Writing or committing failed. No files are left behind.
    """
    engine, target, table = write.engine, write.target, write.target.table
    with progress_bar(engine.lazy_session, f"{write.command} {target.resolved.name}", enabled=engine.progress):
        if isinstance(rows, ScannedRows):
            spec = replace(write.task.spec, layout=DeltaLayout(value_ids=rows.value_ids))
            written = write_by_tasks(engine.lazy_session, rows.program, rows.context, rows.groups, table, spec)
        else:
            rows = distribute_rows(rows, table, write.context.properties)
            written = run_writer(rows, write.task, table, write.task.spec)
    return commit_rows(write, written)


def commit_rows(write: RowsWrite, written: WriteOutcome) -> Result:
    """Commit rows that tasks have written.

    Raises:
        DmlError: the commit failed. No files are left behind.
    """
    replaced = write.replaced
    outcome = Outcome(
        command=write.command,
        mode="append" if replaced is None else "overwrite",
        metrics=written.metrics,
        started=write.started,
        planned=write.planned,
        executed=time.perf_counter(),
    )
    check_rows(written)
    action = insert_action(write.target, written, replaced, write.options)
    if action is None:
        return publish(write.engine, write.target, outcome, None)
    counts = conservation_summary(written.row_counts)
    return publish(
        write.engine,
        write.target,
        outcome,
        action,
        # An overwrite does not count the rows that it replaces, so it does not report 0 deleted rows.
        summary={**write.options.summary, **(counts if replaced is None else {ROWS_INSERTED: counts[ROWS_INSERTED]})},
        uncommitted=UncommittedFiles(write.target.table, write.context, written),
        skip_empty=isinstance(write.target.idempotency_key, StreamEpoch),
        load_state=write.load_state,
    )


def insert_action(
    target: Target, outcome: WriteOutcome, replaced: Replaced | None, options: InsertOptions
) -> Action | None:
    """Return the action to commit, or None if nothing changes."""
    # An overwrite from the table's own rows would silently drop rows that others add meanwhile: it is serializable.
    reads_table = replaced is not None and replaced.reads_table
    validation: dict[str, Any] = {
        "isolation_level": IsolationLevel.SERIALIZABLE if reads_table else options.isolation_level,
        "reads_table": reads_table,
        "starting_snapshot_id": target.snapshot_id
        if options.starting_snapshot_id is None
        else options.starting_snapshot_id,
    }
    if replaced is None:
        # Micro-batches are many and small: a fast append adds a manifest and does not merge existing ones.
        is_fast = isinstance(target.idempotency_key, StreamEpoch)
        return AppendFiles(data_files=outcome.data_files, is_fast=is_fast) if outcome.data_files else None
    if replaced.row_filter is None:
        if not outcome.data_files:
            return None
        if is_unpartitioned(output_spec(target.table, options.output_spec_id)):
            return OverwriteByFilter(data_files=outcome.data_files, row_filter=AlwaysTrue(), **validation)
        return ReplacePartitions(data_files=outcome.data_files, **validation)
    if not outcome.data_files and target.snapshot_id is None:
        return None
    return OverwriteByFilter(data_files=outcome.data_files, row_filter=replaced.row_filter, **validation)
