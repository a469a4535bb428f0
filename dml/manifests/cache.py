"""Cache manifests and manifest lists across statements. Driver.

Input: a line of a manifest list, or a snapshot. Output: the content of the file, from memory if it was read before.
Metadata files are immutable, so cached content stays valid; the least recently used file is evicted first.

Many entries are cached as arrays, few as objects, which take less memory than small arrays. Threads share both.
PyIceberg converts a metric to a dict at the first access, and a thread that reads it meanwhile may find fewer values.
That is safe: a missing metric only prunes less.
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
    """A value and its approximate memory in bytes."""

    value: Kept
    nbytes: int


class ManifestCache:
    """A cache of manifests and manifest lists, limited by memory. Thread-safe.

    Args:
        max_bytes: The limit; 0 caches nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._nbytes = 0
        self._kept: OrderedDict[Hashable, Weighed[Any]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The approximate memory of the cached files, in bytes."""
        return self._nbytes

    def manifests(self, io: FileIO, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """Return the manifests of a snapshot, as `manifests_of` does.

        Raises:
            CorruptFileError: the manifest list is missing or is no manifest list.
            ExecutionError: the storage failed.
        """
        return self._get(snapshot.manifest_list, lambda: read_lines(snapshot, io))

    def entries(self, manifests: Iterable[ManifestFile], io: FileIO, columns: int) -> Callable[[ManifestFile], Entries]:
        """Return a function that reads the entries of a manifest through the cache.

        None of the given manifests is evicted for another one of them. If a table does not fit, a part of it stays
        cached. Plain LRU eviction would leave nothing for the next statement, which reads them in the same order.

        Args:
            manifests: All manifests that will be read.
            io: Their FileIO.
            columns: The number of columns with metrics.

        Returns:
            A thread-safe function. It raises CorruptFileError if the manifest is missing, is no manifest, or breaks the
            rules of sequence numbers, and ExecutionError if the storage failed.
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
        weighed = read()  # outside the lock: reading a file twice is better than waiting for others' reads
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
    """Return the identity of a manifest: its path, and the values that its entries inherit from its line."""
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
    """Read the manifest list of a snapshot."""
    lines = manifests_of(io, snapshot)
    return Weighed(lines, bytes_of_lines(lines))


def read_entries(manifest: ManifestFile, io: FileIO, columns: int) -> Weighed[Entries]:
    """Read the entries of a manifest, as objects or arrays.

    The file itself determines their number, not the counts in the manifest list.
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
    # Lockstep even for few entries: if they are long, decoding them one by one would take the memory of objects.
    arrays = entry_arrays(file_type, [found], lockstep=True)
    return Weighed(arrays, arrays.nbytes)


CACHES: Final[WeakKeyDictionary[Catalog, ManifestCache]] = WeakKeyDictionary()
"""One cache per open catalog, so that no user sees metadata of a catalog that they cannot open."""

LOCK: Final = threading.Lock()


def cache_of(table: Table) -> ManifestCache:
    """Return the manifest cache of a table's catalog.

    Raises:
        AnalysisError: a cache property of the catalog has an invalid value.
    """
    with LOCK:
        found = CACHES.get(table.catalog)
        if found is None:
            found = CACHES[table.catalog] = ManifestCache(max_bytes(table.catalog.properties))
        return found


def max_bytes(properties: Mapping[str, str]) -> int:
    """Return the memory limit of a catalog's manifest cache; 0 if it is disabled."""
    if not boolean(properties, CACHE_ENABLED, default=True):
        return 0
    return integer(properties, CACHE_MAX_BYTES, limits.MANIFEST_CACHE_BYTES, minimum=0)
