"""Commits: files that tasks wrote become a snapshot of the table. Driver.

Input: a table and an action, a frozen dataclass that names files. Output: the committed snapshot, or an error that says
what happened to it: nothing was published (`CommitConflictError`, `ValidationFailedError` and all others), or nobody
knows (`CommitStateUnknownError`).

One commit goes through these modules. Before it `row_conservation` adds up the rows. `actions` says what the action
comes to as `changes`. `publish` makes attempts, one thread after the other, until the catalog takes one
(`dml.retry`); it looks whether the statement was applied already (`idempotency`), finds out what became of an attempt
that was not answered (`outcome`), and deletes the metadata files that nothing uses. Each attempt is prepared by
`snapshot_producer`: what others committed meanwhile (`window`), whether it stands in the way (`validation`,
`concurrent_deletes`), the manifests without the files that go (`manifest_filter`), the new and merged ones
(`new_manifests`), and the `summary`.
"""

from dml.commit.actions import (
    Action,
    AppendFiles,
    DeleteFiles,
    OverwriteByFilter,
    OverwriteFiles,
    ReplacePartitions,
    RewriteFiles,
    RowDelta,
    changes_of,
)
from dml.commit.changes import RowLevelChanges
from dml.commit.idempotency import (
    AlreadyAppliedError,
    CommitKey,
    IdempotencyKey,
    StreamEpoch,
    has_epochs,
    refuse_second_run,
)
from dml.commit.publish import CommittedSnapshot, commit
from dml.commit.row_conservation import RowCounts, check_changed_files, check_rows_added, conservation_summary
from dml.commit.summary import is_reserved
from dml.commit.window import ancestors

__all__ = [
    "Action",
    "AlreadyAppliedError",
    "AppendFiles",
    "CommitKey",
    "CommittedSnapshot",
    "DeleteFiles",
    "IdempotencyKey",
    "OverwriteByFilter",
    "OverwriteFiles",
    "ReplacePartitions",
    "RewriteFiles",
    "RowCounts",
    "RowDelta",
    "RowLevelChanges",
    "StreamEpoch",
    "ancestors",
    "changes_of",
    "check_changed_files",
    "check_rows_added",
    "commit",
    "conservation_summary",
    "has_epochs",
    "is_reserved",
    "refuse_second_run",
]
