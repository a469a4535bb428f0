"""Task commits and a committed snapshot to a `Result`. Driver."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dml.commit import CommittedSnapshot, RowCounts
from dml.engine.target import Target
from dml.errors import ExecutionError
from dml.model.manifest import ContentFile
from dml.model.summary_keys import ROWS_DELETED
from dml.model.write_task import ChangedFile, RowOrigins, TaskCommit, TaskMetrics
from dml.result import PhaseSeconds, Result

__all__ = [
    "WriteOutcome",
    "committed_result",
    "count",
    "merge_summary",
    "nothing_changed",
    "recorded",
    "with_files",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """What all tasks of a write did.

    Attributes:
        data_files: New data files.
        delete_files: New delete files.
        removed_data_files: Paths of the data files that left.
        rewritten_delete_files: Keys of the delete files that new ones replace.
        referenced_data_files: Paths of the data files that new delete files point to.
        changed_files: What became of the rows of the data files that lost or changed some.
        row_origins: Where the rows of rewritten data files were, as far as tasks told.
        metrics: Sums.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    rewritten_delete_files: frozenset[tuple[str, int | None, int | None]] = frozenset()
    referenced_data_files: frozenset[str] = frozenset()
    changed_files: tuple[ChangedFile, ...] = ()
    row_origins: tuple[RowOrigins, ...] = ()
    metrics: TaskMetrics

    @staticmethod
    def of(commits: Iterable[TaskCommit]) -> "WriteOutcome":
        """Add up task commits.

        Raises:
            ExecutionError: two tasks changed one data file, so that rows would be carried twice.
        """
        messages = list(commits)
        for paths in ("removed_data_files", "referenced_data_files"):
            named = [path for message in messages for path in getattr(message, paths)]
            if len(named) != len(set(named)):
                raise ExecutionError(
                    "Two tasks changed one data file: its rows did not come to one task",
                    hint="Nothing was changed. Please report the statement",
                    files=tuple(sorted({path for path in named if named.count(path) > 1})),
                )
        return WriteOutcome(
            data_files=tuple(file for message in messages for file in message.data_files),
            delete_files=tuple(file for message in messages for file in message.delete_files),
            removed_data_files=frozenset(path for message in messages for path in message.removed_data_files),
            rewritten_delete_files=frozenset(key for message in messages for key in message.rewritten_delete_files),
            referenced_data_files=frozenset(path for message in messages for path in message.referenced_data_files),
            changed_files=tuple(file for message in messages for file in message.changed_files),
            row_origins=tuple(origins for message in messages for origins in message.row_origins),
            metrics=sum((message.metrics for message in messages), TaskMetrics()),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.data_files or self.delete_files or self.removed_data_files)

    @property
    def row_counts(self) -> RowCounts:
        """The rows, as they have to add up."""
        metrics = self.metrics
        return RowCounts(
            deleted=metrics.rows_deleted,
            updated=metrics.rows_updated,
            inserted=metrics.rows_inserted,
            carried=metrics.rows_carried,
        )

    @property
    def paths(self) -> frozenset[str]:
        """All new files."""
        return frozenset(file.path for file in (*self.data_files, *self.delete_files))


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
