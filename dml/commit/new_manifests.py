"""Filters, writes and merges the manifests of a commit. Driver.

Filtering. Input: manifests, and the files to remove. Output: the manifests of the snapshot. Only manifests that lose a
file are rewritten: remaining entries become EXISTING, removed ones DELETED by this snapshot, and entries deleted before
are dropped. Files that are removed by name are searched in the manifests that listed them for the statement, then in
manifests of their partitions (another commit may have moved them), then in all.

Writing. Input: entries of new files and of rewritten manifests; the properties `commit.manifest-merge.enabled`,
`commit.manifest.target-size-bytes` and `commit.manifest.min-count-to-merge`. Output: `ManifestFile`s, each written once
for all attempts of the commit; all locations, for cleanup.

Merging limits the number of manifests. Manifests of one content and spec are packed, oldest first and in order, into
bins of the target size. Each bin of several becomes one manifest. The bin with the newest manifest waits until it has
the minimum count, so that small commits stay cheap.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from dml.commit.changes import FileChanges, Operation
from dml.commit.row_ids import FoundRows
from dml.commit.window import ManifestReader
from dml.errors import CommitConflictError, ValidationFailedError
from dml.manifests.write import ManifestWriter
from dml.model.manifest import (
    ContentFile,
    DeleteFileKey,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Partition,
)
from dml.model.row_map import RowMap
from dml.options import CommitOptions
from dml.pruning.filter_text import filter_text
from dml.pruning.pruner import PartitionSet, Pruner

__all__ = [
    "CommitFiles",
    "FilteredManifests",
    "ManifestFilter",
    "NewManifests",
    "commit_pruner",
    "merge_manifests",
    "pack_from_end",
]


class CommitFiles:
    """The files that a commit has written in all attempts, for reuse and cleanup.

    Attributes:
        commit_id: A part of their names.
        lists: Locations of manifest lists.
        manifests: Manifests by layout and content.
        entries: The entries of each manifest, by location.
        delete_files: Delete files that include concurrent deletes, by data file path and keys of the concurrent files.
        without_rows: Keys of concurrently added data files that hold no row of the statement.
        row_maps: The row maps of concurrently compacted data files, by path; None for a file without one.
        found_rows: Results of searches by row id, by the files and rows of the search.
    """

    def __init__(self) -> None:
        self.commit_id = str(uuid4())
        self.lists: list[str] = []
        self.manifests: dict[object, ManifestFile] = {}
        self.entries: dict[str, tuple[ManifestEntry, ...]] = {}
        self.delete_files: dict[tuple[str, frozenset[DeleteFileKey]], ContentFile] = {}
        self.without_rows: set[DeleteFileKey] = set()
        self.row_maps: dict[str, RowMap | None] = {}
        self.found_rows: dict[Hashable, FoundRows] = {}

    @property
    def metadata_locations(self) -> tuple[str, ...]:
        """The locations of manifest lists and manifests."""
        return (*self.lists, *self.entries)

    @property
    def delete_file_locations(self) -> frozenset[str]:
        """The locations of delete files."""
        return frozenset(file.path for file in self.delete_files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NewManifests:
    """Writes the manifests of one attempt; manifests of earlier attempts are reused.

    Attributes:
        files: The files that the commit has written.
        writer: Writes manifests for the table's newest metadata.
        layout: Format version and specs: a manifest with another layout is not reused.
        snapshot_id: The id of the commit's snapshot.
        location: Maps a file name to its location in the table's metadata folder.
    """

    files: CommitFiles
    writer: ManifestWriter
    layout: str
    snapshot_id: int
    location: Callable[[str], str]

    @staticmethod
    def of(
        metadata: TableMetadata, io: FileIO, files: CommitFiles, snapshot_id: int, location: Callable[[str], str]
    ) -> "NewManifests":
        """Create the writer of an attempt.

        Args:
            metadata: The table's newest metadata.
            io: The table's FileIO.
            files: The files that the commit has written.
            snapshot_id: The id of the commit's snapshot.
            location: Maps a file name to its location in the table's metadata folder.
        """
        specs = ",".join(spec.model_dump_json() for spec in metadata.partition_specs)
        return NewManifests(
            files=files,
            writer=ManifestWriter(io, metadata, snapshot_id),
            layout=f"{metadata.format_version} {specs}",
            snapshot_id=snapshot_id,
            location=location,
        )

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...] | None:
        """Return the entries of a manifest that this commit wrote, or None for other manifests."""
        return self.files.entries.get(manifest.manifest_path)

    def write_added(
        self,
        content: ManifestContent,
        files: Iterable[ContentFile],
        data_sequence_number: Callable[[ContentFile], int | None],
    ) -> list[ManifestFile]:
        """Write manifests of new files, one per spec, and return them with the newest spec first.

        Args:
            content: The content of the manifests.
            files: The new files.
            data_sequence_number: Returns the data sequence number of a file; None for that of the commit.
        """
        by_spec: dict[int, list[ContentFile]] = {}
        for file in files:
            by_spec.setdefault(file.spec_id, []).append(file)
        manifests = []
        for spec_id in sorted(by_spec, reverse=True):
            entries = tuple(self._added_entry(file, data_sequence_number(file)) for file in by_spec[spec_id])
            key = ("added", content, spec_id, tuple(file.key for file in by_spec[spec_id]))
            manifests.append(self._write(key, spec_id, content, entries))
        return manifests

    def _added_entry(self, file: ContentFile, data_sequence_number: int | None) -> ManifestEntry:
        return ManifestEntry(
            status=EntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            data_sequence_number=data_sequence_number,
            file_sequence_number=None,
            data_file=file,
        )

    def write_rewritten(self, source: ManifestFile, entries: tuple[ManifestEntry, ...]) -> ManifestFile:
        """Write the replacement of a manifest that loses files."""
        removed = tuple(entry.data_file.key for entry in entries if not entry.is_live)
        return self._write(("rewritten", source, removed), source.partition_spec_id, source.content, entries)

    def write_merged(
        self, sources: Sequence[ManifestFile], entries: Callable[[], tuple[ManifestEntry, ...]]
    ) -> ManifestFile:
        """Write one manifest that replaces several of one spec and content."""
        key = ("merged", *sources)
        if (self.layout, key) in self.files.manifests:
            return self.files.manifests[self.layout, key]
        return self._write(key, sources[0].partition_spec_id, sources[0].content, entries())

    def _write(
        self, key: object, spec_id: int, content: ManifestContent, entries: tuple[ManifestEntry, ...]
    ) -> ManifestFile:
        known = self.files.manifests
        if (self.layout, key) not in known:
            location = self.location(f"{self.files.commit_id}-m{len(self.files.entries)}.avro")
            self.files.entries[location] = entries
            known[self.layout, key] = self.writer.write(location, spec_id, content, entries)
        return known[self.layout, key]


def merge_manifests(
    manifests: Sequence[ManifestFile], options: CommitOptions, reader: ManifestReader, written: NewManifests
) -> tuple[ManifestFile, ...]:
    """Merge manifests of one content.

    Args:
        manifests: The manifests, newest first.
        options: The table's commit options.
        reader: Reads manifests of earlier commits.
        written: Writes the manifests of this commit and holds their entries.

    Raises:
        DmlError: A manifest cannot be read or written.
    """
    if not options.manifest_merge_enabled or len(manifests) < 2:
        return tuple(manifests)
    by_spec: dict[int, list[ManifestFile]] = {}
    for manifest in manifests:
        by_spec.setdefault(manifest.partition_spec_id, []).append(manifest)
    merged: list[ManifestFile] = []
    for spec_id in sorted(by_spec, reverse=True):
        for group in pack_from_end(by_spec[spec_id], options.manifest_target_size):
            waits = manifests[0] in group and len(group) < options.manifest_min_count_to_merge
            if len(group) == 1 or waits:
                merged += group
            else:
                merged.append(written.write_merged(group, partial(merged_entries, group, reader, written)))
    return tuple(merged)


def pack_from_end(manifests: Sequence[ManifestFile], target_size: int) -> list[list[ManifestFile]]:
    """Pack neighbours into bins up to a size, from the last to the first; oversized manifests are alone.

    Args:
        manifests: The manifests; their order is preserved.
        target_size: The size of a bin in bytes.
    """
    bins: list[list[ManifestFile]] = []
    room = 0
    for manifest in reversed(manifests):
        if bins and manifest.manifest_length <= room:
            bins[0].insert(0, manifest)
            room -= manifest.manifest_length
        else:
            bins.insert(0, [manifest])
            room = target_size - manifest.manifest_length
    return bins


def merged_entries(
    manifests: Sequence[ManifestFile], reader: ManifestReader, written: NewManifests
) -> tuple[ManifestEntry, ...]:
    reader.prepare(manifest for manifest in manifests if written.entries(manifest) is None)
    return tuple(entry for manifest in manifests for entry in carried_entries(manifest, reader, written))


def carried_entries(manifest: ManifestFile, reader: ManifestReader, written: NewManifests) -> Iterable[ManifestEntry]:
    own = written.entries(manifest)
    if own is not None:
        return own
    return (replace(entry, status=EntryStatus.EXISTING) for entry in reader.entries(manifest) if entry.is_live)


ManifestTest = Callable[[ManifestFile], bool]
FileTest = Callable[[ManifestEntry], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredManifests:
    """The manifests of a snapshot that remain after removing files, for one content.

    Attributes:
        manifests: Manifests in order; each is carried over or rewritten without some files.
        removed: The original entries of the removed files.
    """

    manifests: tuple[ManifestFile, ...]
    removed: tuple[ManifestEntry, ...]


class ManifestFilter:
    """Removes files from manifests.

    Args:
        metadata: The table's newest metadata.
        named_by: The schema that a row filter's names refer to.
        changes: The changes of the commit.
        reader: Reads manifests.
        written: Writes the manifests that change.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        named_by: Schema,
        changes: FileChanges,
        reader: ManifestReader,
        written: NewManifests,
    ) -> None:
        self._metadata = metadata
        self._changes = changes
        self._reader = reader
        self._written = written
        self._replaced = PartitionSet(changes.replaced_partitions, metadata)
        self._rows = (
            None
            if changes.row_filter is None
            else commit_pruner(changes.row_filter, metadata, case_sensitive=changes.case_sensitive, named_by=named_by)
        )

    def data_files(self, manifests: Sequence[ManifestFile]) -> FilteredManifests:
        """Remove data files.

        Args:
            manifests: Data manifests.

        Raises:
            CommitConflictError: V9: the filter matches some rows of a file that a concurrent commit added.
            ValidationFailedError: V9: the filter matches some rows of a file, but not all.
            DmlError: A manifest cannot be read or written.
        """
        paths, listing = self._changes.removed_data_files, self._changes.listing

        def selects(entry: ManifestEntry) -> bool:
            file = entry.data_file
            return file.path in paths or self._replaced.may_match(file) or self._matches(file)

        def all_found(found: FilteredManifests) -> bool:
            return len({entry.data_file.path for entry in found.removed} & paths) == len(paths)

        places: list[ManifestTest] = [everywhere]
        if not paths:
            places = [nowhere]
        elif listing is not None:
            places = [at(listing.data_manifests), self._in_partitions(listing.partitions), everywhere]
        return self._filter(manifests, places, all_found, selects)

    def delete_files(
        self, manifests: Sequence[ManifestFile], removed: Iterable[ManifestEntry], least_sequence_number: int
    ) -> FilteredManifests:
        """Remove delete files that the commit names, and those that no longer apply to any data file.

        An append removes no files. Source: Iceberg's `ManifestFilterManager.dropDeleteFilesOlderThan`.

        Args:
            manifests: Delete manifests.
            removed: Entries of the removed data files: their deletion vectors are removed too.
            least_sequence_number: The least one of the remaining data files: older delete files apply to none.

        Raises:
            DmlError: A manifest cannot be read or written.
        """
        keys = self._changes.removed_delete_files
        may_drop = self._changes.operation is not Operation.APPEND
        replaced = {entry.data_file.path: (entry.data_file.spec_id, entry.data_file.partition) for entry in removed}

        def selects(entry: ManifestEntry) -> bool:
            file = entry.data_file
            return (
                file.key in keys
                or (file.is_deletion_vector and file.referenced_data_file in replaced)
                or self._replaced.may_match(file)
                or (self._rows is not None and self._rows.must_match(file))
            )

        def applies_to_nothing(entry: ManifestEntry) -> bool:
            return may_drop and 0 < (entry.data_sequence_number or 0) < least_sequence_number

        def may_list_old(manifest: ManifestFile) -> bool:
            return may_drop and 0 < (manifest.min_sequence_number or 0) < least_sequence_number

        def all_found(found: FilteredManifests) -> bool:
            return len({entry.data_file.key for entry in found.removed} & keys) == len(keys)

        # A replaced delete file is in the same partition as its replacement.
        partitions = {(file.spec_id, file.partition) for file in self._changes.added_delete_files} | set(
            replaced.values()
        )
        places: list[ManifestTest] = [self._in_partitions(partitions), everywhere] if keys or replaced else [nowhere]
        listing = self._changes.listing
        if listing is not None and listing.delete_manifests <= {manifest.manifest_path for manifest in manifests}:
            places.insert(0, self._at_or_since(listing.delete_manifests, replaced.values()))
        places = [partial(either, place, may_list_old) for place in places]
        return self._filter(manifests, places, all_found, lambda entry: selects(entry) or applies_to_nothing(entry))

    def _at_or_since(self, locations: frozenset[str], partitions: Iterable[Partition]) -> ManifestTest:
        """Match listed manifests, and newer ones: a removed data file may have got a vector since."""
        start_id = self._changes.validation.starting_snapshot_id
        start = None if start_id is None else self._metadata.snapshot_by_id(start_id)
        number = (start.sequence_number or 0) if start is not None else 0
        known, near = at(locations), self._in_partitions(partitions)
        return lambda manifest: known(manifest) or ((manifest.sequence_number or 0) > number and near(manifest))

    def _in_partitions(self, partitions: Iterable[Partition]) -> ManifestTest:
        return PartitionSet(partitions, self._metadata).may_list_matches

    def _matches(self, file: ContentFile) -> bool:
        if self._rows is None or not self._rows.may_match(file):
            return False
        if self._rows.must_match(file):
            return True
        shown = filter_text(self._rows.expression)
        message = f"Cannot delete file where some, but not all, rows match filter {shown}: {file.path}"
        if self._changes.planned_filter:
            hint = "The file came after the statement was planned: run the statement again"
            raise CommitConflictError(message, hint=hint, file=file.path)
        raise ValidationFailedError(message, hint="Choose a filter that matches whole files", file=file.path)

    def _filter(
        self,
        manifests: Sequence[ManifestFile],
        places: Sequence[ManifestTest],
        all_found: Callable[[FilteredManifests], bool],
        selects: FileTest,
    ) -> FilteredManifests:
        """Search the places in order for the files that are removed by name, until all are found."""
        for place in places:
            found = self._remove(manifests, place, selects)
            if all_found(found):
                break
        return found

    def _remove(self, manifests: Sequence[ManifestFile], named: ManifestTest, selects: FileTest) -> FilteredManifests:
        """Remove selected files from the manifests that may list them."""
        live = [manifest for manifest in manifests if manifest.has_live_files]
        opened = set(
            self._reader.prepare(manifest for manifest in live if named(manifest) or self._may_list_matches(manifest))
        )
        kept: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        for manifest in live:
            entries = [entry for entry in self._reader.entries(manifest) if entry.is_live] if manifest in opened else []
            dropped = [entry for entry in entries if selects(entry)]
            if not dropped:
                kept.append(manifest)
                continue
            removed += dropped
            kept.append(
                self._written.write_rewritten(manifest, rewritten_entries(entries, dropped, self._written.snapshot_id))
            )
        return FilteredManifests(manifests=tuple(kept), removed=tuple(removed))

    def _may_list_matches(self, manifest: ManifestFile) -> bool:
        """Return True if a manifest may list files to remove by partition or row filter."""
        return self._replaced.may_list_matches(manifest) or (
            self._rows is not None and self._rows.may_list_matches(manifest)
        )


def at(locations: frozenset[str]) -> ManifestTest:
    return lambda manifest: manifest.manifest_path in locations


def either(first: ManifestTest, second: ManifestTest, manifest: ManifestFile) -> bool:
    return first(manifest) or second(manifest)


def everywhere(_: ManifestFile) -> bool:
    return True


def nowhere(_: ManifestFile) -> bool:
    return False


def rewritten_entries(
    entries: Iterable[ManifestEntry], dropped: Iterable[ManifestEntry], snapshot_id: int
) -> tuple[ManifestEntry, ...]:
    leaving = {id(entry) for entry in dropped}
    return tuple(
        replace(entry, status=EntryStatus.DELETED, snapshot_id=snapshot_id)
        if id(entry) in leaving
        else replace(entry, status=EntryStatus.EXISTING)
        for entry in entries
    )


def commit_pruner(
    expression: BooleanExpression, metadata: TableMetadata, *, case_sensitive: bool, named_by: Schema
) -> Pruner:
    """Bind a filter to the table's newest metadata, as a pruner.

    Args:
        expression: The filter, unbound.
        metadata: The table's newest metadata: supplies the current schema and all specs.
        case_sensitive: How names in the filter match.
        named_by: The schema that the filter's names refer to.

    Raises:
        CommitConflictError: The filter no longer fits the table's schema.
    """
    now = metadata.schema()
    # Columns may have been renamed or swapped names: each name must still refer to the same field.
    for field_id in extract_field_ids(bind(named_by, expression, case_sensitive)):
        name = named_by.find_column_name(field_id)
        if name != (now.find_column_name(field_id) if field_id in now.field_ids else None):
            raise outdated_filter(expression, f"the column {name} was dropped or renamed")
    try:
        return Pruner(metadata.specs(), now, expression, case_sensitive=case_sensitive, older_schemas=metadata.schemas)
    except ValueError as error:
        raise outdated_filter(expression, str(error)) from error


def outdated_filter(expression: BooleanExpression, reason: str) -> CommitConflictError:
    return CommitConflictError(
        f"The filter {filter_text(expression)} does not fit the table's schema any more: {reason}",
        hint="The schema was changed meanwhile: run the statement again",
    )
