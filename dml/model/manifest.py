"""Manifests and their entries, as read or about to be written. Worker-safe: plain data.

Source: Iceberg specification, "Manifests" and "Manifest Lists". The names of the fields are those that PyIceberg's
evaluators ask for, so `ManifestFile` and `ContentFile` can be given to them.
"""

from dataclasses import dataclass
from enum import IntEnum

from dml.model.content_file import ContentFile

__all__ = ["EntryStatus", "ManifestContent", "ManifestEntry", "ManifestFile", "PartitionSummary"]


class ManifestContent(IntEnum):
    """What the files of a manifest are: `content` of a manifest_file struct."""

    DATA = 0
    DELETES = 1


class EntryStatus(IntEnum):
    """`status` of a manifest entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """What the values of one partition field in a manifest lie between.

    Attributes:
        contains_null: Whether a partition value is null.
        contains_nan: Whether one is NaN; None where unknown.
        lower_bound: Serialised least value, None where there is no other than null or NaN.
        upper_bound: Serialised greatest value.
    """

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A line of a manifest list.

    Attributes:
        manifest_path: Location.
        manifest_length: Bytes.
        partition_spec_id: Spec of all its files.
        content: Data files, or delete files.
        sequence_number: Of the snapshot that added it; None until a commit attempt assigns it.
        min_sequence_number: Least data sequence number of its live files; None as above, where all are new.
        added_snapshot_id: Snapshot that added it.
        added_files_count: Entries with status ADDED; None where a v1 list does not say.
        existing_files_count: Entries with status EXISTING.
        deleted_files_count: Entries with status DELETED.
        added_rows_count: Rows of the added files.
        existing_rows_count: Rows of the existing files.
        deleted_rows_count: Rows of the deleted files.
        partitions: A summary for each field of the spec; None where the list has none.
        key_metadata: Encryption.
        first_row_id: v3: the first row id that its files without one count from; None for delete manifests and for
            manifests from before an upgrade.
    """

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent = ManifestContent.DATA
    sequence_number: int | None = 0
    min_sequence_number: int | None = 0
    added_snapshot_id: int
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None
    added_rows_count: int | None = None
    existing_rows_count: int | None = None
    deleted_rows_count: int | None = None
    partitions: tuple[PartitionSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None

    @property
    def has_live_files(self) -> bool:
        """Whether an entry may be other than DELETED."""
        return self.added_files_count != 0 or self.existing_files_count != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file of a manifest.

    Attributes:
        status: What the manifest's snapshot did to the file.
        snapshot_id: Snapshot that added it or, for DELETED, deleted it.
        data_sequence_number: When its rows belong to the table; None for an ADDED file that is not committed yet.
        file_sequence_number: When the file was added; None likewise.
        first_row_id: v3 data files: row id of its first row; None where rows have no lineage yet.
        data_file: The file; a delete file as well.
    """

    status: EntryStatus
    snapshot_id: int | None
    data_sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None = None
    data_file: ContentFile

    @property
    def is_live(self) -> bool:
        """Whether the file is in the table after the manifest's snapshot."""
        return self.status is not EntryStatus.DELETED
