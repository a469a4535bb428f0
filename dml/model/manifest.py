"""Files of a table and the manifests that list them, as read or about to be written. Worker-safe: plain data.

Source: Iceberg specification, "Manifests", "Manifest Lists" and "Partitioning". Field names are those of PyIceberg, so
that its evaluators accept `ManifestFile` and `ContentFile`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

__all__ = [
    "ContentFile",
    "DeleteFileKey",
    "EntryStatus",
    "FileContent",
    "Listing",
    "ManifestContent",
    "ManifestEntry",
    "ManifestFile",
    "Partition",
    "PartitionSummary",
    "is_unpartitioned",
    "unpartitioned_specs",
]


class FileContent(IntEnum):
    """`content` of a data_file struct."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFile:
    """A data file, position delete file or deletion vector, as written.

    Attributes:
        content: The kind of its content.
        path: Full location, as in the manifest.
        file_format: Lower case: `parquet`, `orc`, `avro`, `puffin`.
        spec_id: Partition spec under which `partition` is a tuple.
        partition: Values in Iceberg's internal form, in spec field order.
        record_count: Rows; for a deletion vector its cardinality.
        file_size_in_bytes: Size of the whole file.
        column_sizes: Bytes on disk by field id.
        value_counts: Values by field id, nulls included.
        null_value_counts: Nulls by field id.
        nan_value_counts: NaNs by field id.
        lower_bounds: Serialized bounds by field id (specification, "Appendix D").
        upper_bounds: Serialized bounds by field id.
        split_offsets: Start of each row group or stripe, ascending.
        sort_order_id: The table's sort order that the rows follow; None for position deletes.
        referenced_data_file: The one data file that a deletion vector or file-scoped position delete file covers.
        content_offset: Deletion vectors: offset of the blob.
        content_size_in_bytes: Deletion vectors: length of the blob.
        equality_ids: Equality delete files: the field ids by which rows are equal.
        key_metadata: Encryption metadata of its writer, unchanged.
    """

    content: FileContent
    path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None
    equality_ids: tuple[int, ...] = ()
    key_metadata: bytes | None = None

    @property
    def is_deletion_vector(self) -> bool:
        """True for a blob in a Puffin file."""
        return self.content is FileContent.POSITION_DELETES and self.content_offset is not None

    @property
    def key(self) -> tuple[str, int | None, int | None]:
        """Its identity: many deletion vectors share one Puffin file."""
        return self.path, self.content_offset, self.content_size_in_bytes


class ManifestContent(IntEnum):
    """The kind of files in a manifest: `content` of a manifest_file struct."""

    DATA = 0
    DELETES = 1


class EntryStatus(IntEnum):
    """`status` of a manifest entry."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """The bounds of the values of one partition field in a manifest.

    Attributes:
        contains_null: True if a partition value is null.
        contains_nan: True if a partition value is NaN; None if unknown.
        lower_bound: Serialized least value; None if all values are null or NaN.
        upper_bound: Serialized greatest value; None likewise.
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
        min_sequence_number: Least data sequence number of its live files; None until assigned, if all are new.
        added_snapshot_id: Snapshot that added it.
        added_files_count: Entries with status ADDED; None if a v1 list lacks the count.
        existing_files_count: Entries with status EXISTING.
        deleted_files_count: Entries with status DELETED.
        added_rows_count: Rows of the added files.
        existing_rows_count: Rows of the existing files.
        deleted_rows_count: Rows of the deleted files.
        partitions: A summary for each field of the spec; None if the list has none.
        key_metadata: Encryption metadata.
        first_row_id: v3: the row id from which its files without one count up; None for delete manifests and for
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
        """True if an entry may have a status other than DELETED."""
        return self.added_files_count != 0 or self.existing_files_count != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A file in a manifest.

    Attributes:
        status: ADDED, EXISTING or DELETED in the manifest's snapshot.
        snapshot_id: Snapshot that added it or, for DELETED, deleted it.
        data_sequence_number: The sequence number of its rows; None for an ADDED file that is not committed yet.
        file_sequence_number: The sequence number of the snapshot that added the file; None likewise.
        first_row_id: v3 data files: row id of its first row; None if its rows have no lineage yet.
        data_file: The data file or delete file.
    """

    status: EntryStatus
    snapshot_id: int | None
    data_sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None = None
    data_file: ContentFile

    @property
    def is_live(self) -> bool:
        """True if the file is in the table after the manifest's snapshot."""
        return self.status is not EntryStatus.DELETED


DeleteFileKey = tuple[str, int | None, int | None]
"""Path, content offset and content size: many deletion vectors share one Puffin file."""

Partition = tuple[int, tuple[Any, ...]]
"""Spec id and partition tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The manifests that list some files in the snapshot that a statement read.

    Manifests are immutable: while a newer snapshot has the same manifest, it lists the files. After a merge or removal
    of files, another manifest lists them; the partitions limit the search for it.

    Attributes:
        data_manifests: Locations of the manifests that list the data files.
        delete_manifests: Locations of the manifests that list the delete files and all deletion vectors of the data
            files.
        partitions: Partitions of the data files.
    """

    data_manifests: frozenset[str]
    delete_manifests: frozenset[str]
    partitions: frozenset[Partition]


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Return whether a spec has no fields, or only void ones, so that all rows are in one partition.

    Format version 1 replaces a dropped field with the transform `void`, so a table that is no longer partitioned still
    has fields in its spec, and a NULL for each in its partition tuples.
    """
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def unpartitioned_specs(specs: Mapping[int, PartitionSpec]) -> frozenset[int]:
    """Return the ids of the unpartitioned specs, whose equality deletes apply to the whole table."""
    return frozenset(spec_id for spec_id, spec in specs.items() if is_unpartitioned(spec))
