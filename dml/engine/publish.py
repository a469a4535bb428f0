"""Publish a statement's outcome: commit it and make its `Result`; with an idempotency key at most once. Driver.

Input: what a statement did, as an action on its table. Output: its result. For all statements that change rows, this
module handles the branch, the summary, write-audit-publish, the idempotency key and the seconds of each phase.

A key is looked up before anything is planned, and again in every attempt to commit, on the newest metadata: of two
concurrent runs one is applied, and the other deletes its files. The result of a second run is the first one's.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from pyiceberg.table.snapshots import Snapshot

from dml.catalog import LoadState
from dml.catalog.registry import ResolvedTable
from dml.commit import (
    Action,
    AlreadyAppliedError,
    AppendFiles,
    CommitKey,
    CommittedSnapshot,
    IdempotencyKey,
    RowCounts,
    StreamEpoch,
    changes_of,
    commit,
    conservation_summary,
    has_epochs,
    refuse_second_run,
)
from dml.engine.engine import Engine, StatementSettings
from dml.engine.target import Target
from dml.errors import CorruptFileError
from dml.hooks import Finished, after_statement
from dml.model.summary_keys import (
    COMMAND,
    DATA_FILES_MARKED,
    DATA_FILES_REWRITTEN,
    DATA_FILES_SPLICED,
    MODE,
    ROWS_CARRIED,
    ROWS_DELETED,
    ROWS_INSERTED,
    ROWS_MATCHED,
    ROWS_UPDATED,
)
from dml.model.write_task import TaskMetrics
from dml.options import HOOK_PROPERTIES
from dml.result import PhaseSeconds, Result

__all__ = [
    "METADATA",
    "UNCHANGED",
    "Outcome",
    "PublishedHead",
    "finish_publication",
    "merge_summary",
    "publish",
    "run_once",
]

METADATA: Final = "metadata"
"""The mode of a metadata delete."""

UNCHANGED: Final = "none"
"""The mode of a statement that changed nothing."""

NO_SUMMARY: Final[Mapping[str, str]] = MappingProxyType({})
NOTHING_WRITTEN: Final = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a statement before its snapshot is committed.

    Attributes:
        command: The command.
        mode: The mode of its result.
        metrics: Row counts of the writers; None if no rows were read.
        started: When the statement started, by `time.perf_counter`.
        planned: When it was planned.
        executed: When its Spark job had ended; None without a job.
    """

    command: str
    mode: str
    metrics: TaskMetrics | None = None
    started: float
    planned: float
    executed: float | None = None

    def seconds(self, *, published: bool) -> PhaseSeconds:
        """Return the seconds of each phase until now.

        Args:
            published: Whether something was published; else all of it was planning.
        """
        now = time.perf_counter()
        if not published:
            return PhaseSeconds(plan=now - self.started)
        executed = self.planned if self.executed is None else self.executed
        return PhaseSeconds(plan=self.planned - self.started, execute=executed - self.planned, commit=now - executed)


def publish(
    engine: Engine,
    target: Target,
    outcome: Outcome,
    action: Action | None,
    *,
    summary: Mapping[str, str] = NO_SUMMARY,
    uncommitted: AbstractContextManager[Any] = NOTHING_WRITTEN,
    skip_empty: bool = False,
    load_state: LoadState | None = None,
) -> Result:
    """Commit a statement's action to its branch, run its post-commit actions, and return its result.

    Every statement that changes rows, every DataFrame's write and every micro-batch ends here.

    A change of the table's schema goes into the same commit. A statement that changes no row makes no snapshot, unless
    it has an idempotency key: then a snapshot without files records it, because a second run might find other rows to
    change. Of a streaming query only the first micro-batch is recorded so: a batch returns no result, and running it
    later is as good.

    Args:
        engine: The session and its catalogs.
        target: The table to change.
        outcome: What the statement did.
        action: The change of the table; None if there is none.
        summary: Summary entries of this statement, in addition to those of every snapshot.
        uncommitted: Context of the commit, which deletes the statement's files if nothing was committed.
        skip_empty: Whether an action that has nothing left to do makes no snapshot.
        load_state: Loads the table for each attempt, if the same commit creates or replaces it.

    Raises:
        DmlError: the commit failed.
    """
    result = commit_outcome(engine, target, outcome, action, summary, uncommitted, skip_empty, load_state)
    finish(engine, target, result, action)
    return result


def finish(engine: Engine, target: Target, result: Result, action: Action | None = None) -> None:
    """Run the post-commit actions of a statement; their failures do not fail the statement.

    Args:
        engine: The session and its catalogs.
        target: The table that the statement changed.
        result: Its result.
        action: The committed action; None if nothing was committed.
    """
    parts = (target.resolved.catalog_name, *target.resolved.identifier)
    after_statement(
        Finished(
            result=result,
            table=target.table,
            identifier=target.resolved.identifier,
            staged=target.wap_id is not None,
            settings={name: value for name, value in target.session.items() if name in HOOK_PROPERTIES},
            added=() if action is None else changes_of(action).added_data_files,
            callbacks=engine.callbacks,
            compact=None if engine.compact is None else partial(engine.compact, engine, parts),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHead:
    """The snapshot at the head of a branch.

    Attributes:
        snapshot_id: Its id.
        operation: Its operation; empty if it has no summary.
        summary: All keys of its summary, without the operation.
    """

    snapshot_id: int
    operation: str
    summary: Mapping[str, str]

    @staticmethod
    def of(snapshot: Snapshot) -> "PublishedHead":
        """Describe a snapshot that exists already."""
        if snapshot.summary is None:
            return PublishedHead(snapshot_id=snapshot.snapshot_id, operation="", summary=NO_SUMMARY)
        return PublishedHead(
            snapshot_id=snapshot.snapshot_id,
            operation=snapshot.summary.operation.value,
            summary=snapshot.summary.additional_properties,
        )


def finish_publication(
    engine: Engine, resolved: ResolvedTable, command: str, branch: str, committed: PublishedHead, seconds: float
) -> None:
    """Run the post-commit actions of a procedure that moved a branch to a snapshot with new rows.

    Staged snapshots and those of other branches get no tags and marks until they are published: then main has the rows.

    Args:
        engine: The session and its catalogs.
        resolved: The table, as the procedure loaded it.
        command: The command of the result.
        branch: The branch that moved.
        committed: Its new head.
        seconds: How long the procedure took.
    """
    summary = committed.summary
    result = Result(
        command=command,
        table=resolved.name,
        mode=METADATA,
        rows_matched=None,
        seconds=PhaseSeconds(commit=seconds),
        snapshot_id=committed.snapshot_id,
        branch=branch,
        summary={"operation": committed.operation, **summary},
    )
    has_rows = ROWS_INSERTED in summary or committed.operation != "append"
    with suppress(ValueError):  # any program may have staged the snapshot, and written anything to its summary
        result = replace(
            add_file_counts(result, committed.operation, summary, rewrites=False),
            rows_deleted=count(summary, ROWS_DELETED),
            rows_updated=count(summary, ROWS_UPDATED),
            rows_inserted=count(summary, ROWS_INSERTED if has_rows else "added-records"),
        )
    session = StatementSettings.of(engine).iceberg
    after_statement(
        Finished(
            result=result,
            table=resolved.table,
            identifier=resolved.identifier,
            settings={name: session[name] for name in HOOK_PROPERTIES if name in session},
            added=None,
            callbacks=engine.callbacks,
        )
    )


def commit_outcome(
    engine: Engine,
    target: Target,
    outcome: Outcome,
    action: Action | None,
    summary: Mapping[str, str],
    uncommitted: AbstractContextManager[Any],
    skip_empty: bool,
    load_state: LoadState | None,
) -> Result:
    """Commit what a statement did; see `publish`."""
    mode, metrics, evolution = outcome.mode, outcome.metrics, target.evolution
    if evolution is not None:
        load_state = evolution.load
    if action is None:
        mode = mode if mode == METADATA else UNCHANGED
        if not is_recorded(target):
            return unchanged_result(target, outcome, mode)
        action, summary, metrics = AppendFiles(), conservation_summary(RowCounts()), metrics or TaskMetrics()
    with uncommitted:
        committed = commit(
            target.table,
            action,
            branch=target.branch,
            create_branch=target.create_branch,
            summary={
                **engine.commit_summary(),
                **target.session_properties,
                **summary,
                **target.block_properties,
                **replay_summary(target, outcome.command, mode, metrics),
            },
            wap_id=target.wap_id,
            skip_empty=skip_empty and not is_recorded(target),
            load_state=load_state,
            idempotency_key=target.idempotency_key,
        )
    if committed is None:
        return unchanged_result(target, outcome, mode)
    return committed_result(outcome.command, target, mode, committed, outcome.seconds(published=True), metrics)


def is_recorded(target: Target) -> bool:
    """Return whether a snapshot must record the statement even if it changes nothing."""
    match target.idempotency_key:
        case None:
            return False
        case IdempotencyKey():
            return True
        case StreamEpoch() as epoch:
            return not has_epochs(target.table.metadata, target.head, epoch)


def unchanged_result(target: Target, outcome: Outcome, mode: str) -> Result:
    """Return the result of a statement that made no snapshot; commit its schema change, if any, alone."""
    if target.evolution is not None:
        target.evolution.commit()
    return Result(
        command=outcome.command,
        table=target.resolved.name,
        mode=mode,
        rows_matched=0 if outcome.metrics is None else outcome.metrics.rows_matched,
        seconds=outcome.seconds(published=False),
        branch=target.branch,
    )


def committed_result(
    command: str,
    target: Target,
    mode: str,
    committed: CommittedSnapshot,
    seconds: PhaseSeconds,
    metrics: TaskMetrics | None = None,
) -> Result:
    """Return the result of a statement that made a snapshot.

    Args:
        command: The command.
        target: Its target.
        mode: The mode of the result.
        committed: The snapshot.
        seconds: The seconds of each phase.
        metrics: Row counts of the writers; None for a metadata delete, which reads no rows.
    """
    rows = optional_count(committed.summary, ROWS_DELETED)
    result = Result(
        command=command,
        table=target.resolved.name,
        mode=mode,
        rows_matched=rows if metrics is None else metrics.rows_matched,
        rows_deleted=rows if metrics is None else metrics.rows_deleted,
        rows_updated=0 if metrics is None else metrics.rows_updated,
        rows_inserted=0 if metrics is None else metrics.rows_inserted,
        seconds=seconds,
        snapshot_id=committed.snapshot_id,
        branch=target.branch,
        idempotency_key=key_text(target.idempotency_key),
    )
    rewrites = metrics is not None and metrics.rows_carried + metrics.rows_updated > 0
    return add_file_counts(result, str(committed.operation), committed.summary, rewrites=rewrites)


def key_text(key: CommitKey | None) -> str | None:
    """Return the idempotency key that a user gave; None for other keys."""
    return key.value if isinstance(key, IdempotencyKey) else None


def add_file_counts(result: Result, operation: str, summary: Mapping[str, str], *, rewrites: bool) -> Result:
    """Add the file counts of a snapshot's summary to a result.

    Args:
        result: The result.
        operation: The snapshot's operation.
        summary: The rest of its summary.
        rewrites: Whether new files contain rows of removed ones.
    """
    removed = count(summary, "deleted-data-files")
    rewritten = optional_count(summary, DATA_FILES_REWRITTEN)
    return replace(
        result,
        data_files_added=count(summary, "added-data-files"),
        data_files_removed=removed,
        data_files_rewritten=rewritten if rewritten is not None else removed if rewrites else 0,
        data_files_spliced=count(summary, DATA_FILES_SPLICED),
        data_files_marked=count(summary, DATA_FILES_MARKED),
        delete_files_added=count(summary, "added-delete-files"),
        delete_files_removed=count(summary, "removed-delete-files"),
        bytes_added=count(summary, "added-files-size"),
        bytes_removed=count(summary, "removed-files-size"),
        summary={"operation": operation, **summary},
    )


def merge_summary(metrics: TaskMetrics) -> dict[str, str]:
    """Return the summary entries of a MERGE about target rows, under the reference's keys (docs/semantics.md, M29)."""
    by_source = (metrics.rows_updated_by_source, metrics.rows_deleted_by_source)
    counts = {
        "copied": metrics.rows_carried,
        "deleted": metrics.rows_deleted,
        "updated": metrics.rows_updated,
        "inserted": metrics.rows_inserted,
        "matched-updated": metrics.rows_updated - by_source[0],
        "matched-deleted": metrics.rows_deleted - by_source[1],
        "not-matched-by-source-updated": by_source[0],
        "not-matched-by-source-deleted": by_source[1],
    }
    return {f"spark.merge-into.num-target-rows-{name}": str(value) for name, value in counts.items()}


def count(summary: Mapping[str, str], key: str) -> int:
    """Return a counter of a snapshot's summary; 0 if it is missing."""
    return optional_count(summary, key) or 0


def optional_count(summary: Mapping[str, str], key: str) -> int | None:
    """Return a counter of a snapshot's summary; None if it is missing."""
    text = summary.get(key)
    return None if text is None else int(text)


def run_once(engine: Engine, target: Target, key: CommitKey, run: Callable[[], Result]) -> Result:
    """Run a statement, unless the history of its target's branch has its key.

    Args:
        engine: The session and its catalogs.
        target: The table that the statement changes.
        key: Its key.
        run: Runs it.

    Raises:
        AnalysisError: the key belongs to another statement, or to a stream that has not written this table.
        DmlError: the statement failed.
    """
    started = time.perf_counter()
    metadata = target.table.metadata
    try:
        refuse_second_run(metadata, target.head, key)
        return run()
    except AlreadyAppliedError as found:
        result = first_result(target, found.snapshot, time.perf_counter() - started)
        finish(engine, target, result)
        return result


def first_result(target: Target, snapshot: Snapshot, seconds: float) -> Result:
    """Return the result of the first run of a statement with a key, from its snapshot's summary.

    Args:
        target: Its target.
        snapshot: The snapshot of the first run.
        seconds: The seconds that the lookup took.

    Raises:
        CorruptFileError: the snapshot's summary lacks the entries of `replay_summary`, or has an invalid count.
    """
    key, entries = target.idempotency_key, snapshot.summary
    assert key is not None
    assert entries is not None
    summary = entries.additional_properties
    mode, command = summary.get(MODE), summary.get(COMMAND)
    if isinstance(key, IdempotencyKey) and (mode is None or command is None):
        raise CorruptFileError(
            f"Snapshot {snapshot.snapshot_id} has the idempotency key '{key.value}', but does not record its command",
            hint="RowDelta did not write this summary: use another key",
            snapshot_id=snapshot.snapshot_id,
        )
    try:
        deleted = optional_count(summary, ROWS_DELETED)
        result = Result(
            command=command or entries.operation.value.upper(),
            table=target.resolved.name,
            mode=mode or UNCHANGED,
            rows_matched=optional_count(summary, ROWS_MATCHED if ROWS_MATCHED in summary else ROWS_DELETED),
            rows_deleted=deleted if mode == METADATA else deleted or 0,
            rows_updated=count(summary, ROWS_UPDATED),
            rows_inserted=count(summary, ROWS_INSERTED),
            seconds=PhaseSeconds(plan=seconds),
            snapshot_id=snapshot.snapshot_id,
            branch=target.branch,
            idempotency_key=key_text(key),
            replayed=True,
        )
        rewrites = count(summary, ROWS_CARRIED) + result.rows_updated > 0
        return add_file_counts(result, entries.operation.value, summary, rewrites=rewrites)
    except ValueError as error:
        raise CorruptFileError(
            f"The summary of snapshot {snapshot.snapshot_id} has a count that is not a number: {error}",
            snapshot_id=snapshot.snapshot_id,
        ) from error


def replay_summary(target: Target, command: str, mode: str, metrics: TaskMetrics | None) -> dict[str, str]:
    """Return the summary entries that `first_result` needs beside the counts; empty without an idempotency key.

    Args:
        target: The target of the statement.
        command: The command.
        mode: The mode of the result.
        metrics: Row counts of the writers; None for a metadata delete.
    """
    if target.idempotency_key is None:
        return {}
    entries = {COMMAND: command, MODE: mode}
    return entries if metrics is None else {**entries, ROWS_MATCHED: str(metrics.rows_matched)}
