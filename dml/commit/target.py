"""Where a snapshot goes: a branch, a new branch, or nowhere yet. Driver.

Input: the table's metadata. Output: the snapshot's parent, and what has to be true when it is committed.
"""

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableRequirement

from dml.errors import AnalysisError, NotFoundError
from dml.suggestions import did_you_mean

__all__ = ["Target", "parent_of", "requirements_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a snapshot goes.

    Attributes:
        branch: The branch that moves to it.
        create_branch: Whether the branch may be created, from main's head.
        stage_only: Add the snapshot, a child of the branch's head, without moving anything.
    """

    branch: str = MAIN_BRANCH
    create_branch: bool = False
    stage_only: bool = False


def parent_of(metadata: TableMetadata, target: Target) -> Snapshot | None:
    """The head of the branch; of a branch that is to be created, main's; None where there is no snapshot yet.

    Raises:
        NotFoundError: there is no such branch, and it may not be created.
        AnalysisError: it is a tag.
    """
    ref = metadata.refs.get(target.branch)
    if ref is None:
        if target.branch == MAIN_BRANCH or target.create_branch:
            return metadata.current_snapshot()
        raise NotFoundError(
            f"Cannot use branch (does not exist): {target.branch}",
            hint=did_you_mean(target.branch, metadata.refs),
            branch=target.branch,
        )
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise AnalysisError(f"{target.branch} is a tag, not a branch: tags cannot be written to", branch=target.branch)
    return metadata.snapshot_by_id(ref.snapshot_id)


def requirements_of(metadata: TableMetadata, target: Target, parent: Snapshot | None) -> tuple[TableRequirement, ...]:
    """What has to be true of the table when the snapshot is committed: the same table, the same head."""
    table = AssertTableUUID(uuid=metadata.table_uuid)
    if target.stage_only:
        return (table,)
    exists = target.branch in metadata.refs
    head = parent.snapshot_id if exists and parent is not None else None
    return (table, AssertRefSnapshotId(ref=target.branch, snapshot_id=head))
