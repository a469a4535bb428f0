"""The figures of a table's health, by subject. Driver (plain data).

Sizes are in bytes and times in milliseconds since 1970 (UTC). A figure is exact, unless its field is documented
otherwise or another field gives its `Certainty`.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Advice",
    "Certainty",
    "DeleteFigures",
    "DeletedFromFile",
    "FileFigures",
    "GainFigures",
    "ManifestFigures",
    "MetadataFigures",
    "OverlapFigures",
    "PartitionFigures",
    "PartitionFiles",
    "RefAge",
    "SizeRange",
    "SnapshotFigures",
    "StatisticsAge",
]


class Certainty(StrEnum):
    """How exact a figure is."""

    EXACT = "exact"
    AT_MOST = "at most"
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """The data files of some sizes.

    Attributes:
        from_bytes: The smallest size.
        to_bytes: The first size above the range; None for no limit.
        files: The number of files.
        bytes: Their total size.
        is_rewritten: True if `rewrite_data_files` selects files of these sizes.
    """

    from_bytes: int
    to_bytes: int | None
    files: int
    bytes: int
    is_rewritten: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFigures:
    """The data files.

    Attributes:
        files: The number of live data files.
        bytes: Their total size.
        rows: The number of their rows, including deleted ones.
        target_bytes: The target size of data files.
        small_files: Files below 75 % of the target, which `rewrite_data_files` selects.
        small_bytes: Their total size.
        large_files: Files above 180 % of the target, which it also selects.
        min_bytes: The smallest size; 0 without files.
        median_bytes: The median size: the lower one for an even number of files.
        max_bytes: The largest size.
        histogram: The files by size. The limits are fractions of the target, and the target is one of them.
    """

    files: int
    bytes: int
    rows: int
    target_bytes: int
    small_files: int
    small_bytes: int
    large_files: int
    min_bytes: int
    median_bytes: int
    max_bytes: int
    histogram: tuple[SizeRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFromFile:
    """A data file with deleted rows.

    Attributes:
        path: The location of the data file.
        rows: Its rows, deleted ones included.
        deleted_rows: Positions in delete files for this file only: exact with a deletion vector, otherwise an upper
            limit.
        delete_files: The number of delete files that may apply to it.
    """

    path: str
    rows: int
    deleted_rows: int
    delete_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFigures:
    """The delete files.

    Attributes:
        deletion_vectors: The number of live deletion vectors.
        position_delete_files: The number of live position delete files, without vectors.
        equality_delete_files: The number of live equality delete files.
        bytes: Their total size. For a deletion vector, the size of its blob.
        deleted_rows: Deleted positions in data files.
        deleted_ratio: `deleted_rows` divided by the rows of data files; 0.0 without rows.
        certainty: `exact` if only deletion vectors apply; `at most` with position delete files, which may list a row
            twice or list a removed file; `estimate` with equality delete files, whose deleted rows are not counted.
        affected_files: The data files to which a delete file may apply.
        dangling_files: Delete files that apply to no data file.
        most_deleted: The data files with the most deleted rows.
    """

    deletion_vectors: int
    position_delete_files: int
    equality_delete_files: int
    bytes: int
    deleted_rows: int
    deleted_ratio: float
    certainty: Certainty
    affected_files: int
    dangling_files: int
    most_deleted: tuple[DeletedFromFile, ...]

    @property
    def files(self) -> int:
        """The number of live delete files."""
        return self.deletion_vectors + self.position_delete_files + self.equality_delete_files


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """The data files of a partition.

    Attributes:
        name: The path of the partition, as in `day=2026-01-01`; empty for an unpartitioned table.
        files: The number of data files.
        bytes: Their total size.
        rows: Their rows, deleted ones included.
        manifests: The number of manifests that list them.
        max_depth: The maximum overlap depth; None without a sort column.
    """

    name: str
    files: int
    bytes: int
    rows: int
    manifests: int
    max_depth: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """The partitions that have data files. Files of different specs share one if their values are equal.

    Attributes:
        partitions: The number of partitions; 1 for an unpartitioned table with files.
        mean_bytes: The mean size.
        skew: The size of the largest partition divided by the mean; 0.0 without files.
        max_files: The maximum number of files in a partition.
        largest: The largest partitions.
    """

    partitions: int
    mean_bytes: int
    skew: float
    max_files: int
    largest: tuple[PartitionFiles, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapFigures:
    """The overlap of files by the bounds of the first column of the table's sort order.

    Writers may truncate bounds of long text, so the bounds of files may overlap although their values do not.

    Attributes:
        column: The column; None if files cannot be compared.
        reason: The reason if the column is None; otherwise empty.
        mean_depth: The mean of `dml.maintenance.average_depth`: the number of files of the partition that overlap where
            a file begins. Files that only share an end do not count.
        max_depth: The maximum number of files at one value of a partition.
        overlapping_partitions: The partitions with a depth above 1.
        files_without_bounds: The files that are left out because their metrics have no bounds of the column.
        deepest: The partitions with the greatest depths.
    """

    column: str | None
    reason: str = ""
    mean_depth: float = 0.0
    max_depth: int = 0
    overlapping_partitions: int = 0
    files_without_bounds: int = 0
    deepest: tuple[PartitionFiles, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFigures:
    """The manifests of the snapshot.

    Attributes:
        data_manifests: The number of manifests that list data files.
        delete_manifests: The number of manifests that list delete files.
        bytes: The total size of all manifests, which a full scan reads to plan.
        target_bytes: `commit.manifest.target-size-bytes`.
        min_bytes: The smallest size; 0 without manifests.
        median_bytes: The median size: the lower one for an even number of manifests.
        max_bytes: The largest size.
        without_live_files: Manifests that only list removed files.
        mean_spread: The mean number of manifests that list the data files of a partition.
        max_spread: The maximum number.
    """

    data_manifests: int
    delete_manifests: int
    bytes: int
    target_bytes: int
    min_bytes: int
    median_bytes: int
    max_bytes: int
    without_live_files: int
    mean_spread: float
    max_spread: int

    @property
    def manifests(self) -> int:
        """The number of manifests."""
        return self.data_manifests + self.delete_manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class RefAge:
    """A branch or tag.

    Attributes:
        name: Its name.
        kind: `branch` or `tag`.
        snapshot_id: Its snapshot.
        age_ms: The age of that snapshot in milliseconds; None if the snapshot does not exist.
        expires: True if `expire_snapshots` removes it, by its own or the table's maximum age.
    """

    name: str
    kind: str
    snapshot_id: int
    age_ms: int | None
    expires: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFigures:
    """The snapshots of the whole table, on all branches.

    Attributes:
        snapshots: The number of snapshots.
        oldest_ms: The time of the oldest; None without snapshots.
        newest_ms: The time of the newest.
        by_day: The number of snapshots of each day that has any (UTC, `2026-01-31`), in order.
        refs: The branches and tags.
        expiring: The snapshots that `expire_snapshots` without arguments removes, by the table's properties.
        expiring_refs: The branches and tags that it removes.
    """

    snapshots: int
    oldest_ms: int | None
    newest_ms: int | None
    by_day: tuple[tuple[str, int], ...]
    refs: tuple[RefAge, ...]
    expiring: int
    expiring_refs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFigures:
    """The metadata file, which every commit writes and every reader loads.

    Attributes:
        bytes: The size of the current metadata file in the storage.
        old_files: The number of older metadata files that it lists.
        previous_versions_max: `write.metadata.previous-versions-max`: the maximum number that it lists.
        deletes_old_files: `write.metadata.delete-after-commit.enabled`: True if files beyond these are deleted.
    """

    bytes: int
    old_files: int
    previous_versions_max: int
    deletes_old_files: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsAge:
    """The newest statistics of one kind that describe the snapshot or an ancestor.

    Attributes:
        kind: `table` (distinct values of columns) or `partition`.
        snapshot_id: The snapshot that they describe; None if there are none.
        snapshots_behind: The number of commits since; None if there are none.
        age_ms: The time from that snapshot to this one, in milliseconds; None if there are none.
    """

    kind: str
    snapshot_id: int | None = None
    snapshots_behind: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GainFigures:
    """The changes of a compaction by `maintain`; none for a snapshot that is not the head of a branch.

    Attributes:
        rewritten_files: The data files that it replaces.
        rewritten_bytes: Their total size, which it reads.
        groups: The number of groups.
        new_files: An estimate of the files that replace them.
        files_before: The data files now.
        files_after: An estimate of the data files afterwards.
        manifest_bytes: The size of the manifests now.
        manifest_bytes_after: An estimate of their size once they list the new files, and only live ones.
    """

    rewritten_files: int
    rewritten_bytes: int
    groups: int
    new_files: int
    files_before: int
    files_after: int
    manifest_bytes: int
    manifest_bytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A recommendation.

    Attributes:
        action: A step of `maintain`, or the property to set.
        reason: The reason, with its figures.
    """

    action: str
    reason: str
