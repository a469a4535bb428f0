"""The files that a table needs, and those of other tables among them. Driver.

`ReachableFiles`: from a table and a time to the locations of all files that its metadata names: metadata files,
manifest lists, manifests, data files, delete files, Puffin and other statistics files. Every snapshot that is listed
counts, whether a branch or a tag leads to it or not. Of the metadata log every file counts, also those that only an
older log names; and what stands in a metadata file that was current at that time or later counts like what stands in
the newest one. So a snapshot that expired a moment ago keeps its files for a while: for queries that read it, and for
who wants to go back. Source: Iceberg's `ReachableFileUtil`.

`folders_of_others`: from the files below a table's folders to the folders of other tables, in which nothing may be
touched; or a refusal, where another table's files cannot be distinguished from the table's own. A table is known by its
metadata files. One that lies deeper has a metadata folder of its own, and all that is around that is its. Folders
outside of the table's location (`write.data.path` ...) may be shared by tables whose metadata is elsewhere, so there
the tables of the catalog are asked where their files are. Source: Iceberg documentation, "Configuration", and
`LocationProviders`.
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
    "outermost",
    "overlap",
    "refuse_shared_folders",
]


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


def folders_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """A table's location, and the folders that its properties name.

    Args:
        location: Of the table.
        properties: Of the table.
    """
    named = (properties[key] for key in FOLDER_PROPERTIES if properties.get(key))
    return tuple(folder.rstrip("/") for folder in (location, *named))


def outermost(folders: Iterable[str], equivalents: Equivalents) -> tuple[str, ...]:
    """The folders that lie in no other, so that no file is listed twice.

    Args:
        folders: In the order of their importance: of two names of one folder the first stays.
        equivalents: Which schemes and authorities are equal.
    """
    kept: list[str] = []
    for folder in folders:
        if not any(is_inside(folder, other, equivalents) for other in kept):
            kept = [*(other for other in kept if not is_inside(other, folder, equivalents)), folder]
    return tuple(kept)


def overlap(one: str, other: str, equivalents: Equivalents) -> bool:
    """Whether two folders are one, or one lies in the other."""
    return is_inside(one, other, equivalents) or is_inside(other, one, equivalents)


def is_below(folder: str, other: str, equivalents: Equivalents) -> bool:
    """Whether a folder lies in another and is not that folder itself."""
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
    """The folders of tables that lie below a table's folders.

    Args:
        table: The table.
        own_folders: Its folders, with links resolved.
        listed: What is below them.
        needed: What the table needs.
        equivalents: Which schemes and authorities are equal.

    Raises:
        NotSupportedError: another table's metadata lies in the table's own metadata folder, or says that its files lie
            in the table's own folders.
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
            if any(overlap(other, own, equivalents) for own in own_folders)
        ]
        if not all(any(is_below(other, own, equivalents) for own in own_folders) for other in declared):
            raise indistinguishable(table, newest.location)
        found += [around, *declared]
    return tuple(found)


def refuse_shared_folders(catalog: Catalog, table: Table, folders: Sequence[str], equivalents: Equivalents) -> None:
    """Refuse folders outside of a table's location in which other tables of the catalog keep files as well.

    Args:
        catalog: The catalog.
        table: The table.
        folders: The folders.
        equivalents: Which schemes and authorities are equal.

    Raises:
        NotSupportedError: another table keeps files there, or it cannot be read where one does.
    """
    if not folders:
        return
    for other in tables(catalog, folders[0]):
        if other.metadata.table_uuid == table.metadata.table_uuid:
            continue
        for folder in folders:
            if any(overlap(folder, used, equivalents) for used in folders_of(other.location(), other.properties)):
                raise NotSupportedError(
                    f"The folder '{folder}' is also used by the table '{'.'.join(other.name())}'",
                    hint="From one of the tables it cannot be known which of its files are orphans: give each table "
                    "folders of its own",
                    folder=folder,
                )


def metadata_folders(listed: Iterable[ListedFile]) -> Mapping[str, list[ListedFile]]:
    folders: defaultdict[str, list[ListedFile]] = defaultdict(list)
    for file in listed:
        if file.relative.endswith(METADATA_FILES):
            folders[file.real_location.rpartition("/")[0]].append(file)
    return folders


def refuse_others_in(table: Table, files: Sequence[ListedFile]) -> None:
    """Metadata files of failed commits are the table's; one of another table means that both share the folder."""
    with ThreadPoolExecutor(limits.READ_THREADS) as pool:
        contents = pool.map(partial(content_of, table.io), files)
        for file, content in zip(files, contents, strict=True):
            if is_of_other(table, content):
                raise indistinguishable(table, file.location)


def folders_of_other(table: Table, file: ListedFile) -> Iterator[str]:
    """Where the table of a metadata file keeps its files; nothing for a copy of this table's own metadata."""
    content = content_of(table.io, file)
    if is_of_other(table, content) and "location" in content:
        yield from folders_of(content["location"], content.get("properties") or {})


def content_of(io: FileIO, file: ListedFile) -> Mapping[str, Any]:
    """A metadata file; empty where it is gone, or is the beginning of one that was never finished."""
    try:
        return read_json(io, file.location) or {}
    except FileNotFoundError:
        return {}


def is_of_other(table: Table, content: Mapping[str, Any]) -> bool:
    own = str(table.metadata.table_uuid)
    return str(content.get("table-uuid", own)).lower() != own


def indistinguishable(table: Table, metadata_file: str) -> NotSupportedError:
    return NotSupportedError(
        f"Another table has files in the folders of the table '{'.'.join(table.name())}': '{metadata_file}' is its "
        "metadata",
        hint="Its files cannot be distinguished from orphans. If that table is gone, delete its metadata files first",
        file=metadata_file,
    )


def tables(catalog: Catalog, folder: str, namespace: tuple[str, ...] = ()) -> Iterator[Table]:
    for inner in catalog.list_namespaces(namespace):
        for identifier in catalog.list_tables(inner):
            try:
                yield catalog.load_table(identifier)
            except NoSuchTableError:  # dropped meanwhile, or a table of another format
                continue
            except DmlError as error:
                raise NotSupportedError(
                    f"Whether the table '{'.'.join(identifier)}' keeps files in '{folder}' too cannot be found out: "
                    f"{error.message}",
                    hint="Repair or drop that table: nothing is deleted from a folder that may be another table's too",
                    folder=folder,
                ) from error
        if len(inner) > len(namespace):
            yield from tables(catalog, folder, tuple(inner))
