"""What a statement did, as a `Result`; and statements with an idempotency key, which run once. Driver.

Input: a statement and its key. Output: its result; a second run's is the first one's. The key is looked for before
anything is planned, and again in every attempt to commit, on the newest state of the table: of two runs at once one
is applied, and the other deletes what it wrote.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pyiceberg.table.snapshots import Snapshot

from dml.commit import (
    AlreadyAppliedError,
    AppendFiles,
    CommittedSnapshot,
    IdempotencyKey,
    RowCounts,
    commit,
    conservation_summary,
    refuse_second_run,
)
from dml.engine.engine import Engine
from dml.engine.target import Target
from dml.errors import CorruptFileError
from dml.model.summary_keys import (
    COMMAND,
    MODE,
    ROWS_CARRIED,
    ROWS_DELETED,
    ROWS_INSERTED,
    ROWS_MATCHED,
    ROWS_UPDATED,
)
from dml.model.write_task import TaskMetrics
from dml.result import PhaseSeconds, Result

__all__ = [
    "committed_result",
    "count",
    "merge_summary",
    "nothing_changed",
    "recorded",
    "replay_summary",
    "run_once",
    "unchanged",
    "with_files",
]


def nothing_changed(
    command: str, target: Target, seconds: float, metrics: TaskMetrics | None = None, mode: str = "none"
) -> Result:
    """The result of a statement that made no snapshot."""
    return Result(
        command=command,
        table=target.resolved.name,
        mode=mode,
        rows_matched=0 if metrics is None else metrics.rows_matched,
        seconds=PhaseSeconds(plan=seconds),
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
    """The result of a statement that made a snapshot.

    Args:
        command: The command.
        target: Its target.
        mode: How it was done.
        committed: The snapshot.
        seconds: By phase.
        metrics: Row counts of the writers; None for a delete by metadata, which did not look at rows.
    """
    rows = recorded(committed.summary, ROWS_DELETED)
    key = target.idempotency_key
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
        idempotency_key=None if key is None else key.value,
    )
    rewrites = metrics is not None and metrics.rows_carried + metrics.rows_updated > 0
    return with_files(result, str(committed.operation), committed.summary, rewrites=rewrites)


def with_files(result: Result, operation: str, summary: Mapping[str, str], *, rewrites: bool) -> Result:
    """A result with what a snapshot's summary says of files.

    Args:
        result: The result.
        operation: The snapshot's operation.
        summary: The rest of its summary.
        rewrites: Whether rows of the files that left stand in new ones.
    """
    removed = count(summary, "deleted-data-files")
    return replace(
        result,
        data_files_added=count(summary, "added-data-files"),
        data_files_removed=removed,
        data_files_rewritten=removed if rewrites else 0,
        delete_files_added=count(summary, "added-delete-files"),
        delete_files_removed=count(summary, "removed-delete-files"),
        bytes_added=count(summary, "added-files-size"),
        bytes_removed=count(summary, "removed-files-size"),
        summary={"operation": operation, **summary},
    )


def merge_summary(metrics: TaskMetrics) -> dict[str, str]:
    """What the snapshot of a MERGE says of target rows, under the reference's keys (docs/semantics.md, M29)."""
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
    """A counter of a snapshot's summary; one that is not there is 0."""
    return recorded(summary, key) or 0


def recorded(summary: Mapping[str, str], key: str) -> int | None:
    """A counter of a snapshot's summary; None where it is not there."""
    text = summary.get(key)
    return None if text is None else int(text)


METADATA: Final = "metadata"


def run_once(target: Target, key: IdempotencyKey, run: Callable[[], Result]) -> Result:
    """Run a statement, unless the history of its target's branch has its key.

    Args:
        target: What the statement writes to.
        key: Its key.
        run: Runs it.

    Raises:
        AnalysisError: the key belongs to another statement.
        DmlError: what running it raises.
    """
    started = time.perf_counter()
    metadata = target.table.metadata
    head = None if target.snapshot_id is None else metadata.snapshot_by_id(target.snapshot_id)
    try:
        refuse_second_run(metadata, head, key)
        return run()
    except AlreadyAppliedError as found:
        return first_result(target, found.snapshot, time.perf_counter() - started)


def first_result(target: Target, snapshot: Snapshot, seconds: float) -> Result:
    """The result of a statement that the table has already: the first run's, from what its snapshot says.

    Args:
        target: Its target.
        snapshot: The snapshot of the first run.
        seconds: That it took to find out.

    Raises:
        CorruptFileError: the snapshot's summary is none that a statement with a key makes.
    """
    key, said = target.idempotency_key, snapshot.summary
    assert key is not None
    assert said is not None
    summary = said.additional_properties
    mode, command = summary.get(MODE), summary.get(COMMAND)
    if mode is None or command is None:
        raise CorruptFileError(
            f"Snapshot {snapshot.snapshot_id} has the idempotency key '{key.value}', but does not say what it did",
            hint="RowDelta did not write this summary: use another key",
            snapshot_id=snapshot.snapshot_id,
        )
    try:
        deleted = recorded(summary, ROWS_DELETED)
        result = Result(
            command=command,
            table=target.resolved.name,
            mode=mode,
            rows_matched=recorded(summary, ROWS_MATCHED if ROWS_MATCHED in summary else ROWS_DELETED),
            rows_deleted=deleted if mode == METADATA else deleted or 0,
            rows_updated=count(summary, ROWS_UPDATED),
            rows_inserted=count(summary, ROWS_INSERTED),
            seconds=PhaseSeconds(plan=seconds),
            snapshot_id=snapshot.snapshot_id,
            branch=target.branch,
            idempotency_key=key.value,
            replayed=True,
        )
        rewrites = count(summary, ROWS_CARRIED) + result.rows_updated > 0
        return with_files(result, said.operation.value, summary, rewrites=rewrites)
    except ValueError as error:
        raise CorruptFileError(
            f"The summary of snapshot {snapshot.snapshot_id} has a count that is no number: {error}",
            snapshot_id=snapshot.snapshot_id,
        ) from error


def replay_summary(target: Target, command: str, mode: str, metrics: TaskMetrics | None) -> dict[str, str]:
    """What a snapshot says, beside its counts, for `first_result`; nothing without an idempotency key.

    Args:
        target: The target of the statement.
        command: The command.
        mode: How it was done.
        metrics: Row counts of the writers; None for a delete by metadata.
    """
    if target.idempotency_key is None:
        return {}
    said = {COMMAND: command, MODE: mode}
    return said if metrics is None else {**said, ROWS_MATCHED: str(metrics.rows_matched)}


def unchanged(
    engine: Engine,
    command: str,
    target: Target,
    started: float,
    metrics: TaskMetrics | None = None,
    mode: str = "none",
) -> Result:
    """The result of a statement that changes nothing; with an idempotency key a snapshot without files records it.

    Without that record a second run would find out anew what it has to do, and might change rows that came meanwhile.

    Args:
        engine: The session and its catalogs.
        command: The command.
        target: Its target.
        started: When it started, by `time.perf_counter`.
        metrics: Row counts of the writers; None where there was nothing to look at.
        mode: How it was done.

    Raises:
        DmlError: the record cannot be committed.
    """
    planned = time.perf_counter()
    if target.idempotency_key is None:
        return nothing_changed(command, target, planned - started, metrics, mode)
    metrics = metrics or TaskMetrics()
    committed = commit(
        target.table,
        AppendFiles(),
        branch=target.branch,
        create_branch=target.create_branch,
        summary={
            **engine.commit_summary(),
            **conservation_summary(RowCounts()),
            **replay_summary(target, command, mode, metrics),
        },
        idempotency_key=target.idempotency_key,
    )
    seconds = PhaseSeconds(plan=planned - started, commit=time.perf_counter() - planned)
    return committed_result(command, target, mode, committed, seconds, metrics)
