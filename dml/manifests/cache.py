"""Manifests that were read, kept for the next statement. Driver.

Input: a line of a manifest list, or where a list lies. Output: what the file says, from memory where it was read
before. Files of metadata never change, so nothing here gets old; what is used least goes when there is no room.

Many entries are kept as arrays, few as they are: arrays of a handful cost more than the entries. Threads share both:
PyIceberg makes a dict of a metric at the first look, and who looks meanwhile may find less in it, which is what a
missing metric is: less is known, and nothing that is not so.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.manifests.entries import Entries, EntryList
from dml.manifests.read import decoders_of, entries_in, manifests_of
from dml.manifests.read_arrays import entry_arrays, read_blocks
from dml.manifests.weights import bytes_of_entries, bytes_of_lines
from dml.model.manifest import ManifestFile
from dml.options import boolean, integer

__all__ = ["CACHE_ENABLED", "CACHE_MAX_BYTES", "ManifestCache", "cache_of"]

CACHE_ENABLED: Final = "io.manifest.cache-enabled"
CACHE_MAX_BYTES: Final = "io.manifest.cache.max-total-bytes"


Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Weighed(Generic[Kept]):
    """Something that is kept, and about how many bytes of memory it takes."""

    value: Kept
    nbytes: int


class ManifestCache:
    """Manifests and manifest lists, up to a number of bytes. Threads may share it.

    Args:
        max_bytes: So much is kept at most; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._nbytes = 0
        self._kept: OrderedDict[Hashable, Weighed[Any]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """How many bytes of memory what is kept takes, about."""
        return self._nbytes

    def manifests(self, io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot, as `manifests_of` gives them.

        Raises:
            CorruptFileError: the manifest list is missing or is no manifest list.
            ExecutionError: the storage failed.
        """
        return self._get(snapshot.manifest_list, lambda: read_lines(snapshot, io))

    def entries(self, manifests: Iterable[ManifestFile], io: FileIO, columns: int) -> Callable[[ManifestFile], Entries]:
        """What reads the entries of some manifests, from memory where they were read before.

        None of them is forgotten for another one of them: of a table that does not fit a part stays, where forgetting
        what was used least would leave nothing of it for the next statement, which begins where this one began.

        Args:
            manifests: All that are to be read.
            io: Their FileIO.
            columns: Of how many columns they have metrics.

        Returns:
            A function of one of them, which threads may share. It raises CorruptFileError where the manifest is
            missing, is no manifest, or breaks the rules of sequence numbers, and ExecutionError where the storage
            failed.
        """
        keys = frozenset(map(key_of, manifests))
        with self._lock:
            for key in keys & self._kept.keys():
                self._kept.move_to_end(key)

        def entries_of(manifest: ManifestFile) -> Entries:
            return self._get(key_of(manifest), lambda: read_entries(manifest, io, columns), keys)

        return entries_of

    def _get(self, key: Hashable, read: Callable[[], Weighed[Kept]], stay: Collection[Hashable] = ()) -> Kept:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                kept: Kept = found.value
                return kept
        weighed = read()  # two threads may read the same file: better than that one waits for all that others read
        self._keep(key, weighed, stay)
        return weighed.value

    def _keep(self, key: Hashable, weighed: Weighed[Any], stay: Collection[Hashable]) -> None:
        if weighed.nbytes > self._max_bytes:
            return
        with self._lock:
            if key in self._kept:
                return
            while self._nbytes + weighed.nbytes > self._max_bytes:
                oldest = next(iter(self._kept))
                if oldest in stay:
                    return
                self._nbytes -= self._kept.pop(oldest).nbytes
            self._kept[key] = weighed
            self._nbytes += weighed.nbytes


def key_of(manifest: ManifestFile) -> Hashable:
    """What tells a manifest from others. Another line for the same file can give it other numbers."""
    return (
        manifest.manifest_path,
        manifest.manifest_length,
        manifest.partition_spec_id,
        manifest.content,
        manifest.sequence_number,
        manifest.added_snapshot_id,
        manifest.first_row_id,
    )


def read_lines(snapshot: Snapshot, io: FileIO) -> Weighed[tuple[ManifestFile, ...]]:
    """The manifests of a snapshot, from its manifest list."""
    lines = manifests_of(io, snapshot)
    return Weighed(lines, bytes_of_lines(lines))


def read_entries(manifest: ManifestFile, io: FileIO, columns: int) -> Weighed[Entries]:
    """The entries of a manifest, from its file, of a table with so many columns.

    How many there are the file says, whatever the manifest list does.
    """
    file_type, found = read_blocks(manifest, io)
    if found.rows <= limits.MAX_ENTRY_OBJECTS and found.size <= limits.MAX_ENTRY_OBJECTS * (
        limits.MAX_ENTRY_OBJECT_BYTES + limits.MAX_ENTRY_OBJECT_COLUMN_BYTES * columns
    ):
        decoders = list(decoders_of(found.blocks))
        entries = tuple(entries_in(file_type, decoders, manifest))
        return Weighed(
            EntryList(entries, manifest.partition_spec_id),
            bytes_of_entries(entries, (decoder for _, decoder in decoders)),
        )
    # Long entries are as large as dicts as they are as objects, so lockstep comes first, however few they are.
    arrays = entry_arrays(file_type, [found], lockstep=True)
    return Weighed(arrays, arrays.nbytes)


CACHES: Final[WeakKeyDictionary[Catalog, ManifestCache]] = WeakKeyDictionary()
"""One for each catalog that is open: who may not open a catalog sees nothing of what it showed to others."""

LOCK: Final = threading.Lock()


def cache_of(table: Table) -> ManifestCache:
    """The manifests of the tables of a catalog that were read.

    Args:
        table: A table of the catalog.

    Raises:
        AnalysisError: a property of the catalog has no such value.
    """
    with LOCK:
        found = CACHES.get(table.catalog)
        if found is None:
            found = CACHES[table.catalog] = ManifestCache(max_bytes(table.catalog.properties))
        return found


def max_bytes(properties: Mapping[str, str]) -> int:
    """How many bytes of manifests a catalog may keep."""
    if not boolean(properties, CACHE_ENABLED, default=True):
        return 0
    return integer(properties, CACHE_MAX_BYTES, limits.MANIFEST_CACHE_BYTES, minimum=0)
