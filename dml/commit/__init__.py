"""Commits: files that tasks wrote become a snapshot of the table. Driver.

Input: a table and an action, a frozen dataclass that names files. Output: the committed snapshot, or an error.
`CommitStateUnknownError` means that the commit may have landed; after any other error nothing was published.

One commit goes through these modules. First, `row_conservation` checks the row counts. `actions` turns the action into
`changes`. `publish` makes attempts, one thread at a time, until the catalog accepts one (`dml.retry`). It detects
statements and cherry-picks that were applied before (`idempotency`, `cherry_pick`), resolves attempts with an unknown
outcome, and deletes unused metadata files. Each `attempt` determines the concurrent commits (`window`), checks them for
conflicts (`validation`, `concurrent_deletes`), filters, writes and merges manifests (`new_manifests`), and builds the
`summary`.
"""

from dml.commit.actions import (
    Action,
    AppendFiles,
    DeleteFiles,
    OverwriteByFilter,
    OverwriteFiles,
    ReplacePartitions,
    RewriteFiles,
    RewriteManifests,
    RowDelta,
    changes_of,
)
from dml.commit.attempt import NO_RETENTION
from dml.commit.changes import RowLevelChanges
from dml.commit.cherry_pick import CherryPick, is_fast_forward, picked_changes, refuse_second_pick
from dml.commit.idempotency import (
    AlreadyAppliedError,
    CommitKey,
    IdempotencyKey,
    StreamEpoch,
    has_epochs,
    refuse_second_run,
)
from dml.commit.publish import CommittedSnapshot, branch_update, commit
from dml.commit.row_conservation import RowCounts, check_changed_files, check_rows_added, conservation_summary
from dml.commit.summary import is_reserved
from dml.commit.window import ancestors

__all__ = [
    "NO_RETENTION",
    "Action",
    "AlreadyAppliedError",
    "AppendFiles",
    "CherryPick",
    "CommitKey",
    "CommittedSnapshot",
    "DeleteFiles",
    "IdempotencyKey",
    "OverwriteByFilter",
    "OverwriteFiles",
    "ReplacePartitions",
    "RewriteFiles",
    "RewriteManifests",
    "RowCounts",
    "RowDelta",
    "RowLevelChanges",
    "StreamEpoch",
    "ancestors",
    "branch_update",
    "changes_of",
    "check_changed_files",
    "check_rows_added",
    "commit",
    "conservation_summary",
    "has_epochs",
    "is_fast_forward",
    "is_reserved",
    "picked_changes",
    "refuse_second_pick",
    "refuse_second_run",
]
