"""The commit of a row-level statement: what its tasks did, as an action on the table. Driver."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyiceberg.schema import Schema

from dml.commit import (
    Action,
    AppendFiles,
    OverwriteFiles,
    RowDelta,
    RowLevelChanges,
    check_changed_files,
    check_rows_added,
    conservation_summary,
)
from dml.deletes.deletion_vector import decode
from dml.engine.engine import Engine
from dml.engine.merge_source import SourceKeys
from dml.engine.publish import merge_summary
from dml.engine.row_level_plan import PlannedStatement
from dml.engine.row_probe import statement_probe
from dml.engine.writes import WriteOutcome
from dml.errors import RowConservationError
from dml.model.columns import RowOperation
from dml.model.scan_task import ScanTask
from dml.model.summary_keys import DATA_FILES_MARKED, DATA_FILES_REWRITTEN, DATA_FILES_SPLICED
from dml.model.write_task import WriteContext
from dml.options import Command, IsolationLevel, RowLevelOperationMode, isolation_level, row_level_concurrency
from dml.plan.row_delta_plan import ALWAYS
from dml.read.applied_deletes import DeleteLoader
from dml.scan.planner import ScanPlan
from dml.write.delete_files import write_late_deletes

__all__ = [
    "check_rows",
    "compares_rows",
    "rests_on_rows",
    "row_level_action",
    "row_level_changes",
    "row_level_summary",
]


def check_rows(outcome: WriteOutcome, tasks: Sequence[ScanTask] = ()) -> None:
    """Refuse to publish rows that do not add up.

    Args:
        outcome: What the tasks did.
        tasks: The data files that the statement read.

    Raises:
        RowConservationError: they do not; the context names the files that were written, which are kept.
    """
    try:
        by_path = {task.path: task for task in tasks}
        check_changed_files(outcome.changed_files, by_path, outcome.delete_files, outcome.row_counts)
        check_rows_added(outcome.data_files, outcome.row_counts)
    except RowConservationError as error:
        error.context["staged_files"] = tuple(sorted(outcome.paths))
        raise


def row_level_summary(planned: PlannedStatement, outcome: WriteOutcome) -> dict[str, str]:
    """What the snapshot of a statement says of its rows."""
    counts = conservation_summary(outcome.row_counts)
    if outcome.spliced_files:
        counts[DATA_FILES_SPLICED] = str(len(outcome.spliced_files))
    if planned.mode is RowLevelOperationMode.AUTO:
        marked = [file for file in outcome.changed_files if file.rows_before is None]
        # What is left of a file that was written anew: rows as they were, and new versions of others.
        rewritten = [
            file for file in outcome.changed_files if file.rows_before and file.rows_before > file.rows_deleted
        ]
        counts[DATA_FILES_MARKED] = str(len(marked))
        counts[DATA_FILES_REWRITTEN] = str(len(rewritten))
    return counts | merge_summary(outcome.metrics) if planned.plan.command is Command.MERGE else counts


def row_level_action(
    engine: Engine,
    planned: PlannedStatement,
    scan: ScanPlan,
    context: WriteContext,
    outcome: WriteOutcome,
    source_keys: SourceKeys | None = None,
    *,
    keys_decide: bool = False,
) -> Action:
    """What the tasks wrote, as an action on the table.

    Args:
        engine: The session and its catalogs.
        planned: The statement.
        scan: What was read of the target.
        context: The write.
        outcome: What the tasks did.
        source_keys: The join keys of a MERGE's source, where they are known.
        keys_decide: Whether a row with such a key is one that the statement matches: its source cannot be asked again.
    """
    plan, target, settings = planned.plan, planned.target, planned.settings
    listing = scan.listing(outcome.removed_data_files, outcome.rewritten_delete_files)
    level = isolation_level(target.table.properties, plan.command)
    shared: dict[str, Any] = {
        # What a subquery read of the target is not in the filter.
        "conflict_detection_filter": ALWAYS if planned.reads_itself else plan.condition.pruning,
        "rests_on_rows": rests_on_rows(planned, outcome),
        "starting_snapshot_id": target.snapshot_id,
        "case_sensitive": settings.case_sensitive,
        "row_probe": statement_probe(engine.spark, planned, source_keys, keys_decide=keys_decide),
    }
    rows = row_level_changes(planned, scan.tasks, context, outcome)
    if plan.inserts_only:
        return AppendFiles(
            data_files=outcome.data_files, validate_new_data_files=level is IsolationLevel.SERIALIZABLE, **shared
        )
    # Where a statement chose by file and marked no row, what it did is copy-on-write.
    rewrites_all = planned.mode is RowLevelOperationMode.AUTO and not outcome.delete_files
    if planned.mode is RowLevelOperationMode.COPY_ON_WRITE or rewrites_all:
        return OverwriteFiles(
            data_files=outcome.data_files,
            removed_data_files=outcome.removed_data_files,
            listing=listing,
            isolation_level=level,
            row_level=rows,
            **shared,
        )
    return RowDelta(
        command=plan.command,
        data_files=outcome.data_files,
        delete_files=outcome.delete_files,
        rewritten_delete_files=outcome.rewritten_delete_files,
        removed_data_files=outcome.removed_data_files,
        listing=listing,
        referenced_data_files=outcome.referenced_data_files,
        isolation_level=level,
        rows_deleted={file.path: file.rows_deleted for file in outcome.changed_files if file.rows_before is None},
        row_level=rows,
        **shared,
    )


def row_level_changes(
    planned: PlannedStatement, tasks: Sequence[ScanTask], context: WriteContext, outcome: WriteOutcome
) -> RowLevelChanges | None:
    """The single rows that a statement is about; None where whole files have to be compared.

    That is so where the table's property says it, and for a statement that reads its target a second time: what becomes
    of a row then depends on other rows, which nobody has noted. And for one that matched rows, left them alone and may
    insert, in files that it does not change: those rows are counted, and their positions are not reported.
    """
    target = planned.target
    if not compares_rows(planned):
        return None
    serializable = isolation_level(target.table.properties, planned.plan.command) is IsolationLevel.SERIALIZABLE
    if serializable and rests_on_rows(planned, outcome):
        return None
    schema = Schema.model_validate_json(context.schema_json)
    return RowLevelChanges(
        changed={file.path: file for file in outcome.changed_files},
        tasks={task.path: task for task in tasks},
        loader=DeleteLoader(schema, context.io_properties),
        write_deletes=partial(write_late_deletes, context),
        row_origins=outcome.row_origins,
    )


def compares_rows(planned: PlannedStatement) -> bool:
    """Whether the statement's commit compares rows, if it meets others."""
    return not planned.reads_itself and row_level_concurrency(planned.target.table.properties)


def rests_on_rows(planned: PlannedStatement, outcome: WriteOutcome) -> bool:
    """Whether the result rests on rows that the statement leaves as they are, in files that it does not change.

    Those that it read of its own target beside the rows to change. And those that a MERGE matched: had they been gone,
    it would have inserted. Without a MATCHED clause nobody counts them; there may be some. (A MERGE that does nothing
    but insert would meet any delete then: it is as if it had come first.)
    """
    plan = planned.plan
    if planned.reads_itself or not plan.inserts or plan.inserts_only:
        return planned.reads_itself
    counted = any(clause.operation is not RowOperation.INSERT and not clause.by_source for clause in plan.query.clauses)
    return not counted or left_alone(outcome) > left_alone_in_changed_files(outcome)


def left_alone(outcome: WriteOutcome) -> int:
    """Rows that were matched and not changed."""
    metrics = outcome.metrics
    by_source = metrics.rows_deleted_by_source + metrics.rows_updated_by_source
    return metrics.rows_matched - (metrics.rows_deleted + metrics.rows_updated - by_source)


def left_alone_in_changed_files(outcome: WriteOutcome) -> int:
    """Those of them whose positions are known."""
    vectors = (file.observed for file in outcome.changed_files if file.observed is not None)
    return sum(len(decode(vector, file="the task's report", cardinality=None)) for vector in vectors)
