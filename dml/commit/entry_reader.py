"""Entries of committed manifests, each read once for a commit, several at a time. Driver.

Input: lines of manifest lists. Output: their entries.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyiceberg.io import FileIO

from dml.manifests import entries_of
from dml.model.manifest import ManifestEntry, ManifestFile

__all__ = ["EntryReader"]

_MOST_THREADS: Final = 8


class EntryReader:
    """Reads manifests and keeps their entries for the next attempt.

    Args:
        io: The table's FileIO.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._known: dict[ManifestFile, tuple[ManifestEntry, ...]] = {}

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
