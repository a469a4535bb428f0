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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from dml import limits
from dml.commit import CommitKey
from dml.engine.engine import Engine, StatementSettings
from dml.engine.merge_source import (
    MergeSourceFrame,
    describe_source,
    prepare_source,
    source_fragment,
    source_fragments,
    source_frame,
)
from dml.engine.query import statement_views
from dml.engine.scanned_rows import DriverRows, PlainRows, literal_rows, plain_rows, selected_foreign_rows
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
from dml.pyiceberg_patch import VariantType
from dml.result import Result
from dml.rows.evaluate import UncomputableValueError
from dml.rows.program import Changes, Column
from dml.scan.planner import ScanPlan
from dml.spark.store_assignment import StoreAssignmentPolicy
from dml.spark.types import spark_field
from dml.sqlparse.spellings import is_surely_spark
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
from dml.views import StatementViews

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
    """A MERGE was planned without Spark, and must be planned again with it. Nothing has been written."""


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
        views: The statement's views; without a frame for the target, because its scan depends on the plan.
        target_view: Placeholder of the target's scan in the plan's query.
        source: The source of a MERGE.
    """

    plan: RowDeltaPlan
    target: Target
    mode: RowLevelOperationMode
    settings: StatementSettings
    views: StatementViews
    target_view: str
    source: MergeSourceFrame | None = None

    @property
    def needs_no_analysis(self) -> bool:
        """Whether the statement is certainly valid if tasks can compute it, so that Spark need not analyze it.

        It is if no part of it is skipped, Spark compares values of all its types, and parses the text as sqlglot does.
        """
        return (
            not self.plan.condition.skips
            and self.settings.policy is StoreAssignmentPolicy.ANSI
            and compares_all(self.target.table.schema(), self.plan.target_ids)
            and is_surely_spark(self.views.statement)
        )

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
        source_through_spark: Plan the source of a MERGE through Spark, even if the driver could read it.

    Raises:
        SparkNeededError: A MERGE whose source the driver could read needs Spark.
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
    held = None
    if isinstance(statement, MergeStatement) and not source_through_spark:
        held = driver_source(engine, start, statement, sql)
    views = statement_views(
        engine, start, fragments_of(statement, sql), reads=statement.target, is_lazy=held is not None
    )
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
            source = None if held is None else describe_source(statement, context, views, *held)
            if source is None or (not source.pushable and not engine.lazy_session.is_deferred):
                scan = source_rows(engine, start, statement, sql)
                source = prepare_source(statement, context, views, scan, data_bytes(target.table, target.snapshot_id))
            views = views.with_frame(source.described.view, partial(frame_of_source, source, statement, views))
            try:
                plan = plan_merge(statement, context, source.described)
            except BaseException:
                source.release()
                raise
    planned = PlannedStatement(
        plan=plan,
        target=target,
        mode=mode,
        settings=settings,
        views=views,
        target_view=target_view,
        source=source,
    )
    if source is not None and source.rows is None and not (source.pushable and planned.needs_no_analysis):
        raise SparkNeededError
    return planned


def frame_of_source(source: MergeSourceFrame, statement: MergeStatement, views: StatementViews) -> DataFrame:
    """Return the DataFrame of a source. If the driver reads the source, this makes it."""
    return source_frame(statement, views) if source.rows is None else source.rows


def compares_all(schema: Schema, field_ids: Iterable[int]) -> bool:
    """Return whether Spark compares values of all types of some columns; it does not compare maps and variants."""
    types = [schema.find_type(field_id) for field_id in field_ids]
    return all(isinstance(one, PrimitiveType) and not isinstance(one, VariantType) for one in types)


def driver_source(
    engine: Engine, start: StatementStart, statement: MergeStatement, sql: str
) -> tuple[StructType, PlainRows | DriverRows] | None:
    """Return the columns and rows of the source of a MERGE if the driver may read it, else None.

    Such a source is constants, foreign rows, or a bare table. In a session that has started, tables above
    `MAX_DRIVER_SOURCE_BYTES` or `MAX_DRIVER_SOURCE_FILES` are left to Spark, which plans them without reading them.
    """
    if statement.ctes is not None or statement.with_schema_evolution:
        return None
    fragment, rules = source_fragment(statement, sql), start.settings.rules
    names, is_deferred = statement.source_column_aliases, engine.lazy_session.is_deferred
    foreign = selected_foreign_rows(engine.foreign_rows, fragment)
    if foreign is not None:
        most = limits.MAX_DRIVER_SOURCE_ROW_BYTES if is_deferred else limits.MAX_TRIED_SOURCE_BYTES
        is_small = foreign.table.nbytes <= most
        return (foreign.schema, DriverRows.of(foreign, rules)) if is_small and not names else None
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
    if isinstance(rows, ThroughSpark) or not (is_deferred or is_small_table(rows)):
        return None
    columns = [rows.schema.find_field(value.field_id) for value in rows.plain.values if isinstance(value, Column)]
    return StructType(list(map(spark_field, columns))), rows


def is_small_table(rows: PlainRows) -> bool:
    """Return whether the driver reads a whole table, according to the summary of its snapshot."""
    if rows.snapshot_id is None:
        return True
    files = snapshot_total(rows.table, rows.snapshot_id, "total-data-files")
    size = snapshot_total(rows.table, rows.snapshot_id, "total-files-size")
    if files is None or size is None:
        return False
    return files <= limits.MAX_DRIVER_SOURCE_FILES and size <= limits.MAX_DRIVER_SOURCE_BYTES


def source_rows(engine: Engine, start: StatementStart, statement: MergeStatement, sql: str) -> PlainRows | ThroughSpark:
    """Return the source of a MERGE as RowDelta's own scan reads it, or the reason why only Spark can."""
    if statement.ctes is not None:
        return ThroughSpark(reason="the statement has a WITH clause")
    return plain_rows(engine, start.settings, start.tables, source_fragment(statement, sql))


def data_bytes(table: Table, snapshot_id: int | None) -> int:
    """Return the size of a table's data files from its snapshot's summary, 0 if it is missing."""
    return (0 if snapshot_id is None else snapshot_total(table, snapshot_id, "total-files-size")) or 0


def snapshot_total(table: Table, snapshot_id: int, key: str) -> int | None:
    """Return a total from a snapshot's summary, None if it is missing."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    text = snapshot.summary[key] if snapshot is not None and snapshot.summary is not None else None
    return int(text) if text is not None and text.isdecimal() else None


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
