"""The files that a table needs. Driver.

Input: a table and a time. Output: the locations of all files that its metadata names: metadata files, manifest lists,
manifests, data files, delete files, Puffin and other statistics files.

Every snapshot that is listed counts, whether a branch or a tag leads to it or not. Of the metadata log every file
counts, also those that only an older log names; and what stands in a metadata file that was current at that time or
later counts like what stands in the newest one. So a snapshot that expired a moment ago keeps its files for a while:
for queries that read it, and for who wants to go back. Source: Iceberg's `ReachableFileUtil`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from dml.errors import CorruptFileError
from dml.files.table_metadata import plain_json
from dml.manifests.read import entries_of, read_manifest_list
from dml.model.manifest import ManifestFile

__all__ = ["ReachableFiles", "read_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What a metadata file names.

    Attributes:
        manifest_lists: Of its snapshots.
        statistics: Statistics files, of tables and of partitions.
        log: The metadata files before it, the oldest first, each with the time at which the next one took its place.
    """

    manifest_lists: tuple[str, ...]
    statistics: tuple[str, ...]
    log: tuple[tuple[str, int], ...]


class ReachableFiles:
    """Reads what a table needs, each file once: of later metadata only what is new is read and reported.

    Args:
        io: The table's FileIO.
        since_ms: Metadata that was current then or later counts, in milliseconds since 1970.
    """

    def __init__(self, io: FileIO, since_ms: int) -> None:
        self._io = io
        self._since_ms = since_ms
        self._read: set[str] = set()

    def of(self, table: Table) -> Iterator[str]:
        """The locations that a table needs and that were not reported before; some come more than once.

        Args:
            table: The table, as it is now.

        Raises:
            CorruptFileError: a file of a snapshot that is listed now is missing or cannot be read.
            ExecutionError: the storage failed.
        """
        if table.metadata_location in self._read:
            return
        current = current_files(table)
        yield table.metadata_location
        yield from self._contents(current, gone_is_fine=False)
        yield from self._history(current)
        self._read.add(table.metadata_location)

    def _history(self, current: Listed) -> Iterator[str]:
        """The metadata files before the current one, and what the later ones of them name."""
        source: Listed | None = current
        while source is not None:
            log = [(location, until) for location, until in source.log if location not in self._read]
            source = None
            for location, until in log:
                self._read.add(location)
                yield location
                counts = until >= self._since_ms
                if source is not None and not counts:
                    continue
                listed = self._listed(location)
                source = source or listed  # the oldest that is still there leads to those before it
                if listed is not None and counts:
                    yield from self._contents(listed, gone_is_fine=True)

    def _listed(self, location: str) -> Listed | None:
        """What an older metadata file names; None where it is gone, as many are after a while."""
        try:
            content = read_json(self._io, location)
        except FileNotFoundError:
            return None
        if content is None:
            raise CorruptFileError(f"The metadata file '{location}' cannot be read", file=location)
        return from_json(content)

    def _contents(self, listed: Listed, *, gone_is_fine: bool) -> Iterator[str]:
        """What a metadata file names, and what that names.

        Args:
            listed: What it names.
            gone_is_fine: Whether files may be missing, since expired snapshots lose theirs.
        """
        yield from listed.statistics
        for location in listed.manifest_lists:
            if location in self._read:
                continue
            yield location
            with gone() if gone_is_fine else nullcontext():
                for manifest in read_manifest_list(self._io, location):
                    yield manifest.manifest_path
                    yield from self._files_of(manifest, gone_is_fine=gone_is_fine)
                self._read.add(location)

    def _files_of(self, manifest: ManifestFile, *, gone_is_fine: bool) -> Iterator[str]:
        if manifest.manifest_path in self._read:
            return
        with gone() if gone_is_fine else nullcontext():
            for entry in entries_of(manifest, self._io, live_only=True):
                yield entry.data_file.path
            self._read.add(manifest.manifest_path)


@contextmanager
def gone() -> Iterator[None]:
    """Go on where a file of a snapshot that has expired is missing."""
    try:
        yield
    except CorruptFileError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise


def read_json(io: FileIO, location: str) -> Mapping[str, Any] | None:
    """A metadata file, in whatever version it is; None where it is none.

    Args:
        io: The table's FileIO.
        location: Of the file.

    Raises:
        FileNotFoundError: it is not there.
    """
    with io.new_input(location).open() as stream:
        content = stream.read()
    try:
        parsed = json.loads(plain_json(bytes(content)))
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def current_files(table: Table) -> Listed:
    metadata = table.metadata
    return Listed(
        manifest_lists=tuple(snapshot.manifest_list for snapshot in metadata.snapshots),
        statistics=tuple(file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)),
        log=log_files(
            [(entry.metadata_file, entry.timestamp_ms) for entry in metadata.metadata_log], metadata.last_updated_ms
        ),
    )


def from_json(content: Mapping[str, Any]) -> Listed:
    files = (*(content.get("statistics") or ()), *(content.get("partition-statistics") or ()))
    entries = [(entry["metadata-file"], entry["timestamp-ms"]) for entry in content.get("metadata-log") or ()]
    return Listed(
        # A snapshot of version 1 may name its manifests itself; such a table cannot be loaded, so it has expired.
        manifest_lists=tuple(
            snapshot["manifest-list"] for snapshot in content.get("snapshots") or () if "manifest-list" in snapshot
        ),
        statistics=tuple(file["statistics-path"] for file in files),
        log=log_files(entries, content["last-updated-ms"]),
    )


def log_files(entries: list[tuple[str, int]], last_updated_ms: int) -> tuple[tuple[str, int], ...]:
    """Each entry has the time at which it was written: it was current until that of the next one."""
    until = [*(written for _, written in entries[1:]), last_updated_ms]
    return tuple((location, end) for (location, _), end in zip(entries, until, strict=False))
