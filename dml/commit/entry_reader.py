"""Committed manifest lists and manifests, each read once for a commit, several at a time. Driver.

Input: snapshots, lines of manifest lists. Output: those lines, and their entries.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ManifestEntry, ManifestFile

__all__ = ["EntryReader"]

_MOST_THREADS: Final = 8


class EntryReader:
    """Reads manifest lists and manifests, and keeps what they hold for the next check and the next attempt.

    Args:
        io: The table's FileIO.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self._known: dict[ManifestFile, tuple[ManifestEntry, ...]] = {}

    def manifests(self, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot; none of no snapshot.

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
        """The entries of a manifest, deleted ones included.

        Raises:
            CorruptFileError: the manifest is missing or broken.
            ExecutionError: the storage failed.
        """
        # The whole line is the key: another line for the same file can give it other row ids.
        if manifest not in self._known:
            self._known[manifest] = tuple(entries_of(manifest, self._io))
        return self._known[manifest]

    def prepare(self, manifests: Iterable[ManifestFile]) -> Sequence[ManifestFile]:
        """Read manifests at once, so that `entries` has them.

        Returns:
            The same manifests.
        """
        wanted = tuple(manifests)
        missing = [manifest for manifest in wanted if manifest not in self._known]
        if len(missing) > 1:
            with ThreadPoolExecutor(min(_MOST_THREADS, len(missing)), thread_name_prefix="manifests") as pool:
                list(pool.map(self.entries, missing))
        return wanted
