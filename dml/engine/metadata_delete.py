"""Deletes by metadata alone: whole files leave the table, none is opened. Driver.

DELETE without a condition, TRUNCATE, and DELETE whose condition is true for every row of each file that it touches:
by the files' partitions, or by their column metrics (docs/semantics.md, D1 and D7 to D11).
"""

import time

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from dml.commit import DeleteFiles, commit
from dml.commit.file_filter import RowFilter
from dml.engine.engine import Engine
from dml.engine.query import statement_views
from dml.engine.results import committed_result, nothing_changed
from dml.engine.settings import StatementSettings
from dml.engine.target import Target, resolve_target
from dml.manifests import entries_of, manifests_of
from dml.model.manifest import ManifestContent
from dml.model.scan_task import ScanTask
from dml.result import PhaseSeconds, Result
from dml.scan.planner import plan_scan
from dml.sqlparse.statements import Truncate

__all__ = ["delete_whole_files", "run_truncate"]


def run_truncate(engine: Engine, statement: Truncate, text: str) -> Result:
    """Run TRUNCATE TABLE.

    Raises:
        DmlError: no such table, or the commit failed.
    """
    started = time.perf_counter()
    settings = StatementSettings.of(engine.spark)
    views = statement_views(engine, text, settings)
    target = resolve_target(statement.target, text, views, settings, "TRUNCATE")
    if not whole_files(target, AlwaysTrue(), settings):
        return nothing_changed("TRUNCATE", target, time.perf_counter() - started, mode="metadata")
    return commit_delete(engine, target, AlwaysTrue(), "TRUNCATE", settings, started)


def delete_whole_files(
    engine: Engine, target: Target, row_filter: BooleanExpression, settings: StatementSettings, started: float
) -> Result | None:
    """Delete by metadata if every file with a matching row holds matching rows only.

    Args:
        engine: The session's means.
        target: The table.
        row_filter: The whole condition as an Iceberg expression.
        settings: The session's settings.
        started: When the statement started, by `time.perf_counter`.

    Returns:
        The result; None where rows of some file have to be looked at.
    """
    outcome = whole_files(target, row_filter, settings)
    if outcome is None:
        return None
    if not outcome:
        return nothing_changed("DELETE", target, time.perf_counter() - started, mode="metadata")
    return commit_delete(engine, target, row_filter, "DELETE", settings, started)


def whole_files(target: Target, row_filter: BooleanExpression, settings: StatementSettings) -> bool | None:
    """Whether some file is deleted by a filter and none in part.

    Returns:
        True for whole files, False for no file at all, None where rows of some file have to be looked at.
    """
    table = target.table
    snapshot = None if target.snapshot_id is None else table.snapshot_by_id(target.snapshot_id)
    if snapshot is None:
        return False
    rows = RowFilter(row_filter, table.metadata, case_sensitive=settings.case_sensitive)
    found = False
    for manifest in manifests_of(table.io, snapshot):
        if manifest.content is not ManifestContent.DATA or not manifest.has_live_files or not rows.manifest(manifest):
            continue
        for entry in entries_of(manifest, table.io, live_only=True):
            if rows.may_match(entry.data_file):
                if not rows.must_match(entry.data_file):
                    return None
                found = True
    return found


def commit_delete(
    engine: Engine,
    target: Target,
    row_filter: BooleanExpression,
    command: str,
    settings: StatementSettings,
    started: float,
) -> Result:
    """Commit the removal of the files of a filter."""
    planned = time.perf_counter()
    action = DeleteFiles(row_filter=row_filter, case_sensitive=settings.case_sensitive)
    committed = commit(
        target.table,
        action,
        branch=target.branch,
        create_branch=target.create_branch,
        summary=engine.commit_summary(),
        wap_id=target.wap_id,
    )
    seconds = PhaseSeconds(plan=planned - started, commit=time.perf_counter() - planned)
    rows = deleted_rows(target, row_filter, settings)
    return committed_result(command, target, "metadata", committed, seconds, rows=rows)


def deleted_rows(target: Target, row_filter: BooleanExpression, settings: StatementSettings) -> int | None:
    """Live rows of the files that a filter removes, told by metadata; None where delete files do not tell."""
    tasks = plan_scan(target.table, target.snapshot_id, row_filter, case_sensitive=settings.case_sensitive).tasks
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
