"""The manifests of a commit: those without the files that it removes, and those that it writes. Driver.

Input: manifests, and what the commit removes. Output: the manifests to carry on, of which only those that lose a file
are written anew: what stays is EXISTING, what goes is DELETED by this snapshot, what was deleted before is dropped.
Files that are removed by name are looked for where the statement saw them listed; where another commit has moved them,
among their partitions; and then everywhere.

Input: entries of new files, and of manifests that change; the properties `commit.manifest-merge.enabled`,
`commit.manifest.target-size-bytes` and `commit.manifest.min-count-to-merge`. Output: `ManifestFile`s, each written once
however many attempts the commit takes; all locations, for the cleaning up.

Merging keeps the number of manifests bounded. Those of one content and spec are packed from the oldest on into bins of
the target size, without changing their order. A bin of several becomes one manifest. The bin with the newest one waits
until it has the least count, so that small commits stay cheap.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from dml.commit.changes import FileChanges
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
    """The files that a commit has written, over all its attempts: each is written once, and all of them are known.

    Attributes:
        commit_id: Part of their names.
        lists: Locations of manifest lists.
        manifests: By what is in them.
        entries: The entries of each manifest, by location.
        delete_files: Those that hold the deletes of others as well, by path and by whose.
        without_rows: Keys of data files of others that were found to hold no row of the statement.
    """

    def __init__(self) -> None:
        self.commit_id = str(uuid4())
        self.lists: list[str] = []
        self.manifests: dict[object, ManifestFile] = {}
        self.entries: dict[str, tuple[ManifestEntry, ...]] = {}
        self.delete_files: dict[tuple[str, frozenset[DeleteFileKey]], ContentFile] = {}
        self.without_rows: set[DeleteFileKey] = set()

    @property
    def metadata_locations(self) -> tuple[str, ...]:
        """Manifest lists and manifests."""
        return (*self.lists, *self.entries)

    @property
    def delete_file_locations(self) -> frozenset[str]:
        """Delete files."""
        return frozenset(file.path for file in self.delete_files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NewManifests:
    """Writes the manifests of one attempt; those that earlier ones wrote are used again.

    Attributes:
        files: What the commit has written.
        writer: Writes manifests as the table has them now.
        layout: What they depend on: a manifest of another format version or other specs is not used again.
        snapshot_id: The commit's snapshot.
        location: A file's name to its location in the table's metadata folder.
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
        """Those of an attempt.

        Args:
            metadata: The table as it is now.
            io: Its FileIO.
            files: What the commit has written.
            snapshot_id: The commit's snapshot.
            location: A file's name to its location in the table's metadata folder.
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
        """The entries of a manifest that this commit wrote; None for others."""
        return self.files.entries.get(manifest.manifest_path)

    def added(
        self, content: ManifestContent, files: Iterable[ContentFile], data_sequence_number: int | None = None
    ) -> list[ManifestFile]:
        """Manifests of new files, one for each spec, the newest spec first.

        Args:
            content: Of data files or of delete files.
            files: The files.
            data_sequence_number: Of the files; None for that of the commit.
        """
        by_spec: dict[int, list[ContentFile]] = {}
        for file in files:
            by_spec.setdefault(file.spec_id, []).append(file)
        manifests = []
        for spec_id in sorted(by_spec, reverse=True):
            entries = tuple(self._added_entry(file, data_sequence_number) for file in by_spec[spec_id])
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

    def rewritten(self, source: ManifestFile, entries: tuple[ManifestEntry, ...]) -> ManifestFile:
        """A manifest in place of one of which files were removed."""
        removed = tuple(entry.data_file.key for entry in entries if not entry.is_live)
        return self._write(("rewritten", source, removed), source.partition_spec_id, source.content, entries)

    def merged(self, sources: Sequence[ManifestFile], entries: Callable[[], tuple[ManifestEntry, ...]]) -> ManifestFile:
        """A manifest in place of several of one spec and content."""
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
        manifests: Newest first.
        options: Of the table.
        reader: Reads manifests of earlier commits.
        written: Knows and writes those of this one.

    Raises:
        DmlError: a manifest cannot be read or written.
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
                merged.append(written.merged(group, partial(merged_entries, group, reader, written)))
    return tuple(merged)


def pack_from_end(manifests: Sequence[ManifestFile], target_size: int) -> list[list[ManifestFile]]:
    """Neighbours together, up to a size, starting with the last; what fits nowhere is alone.

    Args:
        manifests: In an order that is kept.
        target_size: Bytes.
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
    return tuple(entry for manifest in manifests for entry in carried(manifest, reader, written))


def carried(manifest: ManifestFile, reader: ManifestReader, written: NewManifests) -> Iterable[ManifestEntry]:
    own = written.entries(manifest)
    if own is not None:
        return own
    return (replace(entry, status=EntryStatus.EXISTING) for entry in reader.entries(manifest) if entry.is_live)


ManifestTest = Callable[[ManifestFile], bool]
FileTest = Callable[[ManifestEntry], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredManifests:
    """What is left of a snapshot's manifests of one content.

    Attributes:
        manifests: In their order; each is carried over, or stands for one that lost files.
        removed: Entries of the files that were taken out, as they were.
    """

    manifests: tuple[ManifestFile, ...]
    removed: tuple[ManifestEntry, ...]


class ManifestFilter:
    """Takes out what one commit removes.

    Args:
        metadata: The table as it is now.
        named_by: The schema whose names a row filter has.
        changes: What the commit does.
        reader: Reads manifests.
        written: Writes those that change.
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
        """Take out data files.

        Args:
            manifests: Of data files.

        Raises:
            CommitConflictError: V9: the filter matches some rows of a file that a concurrent commit added.
            ValidationFailedError: V9: the filter matches some rows of a file, but not all.
            DmlError: a manifest cannot be read or written.
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
        """Take out delete files: those that the commit names, and those that apply to nothing any more.

        Args:
            manifests: Of delete files.
            removed: Entries of the data files that were taken out: their deletion vectors go with them.
            least_sequence_number: Of the data files that stay: an older delete file applies to none of them.

        Raises:
            DmlError: a manifest cannot be read or written.
        """
        keys = self._changes.removed_delete_files
        gone = {entry.data_file.path: (entry.data_file.spec_id, entry.data_file.partition) for entry in removed}

        def selects(entry: ManifestEntry) -> bool:
            file = entry.data_file
            return (
                file.key in keys
                or (file.is_deletion_vector and file.referenced_data_file in gone)
                or self._replaced.may_match(file)
                or (self._rows is not None and self._rows.must_match(file))
            )

        def applies_to_nothing(entry: ManifestEntry) -> bool:
            return 0 < (entry.data_sequence_number or 0) < least_sequence_number

        def all_found(found: FilteredManifests) -> bool:
            return len({entry.data_file.key for entry in found.removed} & keys) == len(keys)

        # A delete file that is replaced lies where the one lies that replaces it.
        partitions = {(file.spec_id, file.partition) for file in self._changes.added_delete_files} | set(gone.values())
        places: list[ManifestTest] = [self._in_partitions(partitions), everywhere] if keys or gone else [nowhere]
        listing = self._changes.listing
        if listing is not None and listing.delete_manifests <= {manifest.manifest_path for manifest in manifests}:
            places.insert(0, self._at_or_since(listing.delete_manifests, gone.values()))
        return self._filter(manifests, places, all_found, selects, applies_to_nothing)

    def _at_or_since(self, locations: frozenset[str], partitions: Iterable[Partition]) -> ManifestTest:
        """Manifests that the statement knows, and newer ones: there a removed data file may have got a vector since."""
        start_id = self._changes.validation.starting_snapshot_id
        start = None if start_id is None else self._metadata.snapshot_by_id(start_id)
        number = (start.sequence_number or 0) if start is not None else 0
        known, near = at(locations), self._in_partitions(partitions)
        return lambda manifest: known(manifest) or ((manifest.sequence_number or 0) > number and near(manifest))

    def _in_partitions(self, partitions: Iterable[Partition]) -> ManifestTest:
        return PartitionSet(partitions, self._metadata).manifest

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
        drops: FileTest = lambda _: False,
    ) -> FilteredManifests:
        """Look for files that are removed by name in one place after the other, until all are found."""
        for place in places:
            found = self._without(manifests, place, selects, drops)
            if all_found(found):
                break
        return found

    def _without(
        self, manifests: Sequence[ManifestFile], named: ManifestTest, selects: FileTest, drops: FileTest
    ) -> FilteredManifests:
        """Take out what is selected, and out of the manifests that are written anyway also what may be dropped."""
        live = [manifest for manifest in manifests if manifest.has_live_files]
        opened = set(self._reader.prepare(manifest for manifest in live if named(manifest) or self._matching(manifest)))
        kept: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        for manifest in live:
            entries = [entry for entry in self._reader.entries(manifest) if entry.is_live] if manifest in opened else []
            if not any(selects(entry) for entry in entries):
                kept.append(manifest)
                continue
            gone = [entry for entry in entries if selects(entry) or drops(entry)]
            removed += gone
            kept.append(self._written.rewritten(manifest, rewritten(entries, gone, self._written.snapshot_id)))
        return FilteredManifests(manifests=tuple(kept), removed=tuple(removed))

    def _matching(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list a file to remove that is not named: of a partition, or of a filter's rows."""
        return self._replaced.manifest(manifest) or (self._rows is not None and self._rows.manifest(manifest))


def at(locations: frozenset[str]) -> ManifestTest:
    return lambda manifest: manifest.manifest_path in locations


def everywhere(_: ManifestFile) -> bool:
    return True


def nowhere(_: ManifestFile) -> bool:
    return False


def rewritten(
    entries: Iterable[ManifestEntry], gone: Iterable[ManifestEntry], snapshot_id: int
) -> tuple[ManifestEntry, ...]:
    leaving = {id(entry) for entry in gone}
    return tuple(
        replace(entry, status=EntryStatus.DELETED, snapshot_id=snapshot_id)
        if id(entry) in leaving
        else replace(entry, status=EntryStatus.EXISTING)
        for entry in entries
    )


def commit_pruner(
    expression: BooleanExpression, metadata: TableMetadata, *, case_sensitive: bool, named_by: Schema
) -> Pruner:
    """The files that hold rows of a filter, in the table as it is now.

    Args:
        expression: The filter, unbound.
        metadata: The table: its current schema, all its specs.
        case_sensitive: How names in the filter match.
        named_by: The schema whose names they are.

    Raises:
        CommitConflictError: the filter does not fit the table's schema any more.
    """
    now = metadata.schema()
    # Names of columns can be exchanged: each has to mean what it meant.
    for field_id in extract_field_ids(bind(named_by, expression, case_sensitive)):
        name = named_by.find_column_name(field_id)
        if name != (now.find_column_name(field_id) if field_id in now.field_ids else None):
            raise outdated(expression, f"the column {name} was dropped or renamed")
    try:
        return Pruner(metadata.specs(), now, expression, case_sensitive=case_sensitive, older_schemas=metadata.schemas)
    except ValueError as error:
        raise outdated(expression, str(error)) from error


def outdated(expression: BooleanExpression, reason: str) -> CommitConflictError:
    return CommitConflictError(
        f"The filter {filter_text(expression)} does not fit the table's schema any more: {reason}",
        hint="The schema was changed meanwhile: run the statement again",
    )
