"""Resolve and plan DELETE, UPDATE and MERGE, reading nothing but metadata. Driver.

A scan of the target decides which way a planned statement takes (`select_way`):

| way            | what runs                                                                     |
| ---            | ---                                                                           |
| `Unchanged`    | nothing                                                                       |
| `WholeFiles`   | a commit that removes data files without opening them                         |
| `InTasks`      | tasks read rows, compute the delta and write it; a MERGE may need two jobs    |
| `ThroughSpark` | Spark's query over the rows, a shuffle if needed, tasks that write            |

`run_or_fall_back` runs a statement in tasks, and through Spark if tasks meet a value that only Spark can compute.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from pyspark.sql.types import StructField, StructType

from dml import limits
from dml.commit import CommitKey
from dml.engine.engine import Engine, StatementSettings, reads_as_spark
from dml.engine.merge_source import (
    MergeSourceFrame,
    describe_source,
    prepare_source,
    source_fragment,
    source_fragments,
    source_frame,
)
from dml.engine.query import statement_views
from dml.engine.scanned_rows import LiteralRows, PlainRows, literal_rows, plain_rows, rows_of_other_library
from dml.engine.schema_evolution import evolves, merge_target_schema
from dml.engine.sent_source import SentSource
from dml.engine.target import StatementStart, Target, start_statement
from dml.errors import ErrorKind, NotSupportedError
from dml.model.columns import METADATA_COLUMNS
from dml.model.scan_task import ScanTask
from dml.options import Command, RowLevelOperationMode, row_level_operation_mode
from dml.plan.delete_update import plan_delete, plan_update
from dml.plan.merge import plan_merge, when_clauses
from dml.plan.row_delta_plan import PlanContext, RowDeltaPlan, ThroughSpark
from dml.result import Result
from dml.rows.evaluate import UncomputableValueError
from dml.rows.program import Changes, Column
from dml.scan.planner import ScanPlan
from dml.spark.types import spark_field
from dml.sqlparse.statements import (
    Assignment,
    DeleteAction,
    DeleteStatement,
    Fragment,
    InsertAction,
    MergeStatement,
    UpdateAction,
    UpdateStatement,
)
from dml.views import StatementViews, views_of

__all__ = [
    "InTasks",
    "PlannedStatement",
    "RowLevelStatement",
    "SparkNeededError",
    "Unchanged",
    "Way",
    "WholeFiles",
    "plan_statement",
    "run_or_fall_back",
    "select_way",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The statement changes no row.

    Attributes:
        reason: The reason, as a clause for "because", for EXPLAIN.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFiles:
    """The statement deletes every row of the data files in its scan.

    Attributes:
        tasks: The data files.
    """

    tasks: tuple[ScanTask, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InTasks:
    """The tasks that read the rows compute the delta.

    Attributes:
        program: The program that they run.
        source: The source of a MERGE, which each task receives.
    """

    program: Changes
    source: SentSource | None = None


Way = Unchanged | WholeFiles | InTasks | ThroughSpark


class SparkNeededError(Exception):
    """A MERGE whose source was planned without Spark needs Spark. Nothing has been written."""


def select_way(plan: RowDeltaPlan, scan: ScanPlan, computed: InTasks | ThroughSpark) -> Way:
    """Select the way of a statement.

    Args:
        plan: The statement.
        scan: The scan of the table.
        computed: The way to compute the delta, if rows may change.
    """
    if plan.condition.never and not plan.inserts:
        return Unchanged(reason="the condition is true for no row")
    if scan.snapshot_id is None and not plan.inserts:
        return Unchanged(reason="the table has no snapshot")
    if scan.covers_whole_files:
        return WholeFiles(tasks=tuple(scan.tasks))
    if not scan.tasks and not plan.inserts:
        return Unchanged(reason="no data file can contain matching rows")
    return computed


def run_or_fall_back(run: Callable[[ThroughSpark | None], Result]) -> Result:
    """Run a statement in tasks, and fall back to Spark if tasks meet a value that only Spark can compute.

    An overflow is such a value: Spark reports an error, or wraps around if the session is not ANSI. The first attempt
    leaves no files behind.

    Args:
        run: Runs the statement; through Spark if it is called with a reason.

    Raises:
        DmlError: The statement failed. The table is unchanged, and no files are left behind.
    """
    try:
        return run(None)
    except UncomputableValueError as error:
        through_spark = ThroughSpark(reason=str(error))
    return run(through_spark)  # outside the handler: the first error would be chained to one of Spark's


RowLevelStatement = DeleteStatement | UpdateStatement | MergeStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStatement:
    """A planned row-level statement, with everything needed to run it.

    Attributes:
        plan: The plan.
        target: The table.
        mode: Copy-on-write or merge-on-read.
        settings: The session's settings.
        views: The statement's views; without a frame for the target, because its scan depends on the plan, and without
            any frame if the source of a MERGE was planned without Spark.
        complete_views: Returns the views with all frames but the target's. It may start Spark.
        target_view: Placeholder of the target's scan in the plan's query.
        source: The source of a MERGE.
    """

    plan: RowDeltaPlan
    target: Target
    mode: RowLevelOperationMode
    settings: StatementSettings
    views: StatementViews
    complete_views: Callable[[], StatementViews]
    target_view: str
    source: MergeSourceFrame | None = None

    @property
    def reads_itself(self) -> bool:
        """Whether the statement reads the target a second time: in a subquery, or as the source."""
        name = (self.target.resolved.catalog_name, *self.target.resolved.identifier)
        return sum(named == name for named in self.views.full_names.values()) > 1


def command_of(statement: RowLevelStatement) -> Command:
    match statement:
        case DeleteStatement():
            return Command.DELETE
        case UpdateStatement():
            return Command.UPDATE
        case MergeStatement():
            return Command.MERGE


def fragments_of(statement: RowLevelStatement, sql: str) -> tuple[Fragment | None, ...]:
    """Return the fragments of a statement that Spark evaluates; None for an absent one."""
    match statement:
        case DeleteStatement():
            return statement.ctes, statement.condition
        case UpdateStatement():
            return statement.ctes, *assigned_values(statement.assignments), statement.condition
        case MergeStatement():
            clauses = [piece for when in when_clauses(statement) for piece in (when.condition, *values_of(when.action))]
            return *source_fragments(statement, sql), *clauses, statement.condition


def values_of(action: UpdateAction | InsertAction | DeleteAction) -> tuple[Fragment | None, ...]:
    """Return the values that an action of a MERGE assigns."""
    return () if isinstance(action, DeleteAction) else assigned_values(action.assignments or ())


def assigned_values(assignments: Sequence[Assignment]) -> tuple[Fragment | None, ...]:
    """Return the values of assignments; None for DEFAULT."""
    return tuple(assignment.value for assignment in assignments)


def plan_statement(
    engine: Engine,
    statement: RowLevelStatement,
    sql: str,
    idempotency_key: CommitKey | None = None,
    *,
    may_stage: bool = True,
    source_through_spark: bool = False,
) -> PlannedStatement:
    """Resolve and plan a statement, reading nothing but metadata.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        sql: Its text.
        idempotency_key: The key that keeps the statement from being applied twice.
        may_stage: Whether `spark.wap.id` and `spark.wap.branch` apply.
        source_through_spark: Whether Spark evaluates the source of a MERGE in any case.

    Raises:
        SparkNeededError: Only Spark can join the source of a MERGE; `source_through_spark` is False.
        DmlError: the statement does not fit the table.
    """
    command = command_of(statement)
    start = start_statement(
        engine, statement.target, sql, command.upper(), idempotency_key=idempotency_key, may_stage=may_stage
    )
    settings, target = start.settings, start.target
    check_settings(settings)
    mode = row_level_operation_mode(target.table.properties, command)
    check_mode(target, mode, command)
    here = None
    if isinstance(statement, MergeStatement) and not source_through_spark:
        here = source_here(engine, start, statement, sql)
    fragments = fragments_of(statement, sql)
    if here is None:
        views = statement_views(engine, start, fragments, reads=statement.target)
    else:
        views = views_of(start.tables, fragments, None, (statement.target, target.resolved))
    if isinstance(statement, MergeStatement) and evolves(statement, target.table.properties):
        target = merge_target_schema(target, source_frame(statement, views).schema, settings, statement.source.span)
    target_view = views.places[statement.target.span]
    context = PlanContext(
        target_view=target_view,
        target=views.alias(statement.target, target.alias),
        names=target.names,
        render=views.text,
    )
    source = None
    match statement:
        case DeleteStatement():
            plan = plan_delete(statement, context)
        case UpdateStatement():
            plan = plan_update(statement, context)
        case MergeStatement():
            if here is None:
                scan = source_rows(engine, start, statement, sql)
                source = prepare_source(statement, context, views, scan, data_bytes(target.table, target.snapshot_id))
                views = views.with_frame(source.described.view, source.frame)
            else:
                source = describe_source(statement, context, views, *here)
                check_source(source)
            try:
                plan = plan_merge(statement, context, source.described)
            except BaseException:
                source.release()
                raise

    def complete_views() -> StatementViews:
        if here is None or source is None:
            return views
        assert isinstance(statement, MergeStatement)
        complete = statement_views(engine, start, fragments, reads=statement.target)
        return complete.with_frame(source.described.view, source_frame(statement, complete))

    return PlannedStatement(
        plan=plan,
        target=target,
        mode=mode,
        settings=settings,
        views=views,
        complete_views=complete_views,
        target_view=target_view,
        source=source,
    )


def source_here(
    engine: Engine, start: StatementStart, statement: MergeStatement, sql: str
) -> tuple[StructType, PlainRows | LiteralRows] | None:
    """Return the columns and rows of the source of a MERGE that RowDelta reads without Spark; None if only Spark can.

    They are constants, rows of another library, or those of a table that is named in full. In a session that has
    started, larger tables are left to Spark, which plans them without reading them.
    """
    if statement.ctes is not None or statement.with_schema_evolution or not reads_as_spark(engine.runtime, sql):
        return None
    fragment, rules = source_fragment(statement, sql), start.settings.rules
    names = statement.source_column_aliases
    data = rows_of_other_library(start.tables, fragment)
    if data is not None:
        small = data.table.nbytes <= limits.MAX_INLINE_SOURCE_BYTES // 2
        return (data.schema, LiteralRows.of(data.table, rules)) if small and not names else None
    if not fragment.tables:
        literals = literal_rows(fragment, rules)
        if literals is None or len(names) != len(literals[1]):
            return None
        kinds = zip(names, literals[1], strict=True)
        return StructType([StructField(name, kind) for name, kind in kinds]), literals[0]
    is_table = fragment.tables[0].span == fragment.span
    if not is_table or names or not fragment.names.isdisjoint(METADATA_COLUMNS):
        return None
    rows = plain_rows(engine, start.settings, start.tables, fragment)
    if isinstance(rows, ThroughSpark):
        return None
    if not engine.runtime.is_deferred and data_bytes(rows.table, rows.snapshot_id) > limits.MAX_DRIVER_SOURCE_BYTES:
        return None
    columns = [rows.schema.find_field(value.field_id) for value in rows.plain.values if isinstance(value, Column)]
    return StructType(list(map(spark_field, columns))), rows


def check_source(source: MergeSourceFrame) -> None:
    """Raise if only Spark can join a source.

    Raises:
        SparkNeededError: No key of the source can be looked up.
    """
    if not source.pushable:
        raise SparkNeededError


def source_rows(engine: Engine, start: StatementStart, statement: MergeStatement, sql: str) -> PlainRows | ThroughSpark:
    """Return the source of a MERGE as RowDelta's own scan reads it, or the reason why only Spark can."""
    if statement.ctes is not None:
        return ThroughSpark(reason="the statement has a WITH clause")
    return plain_rows(engine, start.settings, start.tables, source_fragment(statement, sql))


def data_bytes(table: Table, snapshot_id: int | None) -> int:
    """Return the size of a table's data files from its snapshot's summary, 0 if it is missing."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    text = snapshot.summary["total-files-size"] if snapshot is not None and snapshot.summary is not None else None
    return int(text) if text is not None and text.isdecimal() else 0


def check_settings(settings: StatementSettings) -> None:
    """Reject a setting that changes the meaning of the generated queries."""
    if settings.quoted_regex:
        raise NotSupportedError(
            "spark.sql.parser.quotedRegexColumnNames is true: quoted names would match several columns",
            hint="Set it to false for row-level statements",
        )


def check_mode(target: Target, mode: RowLevelOperationMode, command: Command) -> None:
    """Reject merge-on-read if the table's format version has no delete files."""
    version = target.table.format_version
    if mode is RowLevelOperationMode.MERGE_ON_READ and version < 2:
        raise NotSupportedError(
            f"'write.{command}.mode' of {target.resolved.name} is 'merge-on-read', but the table has format version "
            f"{version}: delete files exist from version 2 on",
            kind=ErrorKind.NOT_SUPPORTED,
            hint="Set 'format-version' to '2' or later, or the mode to 'copy-on-write'",
        )
