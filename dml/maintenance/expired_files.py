"""Find the files that only expired snapshots reach. Driver.

    expired snapshots ── lists ── manifests that no kept list has ── live files ─┐
    kept snapshots ───── lists ── all other manifests ────────────── live files ─┴─> the difference

Input: table metadata and the expired snapshots. Output: their files, except those that kept snapshots or the metadata
name. Manifest entries are compared, not summaries: a file may be added twice, be in manifests of two specs, or have two
locations. So all manifests of kept snapshots are read as long as there are candidates. Locations are compared by their
decoded paths, with links resolved and without scheme and bucket, so a file that might be needed is kept.

Metadata files are immutable, so the reader caches their content: a retried commit, and each check before a deletion,
only read new files. For kept manifests it caches 64-bit hashes of the paths: a collision only keeps an unneeded file.

A missing or damaged manifest or manifest list of a kept snapshot is an error, and nothing may be deleted. One of an
expired snapshot is skipped: the files that it names are kept, and `remove_orphan_files` finds them. Source: Iceberg's
`ExpireSnapshotsSparkAction`, `ReachableFileCleanup`.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.errors import CorruptFileError
from dml.maintenance.orphan_choice import Equivalents, identity_of
from dml.maintenance.storage import RealNames
from dml.manifests.entry_fields import CONTENT, FILE_PATH, STATUS
from dml.manifests.read import entries_of, manifests_of, read_each
from dml.manifests.read_arrays import read_arrays
from dml.model.manifest import EntryStatus, FileContent, ManifestContent, ManifestFile

__all__ = ["ExpiredFile", "ExpiredFiles", "FileKind", "FilesOfSnapshots"]

Hashes = npt.NDArray[np.int64]

READ: Final = (STATUS, CONTENT, FILE_PATH)
NO_EQUIVALENTS: Final = Equivalents.of({}, {})


class FileKind(StrEnum):
    """The kinds of files that expire, in the order of their deletion."""

    DATA = "data files"
    POSITION_DELETES = "position delete files"
    EQUALITY_DELETES = "equality delete files"
    MANIFEST = "manifests"
    MANIFEST_LIST = "manifest lists"
    STATISTICS = "statistics files"


KINDS: Final = {
    FileContent.DATA.value: FileKind.DATA,
    FileContent.POSITION_DELETES.value: FileKind.POSITION_DELETES,
    FileContent.EQUALITY_DELETES.value: FileKind.EQUALITY_DELETES,
}


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file that only expired snapshots reach."""

    kind: FileKind
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredFiles:
    """The files of expired snapshots.

    Attributes:
        files: The files to delete, by kind.
        unreadable: The manifest lists and manifests of expired snapshots that are missing or damaged, with the reason.
    """

    files: tuple[ExpiredFile, ...]
    unreadable: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class FileNames:
    """Compares the locations of files.

    Attributes:
        real: Resolves symbolic links of the local file system.
        folders: A cache of the decoded paths of folders.
    """

    real: RealNames = field(default_factory=RealNames)
    folders: dict[str, str] = field(default_factory=dict)

    def all_of(self, location: str) -> set[str]:
        """Return all paths that may refer to the file at a location."""
        return {self.path(name) for name in self.real.all_of(location)}

    def path(self, location: str) -> str:
        folder, _, name = location.rpartition("/")
        if not folder or name in {"", ".", ".."} or "%" in name:
            return identity_of(location, NO_EQUIVALENTS).path
        if folder not in self.folders:
            self.folders[folder] = identity_of(folder, NO_EQUIVALENTS).path.rstrip("/")
        return f"{self.folders[folder]}/{name}"

    def hashes(self, locations: Iterable[str]) -> Hashes:
        """Return the hashes of all names of some locations."""
        return np.array([hash(path) for location in locations for path in self.all_of(location)], np.int64)


class FilesOfSnapshots:
    """Reads and compares the files of snapshots.

    Args:
        io: The table's FileIO.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._names = FileNames()
        self._lists: dict[str, tuple[ManifestFile, ...]] = {}
        self._manifests: dict[str, ManifestFile] = {}
        self._contents: dict[str, tuple[ExpiredFile, ...]] = {}
        self._kept: dict[str, Hashes] = {}
        self._candidates: dict[str, Hashes] = {}
        self._checked: set[str] = set()

    def expired(self, metadata: TableMetadata, expired: frozenset[int]) -> ExpiredFiles:
        """Find the files that only expired snapshots reach.

        Args:
            metadata: The table before the expiration.
            expired: The ids of the expired snapshots.

        Raises:
            CorruptFileError: A file of a kept snapshot is missing or damaged.
            ExecutionError: The storage failed.
        """
        gone = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in expired]
        kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expired]
        unreadable = dict(self._read_lists(gone, skip_damaged=True))
        kept_manifests = self.manifests(kept)
        candidates = dict.fromkeys(
            manifest.manifest_path
            for snapshot in gone
            for manifest in self._lists.get(snapshot.manifest_list, ())
            if manifest.manifest_path not in kept_manifests
        )
        unreadable |= self._read_contents([self._manifests[path] for path in candidates])
        statistics = (*metadata.statistics, *metadata.partition_statistics)
        found = (
            *(file for path in candidates for file in self._contents.get(path, ())),
            *(ExpiredFile(FileKind.MANIFEST, path) for path in candidates if path not in unreadable),
            *(
                ExpiredFile(FileKind.MANIFEST_LIST, snapshot.manifest_list)
                for snapshot in gone
                if snapshot.manifest_list not in unreadable
            ),
            *(
                ExpiredFile(FileKind.STATISTICS, one.statistics_path)
                for one in statistics
                if one.snapshot_id in expired
            ),
        )
        remaining = metadata.model_copy(
            update={
                "snapshots": kept,
                "statistics": [one for one in metadata.statistics if one.snapshot_id not in expired],
                "partition_statistics": [
                    one for one in metadata.partition_statistics if one.snapshot_id not in expired
                ],
            }
        )
        distinct = tuple({self._names.path(file.location): file for file in reversed(found)}.values())[::-1]
        files = self._unneeded(distinct, remaining)
        order = list(FileKind)
        return ExpiredFiles(
            files=tuple(sorted(files, key=lambda file: order.index(file.kind))), unreadable=tuple(unreadable.items())
        )

    def still_unneeded(self, files: Sequence[ExpiredFile], table: Table) -> tuple[ExpiredFile, ...]:
        """Return the files that the newest state of the table still does not reach.

        Raises:
            CorruptFileError: A file of the table is missing or damaged.
            ExecutionError: The storage failed.
        """
        return self._unneeded(files, table.metadata, [table.metadata_location])

    def manifests(self, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
        """Return the manifests of kept snapshots, by location.

        Raises:
            CorruptFileError: A manifest list is missing or damaged.
            ExecutionError: The storage failed.
        """
        kept = list(snapshots)
        self._read_lists(kept, skip_damaged=False)
        for snapshot in kept:
            if snapshot.manifest_list not in self._checked:
                check_totals(snapshot, self._lists[snapshot.manifest_list])
                self._checked.add(snapshot.manifest_list)
        return {
            manifest.manifest_path: manifest for snapshot in kept for manifest in self._lists[snapshot.manifest_list]
        }

    def equality_columns(self, manifests: Iterable[ManifestFile]) -> set[int]:
        """Return the field ids of the columns that live equality deletes of kept manifests compare.

        Raises:
            CorruptFileError: A manifest is missing or damaged.
            ExecutionError: The storage failed.
        """
        deletes = [manifest for manifest in manifests if manifest.content is ManifestContent.DELETES]

        def read(manifest: ManifestFile) -> set[int]:
            entries = entries_of(manifest, self._io, live_only=True)
            return {column for entry in entries for column in entry.data_file.equality_ids}

        return set().union(*(columns for _, columns in read_each(deletes, read)))

    def _unneeded(
        self, files: Sequence[ExpiredFile], metadata: TableMetadata, others: Iterable[str] = ()
    ) -> tuple[ExpiredFile, ...]:
        """Return the files that table metadata does not reach."""
        if not files:
            return ()
        manifests = self.manifests(metadata.snapshots)
        named = [
            *others,
            *(entry.metadata_file for entry in metadata.metadata_log),
            *(snapshot.manifest_list for snapshot in metadata.snapshots),
            *(one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)),
            *manifests,
        ]
        files = self._without(files, [self._names.hashes(named)])
        # One Puffin file may hold both statistics and deletion vectors.
        if any(file.kind not in {FileKind.MANIFEST, FileKind.MANIFEST_LIST} for file in files):
            self._read_kept([one for path, one in manifests.items() if path not in self._kept])
            files = self._without(files, [self._kept[path] for path in manifests])
        return tuple(files)

    def _without(self, files: Sequence[ExpiredFile], needed: Sequence[Hashes]) -> list[ExpiredFile]:
        if not needed:
            return list(files)
        names = [self._hashes_of(file) for file in files]
        sizes = np.array([len(one) for one in names])
        hits = np.isin(np.concatenate(names), np.unique(np.concatenate(needed))) if names else np.array([], np.bool_)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1])) if names else np.array([], np.int64)
        is_needed = np.logical_or.reduceat(hits, starts) if names else hits
        return [file for file, keep in zip(files, is_needed.tolist(), strict=True) if not keep]

    def _hashes_of(self, file: ExpiredFile) -> Hashes:
        """Return the hashes of a candidate's paths; cached, because they are compared several times."""
        if file.location not in self._candidates:
            self._candidates[file.location] = self._names.hashes([file.location])
        return self._candidates[file.location]

    def _read_lists(self, snapshots: Sequence[Snapshot], *, skip_damaged: bool) -> Iterable[tuple[str, str]]:
        """Read manifest lists; return the damaged ones that were skipped, with the reason."""

        def read(snapshot: Snapshot) -> tuple[ManifestFile, ...] | CorruptFileError:
            try:
                return manifests_of(self._io, snapshot)
            except CorruptFileError as error:
                if not skip_damaged:
                    raise
                return error

        unread = [snapshot for snapshot in snapshots if snapshot.manifest_list not in self._lists]
        damaged = []
        with ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="manifest-lists") as pool:
            for snapshot, found in zip(unread, pool.map(read, unread), strict=True):
                if isinstance(found, CorruptFileError):
                    damaged.append((snapshot.manifest_list, found.message))
                    continue
                # Lists repeat most manifests, so one object of each is kept.
                self._lists[snapshot.manifest_list] = tuple(
                    self._manifests.setdefault(manifest.manifest_path, manifest) for manifest in found
                )
        return damaged

    def _read_contents(self, manifests: Sequence[ManifestFile]) -> dict[str, str]:
        """Read the live files of manifests of expired snapshots; return the damaged manifests, with the reason."""

        def read(manifest: ManifestFile) -> tuple[ExpiredFile, ...] | CorruptFileError:
            try:
                return tuple(live_files(self._io, manifest))
            except CorruptFileError as error:
                return error

        unread = [manifest for manifest in manifests if manifest.manifest_path not in self._contents]
        damaged = {}
        for manifest, found in read_each(unread, read):
            if isinstance(found, CorruptFileError):
                damaged[manifest.manifest_path] = found.message
            else:
                self._contents[manifest.manifest_path] = found
        return damaged

    def _read_kept(self, manifests: Sequence[ManifestFile]) -> None:
        """Read the names of the live files of kept manifests."""

        def read(manifest: ManifestFile) -> Hashes:
            known = self._contents.get(manifest.manifest_path)
            files = live_files(self._io, manifest) if known is None else known
            return self._names.hashes(file.location for file in files)

        for manifest, hashes in read_each(manifests, read):
            self._kept[manifest.manifest_path] = hashes


def live_files(io: FileIO, manifest: ManifestFile) -> Iterator[ExpiredFile]:
    for entries in read_arrays([manifest], lambda _: io, READ):
        live = np.flatnonzero(entries.numbers(STATUS) != EntryStatus.DELETED.value)
        contents = entries.values(CONTENT, live)
        for content, path in zip(contents, entries.values(FILE_PATH, live), strict=True):
            yield ExpiredFile(KINDS[content], path)


def check_totals(snapshot: Snapshot, manifests: Iterable[ManifestFile]) -> None:
    """Compare a kept snapshot's manifest list with its summary: a list truncated between two blocks looks complete.

    Raises:
        CorruptFileError: The list counts fewer files than the summary.
    """
    if snapshot.summary is None:
        return
    for total, content in (("total-data-files", ManifestContent.DATA), ("total-delete-files", ManifestContent.DELETES)):
        recorded = snapshot.summary.get(total)
        counts = [
            (manifest.added_files_count, manifest.existing_files_count)
            for manifest in manifests
            if manifest.content is content
        ]
        if recorded is None or not recorded.isdecimal() or any(None in pair for pair in counts):
            continue
        listed = sum((added or 0) + (existing or 0) for added, existing in counts)
        if listed < int(recorded):
            raise CorruptFileError(
                f"The manifest list '{snapshot.manifest_list}' has {listed} {content.name.lower()} files where the "
                f"summary of snapshot {snapshot.snapshot_id} has {total} = {recorded}",
                hint="It may be cut short, so that nothing was deleted. Restore it, or expire that snapshot",
                file=snapshot.manifest_list,
            )
