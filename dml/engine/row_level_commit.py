"""The commit of a row-level statement: what its tasks did, as an action on the table. Driver."""

from collections.abc import Sequence
from typing import Any

from dml.commit import (
    Action,
    AppendFiles,
    CommittedSnapshot,
    OverwriteFiles,
    RowDelta,
    check_changed_files,
    check_rows_added,
    commit,
    conservation_summary,
)
from dml.engine.engine import Engine
from dml.engine.idempotency import replay_summary
from dml.engine.planned_statement import PlannedStatement
from dml.engine.position_deletes import rests_on_rows, row_level_changes
from dml.engine.results import WriteOutcome, merge_summary
from dml.engine.row_probe import statement_probe
from dml.engine.writes import UncommittedFiles
from dml.errors import RowConservationError
from dml.model.scan_task import ScanTask
from dml.model.write_task import WriteContext
from dml.options import Command, IsolationLevel, RowLevelOperationMode, isolation_level
from dml.plan.row_delta_plan import ALWAYS
from dml.scan.planner import ScanPlan

__all__ = ["check_rows", "commit_outcome"]


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


def commit_outcome(
    engine: Engine, planned: PlannedStatement, scan: ScanPlan, context: WriteContext, outcome: WriteOutcome
) -> CommittedSnapshot:
    """Commit what the tasks wrote, if its rows add up; after a failure that certainly published nothing, delete it.

    Args:
        engine: The session's means.
        planned: The statement.
        scan: What was read of the target.
        context: The write.
        outcome: What the tasks did.

    Raises:
        RowConservationError: rows do not add up; the files are kept.
        DmlError: committing failed.
    """
    plan, target, settings = planned.plan, planned.target, planned.settings
    check_rows(outcome, scan.tasks)
    summary = engine.commit_summary() | conservation_summary(outcome.row_counts)
    summary |= replay_summary(target, plan.command.upper(), str(planned.mode), outcome.metrics)
    listing = scan.listing(outcome.removed_data_files, outcome.rewritten_delete_files)
    if plan.command is Command.MERGE:
        summary |= merge_summary(outcome.metrics)
    level = isolation_level(target.table.properties, plan.command)
    shared: dict[str, Any] = {
        # What a subquery read of the target is not in the filter.
        "conflict_detection_filter": ALWAYS if planned.reads_itself else plan.conflict_detection_filter,
        "rests_on_rows": rests_on_rows(planned, outcome),
        "starting_snapshot_id": target.snapshot_id,
        "case_sensitive": settings.case_sensitive,
        "row_probe": statement_probe(engine.spark, planned),
    }
    rows = row_level_changes(planned, scan.tasks, context, outcome)
    action: Action
    if plan.inserts_only:
        action = AppendFiles(
            data_files=outcome.data_files, validate_new_data_files=level is IsolationLevel.SERIALIZABLE, **shared
        )
    elif planned.mode is RowLevelOperationMode.COPY_ON_WRITE:
        action = OverwriteFiles(
            data_files=outcome.data_files,
            removed_data_files=outcome.removed_data_files,
            listing=listing,
            isolation_level=level,
            row_level=rows,
            **shared,
        )
    else:
        action = RowDelta(
            command=plan.command,
            data_files=outcome.data_files,
            delete_files=outcome.delete_files,
            rewritten_delete_files=outcome.rewritten_delete_files,
            listing=listing,
            referenced_data_files=outcome.referenced_data_files,
            isolation_level=level,
            rows_deleted={file.path: file.rows_deleted for file in outcome.changed_files},
            row_level=rows,
            **shared,
        )
    with UncommittedFiles(target.table, context, outcome):
        return commit(
            target.table,
            action,
            branch=target.branch,
            create_branch=target.create_branch,
            summary=summary,
            wap_id=target.wap_id,
            idempotency_key=target.idempotency_key,
        )
