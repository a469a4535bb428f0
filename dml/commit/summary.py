"""The summary of a snapshot: counters, totals, and keys of the engine and the user. Driver.

Input: the files added and removed, the parent's summary. Output: the keys and values of the specification's
"Optional Snapshot Summary Fields", as Iceberg's Java library counts them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from dml.commit.changes import FileChanges
from dml.manifests.write import partition_type
from dml.model import summary_keys
from dml.model.manifest import ContentFile, FileContent
from dml.model.transforms import partition_path

__all__ = ["SummaryBuilder", "is_reserved", "manifest_counts"]

# The order in which Java lists them; a counter of 0 is left out.
COUNTERS: Final = (
    "added-data-files",
    "deleted-data-files",
    "added-equality-delete-files",
    "removed-equality-delete-files",
    "added-position-delete-files",
    "removed-position-delete-files",
    "added-dvs",
    "removed-dvs",
    "added-delete-files",
    "removed-delete-files",
    "added-records",
    "deleted-records",
    "added-files-size",
    "removed-files-size",
    "added-position-deletes",
    "removed-position-deletes",
    "added-equality-deletes",
    "removed-equality-deletes",
)

MANIFEST_COUNTERS: Final = ("manifests-created", "manifests-kept", "manifests-replaced", "entries-processed")

OPERATION: Final = "operation"

TOTALS: Final = (
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)


RESERVED: Final = frozenset(
    key.lower()
    for key in (
        *COUNTERS,
        *(total for total, _, _ in TOTALS),
        OPERATION,
        "changed-partition-count",
        "partition-summaries-included",
        *MANIFEST_COUNTERS,
        summary_keys.REPLACE_PARTITIONS,
        summary_keys.SOURCE_SNAPSHOT_ID,
        summary_keys.WAP_ID,
        summary_keys.PUBLISHED_WAP_ID,
        summary_keys.VERSION,
        summary_keys.QUERY_ID,
        summary_keys.EPOCH_ID,
    )
)
RESERVED_BEGINNINGS: Final = ("rowdelta.", "partitions.", "spark.merge-into.")


def is_reserved(key: str) -> bool:
    """Return True if users cannot set a summary key because it has a meaning for Iceberg or RowDelta."""
    lower = key.lower()
    return lower in RESERVED or lower.startswith(RESERVED_BEGINNINGS)


class SummaryBuilder:
    """Counts the files of a snapshot and builds its summary.

    Args:
        metadata: The table, for the paths of its partitions.
        partition_limit: `write.summary.partition-limit`: the maximum number of changed partitions that are
            summarized one by one.
    """

    def __init__(self, metadata: TableMetadata, partition_limit: int) -> None:
        self._metadata = metadata
        self._limit = partition_limit
        self._total: Counter[str] = Counter()
        self._partitions: dict[str, Counter[str]] = {}
        self._paths: dict[tuple[int, tuple[object, ...]], str] = {}

    def add(self, files: Iterable[ContentFile]) -> None:
        """Count files that the snapshot adds."""
        for file in files:
            self._count(file, counts_added(file))

    def remove(self, files: Iterable[ContentFile]) -> None:
        """Count files that the snapshot removes."""
        for file in files:
            self._count(file, counts_removed(file))

    def build(self, previous: Mapping[str, str] | None, further: Mapping[str, str]) -> dict[str, str]:
        """Return the summary, without its operation.

        Args:
            previous: The parent's summary; None without a parent.
            further: Keys of the action, the engine and the user; counts override them.
        """
        summary = {**nonzero_counts(self._total), "changed-partition-count": str(len(self._partitions))}
        if 0 < len(self._partitions) <= self._limit:
            summary["partition-summaries-included"] = "true"
            for path, counter in self._partitions.items():
                summary[f"partitions.{path}"] = ",".join(
                    f"{key}={value}" for key, value in nonzero_counts(counter).items()
                )
        given = {key: value for key, value in further.items() if key != OPERATION}
        return {**given, **summary, **self._totals(previous)}

    def _totals(self, previous: Mapping[str, str] | None) -> dict[str, str]:
        totals = {}
        for total, added, removed in TOTALS:
            before = "0" if previous is None else previous.get(total, "")
            # The total is unknown if the parent's is missing or impossible.
            if before.isdecimal():
                value = int(before) + self._total[added] - self._total[removed]
                if value >= 0:
                    totals[total] = str(value)
        return totals

    def _count(self, file: ContentFile, counts: Mapping[str, int]) -> None:
        self._total.update(counts)
        self._partitions.setdefault(self._path(file), Counter()).update(counts)

    def _path(self, file: ContentFile) -> str:
        key = (file.spec_id, file.partition)
        if key not in self._paths:
            spec = self._metadata.specs()[file.spec_id]
            self._paths[key] = partition_path(spec, partition_type(spec, self._metadata), file.partition)
        return self._paths[key]


def manifest_counts(changes: FileChanges, total: int) -> dict[str, str]:
    """Return the counters of a rewrite of manifests; none for other commits.

    Args:
        changes: The changes of the commit.
        total: The number of manifests of the snapshot.
    """
    if not changes.removed_manifests:
        return {}
    created = len(changes.added_manifests)
    entries = sum(manifest.existing_files_count or 0 for manifest in changes.added_manifests)
    counts = (created, total - created, len(changes.removed_manifests), entries)
    return {key: str(count) for key, count in zip(MANIFEST_COUNTERS, counts, strict=True)}


def nonzero_counts(counter: Mapping[str, int]) -> dict[str, str]:
    return {key: str(counter[key]) for key in COUNTERS if counter.get(key, 0) > 0}


def file_size(file: ContentFile) -> int:
    """Return the size in bytes: of a deletion vector its blob, not the Puffin file that it shares with others."""
    return file.content_size_in_bytes or 0 if file.is_deletion_vector else file.file_size_in_bytes


def counts_added(file: ContentFile) -> dict[str, int]:
    sizes = {"added-files-size": file_size(file)}
    match file.content:
        case FileContent.DATA:
            return {**sizes, "added-data-files": 1, "added-records": file.record_count}
        case FileContent.POSITION_DELETES:
            kind = "added-dvs" if file.is_deletion_vector else "added-position-delete-files"
            return {**sizes, "added-delete-files": 1, kind: 1, "added-position-deletes": file.record_count}
        case FileContent.EQUALITY_DELETES:
            kind = "added-equality-delete-files"
            return {**sizes, "added-delete-files": 1, kind: 1, "added-equality-deletes": file.record_count}


def counts_removed(file: ContentFile) -> dict[str, int]:
    sizes = {"removed-files-size": file_size(file)}
    match file.content:
        case FileContent.DATA:
            return {**sizes, "deleted-data-files": 1, "deleted-records": file.record_count}
        case FileContent.POSITION_DELETES:
            kind = "removed-dvs" if file.is_deletion_vector else "removed-position-delete-files"
            return {**sizes, "removed-delete-files": 1, kind: 1, "removed-position-deletes": file.record_count}
        case FileContent.EQUALITY_DELETES:
            kind = "removed-equality-delete-files"
            return {**sizes, "removed-delete-files": 1, kind: 1, "removed-equality-deletes": file.record_count}
