"""The snapshots that were committed since a statement read the table, and what they added and removed. Driver.

Input: the table's metadata, the starting snapshot of the statement, the head of its branch. Output: manifest entries.
Manifest lists and manifests are read once per commit, several in parallel.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.commit.changes import Operation
from dml.errors import CommitConflictError
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from dml.pruning.pruner import FileFilter

__all__ = ["CommitWindow", "ManifestReader", "ancestors", "open_window", "walk_back"]


class ManifestReader:
    """Reads manifest lists and manifests, and caches their entries for later checks and attempts of the same commit.

    Args:
        io: The table's FileIO.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self._known: dict[ManifestFile, tuple[ManifestEntry, ...]] = {}

    def manifests(self, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
        """Return the manifests of a snapshot; none without a snapshot.

        Raises:
            CorruptFileError: the manifest list is missing or broken.
            ExecutionError: the storage failed.
        """
        if snapshot is None:
            return ()
        if snapshot.manifest_list not in self._lists:
            self._lists[snapshot.manifest_list] = manifests_of(self._io, snapshot)
        return self._lists[snapshot.manifest_list]

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the entries of a manifest, deleted ones included.

        Raises:
            CorruptFileError: the manifest is missing or broken.
            ExecutionError: the storage failed.
        """
        # The whole list entry is the key: another entry for the same manifest may assign other row ids.
        if manifest not in self._known:
            self._known[manifest] = tuple(entries_of(manifest, self._io))
        return self._known[manifest]

    def prepare(self, manifests: Iterable[ManifestFile]) -> Sequence[ManifestFile]:
        """Read manifests in parallel and cache their entries.

        Returns:
            The same manifests.
        """
        wanted = tuple(manifests)
        missing = [manifest for manifest in wanted if manifest not in self._known]
        if len(missing) > 1:
            with ThreadPoolExecutor(min(limits.READ_THREADS, len(missing)), thread_name_prefix="manifests") as pool:
                list(pool.map(self.entries, missing))
        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWindow:
    """The snapshots after a start, up to a head.

    Attributes:
        snapshots: The snapshots, newest first.
        reader: Reads manifests.
    """

    snapshots: tuple[Snapshot, ...]
    reader: ManifestReader

    def entries(
        self, content: ManifestContent, status: EntryStatus, operations: frozenset[Operation], wanted: FileFilter
    ) -> Iterator[ManifestEntry]:
        """Yield entries that the window's snapshots wrote.

        Args:
            content: The content of the manifests.
            status: ADDED or DELETED.
            operations: Read only snapshots with one of these operations, or without a summary.
            wanted: Prunes manifests that cannot list such files.
        """
        ids = {snapshot.snapshot_id for snapshot in self.snapshots}
        manifests = [
            manifest
            for snapshot in self.snapshots
            if snapshot.summary is None or snapshot.summary.operation.value in operations
            for manifest in self.reader.manifests(snapshot)
            if manifest.content is content
            and manifest.added_snapshot_id == snapshot.snapshot_id
            and may_have(manifest, status)
            and wanted.may_list_matches(manifest)
        ]
        for manifest in self.reader.prepare(manifests):
            for entry in self.reader.entries(manifest):
                if entry.status is status and entry.snapshot_id in ids:
                    yield entry


def is_first(snapshot: Snapshot, reader: ManifestReader) -> bool:
    """Return True if a snapshot without a parent has no predecessor; some writers drop ids of expired parents."""
    return all(
        manifest.added_snapshot_id == snapshot.snapshot_id and not manifest.existing_files_count
        for manifest in reader.manifests(snapshot)
    )


def may_have(manifest: ManifestFile, status: EntryStatus) -> bool:
    counts = {
        EntryStatus.EXISTING: manifest.existing_files_count,
        EntryStatus.ADDED: manifest.added_files_count,
        EntryStatus.DELETED: manifest.deleted_files_count,
    }
    return counts[status] != 0


def ancestors(metadata: TableMetadata, head_id: int | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, newest first, up to the first that is missing."""
    # Visited snapshots are removed, so that a cyclic history ends.
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    current_id = head_id
    while current_id is not None and (current := known.pop(current_id, None)) is not None:
        yield current
        current_id = current.parent_snapshot_id


def walk_back(
    metadata: TableMetadata, head_id: int | None, start_id: int | None
) -> tuple[tuple[Snapshot, ...], int | None]:
    """Return the snapshots after a start, up to a head.

    Args:
        metadata: The table.
        head_id: The head; None for a branch without snapshots.
        start_id: The snapshot to stop at, which may have expired. None walks to the first snapshot.

    Returns:
        The snapshots, newest first, and the id at which the walk ended: the start's, or that of a missing snapshot.
    """
    walked = tuple(takewhile(lambda snapshot: snapshot.snapshot_id != start_id, ancestors(metadata, head_id)))
    return walked, walked[-1].parent_snapshot_id if walked else head_id


def open_window(
    metadata: TableMetadata,
    reader: ManifestReader,
    *,
    starting_snapshot_id: int | None,
    head: Snapshot | None,
    must_descend: bool,
) -> CommitWindow:
    """Walk from the branch's head back to the start.

    Args:
        metadata: The table's newest metadata.
        reader: Reads manifests.
        starting_snapshot_id: The snapshot that the statement read; None if the table had none.
        head: The branch's head; None for a branch without snapshots.
        must_descend: Word the error as a missing ancestor.

    Raises:
        CommitConflictError: The walk does not reach the start.
    """
    walked, end_id = walk_back(metadata, None if head is None else head.snapshot_id, starting_snapshot_id)
    if end_id != starting_snapshot_id or (starting_snapshot_id is None and walked and not is_first(walked[-1], reader)):
        if head is None:
            message = f"Snapshot {starting_snapshot_id} is not in the history of the branch, which has no snapshot now"
        elif must_descend and starting_snapshot_id is not None:
            message = f"Snapshot {starting_snapshot_id} is not an ancestor of {head.snapshot_id}"
        else:
            message = (
                f"Cannot determine history between starting snapshot {starting_snapshot_id} "
                f"and the last known ancestor {walked[-1].snapshot_id}"
            )
        raise CommitConflictError(
            message,
            hint="The table was replaced or rolled back, or snapshots expired, while the statement ran: run it again",
            snapshot_id=starting_snapshot_id,
        )
    return CommitWindow(snapshots=walked, reader=reader)
