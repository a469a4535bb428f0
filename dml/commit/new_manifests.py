"""The manifests that one commit writes, each once however many attempts it takes; merging small ones. Driver.

Input: entries of new files, and of manifests that change; the properties `commit.manifest-merge.enabled`,
`commit.manifest.target-size-bytes` and `commit.manifest.min-count-to-merge`. Output: `ManifestFile`s; all locations,
for the cleaning up.

Merging keeps the number of manifests bounded. Those of one content and spec are packed from the oldest on into bins of
the target size, without changing their order. A bin of several becomes one manifest. The bin with the newest one waits
until it has the least count, so that small commits stay cheap.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from dml.commit.window import ManifestReader
from dml.manifests.write import ManifestWriter
from dml.model.manifest import ContentFile, DeleteFileKey, EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from dml.options import CommitOptions

__all__ = ["CommitFiles", "NewManifests", "merge_manifests", "pack_from_end"]


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
