"""Commits: files that tasks wrote become a snapshot of the table. Driver.

Input: a table and an action, a frozen dataclass that names files. Output: the committed snapshot, or an error that says
what happened to it: nothing was published (`CommitConflictError`, `ValidationFailedError` and all others), or nobody
knows (`CommitStateUnknownError`).

One commit goes through these modules: the action's own (`row_delta`, `overwrite_files` ...) tells it as `changes`;
`snapshot_producer` prepares an attempt (`target`, `window`, `validation`, `concurrent_deletes`, `manifest_filter`,
`new_manifests` and `manifests`, `manifest_merge`, `summary`); `publish` gives it to the catalog, again and again
(`retry`), one thread after the other (`turns`), finds out what became of it (`outcome`) and deletes what is not used
(`cleanup`). Before all of it `row_conservation` adds up the rows. `idempotency` looks whether the statement was applied
already.
"""

from dml.commit.append_files import AppendFiles
from dml.commit.delete_files import DeleteFiles
from dml.commit.idempotency import AlreadyAppliedError, IdempotencyKey, refuse_second_run
from dml.commit.overwrite_files import OverwriteByFilter, OverwriteFiles
from dml.commit.publish import Action, CommittedSnapshot, commit
from dml.commit.replace_partitions import ReplacePartitions
from dml.commit.rewrite_files import RewriteFiles
from dml.commit.row_conservation import RowCounts, check_changed_files, check_rows_added, conservation_summary
from dml.commit.row_delta import RowDelta
from dml.commit.row_level_changes import RowLevelChanges

__all__ = [
    "Action",
    "AlreadyAppliedError",
    "AppendFiles",
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
    "check_changed_files",
    "check_rows_added",
    "commit",
    "conservation_summary",
    "refuse_second_run",
]
