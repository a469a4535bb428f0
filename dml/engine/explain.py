"""Explain a statement without running it: RowDelta's plan of changes, readers and Spark's plan of queries. Driver."""

from collections.abc import Collection, Iterator
from functools import partial

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyspark.sql import DataFrame

from dml.ddl.terms import term_text
from dml.engine.distribution import distribution_mode
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import plan_driver_insert, plan_insert_statement
from dml.engine.query import query_frame, query_views
from dml.engine.row_level import Delta, build_delta
from dml.engine.row_level_plan import (
    InTasks,
    PlannedStatement,
    RowLevelStatement,
    SparkNeededError,
    Unchanged,
    WholeFiles,
    plan_statement,
)
from dml.engine.scanned_rows import DriverRows
from dml.engine.sent_source import SentSource
from dml.options import RowLevelOperationMode, WriteOptions
from dml.plan.names import column_text
from dml.plan.row_delta_plan import DefaultValue, ThroughSpark
from dml.pruning.filter_text import filter_text
from dml.scan.planner import ScanPlan
from dml.spark_scan.running_query import explained_plan
from dml.sqlparse.quoting import quote_identifier
from dml.sqlparse.statements import (
    DeleteStatement,
    Explain,
    Fragment,
    InsertStatement,
    MergeStatement,
    Query,
    UpdateStatement,
)
from dml.views import StatementTables
from dml.write.splicing import may_splice, may_splice_statement

__all__ = ["explain"]


def explain(engine: Engine, statement: Explain, sql: str) -> DataFrame:
    """Return the plan of a statement as a DataFrame with one text column `plan`.

    For INSERT, DELETE, UPDATE and MERGE it is RowDelta's: files, strategy, query. For queries it is the reader of each
    table, and Spark's plan. Spark explains other statements.

    Raises:
        DmlError: the statement does not fit the table.
    """
    _ = engine.spark  # plans before it has started differ
    match statement.statement:
        case DeleteStatement() | UpdateStatement() | MergeStatement() as row_level:
            try:
                text = explain_row_level(engine, row_level, sql)
            except SparkNeededError:
                text = explain_row_level(engine, row_level, sql, source_through_spark=True)
            return engine.spark.createDataFrame([(text,)], "plan string")
        case InsertStatement() as insert:
            return engine.spark.createDataFrame([("\n".join(insert_lines(engine, insert, sql)),)], "plan string")
        case Query(fragment=fragment):
            text = "\n".join(query_lines(engine, statement, fragment, sql))
            return engine.spark.createDataFrame([(text,)], "plan string")
        case _:
            return engine.spark.sql(sql)


def explain_row_level(
    engine: Engine, statement: RowLevelStatement, sql: str, *, source_through_spark: bool = False
) -> str:
    """Return the plan of a row-level statement. The arguments are those of `plan_statement`.

    Raises:
        SparkNeededError: A MERGE whose source the driver could read needs Spark.
        DmlError: The statement does not fit the table.
    """
    planned = plan_statement(engine, statement, sql, source_through_spark=source_through_spark)
    try:
        return "\n".join(plan_lines(engine, planned))
    finally:
        if planned.source is not None:
            planned.source.release()


def query_lines(engine: Engine, statement: Explain, fragment: Fragment, sql: str) -> Iterator[str]:
    """Yield each table that a query reads, its reader, and Spark's plan."""
    tables = StatementTables(statement=sql, lazy_session=engine.lazy_session, registry=engine.registry)
    scans: list[str] = []
    views = query_views(engine, fragment, tables, StatementSettings.of(engine, sql), scans)
    frame = query_frame(views, fragment)
    explained = None if engine.runtime.is_connect else explained_plan(frame, statement.mode or "simple")
    if explained is not None:
        plan, planned = explained
        scans += planned
    else:
        ((plan,),) = views.sql(f"{statement.prefix}{views.text(fragment)}").collect()
    for scan in scans:
        table, _, rows = scan.removeprefix("RowDelta ").rpartition(", rows: ")
        yield f"{table}\n  rows: {rows}"
    yield plan


def insert_lines(engine: Engine, statement: InsertStatement, sql: str) -> Iterator[str]:
    planned = plan_insert_statement(engine, statement, sql)
    planned.frame()  # analyze the query, so that EXPLAIN raises its errors too
    target, properties = planned.write.target, planned.write.context.properties
    mode = distribution_mode(target.table, properties)
    yield f"INSERT {target.resolved.name} (branch {target.branch}, {statement.mode})"
    yield f"  distribution: {mode}; partitioned by: {partitioning(target.table.metadata)}"
    for field, source in planned.plan.columns:
        yield f"  {quote_identifier(field.name)} <- {'default' if isinstance(source, DefaultValue) else 'query'}"
    match planned.rows:
        case ThroughSpark(reason=reason):
            held = plan_driver_insert(engine, statement, sql)
            yield through_spark(reason) if held is None else "  rows: written by the driver, which holds them"
        case rows:
            yield f"  rows: written by the {len(rows.groups)} tasks that read them; they do not go through Spark"
    yield f"  query: {planned.query}"


def partitioning(metadata: TableMetadata) -> str:
    """Return the partition fields in the syntax of CREATE TABLE."""
    schema = metadata.schema()
    fields = [field for field in metadata.spec().fields if not isinstance(field.transform, VoidTransform)]
    return ", ".join(term_text(field, schema) for field in fields) or "nothing"


def plan_lines(engine: Engine, planned: PlannedStatement) -> Iterator[str]:
    """Yield the plan, line by line, from the outcome down to the files."""
    plan, target = planned.plan, planned.target
    yield f"{plan.command.upper()} {target.resolved.name} (branch {target.branch}, snapshot {target.snapshot_id})"
    yield f"  mode: {planned.mode}"
    for clause in plan.query.clauses:
        yield f"  clause {clause.number}: {clause.text}"
    if plan.check_cardinality:
        yield "  cardinality: two source rows for one target row are an error"
    pruning = filter_text(plan.condition.pruning, partial(column_text, target.table.schema()))
    yield f"  conflict detection filter: {pruning}"
    delta = build_delta(engine, planned)
    delta.frame()  # analyze the query, so that EXPLAIN raises its errors too
    scan = delta.scan.plan
    yield from way_lines(delta)
    if scan.total_data_files:
        yield (
            f"  scan: {len(scan.tasks)} of {scan.total_data_files} data files ({scan.skipped_data_files} pruned), "
            f"{scan.manifests_read} of {scan.total_manifests} manifests read, "
            f"filter: {pruning}"
        )
    if isinstance(delta.way, Unchanged):
        return
    if isinstance(delta.way, WholeFiles):
        yield from file_lines(scan, frozenset())
        return
    if planned.mode is RowLevelOperationMode.AUTO:
        ratio = WriteOptions.from_properties(target.table.properties).auto_max_deleted_ratio
        yield f"  by file: rows are marked as deleted up to {ratio:.0%} of the file; above that, the file is rewritten"
        yield "  by file: a file that loses every row is removed unread; if few columns change, it may be spliced"
    spliced = spliced_files(planned, scan)
    if spliced:
        kept = "row groups in which nothing changes" + (
            ", and columns that are not assigned," if plan.assigned_ids else ""
        )
        yield f"  splicing: in {len(spliced)} of {len(scan.tasks)} data files {kept} are copied"
    columns = {field.field_id: quote_identifier(field.name) for field in target.table.schema().fields}
    yield f"  columns read: {', '.join(columns[field_id] for field_id in plan.target_ids) or 'none'}"
    yield "  delta query:"
    yield f"    {plan.query.inner}"
    yield from file_lines(scan, spliced)


def file_lines(scan: ScanPlan, spliced: Collection[str]) -> Iterator[str]:
    for task in scan.tasks[:20]:
        deletes = len(task.position_deletes) + len(task.equality_deletes) + (task.deletion_vector is not None)
        rewritten = ", spliced if rows change" if task.path in spliced else ""
        yield f"    {task.path} ({task.record_count} rows{f', {deletes} delete files' if deletes else ''}{rewritten})"
    if len(scan.tasks) > 20:
        yield f"    ... and {len(scan.tasks) - 20} more files"


def through_spark(reason: str) -> str:
    """Return the line that explains why rows go through Spark."""
    return f"  rows: through Spark, because {reason}"


def way_lines(delta: Delta) -> Iterator[str]:
    """Yield the way of the statement, and the reason."""
    match delta.way:
        case Unchanged(reason=reason):
            yield f"  rows: none changes, because {reason}"
        case WholeFiles():
            yield "  rows: deleted with their data files, which are not opened"
        case InTasks(source=None):
            yield "  rows: changed by the tasks that read them; they do not go through Spark"
        case InTasks(source=SentSource(through_spark=through)):
            yield "  rows: matched by the tasks that read them, which receive the source; they do not go through Spark"
            source = delta.planned.source
            if through is not None:
                yield f"  source: through Spark, because {through.reason}"
            elif source is not None and isinstance(source.scan, DriverRows):
                yield "  source: held by the driver; its rows do not go through Spark"
            else:
                yield "  source: read by RowDelta's own scan; its rows do not go through Spark"
        case ThroughSpark(reason=reason):
            yield through_spark(reason)
            yield f"  shuffle: {'none, as files stay whole' if delta.whole_files else 'rows by data file'}"


def spliced_files(planned: PlannedStatement, scan: ScanPlan) -> frozenset[str]:
    """Return the data files that may be spliced, according to their manifest entries."""
    table = planned.target.table
    options = WriteOptions.from_properties(table.properties)
    plan = planned.plan
    splices = may_splice_statement(table, planned.mode, options, inserts=plan.inserts, assigned_ids=plan.assigned_ids)
    if plan.inserts_only or not splices:  # unchanged files are kept
        return frozenset()
    return frozenset(task.path for task in scan.tasks if may_splice(task, table.spec().spec_id, options))
