"""Run DELETE, UPDATE and MERGE through the stages plan, scan, delta, write, commit; run TRUNCATE. Driver.

If the condition of a DELETE is true for every row of each file in its scan, by the files' partitions or by their column
metrics, the delete is a metadata delete: no file is opened. TRUNCATE and a DELETE without a condition are always
metadata deletes (docs/semantics.md, D1 and D7 to D11).
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import DataFrame

from dml import limits
from dml.commit import CommitKey, DeleteFiles
from dml.engine.by_tasks import write_by_tasks, write_merge_by_tasks
from dml.engine.delta_query import delta_frame
from dml.engine.distribution import distribute_delta, sorts
from dml.engine.engine import Engine, StatementSettings
from dml.engine.merge_source import SourceKeys
from dml.engine.publish import METADATA, UNCHANGED, Outcome, publish
from dml.engine.replaced_rows import partition_filter
from dml.engine.row_level_commit import check_rows, compares_rows, row_level_action, row_level_summary
from dml.engine.row_level_plan import (
    InTasks,
    PlannedStatement,
    RowLevelStatement,
    SparkNeededError,
    Unchanged,
    Way,
    WholeFiles,
    plan_statement,
    run_or_fall_back,
    select_way,
)
from dml.engine.sent_source import SentSource, default_limit, send_source
from dml.engine.target import Target, start_statement
from dml.engine.writes import (
    UncommittedFiles,
    WriteOutcome,
    change_distribution,
    run_writer,
    write_context,
    write_properties,
)
from dml.errors import AnalysisError, DataError, ErrorKind, NotSupportedError
from dml.hints import did_you_mean
from dml.model.columns import FILE_ORDINAL, POS, DeltaLayout, RowOperation
from dml.model.scan_task import ScanTask
from dml.model.write_task import WriteContext
from dml.options import Command, DistributionMode, RowLevelOperationMode, sent_source_bytes
from dml.plan.row_delta_plan import SentSourcePlan, ThroughSpark
from dml.progress import progress_bar
from dml.read.reader import TargetFiles
from dml.result import Result
from dml.scan.planner import ScanPlan, plan_scan
from dml.scan.size import live_rows
from dml.scan.split import ChangeDistribution, TaskGroups, whole_file_groups
from dml.scan.table_scan import Scan, TableScan
from dml.spark.lazy_session import LazySession
from dml.spark.store_assignment import Assign
from dml.sqlparse.diagnosis import at
from dml.sqlparse.statements import MergeStatement, PartitionValue, Truncate
from dml.write.delta_writer import WriteTask
from dml.write.splicing import may_splice_statement, with_copied_metrics
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable

__all__ = ["Delta", "build_delta", "run_row_level", "run_truncate"]


def run_row_level(
    engine: Engine,
    statement: RowLevelStatement,
    sql: str,
    idempotency_key: CommitKey | None = None,
    *,
    may_stage: bool = True,
) -> Result:
    """Run a DELETE, UPDATE or MERGE.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        sql: Its text.
        idempotency_key: The key that keeps the statement from being applied twice.
        may_stage: Whether `spark.wap.id` and `spark.wap.branch` apply.

    Raises:
        DmlError: the statement is invalid or failed. The table is unchanged, and no files are left behind.
    """
    started = time.perf_counter()
    run = partial(
        plan_and_run, engine, statement, sql, idempotency_key=idempotency_key, may_stage=may_stage, started=started
    )
    try:
        return run()
    except SparkNeededError:
        _ = engine.spark
    return run(source_through_spark=True)


def plan_and_run(
    engine: Engine,
    statement: RowLevelStatement,
    sql: str,
    *,
    idempotency_key: CommitKey | None,
    may_stage: bool,
    started: float,
    source_through_spark: bool = False,
) -> Result:
    """Do the work of `run_row_level`.

    Raises:
        SparkNeededError: A MERGE was planned without Spark, and needs it.
    """
    planned = plan_statement(
        engine,
        statement,
        sql,
        idempotency_key=idempotency_key,
        may_stage=may_stage,
        source_through_spark=source_through_spark,
    )
    try:
        return run_or_fall_back(
            lambda through_spark: run_planned(engine, planned, build_delta(engine, planned, through_spark), started)
        )
    except DataError as error:
        if error.kind is ErrorKind.CARDINALITY_VIOLATION and isinstance(statement, MergeStatement):
            raise cardinality_violation(statement, sql) from error
        raise
    finally:
        if planned.source is not None:
            planned.source.release()


def cardinality_violation(statement: MergeStatement, sql: str) -> DataError:
    """Return the error for a target row that several source rows match."""
    span = statement.condition.span
    return DataError(
        "The ON condition of the MERGE matched a single row of the target table with more than one row of the source",
        sql=sql,
        position=span.start,
        length=span.end - span.start,
        kind=ErrorKind.CARDINALITY_VIOLATION,
        hint="Make the source unique by the columns of the condition, or the condition stricter; nothing was changed",
        condition=statement.condition.text,
    )


def run_planned(engine: Engine, planned: PlannedStatement, delta: "Delta", started: float) -> Result:
    """Run a planned statement in the selected way."""
    plan, target, way = planned.plan, planned.target, delta.way
    command = plan.command.upper()
    match way:
        case Unchanged():
            outcome = Outcome(command=command, mode=UNCHANGED, started=started, planned=time.perf_counter())
            return publish(engine, target, outcome, None)
        case WholeFiles(tasks=tasks):
            condition = plan.condition.pruning
            return delete_whole_files(engine, target, condition, tasks, command, planned.settings, started)
    overriding = write_properties({}, target.session, target.table.properties)
    context = write_context(
        target.table, str(uuid.uuid4()), sorted_by_table_order=sorts(target.table), overriding=overriding
    )
    groups = delta.groups
    spec = writer_spec(engine, planned, delta, len(groups), context)
    check_writable(spec)
    planned_at = time.perf_counter()
    with progress_bar(engine.lazy_session, f"{command} {target.resolved.name}", enabled=engine.progress):
        written = write_delta(engine, planned, delta, way, groups, spec)
    uncommitted = UncommittedFiles(target.table, context, written)
    with uncommitted:
        scan = delta.scan.plan
        files = with_copied_metrics(
            written.data_files, written.spliced_files, target.table, scan.snapshot_id, scan.data_manifests, context
        )
        written = replace(written, data_files=files)
    outcome = Outcome(
        command=command,
        mode=str(planned.mode),
        metrics=written.metrics,
        started=started,
        planned=planned_at,
        executed=time.perf_counter(),
    )
    check_rows(written, delta.scan.plan.tasks)
    if written.is_empty:
        return publish(engine, target, outcome, None)
    return publish(
        engine,
        target,
        outcome,
        row_level_action(
            engine,
            planned,
            delta.scan.plan,
            context,
            written,
            delta.source_keys,
            keys_decide=not delta.source_is_repeatable,
        ),
        summary=row_level_summary(planned, written),
        uncommitted=uncommitted,
    )


def write_delta(
    engine: Engine,
    planned: PlannedStatement,
    delta: "Delta",
    way: InTasks | ThroughSpark,
    groups: Sequence[tuple[ScanTask, ...]],
    spec: WriterSpec,
) -> WriteOutcome:
    """Run the jobs that write the delta.

    Raises:
        UncomputableValueError: Only Spark can compute a value. No files are left behind.
        DmlError: A job failed. No files are left behind.
    """
    table, lazy_session = planned.target.table, engine.lazy_session
    if isinstance(way, ThroughSpark):
        return run_writer(distribute(delta, planned, spec.context), WriteTask(spec), table, spec)
    if way.source is None:
        return write_by_tasks(lazy_session, way.program, delta.scan.context, groups, table, spec)
    mode = delta.distribution.mode
    return write_merge_by_tasks(lazy_session, way.source, delta.scan, groups, spec, table, distribution=mode)


@dataclass(frozen=True, kw_only=True)
class Delta:
    """A row delta, not yet evaluated.

    Attributes:
        lazy_session: The Spark session, which starts on first use.
        planned: The statement.
        assign: The rules of store assignment.
        way: The way to compute it, if rows change.
        scan: The target's scan.
        distribution: How data files are assigned to tasks.
        source_keys: The join keys of a MERGE's source, if the scan was filtered by them.
    """

    lazy_session: LazySession
    planned: PlannedStatement
    assign: Assign
    way: Way
    scan: Scan
    distribution: ChangeDistribution
    source_keys: SourceKeys | None

    @property
    def whole_files(self) -> bool:
        """Whether each Spark partition of `frame` holds whole files in their order."""
        return self.planned.plan.ordered_by_file

    @cached_property
    def groups(self) -> TaskGroups:
        """The data files of each writing task."""
        parallelism, tasks = self.planned.settings.parallelism, self.scan.plan.tasks
        if self.whole_files:
            return self.scan.read.whole_file_groups(tasks, parallelism, self.distribution)
        return whole_file_groups(tasks, parallelism=parallelism, distribution=self.distribution)

    def frame(self) -> DataFrame:
        """Return the rows that Spark computes. The first call analyzes the statement."""
        return self._frame

    @cached_property
    def _frame(self) -> DataFrame:
        planned, scan = self.planned, self.scan
        parallelism = planned.settings.parallelism
        groups = self.groups if self.whole_files else scan.read.groups(scan.plan.tasks, parallelism)
        views = planned.views.with_frame(planned.target_view, partial(scan.frame, self.lazy_session.spark, groups))
        return delta_frame(views.sql, planned.plan.query, self.assign)

    @property
    def source_is_repeatable(self) -> bool:
        """Whether the source of a MERGE, if any, can be read again with the same rows."""
        match self.way:
            case InTasks(source=SentSource(is_repeatable=False)):
                return False
        return True

    @property
    def inserts_few(self) -> bool:
        """Whether it inserts at most `limits.MAX_UNSCATTERED_INSERTS` rows; False if that is unknown."""
        return self.source_keys is not None and self.source_keys.rows <= limits.MAX_UNSCATTERED_INSERTS


def build_delta(engine: Engine, planned: PlannedStatement, through_spark: ThroughSpark | None = None) -> Delta:
    """Scan the target, and select the way to compute the delta.

    Spark analyzes the delta query here, unless tasks can compute a statement that is certainly valid. If Spark reads
    the source of a MERGE that tasks compute, it has analyzed all expressions except bare column names by then.

    Args:
        engine: The session and its catalogs.
        planned: The statement.
        through_spark: The reason why Spark must compute the delta, if tasks have failed to.

    Raises:
        SparkNeededError: A MERGE was planned without Spark, and needs it.
    """
    plan, target, settings = planned.plan, planned.target, planned.settings
    assign = Assign(policy=settings.policy, case_sensitive=settings.case_sensitive)
    computed = through_spark or select_computation(engine, planned, assign)
    if isinstance(computed, ThroughSpark) and planned.source is not None and planned.source.rows is None:
        raise SparkNeededError
    keys = None
    if planned.source is not None:
        sent = computed.source if isinstance(computed, InTasks) else None
        keys = planned.source.keys() if sent is None else sent.keys
    row_filter: BooleanExpression = plan.condition.pruning
    if keys is not None:
        row_filter = And(row_filter, keys.row_filter)
    read = TableScan(
        table=target.table,
        snapshot_id=target.snapshot_id,
        schema=target.table.schema(),
        columns=plan.target_ids,
        metadata_columns=(FILE_ORDINAL, POS),
        row_filter=row_filter,
        key_filter=None if keys is None else keys.key_filter,
        row_predicate=plan.condition.rows,
        case_sensitive=settings.case_sensitive,
    )
    # A DELETE removes files whose rows all match without opening them.
    finds_whole_files = plan.command is Command.DELETE and plan.condition.pruning_is_exact
    scan = read.plan_for(engine.lazy_session, find_whole_files=finds_whole_files)
    delta = Delta(
        lazy_session=engine.lazy_session,
        planned=planned,
        assign=assign,
        way=select_way(plan, scan.plan, computed),
        scan=scan,
        distribution=distribution_of(planned),
        source_keys=keys,
    )
    # Errors are raised before anything runs.
    if isinstance(computed, ThroughSpark) or (computed.source is None and not planned.needs_no_analysis):
        delta.frame()
    return delta


def select_computation(engine: Engine, planned: PlannedStatement, assign: Assign) -> InTasks | ThroughSpark:
    """Decide whether tasks or Spark compute the delta, and send the source of a MERGE to tasks.

    Args:
        engine: The session and its catalogs.
        planned: The statement.
        assign: The rules of store assignment.
    """
    match planned.plan.tasks:
        case SentSourcePlan() as sent:
            assert planned.source is not None
            source = send_source(sent, planned.source, planned.views, assign, most_sent(engine, planned))
            return source if isinstance(source, ThroughSpark) else InTasks(program=source.program, source=source)
        case ThroughSpark() as through_spark:
            return through_spark
        case program:
            return InTasks(program=program)


def most_sent(engine: Engine, planned: PlannedStatement) -> int:
    """Return the limit, in bytes, for the source of a MERGE that tasks receive."""
    if engine.lazy_session.is_deferred:
        default = limits.MAX_TRIED_SOURCE_BYTES
    else:
        default = default_limit(engine.spark, planned.settings.parallelism)
    most = sent_source_bytes(planned.target.table.properties, default)
    if planned.plan.inserts and distribution_of(planned).mode is DistributionMode.RANGE:
        return min(most, limits.MAX_RANGE_SOURCE_BYTES)
    return most


def distribution_of(planned: PlannedStatement) -> ChangeDistribution:
    """Return how data files are assigned to tasks."""
    return change_distribution(planned.target.table.properties, planned.target.session, planned.plan.command)


def distribute(delta: Delta, planned: PlannedStatement, context: WriteContext) -> DataFrame:
    """Distribute the delta for its writers: all rows of a file in one task, in the order of the file."""
    if delta.whole_files:
        return delta.frame()
    return distribute_delta(
        delta.frame(),
        planned.target.table,
        delta.groups,
        planned.settings.parallelism,
        inserts=planned.plan.inserts,
        few_inserts=delta.inserts_few,
        clustered=context.options.fanout is False,
        mode=delta.distribution.mode,
    )


def writer_spec(
    engine: Engine, planned: PlannedStatement, delta: Delta, groups: int, context: WriteContext
) -> WriterSpec:
    """Specify what the statement's tasks write.

    Args:
        engine: The session and its catalogs.
        planned: The statement.
        delta: The delta of the statement.
        groups: The number of groups of data files that tasks read.
        context: The write.
    """
    plan, scan, parallelism = planned.plan, delta.scan, planned.settings.parallelism
    copy_on_write = planned.mode is RowLevelOperationMode.COPY_ON_WRITE
    rewrites = planned.mode is not RowLevelOperationMode.MERGE_ON_READ
    value_ids = tuple(column.field.field_id for column in plan.query.values)
    return WriterSpec(
        job=WriteJob(planned.mode),
        context=context,
        layout=DeltaLayout(
            value_ids=value_ids,
            assigned_ids=plan.assigned_ids,
            insert_ids=value_ids if plan.inserts else (),
            check_cardinality=plan.check_cardinality,
        ),
        files=TargetFiles.of(scan.plan.tasks, scan.context),
        max_failures=engine.max_failures(),
        sorts_rows=context.sorted_by_table_order,
        splices=may_splice_statement(
            planned.target.table,
            planned.mode,
            context.options,
            inserts=plan.inserts,
            assigned_ids=plan.assigned_ids,
        ),
        deletes=any(clause.operation is RowOperation.DELETE for clause in plan.query.clauses),
        tracks_origins=rewrites and context.format_version > 1 and compares_rows(planned),
        tasks=max(parallelism, groups),
        joins_tasks=not copy_on_write and (groups > 1 or (plan.inserts and not delta.inserts_few)),
    )


def run_truncate(engine: Engine, statement: Truncate, text: str, idempotency_key: CommitKey | None = None) -> Result:
    """Run TRUNCATE TABLE; with PARTITION it deletes the files of partitions.

    Raises:
        NotSupportedError: a file holds rows of other partitions, too.
        DmlError: no such table or partition column, or the commit failed.
    """
    started = time.perf_counter()
    start = start_statement(engine, statement.target, text, "TRUNCATE", idempotency_key=idempotency_key)
    target, case_sensitive = start.target, start.settings.case_sensitive
    for entry in statement.partition:
        check_partition_column(target, entry, case_sensitive=case_sensitive)
    row_filter = partition_filter(statement.partition, target, text)
    plan = ScanPlan(snapshot_id=None)
    if target.snapshot_id is not None:
        plan = plan_scan(
            target.table,
            target.snapshot_id,
            row_filter,
            case_sensitive=case_sensitive,
            find_whole_files=bool(statement.partition),
        )
    if statement.partition and plan.tasks and not plan.covers_whole_files:
        raise NotSupportedError(
            f"Files of {target.resolved.name} hold rows of these and of other partitions: they were written by another "
            "partition spec",
            hint="DELETE with this condition rewrites these files",
            table=target.resolved.name,
        )
    return delete_whole_files(engine, target, row_filter, plan.tasks, "TRUNCATE", start.settings, started)


def check_partition_column(target: Target, entry: PartitionValue, *, case_sensitive: bool) -> None:
    schema = target.table.schema()
    fields = [field for field in target.table.spec().fields if isinstance(field.transform, IdentityTransform)]
    columns = [schema.find_column_name(field.source_id) or field.name for field in fields]
    if entry.column not in columns and (case_sensitive or entry.column.lower() not in map(str.lower, columns)):
        with at(entry.span):
            raise AnalysisError(
                f"The table {target.resolved.name} is not partitioned by the values of a column '{entry.column}'",
                kind=ErrorKind.NOT_FOUND,
                hint=did_you_mean(entry.column, columns) if columns else "DELETE takes any condition",
            )


def delete_whole_files(
    engine: Engine,
    target: Target,
    row_filter: BooleanExpression,
    tasks: Sequence[ScanTask],
    command: str,
    settings: StatementSettings,
    started: float,
) -> Result:
    """Commit the removal of whole files by a filter.

    Args:
        engine: The session and its catalogs.
        target: The table.
        row_filter: The filter, which is true for all rows of these files.
        tasks: The files, from the scan of the statement.
        command: The command, for the result.
        settings: The session's settings.
        started: When the statement started, by `time.perf_counter`.

    Raises:
        DmlError: the commit failed.
    """
    outcome = Outcome(command=command, mode=METADATA, started=started, planned=time.perf_counter())
    if not tasks:
        return publish(engine, target, outcome, None)
    action = DeleteFiles(
        row_filter=row_filter,
        case_sensitive=settings.case_sensitive,
        starting_snapshot_id=target.snapshot_id,
        rows_deleted=live_rows(tasks, trust_position_deletes=True),
    )
    return publish(engine, target, outcome, action, skip_empty=True)  # another commit may have removed them meanwhile
