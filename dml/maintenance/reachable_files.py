"""Finds the files that a table needs, and the folders of other tables among its own. Driver.

`ReachableFiles`. Input: a table and a time. Output: the locations of all files that its metadata names: metadata files,
manifest lists, manifests, data files, delete files, Puffin and other statistics files. All listed snapshots count, even
without a branch or tag. All files of the newest metadata log count. Metadata that was current at that time or later
counts, too, with the files that it names, even if only an older log names it. So a recently expired snapshot keeps its
files for a while, for running queries and for rollbacks. Metadata files that fell out of the log before are not needed:
Iceberg's `ReachableFileUtil`, the source of all other rules, follows older logs without end and keeps them forever.

`folders_of_others`. Input: the files below a table's folders. Output: the folders of other tables, where nothing may be
deleted; or an error if another table's files cannot be distinguished from the table's own. Tables are recognized by
their metadata files: a table that is nested deeper has its own metadata folder and owns the folder around it. Folders
outside the table's location (`write.data.path` ...) may be shared by tables with their metadata elsewhere, so
`refuse_shared_folders` compares them with the folders of all tables of the catalog. Source: Iceberg documentation,
"Configuration", and `LocationProviders`.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from dml import limits
from dml.errors import CorruptFileError, DmlError, NotSupportedError
from dml.files.table_metadata import plain_json
from dml.maintenance.orphan_choice import Equivalents, ListedFile, NeededFiles, is_inside
from dml.manifests.read import entries_of, read_manifest_list
from dml.model.manifest import ManifestFile
from dml.options import FOLDER_PROPERTIES

__all__ = [
    "ReachableFiles",
    "folders_of",
    "folders_of_others",
    "is_below",
    "is_overlapping",
    "outermost",
    "refuse_shared_folders",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The files that a metadata file names.

    Attributes:
        manifest_lists: The manifest lists of its snapshots.
        statistics: The statistics files, of tables and of partitions.
        log: The earlier metadata files, oldest first, each with the time at which the next one replaced it.
    """

    manifest_lists: tuple[str, ...]
    statistics: tuple[str, ...]
    log: tuple[tuple[str, int], ...]


class ReachableFiles:
    """Collects the locations that a table needs; for newer metadata it only reads and returns additions.

    Args:
        io: The table's FileIO.
        since_ms: Metadata that was current at this time or later counts, in milliseconds since 1970.
    """

    def __init__(self, io: FileIO, since_ms: int) -> None:
        self._io = io
        self._since_ms = since_ms
        self._read: set[str] = set()

    def of(self, table: Table) -> Iterator[str]:
        """Yield the needed locations that were not returned before; some are repeated.

        Args:
            table: The newest state of the table.

        Raises:
            CorruptFileError: A file of a listed snapshot is missing or cannot be read.
            ExecutionError: The storage failed.
        """
        if table.metadata_location in self._read:
            return
        current = current_files(table)
        yield table.metadata_location
        yield from self._contents(current, allow_missing=False)
        yield from self._history(current)
        self._read.add(table.metadata_location)

    def _history(self, current: Listed) -> Iterator[str]:
        """Yield earlier metadata files, and the files that the newer ones of them name.

        Files of the newest log are needed. Files that only older logs name are needed if they count.
        """
        source: Listed | None = current
        while source is not None:
            log = [(location, until) for location, until in source.log if location not in self._read]
            is_tracked, source = source is current, None
            for location, until in log:
                counts = until >= self._since_ms
                if not counts:
                    if is_tracked:
                        yield location
                    continue
                self._read.add(location)
                yield location
                listed = self._listed(location)
                source = source or listed  # the log of the oldest existing file names earlier ones
                if listed is not None:
                    yield from self._contents(listed, allow_missing=True)

    def _listed(self, location: str) -> Listed | None:
        """Return the files that an earlier metadata file names, or None if it was deleted."""
        try:
            content = read_json(self._io, location)
        except FileNotFoundError:
            return None
        if content is None:
            raise CorruptFileError(f"The metadata file '{location}' cannot be read", file=location)
        return from_json(content)

    def _contents(self, listed: Listed, *, allow_missing: bool) -> Iterator[str]:
        """Yield the files that a metadata file names, directly and indirectly.

        Args:
            listed: The files that it names directly.
            allow_missing: Ignore missing files, because the files of expired snapshots may be deleted.
        """
        yield from listed.statistics
        for location in listed.manifest_lists:
            if location in self._read:
                continue
            yield location
            with ignore_missing() if allow_missing else nullcontext():
                for manifest in read_manifest_list(self._io, location):
                    yield manifest.manifest_path
                    yield from self._files_of(manifest, allow_missing=allow_missing)
                self._read.add(location)

    def _files_of(self, manifest: ManifestFile, *, allow_missing: bool) -> Iterator[str]:
        if manifest.manifest_path in self._read:
            return
        with ignore_missing() if allow_missing else nullcontext():
            for entry in entries_of(manifest, self._io, live_only=True):
                yield entry.data_file.path
            self._read.add(manifest.manifest_path)


@contextmanager
def ignore_missing() -> Iterator[None]:
    """Ignore a missing file of an expired snapshot."""
    try:
        yield
    except CorruptFileError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise


def read_json(io: FileIO, location: str) -> Mapping[str, Any] | None:
    """Read a metadata file of any format version, or return None if it is not a JSON object.

    Raises:
        FileNotFoundError: The file does not exist.
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
        # Snapshots of version 1 may name manifests directly. Tables with such snapshots cannot be loaded, so these
        # have expired.
        manifest_lists=tuple(
            snapshot["manifest-list"] for snapshot in content.get("snapshots") or () if "manifest-list" in snapshot
        ),
        statistics=tuple(file["statistics-path"] for file in files),
        log=log_files(entries, content["last-updated-ms"]),
    )


def log_files(entries: list[tuple[str, int]], last_updated_ms: int) -> tuple[tuple[str, int], ...]:
    """Return each file of the log with the time at which the next one replaced it."""
    until = [*(written for _, written in entries[1:]), last_updated_ms]
    return tuple((location, end) for (location, _), end in zip(entries, until, strict=False))


def folders_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a table's location, and the folders that its properties name."""
    named = (properties[key] for key in FOLDER_PROPERTIES if properties.get(key))
    return tuple(folder.rstrip("/") for folder in (location, *named))


def outermost(folders: Iterable[str], equivalents: Equivalents) -> tuple[str, ...]:
    """Remove folders that are inside others, so that no file is listed twice.

    Args:
        folders: The folders; of two names of the same folder the first is kept.
        equivalents: Equivalent schemes and authorities.
    """
    kept: list[str] = []
    for folder in folders:
        if not any(is_inside(folder, other, equivalents) for other in kept):
            kept = [*(other for other in kept if not is_inside(other, folder, equivalents)), folder]
    return tuple(kept)


def is_overlapping(one: str, other: str, equivalents: Equivalents) -> bool:
    """Return True if two folders are the same, or one is inside the other."""
    return is_inside(one, other, equivalents) or is_inside(other, one, equivalents)


def is_below(folder: str, other: str, equivalents: Equivalents) -> bool:
    """Return True if a folder is inside another one and not the same."""
    return is_inside(folder, other, equivalents) and not is_inside(other, folder, equivalents)


METADATA_FILES: Final = (".metadata.json", ".metadata.json.gz")
METADATA_FOLDER: Final = "metadata"


def folders_of_others(
    table: Table,
    own_folders: Collection[str],
    listed: Iterable[ListedFile],
    needed: NeededFiles,
    equivalents: Equivalents,
) -> tuple[str, ...]:
    """Return the folders of other tables below a table's folders.

    Args:
        table: The table.
        own_folders: Its folders, with links resolved.
        listed: The files below them.
        needed: The locations that the table needs.
        equivalents: Equivalent schemes and authorities.

    Raises:
        NotSupportedError: Another table's metadata is in the table's own metadata folder, or declares one of the
            table's own folders as its location.
    """
    found: list[str] = []
    for folder, files in metadata_folders(listed).items():
        around = folder.removesuffix(f"/{METADATA_FOLDER}")
        unknown = [file for file in files if not needed.named_like(file)]
        if len(unknown) < len(files) or not any(is_below(around, own, equivalents) for own in own_folders):
            refuse_others_in(table, unknown)
            continue
        newest = max(unknown, key=lambda file: (file.modified_ms or 0, file.path))
        declared = [
            other
            for other in folders_of_other(table, newest)
            if any(is_overlapping(other, own, equivalents) for own in own_folders)
        ]
        if not all(any(is_below(other, own, equivalents) for own in own_folders) for other in declared):
            raise indistinguishable_error(table, newest.location)
        found += [around, *declared]
    return tuple(found)


def refuse_shared_folders(catalog: Catalog, table: Table, folders: Sequence[str], equivalents: Equivalents) -> None:
    """Refuse folders outside a table's location that other tables of the catalog use as well.

    Args:
        catalog: The catalog.
        table: The table.
        folders: The folders.
        equivalents: Equivalent schemes and authorities.

    Raises:
        NotSupportedError: Another table uses one of the folders, or cannot be loaded.
    """
    if not folders:
        return
    for other in load_tables(catalog, folders[0]):
        if other.metadata.table_uuid == table.metadata.table_uuid:
            continue
        for folder in folders:
            if any(
                is_overlapping(folder, used, equivalents) for used in folders_of(other.location(), other.properties)
            ):
                raise NotSupportedError(
                    f"The folder '{folder}' is also used by the table '{'.'.join(other.name())}'",
                    hint="With shared folders the orphans of one table cannot be determined: give each table "
                    "its own folders",
                    folder=folder,
                )


def metadata_folders(listed: Iterable[ListedFile]) -> Mapping[str, list[ListedFile]]:
    folders: defaultdict[str, list[ListedFile]] = defaultdict(list)
    for file in listed:
        if file.relative.endswith(METADATA_FILES):
            folders[file.real_location.rpartition("/")[0]].append(file)
    return folders


def refuse_others_in(table: Table, files: Sequence[ListedFile]) -> None:
    """Refuse metadata files of other tables in the table's folder; those of failed commits are its own."""
    with ThreadPoolExecutor(limits.READ_THREADS) as pool:
        contents = pool.map(partial(content_of, table.io), files)
        for file, content in zip(files, contents, strict=True):
            if is_of_other(table, content):
                raise indistinguishable_error(table, file.location)


def folders_of_other(table: Table, file: ListedFile) -> Iterator[str]:
    """Yield the folders that a metadata file of another table declares; none for this table's own metadata."""
    content = content_of(table.io, file)
    if is_of_other(table, content) and "location" in content:
        yield from folders_of(content["location"], content.get("properties") or {})


def content_of(io: FileIO, file: ListedFile) -> Mapping[str, Any]:
    """Read a metadata file; empty if it was deleted or is incomplete."""
    try:
        return read_json(io, file.location) or {}
    except FileNotFoundError:
        return {}


def is_of_other(table: Table, content: Mapping[str, Any]) -> bool:
    own = str(table.metadata.table_uuid)
    return str(content.get("table-uuid", own)).lower() != own


def indistinguishable_error(table: Table, metadata_file: str) -> NotSupportedError:
    return NotSupportedError(
        f"Another table has files in the folders of the table '{'.'.join(table.name())}': '{metadata_file}' is its "
        "metadata",
        hint="Its files cannot be distinguished from orphans. If it was dropped, delete its metadata files first",
        file=metadata_file,
    )


def load_tables(catalog: Catalog, folder: str, namespace: tuple[str, ...] = ()) -> Iterator[Table]:
    for inner in catalog.list_namespaces(namespace):
        for identifier in catalog.list_tables(inner):
            try:
                yield catalog.load_table(identifier)
            except NoSuchTableError:  # dropped meanwhile, or a table of another format
                continue
            except DmlError as error:
                raise NotSupportedError(
                    f"Cannot determine if the table '{'.'.join(identifier)}' also keeps files in '{folder}': "
                    f"{error.message}",
                    hint="Repair or drop that table: nothing is deleted from a folder that may be another table's too",
                    folder=folder,
                ) from error
        if len(inner) > len(namespace):
            yield from load_tables(catalog, folder, tuple(inner))
