"""The manifests that one commit writes: each once, however many attempts it takes. Driver.

Input: entries of new files, and of manifests that change. Output: `ManifestFile`s; all locations, for the cleaning up.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from uuid import uuid4

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from dml.manifests.write import ManifestWriter
from dml.model.content_file import ContentFile
from dml.model.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile

__all__ = ["NewManifests"]


class NewManifests:
    """Writes manifests and remembers them.

    Args:
        io: The table's FileIO.
        snapshot_id: The commit's snapshot.
        location: A file's name to its location in the table's metadata folder.
    """

    def __init__(self, io: FileIO, snapshot_id: int, location: Callable[[str], str]) -> None:
        self.snapshot_id = snapshot_id
        self.commit_id = str(uuid4())
        self._io = io
        self._location = location
        self._numbers = count()
        self._written: dict[object, ManifestFile] = {}
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}
        self._metadata: TableMetadata | None = None
        self._writer: ManifestWriter | None = None

    def at(self, metadata: TableMetadata) -> None:
        """Go on with another attempt, on newer metadata.

        What was written for another format version or other specs is not used again.
        """
        if self._metadata is None or (
            metadata.format_version != self._metadata.format_version
            or metadata.partition_specs != self._metadata.partition_specs
        ):
            self._written = {}
        self._metadata = metadata
        self._writer = ManifestWriter(self._io, metadata, self.snapshot_id)

    @property
    def locations(self) -> tuple[str, ...]:
        """Everything written so far."""
        return tuple(self._entries)

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...] | None:
        """The entries of a manifest that this commit wrote; None for others."""
        return self._entries.get(manifest.manifest_path)

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
        if key in self._written:
            return self._written[key]
        return self._write(key, sources[0].partition_spec_id, sources[0].content, entries())

    def _write(
        self, key: object, spec_id: int, content: ManifestContent, entries: tuple[ManifestEntry, ...]
    ) -> ManifestFile:
        if key not in self._written:
            assert self._writer is not None
            location = self._location(f"{self.commit_id}-m{next(self._numbers)}.avro")
            self._entries[location] = entries
            self._written[key] = self._writer.write(location, spec_id, content, entries)
        return self._written[key]
