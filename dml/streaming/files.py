"""The data files of a snapshot by position, as stream offsets count them. Driver.

Input: a snapshot. Output: the files that it added, or all that it has, each with its position. For many snapshots that
are read whole, the newest manifest list is enough. Only manifests with files of the micro-batch are opened, and their
entries are cached for the next one.

A position is the number of live files in all earlier manifests, plus the index of the file among the counted files of
its own manifest: this is what Iceberg's JAR writes to checkpoints. Positions therefore have gaps where a manifest
carries files of older snapshots, and they only ever increase.

Source: `MicroBatches` of Iceberg 1.10.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.deletes.delete_file_index import DeleteFileIndex
from dml.manifests.entries import PlannedFile
from dml.manifests.read import entries_of, manifests_of, read_all
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile
from dml.scan.planner import delete_index

__all__ = ["SnapshotFileCache", "SnapshotPart", "deletes_of"]

ADDED_DATA_FILES: Final = "added-data-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPart:
    """The files of a snapshot that a micro-batch reads.

    Attributes:
        snapshot: The snapshot.
        start: The position of the first file.
        end: The position to stop before; None to read to the end.
        scan_all_files: True to read all files of the snapshot, False to read those that it added.
    """

    snapshot: Snapshot
    start: int = 0
    end: int | None = None
    scan_all_files: bool = False

    @property
    def is_whole(self) -> bool:
        """True if every file that the snapshot added is read."""
        return self.start == 0 and self.end is None and not self.scan_all_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A manifest, and the positions of its files in the snapshot.

    Attributes:
        manifest: The manifest.
        first: The position of its first file.
        count: The number of its files that are read.
    """

    manifest: ManifestFile
    first: int
    count: int

    @property
    def end(self) -> int:
        """The position after its last file."""
        return self.first + self.count

    def is_in(self, part: SnapshotPart) -> bool:
        """Return True if the part contains files of this manifest."""
        return self.count > 0 and self.end > part.start and (part.end is None or self.first < part.end)


class SnapshotFileCache:
    """Lists the files of a table's snapshots, and caches the lists. Each stream has one; it is not thread-safe."""

    def __init__(self) -> None:
        self._newest_id: int | None = None
        self._newest: Mapping[int, Sequence[ManifestFile]] = {}  # data manifests by added snapshot id
        self._lines: OrderedDict[tuple[int, bool], tuple[Line, ...]] = OrderedDict()
        self._files: OrderedDict[tuple[str, bool], tuple[PlannedFile, ...]] = OrderedDict()

    def load_newest(self, table: Table, newest: Snapshot) -> None:
        """Read the manifest list of a snapshot. It also lists the manifests of most earlier snapshots."""
        if newest.snapshot_id == self._newest_id:
            return
        added_by = defaultdict(list)
        for manifest in manifests_of(table.io, newest):
            if manifest.content is ManifestContent.DATA:
                added_by[manifest.added_snapshot_id].append(manifest)
        self._newest_id, self._newest = newest.snapshot_id, added_by

    def end(self, table: Table, snapshot: Snapshot, *, scan_all_files: bool = False) -> int:
        """Return the position after the last file of a snapshot, without opening manifests."""
        lines = self._lines_of(table, snapshot, scan_all_files)
        return lines[-1].end if lines else 0

    def with_positions(self, table: Table, part: SnapshotPart) -> Iterator[tuple[int, PlannedFile]]:
        """Yield the files of a part with their positions. Manifests are opened lazily."""
        for line in self._lines_of(table, part.snapshot, part.scan_all_files):
            if line.is_in(part):
                yield from files_in_part(line, part, self._files_of(table, (line.manifest,), part.scan_all_files)[0])

    def files_of_parts(self, table: Table, parts: Sequence[SnapshotPart]) -> list[list[PlannedFile]]:
        """Return the files of each part. Manifests of several parts are read in parallel."""
        unknown = [part for part in parts if (part.snapshot.snapshot_id, part.scan_all_files) not in self._lines]
        if len(unknown) > 1 and self._newest_id is None:  # a batch planned before a restart
            self.load_newest(table, parts[-1].snapshot)
        wanted = [[line for line in self._lines_to_read(table, part) if line.is_in(part)] for part in parts]
        for scan_all_files in {part.scan_all_files for part in parts}:
            manifests = [
                line.manifest
                for part, lines in zip(parts, wanted, strict=True)
                if part.scan_all_files is scan_all_files
                for line in lines
            ]
            self._files_of(table, manifests, scan_all_files)
        return [
            [
                file
                for line in lines
                for _, file in files_in_part(
                    line, part, self._files_of(table, (line.manifest,), part.scan_all_files)[0]
                )
            ]
            for part, lines in zip(parts, wanted, strict=True)
        ]

    def _lines_to_read(self, table: Table, part: SnapshotPart) -> Sequence[Line]:
        """Return the manifests of a part. A whole part needs no positions, so a later manifest list may serve it."""
        key = (part.snapshot.snapshot_id, part.scan_all_files)
        later = self._newest.get(part.snapshot.snapshot_id, ())
        if part.is_whole and key not in self._lines and is_complete(later, part.snapshot):
            return tuple(lines_of(table.io, later, scan_all_files=False))
        return self._lines_of(table, part.snapshot, part.scan_all_files)

    def _lines_of(self, table: Table, snapshot: Snapshot, scan_all_files: bool) -> tuple[Line, ...]:
        """List manifests from the snapshot's own list: later ones may have merged manifests that positions count."""
        key = (snapshot.snapshot_id, scan_all_files)
        if key not in self._lines:
            if snapshot.snapshot_id == self._newest_id and not scan_all_files:
                manifests = self._newest.get(snapshot.snapshot_id, ())
            else:
                manifests = [
                    manifest
                    for manifest in manifests_of(table.io, snapshot)
                    if manifest.content is ManifestContent.DATA
                    and (scan_all_files or manifest.added_snapshot_id == snapshot.snapshot_id)
                ]
            self._lines[key] = tuple(lines_of(table.io, manifests, scan_all_files=scan_all_files))
            while len(self._lines) > limits.STREAM_CACHE_SNAPSHOTS:
                self._lines.popitem(last=False)
        return self._lines[key]

    def _files_of(
        self, table: Table, manifests: Sequence[ManifestFile], scan_all_files: bool
    ) -> list[tuple[PlannedFile, ...]]:
        missing = [found for found in manifests if (found.manifest_path, scan_all_files) not in self._files]
        read = read_all(missing, partial(files_of, table.io, scan_all_files))
        self._files.update(
            {(found.manifest_path, scan_all_files): files for found, files in zip(missing, read, strict=True)}
        )
        wanted = [self._files[found.manifest_path, scan_all_files] for found in manifests]
        for found in manifests:
            self._files.move_to_end((found.manifest_path, scan_all_files))
        kept = sum(map(len, self._files.values())) if missing else 0
        while len(self._files) > len(manifests) and kept > limits.STREAM_CACHE_FILES:
            kept -= len(self._files.popitem(last=False)[1])
        return wanted


def is_complete(manifests: Sequence[ManifestFile], snapshot: Snapshot) -> bool:
    """Return True if a later manifest list still has all files that a snapshot added."""
    added = None if snapshot.summary is None else snapshot.summary.get(ADDED_DATA_FILES)
    counts = [manifest.added_files_count for manifest in manifests]
    return added is not None and None not in counts and added == str(sum(count or 0 for count in counts))


def lines_of(io: FileIO, manifests: Sequence[ManifestFile], *, scan_all_files: bool) -> Iterator[Line]:
    """Yield the manifests of a snapshot with their positions."""
    first = 0
    for manifest in manifests:
        added, existing = manifest.added_files_count, manifest.existing_files_count
        if added is None or existing is None:  # optional in format version 1
            live = [entry.status for entry in entries_of(manifest, io, live_only=True)]
            added = live.count(EntryStatus.ADDED)
            existing = len(live) - added
        yield Line(manifest=manifest, first=first, count=added + existing if scan_all_files else added)
        first += added + existing


def files_of(io: FileIO, scan_all_files: bool, manifest: ManifestFile) -> tuple[PlannedFile, ...]:
    """Return the files that a manifest's snapshot added, or all live files."""
    return tuple(
        PlannedFile.of(entry, with_metrics=False)
        for entry in entries_of(manifest, io, live_only=True)
        if scan_all_files or (entry.status is EntryStatus.ADDED and entry.snapshot_id == manifest.added_snapshot_id)
    )


def files_in_part(line: Line, part: SnapshotPart, files: Sequence[PlannedFile]) -> Iterator[tuple[int, PlannedFile]]:
    """Yield the files of a manifest that are in a part, with their positions."""
    for place, file in enumerate(files, line.first):
        if place >= part.start and (part.end is None or place < part.end):
            yield place, file


def deletes_of(table: Table, snapshot: Snapshot) -> DeleteFileIndex:
    """Index the delete files of a snapshot by the data files that they apply to."""
    manifests = [
        manifest
        for manifest in manifests_of(table.io, snapshot)
        if manifest.content is ManifestContent.DELETES and manifest.has_live_files
    ]
    read = read_all(manifests, lambda manifest: tuple(entries_of(manifest, table.io, live_only=True)))
    return delete_index((entry for entries in read for entry in entries), table.specs())
