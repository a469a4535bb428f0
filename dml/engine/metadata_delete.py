"""Deletes by metadata alone: whole files leave the table, none is opened. Driver.

DELETE without a condition, TRUNCATE, and DELETE whose condition is true for every row of each file that it touches:
by the files' partitions, or by their column metrics (docs/semantics.md, D1 and D7 to D11).
"""

import time
from collections.abc import Sequence

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit import DeleteFiles, IdempotencyKey
from dml.engine.engine import Engine, StatementSettings
from dml.engine.publish import METADATA, Outcome, publish
from dml.engine.target import Target, start_statement
from dml.model.scan_task import ScanTask
from dml.result import Result
from dml.scan.planner import ScanPlan, plan_scan
from dml.sqlparse.statements import Truncate

__all__ = ["delete_whole_files", "run_truncate"]


def run_truncate(
    engine: Engine, statement: Truncate, text: str, idempotency_key: IdempotencyKey | None = None
) -> Result:
    """Run TRUNCATE TABLE.

    Raises:
        DmlError: no such table, or the commit failed.
    """
    started = time.perf_counter()
    start = start_statement(engine, statement.target, text, "TRUNCATE", idempotency_key=idempotency_key)
    target = start.target
    plan = ScanPlan(snapshot_id=None) if target.snapshot_id is None else plan_scan(target.table, target.snapshot_id)
    return delete_whole_files(engine, target, AlwaysTrue(), plan.tasks, "TRUNCATE", start.settings, started)


def delete_whole_files(
    engine: Engine,
    target: Target,
    row_filter: BooleanExpression,
    tasks: Sequence[ScanTask],
    command: str,
    settings: StatementSettings,
    started: float,
) -> Result:
    """Commit the removal of the files of a filter.

    Args:
        engine: The session and its catalogs.
        target: The table.
        row_filter: The filter, which is true for all rows of these files.
        tasks: The files, as the scan of the statement found them.
        command: For the result.
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
        rows_deleted=live_rows_of(tasks),
    )
    return publish(engine, target, outcome, action, skip_empty=True)  # another commit may have removed them meanwhile


def live_rows_of(tasks: Sequence[ScanTask]) -> int | None:
    """Live rows of data files, from metadata; None where delete files leave it open."""
    rows = [live_rows(task) for task in tasks]
    return None if None in rows else sum(number for number in rows if number is not None)


def live_rows(task: ScanTask) -> int | None:
    """Rows of a data file that no delete file deletes.

    A deletion vector, or one position delete file of that data file alone, says how many rows it deletes; several
    delete files may say one row twice, and others hold rows of other files.
    """
    if not task.has_deletes:
        return task.record_count
    if task.deletion_vector is not None and not task.equality_deletes:
        return task.record_count - task.deletion_vector.record_count
    single = task.position_deletes[0] if len(task.position_deletes) == 1 and not task.equality_deletes else None
    return None if single is None or single.referenced_data_file is None else task.record_count - single.record_count
