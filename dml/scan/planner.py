"""Plan the scan of a snapshot with a filter: find its scan tasks. Driver.

Input: a table, a snapshot, an Iceberg expression. Output: one `ScanTask` for each data file that may hold matching
rows, with the delete files that apply to it. Spec: "Scan Planning".

Pruning has three steps: manifests by their partition summaries, files by their partition, files by their column
metrics. An equality delete file is dropped from a scan task if the metrics of both files prove that they have no key in
common.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dml.deletes.delete_file_index import DeleteEntry, DeleteFileIndex, DeleteKind
from dml.deletes.position_delete_file import FILE_PATH_ID
from dml.errors import CorruptFileError, NotFoundError
from dml.manifests.cache import cache_of
from dml.manifests.entries import Entries, PlannedFile
from dml.manifests.read import read_each, report_damage
from dml.model.manifest import (
    ContentFile,
    DeleteFileKey,
    FileContent,
    Listing,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    unpartitioned_specs,
)
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.pruning.file_bounds import MetricColumn, file_bounds, may_meet, metric_columns
from dml.pruning.pruner import Pruner
from dml.pruning.row_tests import BoundsOf

__all__ = ["ScanPlan", "delete_entry", "delete_index", "duplicate_file_error", "plan_scan", "scan_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """The files to read of a snapshot.

    Attributes:
        snapshot_id: The snapshot; None for a table without snapshots.
        tasks: One for each data file that may hold matching rows; `file_ordinal` is its index here.
        total_data_files: The number of live data files of the snapshot.
        skipped_data_files: The number of pruned data files.
        total_manifests: The number of manifests of the snapshot, of data and of deletes.
        manifests_read: The number of manifests that were opened.
        data_manifests: The manifest that lists each task's data file, by path.
        delete_manifests: The manifest that lists each delete file that may apply to a task, by key.
        covers_whole_files: Whether the filter is true for every row of each of these data files; False if the caller
            did not request the check.
        metrics: The entry of each task's data file, if the caller requested them.
        lower_bounds: The serialized lower bound of one column of each task's data file, if the caller named the column.
    """

    snapshot_id: int | None
    tasks: tuple[ScanTask, ...] = ()
    total_data_files: int = 0
    skipped_data_files: int = 0
    total_manifests: int = 0
    manifests_read: int = 0
    data_manifests: Mapping[str, str] = field(default_factory=dict, repr=False)
    delete_manifests: Mapping[DeleteFileKey, str] = field(default_factory=dict, repr=False)
    covers_whole_files: bool = False
    metrics: tuple[ContentFile, ...] = field(default=(), repr=False)
    lower_bounds: tuple[bytes | None, ...] = field(default=(), repr=False)

    def listing(self, data_files: Collection[str], delete_files: Collection[DeleteFileKey]) -> Listing:
        """Return where the snapshot lists files that a statement removes.

        Args:
            data_files: Paths of data files of `tasks`.
            delete_files: Keys of delete files that apply to data files of `tasks`.
        """
        removed = [task for task in self.tasks if task.path in data_files]
        vectors = {task.deletion_vector.key for task in removed if task.deletion_vector is not None}
        return Listing(
            data_manifests=frozenset(self.data_manifests[task.path] for task in removed),
            delete_manifests=frozenset(self.delete_manifests[key] for key in vectors.union(delete_files)),
            partitions=frozenset((task.spec_id, task.partition) for task in removed),
        )


def plan_scan(
    table: Table,
    snapshot_id: int | None,
    row_filter: BooleanExpression | None = None,
    *,
    case_sensitive: bool = False,
    schema: Schema | None = None,
    find_whole_files: bool = False,
    keep_metrics: bool = False,
    bounded_id: int | None = None,
) -> ScanPlan:
    """Find the data files that may hold rows for which a filter is true.

    Args:
        table: The table.
        snapshot_id: The snapshot to read; None for the current one.
        row_filter: An unbound expression; None for all rows.
        case_sensitive: Whether the filter's names are case-sensitive.
        schema: The schema that the filter's names belong to; None for the table's current one.
        find_whole_files: Whether to check that the filter is true for every row of these files.
        keep_metrics: Whether to return the entries of the data files.
        bounded_id: The field id of a column whose lower bounds to return; they take less memory than all metrics.

    Raises:
        NotFoundError: the table has no such snapshot.
        CorruptFileError: metadata files are missing or broken.
        ExecutionError: the storage failed.
        ValidationFailedError: delete files contradict each other or their data files.
    """
    snapshot = find_snapshot(table, snapshot_id)
    if snapshot is None:
        return ScanPlan(snapshot_id=None)
    manifests = cache_of(table).manifests(table.io, snapshot)
    pruner = Pruner(
        table.specs(),
        schema or table.schema(),
        row_filter or AlwaysTrue(),
        case_sensitive=case_sensitive,
        older_schemas=table.metadata.schemas,
    )
    live = [manifest for manifest in manifests if manifest.has_live_files and pruner.may_list_matches(manifest)]
    data = [manifest for manifest in live if manifest.content is ManifestContent.DATA]
    deletes = [manifest for manifest in live if manifest.content is ManifestContent.DELETES] if data else []
    entries_of = cache_of(table).entries([*deletes, *data], table.io, len(table.schema().field_ids))
    listed = [delete_manifest(manifest, entries, pruner) for manifest, entries in read_each(deletes, entries_of)]
    # Metrics are most of an entry, so they are kept only if the caller or equality deletes need them.
    by_equality = any(of_manifest.by_equality for of_manifest in listed)
    with_metrics = keep_metrics or by_equality
    read = [
        data_manifest(
            manifest,
            entries,
            pruner,
            find_whole_files=find_whole_files,
            with_metrics=with_metrics,
            bounded_id=bounded_id,
        )
        for manifest, entries in read_each(data, entries_of)
    ]
    files = [file for of_manifest in read for file in of_manifest.files]
    columns = metric_columns(table.schema()) if by_equality else {}
    paths = frozenset(file.path for file in files)
    applicable = [of_manifest.entries_for(paths) for of_manifest in listed]
    index = delete_index((entry for entries in applicable for entry in entries), table.specs())
    data_manifests = {
        file.path: manifest.manifest_path
        for manifest, of_manifest in zip(data, read, strict=True)
        for file in of_manifest.files
    }
    if len(data_manifests) != len(files):
        raise duplicate_file_error(files)
    opened = {manifest.manifest_path for manifest in data}
    total = sum(of_manifest.live for of_manifest in read) + unopened_files(manifests, opened)
    return ScanPlan(
        snapshot_id=snapshot.snapshot_id,
        tasks=tuple(scan_task(ordinal, file, index, columns) for ordinal, file in enumerate(files)),
        total_data_files=total,
        skipped_data_files=total - len(files),
        total_manifests=len(manifests),
        manifests_read=len(data) + len(deletes),
        data_manifests=data_manifests,
        delete_manifests={
            entry.data_file.key: manifest.manifest_path
            for manifest, entries in zip(deletes, applicable, strict=True)
            for entry in entries
        },
        covers_whole_files=find_whole_files and all(of_manifest.is_whole for of_manifest in read),
        metrics=tuple(file.metrics for file in files if file.metrics is not None) if keep_metrics else (),
        lower_bounds=tuple(bound for of_manifest in read for bound in of_manifest.lower_bounds),
    )


def duplicate_file_error(files: Sequence[PlannedFile]) -> CorruptFileError:
    """Return the error for a data file that is listed twice: its rows would be read twice, and its deletes mixed up."""
    path = next(path for path, count in Counter(file.path for file in files).items() if count > 1)
    return CorruptFileError(
        f"The table lists the data file '{path}' twice",
        hint="It was added twice: remove the file from the table and add it once, or go back to an earlier snapshot",
        file=path,
    )


def find_snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    """Return the snapshot to read; None for a table without snapshots.

    Raises:
        NotFoundError: the table has no such snapshot.
    """
    if snapshot_id is None:
        return table.current_snapshot()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFoundError(
            f"The table {'.'.join(table.name())} has no snapshot {snapshot_id}",
            hint="It may have been expired",
            snapshot_id=snapshot_id,
        )
    return snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class DataManifest:
    """The planned files of a manifest of data files.

    Attributes:
        files: The live files that may hold matching rows.
        live: The number of live files.
        is_whole: Whether all rows of these files match; False if this was not checked.
        lower_bounds: The serialized lower bound of the requested column of each file; empty without one.
    """

    files: tuple[PlannedFile, ...]
    live: int
    is_whole: bool
    lower_bounds: Sequence[bytes | None] = ()


def data_manifest(
    manifest: ManifestFile,
    entries: Entries,
    pruner: Pruner,
    *,
    find_whole_files: bool,
    with_metrics: bool,
    bounded_id: int | None,
) -> DataManifest:
    """Find the files of a manifest that may hold matching rows, by their partitions and then by their metrics."""
    with report_damage(manifest.manifest_path):
        found = pruner.select_matching(entries)
        return DataManifest(
            files=entries.planned_files(found, with_metrics=with_metrics),
            live=entries.live_count,
            is_whole=find_whole_files and all(pruner.must_match(entries.file(place)) for place in found),
            lower_bounds=() if bounded_id is None else entries.lower_bounds(found, bounded_id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteManifest:
    """The delete files of a manifest whose partitions may have matching rows.

    Attributes:
        location: The manifest.
        entries: All of its entries.
        places: The indices of these delete files among the entries.
    """

    location: str
    entries: Entries
    places: Sequence[int]

    @property
    def by_equality(self) -> bool:
        """Whether one of them is an equality delete file."""
        return any(content == FileContent.EQUALITY_DELETES for content, _ in self.entries.delete_targets(self.places))

    def entries_for(self, paths: frozenset[str]) -> tuple[ManifestEntry, ...]:
        """Return the delete files that may apply to some data files: not those that name another data file.

        A table that changes often has a deletion vector for nearly every file, and a statement needs few of them.
        """
        with report_damage(self.location):
            return tuple(
                self.entries.entry(place)
                for place, (content, path) in zip(self.places, self.entries.delete_targets(self.places), strict=True)
                if content != FileContent.POSITION_DELETES or path is None or path in paths
            )


def delete_manifest(manifest: ManifestFile, entries: Entries, pruner: Pruner) -> DeleteManifest:
    """Find the delete files of a manifest that may apply to data files with matching rows, by their partitions."""
    with report_damage(manifest.manifest_path):
        return DeleteManifest(location=manifest.manifest_path, entries=entries, places=pruner.in_partitions(entries))


def delete_index(entries: Iterable[ManifestEntry], specs: Mapping[int, PartitionSpec]) -> DeleteFileIndex:
    """Index delete files by the data files that they apply to."""
    return DeleteFileIndex(map(delete_entry, entries), unpartitioned_specs(specs))


def delete_entry(entry: ManifestEntry) -> DeleteEntry:
    """Convert a manifest entry to an entry of the index.

    Raises:
        CorruptFileError: an equality delete file lists no columns.
    """
    file = entry.data_file
    if file.content is FileContent.EQUALITY_DELETES and not file.equality_ids:
        raise CorruptFileError(
            f"The manifest entry of the equality delete file '{file.path}' lists no columns to compare",
            hint="The table's metadata is corrupt: go back to an earlier snapshot",
            file=file.path,
        )
    if file.content is FileContent.EQUALITY_DELETES:
        kind = DeleteKind.EQUALITY_DELETES
    elif file.file_format == "puffin":
        kind = DeleteKind.DELETION_VECTOR
    else:
        kind = DeleteKind.POSITION_DELETES
    return DeleteEntry(
        payload=entry,
        kind=kind,
        spec_id=file.spec_id,
        partition=file.partition,
        data_sequence_number=entry.data_sequence_number or 0,
        referenced_data_file=file.referenced_data_file,
        equality_ids=file.equality_ids,
        lower_file_path=file.lower_bounds.get(FILE_PATH_ID),
        upper_file_path=file.upper_bounds.get(FILE_PATH_ID),
    )


def shares_keys(delete: DeleteEntry, bounds: BoundsOf, columns: Mapping[int, MetricColumn]) -> bool:
    """Return whether an equality delete file may hold the key of a row: the bounds of each of its columns overlap."""
    keys = file_bounds(delete.payload.data_file, columns)
    return all(may_meet(keys(field_id), bounds(field_id)) for field_id in delete.equality_ids)


def scan_task(ordinal: int, file: PlannedFile, index: DeleteFileIndex, columns: Mapping[int, MetricColumn]) -> ScanTask:
    """Make the scan task of a whole data file."""
    deletes = index.for_data_file(file.path, file.spec_id, file.partition, file.data_sequence_number)
    equality = deletes.equality_deletes
    if equality and file.metrics is not None:
        bounds = file_bounds(file.metrics, columns)
        equality = tuple(delete for delete in equality if shares_keys(delete, bounds, columns))
    return ScanTask(
        file_ordinal=ordinal,
        path=file.path,
        file_format=file.file_format,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        start=0,
        length=file.file_size_in_bytes,
        spec_id=file.spec_id,
        partition=file.partition,
        data_sequence_number=file.data_sequence_number,
        first_row_id=file.first_row_id,
        split_offsets=file.split_offsets,
        deletion_vector=None if deletes.deletion_vector is None else delete_ref(deletes.deletion_vector),
        position_deletes=tuple(map(delete_ref, deletes.position_deletes)),
        equality_deletes=tuple(map(delete_ref, equality)),
    )


def delete_ref(delete: DeleteEntry) -> DeleteFileRef:
    file = delete.payload.data_file
    return DeleteFileRef.of(
        file, referenced_data_file=delete.data_file, data_sequence_number=delete.data_sequence_number
    )


def unopened_files(manifests: Iterable[ManifestFile], opened: Collection[str]) -> int:
    """Count live data files of the data manifests that were not opened, as far as the manifest list counts them."""
    return sum(
        (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        for manifest in manifests
        if manifest.content is ManifestContent.DATA and manifest.manifest_path not in opened
    )
