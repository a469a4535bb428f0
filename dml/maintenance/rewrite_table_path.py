"""Stage copies of a table's metadata for another location, and list the files to copy there. Driver.

Input: a table and the options. Output: the staged files, with the new prefix in all locations: metadata files, manifest
lists, manifests, position delete files and files of deletion vectors; and a list of `source,target` pairs of these and
of all other files of the table. The table does not change, and no existing file is overwritten.

An incremental copy omits the metadata files up to the start version, and the data files, equality delete files and
statistics that were copied with it. Other metadata and position deletes are staged again: a manifest list contains the
sizes of manifests, a manifest those of delete files, and another library version may encode them in another size.
Source: Iceberg's `RewriteTablePathSparkAction` and `RewriteTablePathUtil`.
"""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import StringIO
from typing import Any, Final, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from dml import limits
from dml.catalog.translation import translate_errors
from dml.deletes.position_delete_file import FILE_PATH_ID, SCHEMA, with_other_paths
from dml.deletes.puffin_footer import with_other_references
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CorruptFileError,
    ErrorKind,
    NotSupportedError,
    storage_failure,
)
from dml.files.file_io import delete_files, file_errors, read_range
from dml.files.schemes import check_location
from dml.files.table_metadata import parse_metadata, plain_json
from dml.hints import did_you_mean
from dml.maintenance.moved_paths import PathPrefix, below, moved_metadata
from dml.manifests.changed_copy import RecordFields, copy_manifest, copy_manifest_list
from dml.manifests.entry_fields import (
    COLUMN_SIZES,
    CONTENT,
    FILE_PATH,
    FILE_SEQUENCE_NUMBER,
    FILE_SIZE,
    LOWER_BOUNDS,
    REFERENCED_DATA_FILE,
    SNAPSHOT_ID,
    SPLIT_OFFSETS,
    STATUS,
    UPPER_BOUNDS,
)
from dml.manifests.read import entries_of, read_manifest_list
from dml.model.manifest import ContentFile, DeleteFileKey, EntryStatus, FileContent, ManifestContent, ManifestFile
from dml.model.scan_task import DeleteFileRef
from dml.options import WRITE_METADATA_PATH, WriteOptions
from dml.read.applied_deletes import position_batches
from dml.result import Decision, RewrittenTablePath
from dml.write.delete_files import write_positions

__all__ = ["RewriteTablePath", "rewrite_table_path"]

MANIFEST_PATH: Final = 500
MANIFEST_LENGTH: Final = 501
FILE_LIST: Final = "file-list"
NO_LIST: Final = "N/A"
GZIP: Final = b"\x1f\x8b"
KINDS: Final = {
    FileContent.DATA: "data file",
    FileContent.POSITION_DELETES: "position delete file",
    FileContent.EQUALITY_DELETES: "equality delete file",
}

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTablePath:
    """The options of a call.

    Attributes:
        source_prefix: The folder of all files of the table.
        target_prefix: The new folder of these files.
        start_version: The name of the metadata file up to which the table was copied before; None to copy all.
        end_version: The name of the newest metadata file to copy; None for the table's newest one.
        staging_location: The folder for the copies; None for a new one in the folder of the table's metadata.
        create_file_list: Write the list of the files to copy.
        dry_run: Write nothing, and return the decisions.

    Raises:
        AnalysisError: An option is empty, or the prefixes are equal.
    """

    source_prefix: str
    target_prefix: str
    start_version: str | None = None
    end_version: str | None = None
    staging_location: str | None = None
    create_file_list: bool = True
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in ("source_prefix", "target_prefix", "start_version", "end_version", "staging_location"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                text = name.replace("_", " ").capitalize()
                raise invalid(f"{text}('{value}') cannot be empty", name)
        if below(self.source_prefix, "") == below(self.target_prefix, ""):
            raise invalid(f"Source prefix cannot be the same as target prefix ({self.source_prefix})", "target_prefix")


def invalid(message: str, option: str, hint: str | None = None) -> AnalysisError:
    return AnalysisError(message, kind=ErrorKind.INVALID_VALUE, hint=hint, option=option)


@dataclass(frozen=True, kw_only=True)
class Version:
    """A metadata file.

    Attributes:
        location: Its location.
        content: Its JSON.
        compressed: True if the file is compressed.
    """

    location: str
    content: Mapping[str, Any]
    compressed: bool

    @property
    def name(self) -> str:
        """The name of the file."""
        return name_of(self.location)

    @property
    def log(self) -> tuple[str, ...]:
        """The locations of earlier metadata files, oldest first."""
        return tuple(entry["metadata-file"] for entry in self.content.get("metadata-log") or ())

    @cached_property
    def manifest_lists(self) -> dict[int, str]:
        """The manifest lists by snapshot."""
        return {one["snapshot-id"]: one["manifest-list"] for one in self.content.get("snapshots") or ()}

    @cached_property
    def statistics(self) -> tuple[str, ...]:
        """The locations of statistics files, of the table and of partitions."""
        files = (one for key in ("statistics", "partition-statistics") for one in self.content.get(key) or ())
        return tuple(one["statistics-path"] for one in files)

    def holds(self, snapshot_id: int, sequence_number: int) -> bool:
        """Return True if a file that is live in a later snapshot was already live in this version.

        Args:
            snapshot_id: The snapshot that added the file; this version may not list it if it has expired.
            sequence_number: The sequence number of that snapshot, which orders snapshots; 0 in version 1.
        """
        last = int(self.content.get("last-sequence-number") or 0)
        return snapshot_id in self.manifest_lists or (last > 0 and sequence_number <= last)


def name_of(location: str) -> str:
    return location.rpartition("/")[2]


def read_version(io: FileIO, location: str) -> Version:
    """Read a metadata file.

    Raises:
        CorruptFileError: The file is missing or is not a metadata file.
        ExecutionError: The storage failed.
    """
    with file_errors(location, io.properties):
        with io.new_input(location).open() as stream:
            data = bytes(stream.read())
        text = plain_json(data).decode()
        parse_metadata(text, location)  # checks it
        return Version(location=location, content=json.loads(text), compressed=data.startswith(GZIP))


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDeletes:
    """A staged delete file.

    Attributes:
        size: Its size in bytes.
        split_offsets: The start of each row group; None for deletion vectors.
    """

    size: int
    split_offsets: tuple[int, ...] | None


@dataclass(slots=True, kw_only=True)
class Staging:
    """The staged files, and the decisions about the files of the table. Shared by threads.

    Attributes:
        io: The table's FileIO.
        prefix: The prefixes.
        folder: The folder for staged files.
        stores: Whether files are written; False in a dry run.
        written: The staged files.
        decisions: The decisions, by location.
    """

    io: FileIO
    prefix: PathPrefix
    folder: str
    stores: bool
    written: list[str] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)

    def place(self, location: str) -> str:
        """Return the staging location of the copy of a file."""
        return below(self.folder, self.prefix.relative(location, "the file"))

    def store(self, location: str, data: bytes) -> None:
        """Write a new file.

        Raises:
            AlreadyExistsError: The file exists.
            ExecutionError: The storage failed.
        """
        if not self.stores:
            return
        try:
            with self.io.new_output(location).create(overwrite=False) as stream:
                self.written.append(location)
                stream.write(data)
        except FileExistsError as error:
            raise AlreadyExistsError(
                f"The staging location has the file '{location}' already",
                hint="Nothing is overwritten: give a new or empty folder",
                file=location,
            ) from error
        except OSError as error:
            raise storage_failure("Writing the file", location, error, self.io.properties) from error

    def decide(self, decision: str, location: str, reason: str) -> None:
        """Record a decision about a file; `keep` does not replace another decision."""
        if decision != "keep" or location not in self.decisions:
            self.decisions[location] = Decision(decision=decision, object=location, reason=reason)

    def store_list(self) -> str:
        """Write the list of files to copy, and return its location."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for location, one in self.decisions.items():
            if one.decision != "keep":
                source = self.place(location) if one.decision == "rewrite" else location
                writer.writerow((source, self.prefix.move(location, "the file")))
        place = below(self.folder, FILE_LIST)
        self.store(place, text.getvalue().encode())
        return place


def rewrite_table_path(table: Table, call: RewriteTablePath) -> RewrittenTablePath:
    """Stage copies of a table's metadata for another location, and list the files to copy there.

    Args:
        table: The newest state of the table.
        call: The options.

    Raises:
        AnalysisError: A version is not in the metadata log, or the start version does not precede the end version.
        NotSupportedError: A file of the table is not below the source prefix, the end version has expired snapshots, or
            the staging location is in a storage that the catalog is not set up for.
        AlreadyExistsError: A staged file exists.
        CorruptFileError: A file of the table is missing or damaged.
        ExecutionError: The storage failed. After an error, the files that were staged so far are deleted.
    """
    with translate_errors(f"Rewriting the paths of the table '{'.'.join(table.name())}'", table.catalog):
        end = find_version(table, call.end_version or name_of(table.metadata_location))
        start = None if call.start_version is None else find_version(table, call.start_version)
        versions = (*in_threads(partial(read_version, table.io), later_versions(start, end)), end)
        prefix = PathPrefix(source=call.source_prefix, target=call.target_prefix)
        staging = Staging(io=table.io, prefix=prefix, folder=staging_folder(table, call), stores=not call.dry_run)
        check_location(table.io, staging.folder)
        try:
            return stage(staging, versions, start, call)
        except BaseException:
            delete_files(table.io, staging.written)
            raise


def find_version(table: Table, name: str) -> Version:
    locations = [*(entry.metadata_file for entry in table.metadata.metadata_log), table.metadata_location]
    found = next((location for location in reversed(locations) if name in {location, name_of(location)}), None)
    if found is None:
        raise invalid(
            f"Cannot find provided version file {name} in metadata log",
            "end_version",
            did_you_mean(name, map(name_of, locations)),
        )
    return read_version(table.io, found)


def later_versions(start: Version | None, end: Version) -> tuple[str, ...]:
    """Return the metadata files before the end version, and after the start version, if there is one."""
    if start is None:
        return end.log
    if start.location not in end.log:
        raise invalid(
            f"The start version {start.name} does not precede the end version {end.name}",
            "start_version",
            "Give the name of an older metadata file",
        )
    return end.log[end.log.index(start.location) + 1 :]


def staging_folder(table: Table, call: RewriteTablePath) -> str:
    if call.staging_location is not None:
        return below(call.staging_location, "")
    metadata = table.properties.get(WRITE_METADATA_PATH) or below(table.location(), "metadata")
    return below(metadata, f"copy-table-staging-{uuid4()}")


def stage(
    staging: Staging, versions: tuple[Version, ...], start: Version | None, call: RewriteTablePath
) -> RewrittenTablePath:
    """Stage the copies, and decide about each file. In the list, a file comes before those that name it.

    Args:
        staging: Receives the copies and decisions.
        versions: The metadata files, oldest first.
        start: The version up to which the table was copied before.
        call: The options.
    """
    end = versions[-1]
    moved = [moved_metadata(version.content, staging.prefix) for version in versions]
    lists = read_lists(staging.io, end, is_newest=call.end_version is None)
    manifests = tuple({line.manifest_path: line for lines in lists.values() for line in lines}.values())
    deletes = position_deletes(staging.io, manifests)
    by_path = {file.path: file for file in deletes.values()}
    staged = dict(zip(by_path, in_threads(partial(stage_deletes, staging), by_path.values()), strict=True))
    lengths = in_threads(partial(stage_manifest, staging, staged, start), manifests)
    sizes = {manifest.manifest_path: length for manifest, length in zip(manifests, lengths, strict=True)}
    for location in end.statistics:
        if start is not None and location in start.statistics:
            staging.decide("keep", location, f"statistics: copied with {start.name}")
        else:
            staging.decide("copy", location, "statistics: name no files")
    for location in by_path:
        staging.decide("rewrite", location, "position deletes: name data files")
    for location in sizes:
        staging.decide("rewrite", location, "manifest: names files")
    in_threads(partial(stage_list, staging, sizes), lists)
    for location in lists:
        staging.decide("rewrite", location, "manifest list: names manifests")
    for version, content in zip(versions, moved, strict=True):
        data = json.dumps(content, ensure_ascii=False).encode()
        staging.store(staging.place(version.location), gzip.compress(data, mtime=0) if version.compressed else data)
        staging.decide("rewrite", version.location, "metadata file: names files and folders")
    return RewrittenTablePath(
        latest_version=end.name,
        file_list_location=staging.store_list() if call.create_file_list and not call.dry_run else NO_LIST,
        rewritten_manifest_file_paths_count=len(manifests),
        rewritten_delete_file_paths_count=len(deletes),
        decisions=tuple(staging.decisions.values()) if call.dry_run else (),
    )


def in_threads(work: Callable[[Item], Outcome], items: Iterable[Item]) -> list[Outcome]:
    """Run work on items in several threads, because it mostly waits for the storage."""
    with ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="rowdelta-paths") as pool:
        return list(pool.map(work, items))


def read_lists(io: FileIO, end: Version, *, is_newest: bool) -> dict[str, tuple[ManifestFile, ...]]:
    """Return the manifests of all snapshots, by manifest list."""
    locations = tuple(dict.fromkeys(end.manifest_lists.values()))
    try:
        return dict(zip(locations, in_threads(partial(read_manifest_list, io), locations), strict=True))
    except CorruptFileError as error:
        if is_newest or not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise NotSupportedError(
            f"The end version {end.name} may contain invalid snapshots: {error.message}",
            hint="A snapshot was expired since: choose a version without expired snapshots",
            file=end.location,
        ) from error


# ---- position deletes -------------------------------------------------------------------------------------------


def position_deletes(io: FileIO, manifests: Iterable[ManifestFile]) -> dict[DeleteFileKey, ContentFile]:
    """Return the live position delete files and deletion vectors of manifests."""

    def live(manifest: ManifestFile) -> list[ContentFile]:
        files = (entry.data_file for entry in entries_of(manifest, io, live_only=True))
        return [file for file in files if file.content is FileContent.POSITION_DELETES]

    found = in_threads(live, (one for one in manifests if one.content is ManifestContent.DELETES))
    return {file.key: file for files in found for file in files}


def stage_deletes(staging: Staging, file: ContentFile) -> StagedDeletes:
    """Stage the copy of a position delete file or deletion vector file, with the new locations of data files."""
    move = partial(staging.prefix.move, what="data file")
    if file.is_deletion_vector:
        size = file.file_size_in_bytes
        data = read_range(staging.io, file.path, 0, size, size=size)
        changed = with_other_references(data, staging.prefix.move_if_below, file=file.path)
        offsets = None
    else:
        ref = DeleteFileRef.of(file, referenced_data_file=None, data_sequence_number=0)
        with file_errors(file.path, staging.io.properties):
            batches = [with_other_paths(batch, move, file=file.path) for batch in position_batches(staging.io, ref)]
        sink = pa.BufferOutputStream()
        # The table's options are not used, so that the copies of all versions of the table have equal sizes.
        options = WriteOptions(delete_file_format=file.file_format)
        _, offsets = write_positions(sink, pa.Table.from_batches(batches, SCHEMA), options)
        changed = sink.getvalue().to_pybytes()
    staging.store(staging.place(file.path), changed)
    return StagedDeletes(size=len(changed), split_offsets=offsets)


# ---- manifests --------------------------------------------------------------------------------------------------


def stage_manifest(
    staging: Staging, deletes: Mapping[str, StagedDeletes], start: Version | None, manifest: ManifestFile
) -> int:
    """Stage the copy of a manifest, decide about the files that are copied unchanged, and return its length."""

    def change(entry: RecordFields, file: RecordFields) -> None:
        location, content = file[FILE_PATH], FileContent(file[CONTENT] or 0)
        file[FILE_PATH] = staging.prefix.move(location, KINDS[content])
        if content is FileContent.POSITION_DELETES:
            move_references(staging.prefix, file)
            if location in deletes:
                set_size(file, deletes[location])
        elif entry[STATUS] != EntryStatus.DELETED:
            if start is not None and start.holds(*origin(entry, manifest)):
                staging.decide("keep", location, f"{KINDS[content]}: copied with {start.name}")
            else:
                staging.decide("copy", location, f"{KINDS[content]}: names no files")

    data = copy_manifest(staging.io, manifest, change)
    staging.store(staging.place(manifest.manifest_path), data)
    return len(data)


def origin(entry: RecordFields, manifest: ManifestFile) -> tuple[int, int]:
    """Return the snapshot that added a file, and its sequence number; an entry without them inherits the manifest's."""
    snapshot_id, number = entry[SNAPSHOT_ID], entry[FILE_SEQUENCE_NUMBER]
    return (
        manifest.added_snapshot_id if snapshot_id is None else snapshot_id,
        (manifest.sequence_number or 0) if number is None else number,
    )


def move_references(prefix: PathPrefix, file: RecordFields) -> None:
    """Change the location of the data file of position deletes.

    Equal bounds of the column `file_path` are a complete location. Other bounds may be truncated, so they are dropped,
    as in Java: they only help to plan scans.
    """
    if file[REFERENCED_DATA_FILE] is not None:
        file[REFERENCED_DATA_FILE] = prefix.move(file[REFERENCED_DATA_FILE], KINDS[FileContent.DATA])
    lower, upper = dict(file[LOWER_BOUNDS] or {}), dict(file[UPPER_BOUNDS] or {})
    least, greatest = lower.pop(FILE_PATH_ID, None), upper.pop(FILE_PATH_ID, None)
    if least is not None and least == greatest:
        lower[FILE_PATH_ID] = upper[FILE_PATH_ID] = prefix.move(least.decode(), KINDS[FileContent.DATA]).encode()
    if least is not None or greatest is not None:
        file[LOWER_BOUNDS], file[UPPER_BOUNDS] = lower or None, upper or None


def set_size(file: RecordFields, staged: StagedDeletes) -> None:
    file[FILE_SIZE] = staged.size
    if staged.split_offsets is not None:
        has_offsets = SPLIT_OFFSETS in file  # optional, in the schema of the manifest too
        file[SPLIT_OFFSETS], file[COLUMN_SIZES] = (has_offsets and list(staged.split_offsets)) or None, None


def stage_list(staging: Staging, lengths: Mapping[str, int], location: str) -> None:
    """Stage the copy of a manifest list."""

    def change(line: RecordFields) -> None:
        manifest = line[MANIFEST_PATH]
        line[MANIFEST_PATH], line[MANIFEST_LENGTH] = staging.prefix.move(manifest, "manifest"), lengths[manifest]

    staging.store(staging.place(location), copy_manifest_list(staging.io, location, change))
