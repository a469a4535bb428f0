"""Apply the changes of a staged snapshot again, on the newest state of main. Driver.

Input: a table and one of its snapshots, usually one staged by write-audit-publish. Output: the action that commits its
changes, and the key that keeps them from being applied twice. Source: Iceberg's `CherryPickOperation`, `WapUtil`.

`CherryPick` is checked in every attempt, like an idempotency key: of two concurrent picks one is applied. Unlike the
reference, a dynamic overwrite is also refused if rows of its partitions were deleted meanwhile, not only if files were
added.
"""

from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.commit.actions import AppendFiles, ReplacePartitions
from dml.commit.changes import Operation
from dml.commit.window import ManifestReader, ancestors
from dml.errors import NotFoundError, ValidationFailedError
from dml.model.manifest import ContentFile, EntryStatus, ManifestContent
from dml.model.summary_keys import PUBLISHED_WAP_ID, REPLACE_PARTITIONS, SOURCE_SNAPSHOT_ID, WAP_ID
from dml.options import IsolationLevel

__all__ = ["CherryPick", "is_fast_forward", "picked_changes", "refuse_second_pick"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CherryPick:
    """A snapshot to apply again, at most once.

    Attributes:
        snapshot_id: The id of the snapshot.
        wap_id: The id under which it was staged; None if it was not.
    """

    snapshot_id: int
    wap_id: str | None = None

    @staticmethod
    def of(metadata: TableMetadata, snapshot_id: int) -> "CherryPick":
        """Find the snapshot of a table.

        Raises:
            NotFoundError: The table has no such snapshot.
        """
        snapshot = CherryPick(snapshot_id=snapshot_id).snapshot_of(metadata)
        return CherryPick(snapshot_id=snapshot_id, wap_id=summary_entry(snapshot, WAP_ID))

    def snapshot_of(self, metadata: TableMetadata) -> Snapshot:
        """Return the snapshot.

        Raises:
            NotFoundError: The table does not have it, or no longer.
        """
        snapshot = metadata.snapshot_by_id(self.snapshot_id)
        if snapshot is None:
            raise NotFoundError(
                f"Cannot cherry-pick unknown snapshot ID: {self.snapshot_id}",
                hint="Take one from the table's metadata table 'snapshots'; it may have been expired",
                snapshot_id=self.snapshot_id,
            )
        return snapshot

    def summary(self) -> dict[str, str]:
        """Return the keys of the new snapshot's summary that link it with the picked one."""
        published = {} if self.wap_id is None else {PUBLISHED_WAP_ID: self.wap_id}
        return {SOURCE_SNAPSHOT_ID: str(self.snapshot_id), **published}


def refuse_second_pick(metadata: TableMetadata, head: Snapshot | None, pick: CherryPick) -> None:
    """Raise if the history of a branch has the changes of a snapshot.

    Args:
        metadata: The table's newest metadata.
        head: The branch's head; None without a snapshot.
        pick: The snapshot.

    Raises:
        ValidationFailedError: The snapshot is an ancestor, was picked, or its WAP id was published.
    """
    picked = f"Cannot cherrypick snapshot {pick.snapshot_id}"
    for ancestor in ancestors(metadata, None if head is None else head.snapshot_id):
        known = {summary_entry(ancestor, WAP_ID), summary_entry(ancestor, PUBLISHED_WAP_ID)}
        if pick.wap_id is not None and pick.wap_id in known:
            message = f"Duplicate request to cherry pick wap id that was published already: {pick.wap_id}"
        elif ancestor.snapshot_id == pick.snapshot_id:
            message = f"{picked}: already an ancestor"
        elif summary_entry(ancestor, SOURCE_SNAPSHOT_ID) == str(pick.snapshot_id):
            message = f"{picked}: already picked to create ancestor {ancestor.snapshot_id}"
        else:
            continue
        raise ValidationFailedError(
            message, hint="The table has these rows: there is nothing to do", snapshot_id=ancestor.snapshot_id
        )


def is_fast_forward(metadata: TableMetadata, snapshot: Snapshot) -> bool:
    """Return True if a snapshot directly follows the head of main, so that main can move to it."""
    current = metadata.current_snapshot()
    return snapshot.parent_snapshot_id == (None if current is None else current.snapshot_id)


def picked_changes(table: Table, pick: CherryPick) -> AppendFiles | ReplacePartitions:
    """Return the changes of a snapshot as an action on the newest state of a table.

    Raises:
        ValidationFailedError: The snapshot is neither an append nor a dynamic overwrite, or the overwrite is not based
            on an ancestor of main's head.
        DmlError: A manifest cannot be read.
    """
    metadata = table.metadata
    snapshot = pick.snapshot_of(metadata)
    reader = ManifestReader(table.io)
    operation = None if snapshot.summary is None else snapshot.summary.operation.value
    if operation == Operation.APPEND and not added_files(snapshot, reader, ManifestContent.DELETES):
        return AppendFiles(data_files=added_files(snapshot, reader, ManifestContent.DATA))
    if operation == Operation.OVERWRITE and summary_entry(snapshot, REPLACE_PARTITIONS) == "true":
        refuse_other_base(metadata, snapshot)
        return ReplacePartitions(
            data_files=added_files(snapshot, reader, ManifestContent.DATA),
            starting_snapshot_id=snapshot.parent_snapshot_id,
            isolation_level=IsolationLevel.SERIALIZABLE,
        )
    raise ValidationFailedError(
        f"Cannot cherry-pick snapshot {pick.snapshot_id}: not append, dynamic overwrite, or fast-forward",
        hint="Other commits landed on main since it was staged: run its statement again. Its rows can be read with "
        f"VERSION AS OF {pick.snapshot_id}",
        snapshot_id=pick.snapshot_id,
    )


def added_files(snapshot: Snapshot, reader: ManifestReader, content: ManifestContent) -> tuple[ContentFile, ...]:
    manifests = [
        manifest
        for manifest in reader.manifests(snapshot)
        if manifest.content is content and manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    return tuple(
        entry.data_file
        for manifest in reader.prepare(manifests)
        for entry in reader.entries(manifest)
        if entry.status is EntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
    )


def refuse_other_base(metadata: TableMetadata, snapshot: Snapshot) -> None:
    parent_id = snapshot.parent_snapshot_id
    current = metadata.current_snapshot()
    history = ancestors(metadata, None if current is None else current.snapshot_id)
    if parent_id is not None and all(ancestor.snapshot_id != parent_id for ancestor in history):
        raise ValidationFailedError(
            "Cannot cherry-pick overwrite not based on an ancestor of the current state: "
            f"{snapshot.snapshot_id}, which is based on {parent_id}",
            hint="Main was rolled back, or snapshots expired, since it was staged: run its statement again",
            snapshot_id=snapshot.snapshot_id,
        )


def summary_entry(snapshot: Snapshot, key: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)
