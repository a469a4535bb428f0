"""Measure the health of a snapshot of a table, from its metadata. Driver.

Input: a table, a snapshot. Output: a `TableHealth`. Each manifest is read once; no data file and no delete file is
opened. A data file takes about 1 kB of memory (its scan task, and the bounds of one column).

Source: Iceberg specification, "Manifests", "Scan Planning", "Snapshot Retention Policy".
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.commit import ancestors
from dml.deletes.delete_file_index import partition_key
from dml.files.file_io import file_errors
from dml.maintenance import RetentionRules, RewriteOptions, WorthwhileGroups, plan_retention
from dml.maintenance.dangling_deletes import LiveDataFiles, dangling_deletes
from dml.maintenance.rewrite_plan import deletes_of, known_deleted
from dml.maintenance.rewrite_position_deletes import content_size
from dml.maintenance.sorted_files import sorting_column
from dml.manifests.entries import EntryArrays, PlannedFile
from dml.manifests.entry_fields import (
    COLUMN_TYPES,
    KNOWN,
    LOWER_BOUNDS,
    NAN_VALUE_COUNTS,
    NULL_VALUE_COUNTS,
    PARTITION,
    UPPER_BOUNDS,
    VALUE_COUNTS,
)
from dml.manifests.read import manifests_of, read_each
from dml.manifests.read_arrays import read_arrays
from dml.manifests.write import partition_type
from dml.model.manifest import FileContent, ManifestContent, ManifestEntry, ManifestFile
from dml.model.scan_task import ScanTask
from dml.model.transforms import partition_path
from dml.options import CommitOptions, MaintenanceOptions, boolean, integer
from dml.pruning.file_bounds import MetricColumn, metric_columns
from dml.pruning.many_files import files_bounds
from dml.scan.planner import delete_entry, delete_index, duplicate_file_error, scan_task
from dml.table_health.figures import (
    Advice,
    Certainty,
    DeletedFromFile,
    DeleteFigures,
    FileFigures,
    GainFigures,
    ManifestFigures,
    MetadataFigures,
    OverlapFigures,
    PartitionFigures,
    PartitionFiles,
    RefAge,
    SizeRange,
    SnapshotFigures,
    StatisticsAge,
)
from dml.table_health.overlap import OverlapDepths, overlap_depths, rank_values
from dml.table_health.report import TableHealth
from dml.table_health.view import plural

__all__ = ["measure_health"]

LISTED: Final = 5
"""The number of partitions and of files that a figure lists."""

SIZE_LIMITS: Final = (1 / 64, 1 / 16, 1 / 4, 1 / 2)
"""Limits of the histogram below the size of small files, as fractions of the target size."""

FILE_FIELDS: Final = frozenset({*COLUMN_TYPES, PARTITION})
BOUND_FIELDS: Final = frozenset({LOWER_BOUNDS, UPPER_BOUNDS, VALUE_COUNTS, NULL_VALUE_COUNTS, NAN_VALUE_COUNTS})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Integers = npt.NDArray[np.int64]


def measure_health(
    table: Table,
    snapshot: Snapshot | None,
    name: str,
    *,
    now_ms: int,
    reference: str | None = None,
    compaction: WorthwhileGroups | None = None,
    advice: Iterable[Advice] | None = (),
) -> TableHealth:
    """Measure the health of a table.

    Args:
        table: The table.
        snapshot: The snapshot; None if the table has none.
        name: The table's name in the report.
        now_ms: The time from which ages are computed, in milliseconds since 1970.
        reference: The branch or tag of the snapshot, for the report.
        compaction: The groups of data files that maintenance would rewrite; None for no groups.
        advice: The steps that maintenance would run; None for a snapshot that is not the head of a branch.

    Raises:
        AnalysisError: A property of the table has an invalid value.
        CorruptFileError: A metadata file is missing or damaged, or delete files contradict each other.
        ExecutionError: The storage failed.
    """
    metadata, properties = table.metadata, table.metadata.properties
    found = read_files(table, snapshot)
    given = MaintenanceOptions.from_properties(properties).rewrite
    options = RewriteOptions.of(given, properties, metadata.default_spec_id, table.specs().keys())
    tasks = found.tasks(table)
    depths = found.depths()
    partitions = found.partition_files(depths, metadata)
    storage = metadata_figures(table)
    return TableHealth(
        table=name,
        reference=reference,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        format_version=metadata.format_version,
        measured_ms=now_ms,
        files=file_figures(tasks, options),
        deletes=delete_figures(found, tasks, table),
        partitions=partition_figures(partitions),
        overlap=overlap_figures(found, depths, partitions),
        manifests=manifest_figures(found, properties),
        snapshots=snapshot_figures(metadata, now_ms),
        metadata=storage,
        statistics=statistics_ages(metadata, snapshot),
        gain=gain_figures(compaction or WorthwhileGroups(), found),
        is_maintained=advice is not None,
        advice=() if advice is None else (*advice, *metadata_advice(storage)),
    )


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SortColumn:
    """The column by whose bounds files are compared.

    Attributes:
        field_id: Its field id.
        name: Its full name.
        bounds: Decodes its bounds.
    """

    field_id: int
    name: str
    bounds: MetricColumn


def sort_column(table: Table) -> SortColumn | str:
    """Return the first column of the table's sort order, or the reason why files cannot be compared by it."""
    if table.sort_order().is_unsorted:
        return "the table has no sort order"
    first = sorting_column(table)
    if first is None:
        return "the first field of the sort order does not keep the order of its column"
    bounds = metric_columns(table.schema()).get(first[0])
    if bounds is None:
        return "the first column of the sort order has no bounds"
    return SortColumn(field_id=first[0], name=table.schema().find_column_name(first[0]) or "", bounds=bounds)


@dataclass(slots=True, kw_only=True)
class SnapshotContent:
    """The files of a snapshot, with the fields that figures need. `add` is called for each manifest, in order.

    Attributes:
        column: The sort column, or the reason why there is none.
        field_ids: The ids of the partition fields of all specs.
        manifests: All manifests.
        files: The data files.
        deletes: The delete files.
        entries: The number of entries in manifests with live files, by content.
        entry_bytes: The bytes of these manifests, by content.
    """

    column: SortColumn | str
    field_ids: tuple[int, ...]
    manifests: tuple[ManifestFile, ...]
    files: list[PlannedFile] = field(default_factory=list)
    deletes: list[ManifestEntry] = field(default_factory=list)
    entries: Counter[ManifestContent] = field(default_factory=Counter)
    entry_bytes: Counter[ManifestContent] = field(default_factory=Counter)
    _partitions: dict[Hashable, int] = field(default_factory=dict)
    _names: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    _spread: list[int] = field(default_factory=list)
    _partition_of: list[Integers] = field(default_factory=list)
    _lower: list[npt.NDArray[Any]] = field(default_factory=list)
    _upper: list[npt.NDArray[Any]] = field(default_factory=list)
    _bounded: list[npt.NDArray[np.bool_]] = field(default_factory=list)

    @property
    def wanted(self) -> frozenset[int]:
        """The fields of data files to read."""
        return FILE_FIELDS if isinstance(self.column, str) else FILE_FIELDS | BOUND_FIELDS

    def add(self, manifest: ManifestFile, entries: EntryArrays, ids: Sequence[int]) -> None:
        """Add a manifest.

        Args:
            manifest: The manifest.
            entries: Its entries.
            ids: The ids of the fields of its partition spec.
        """
        self.entries[manifest.content] += entries.size
        self.entry_bytes[manifest.content] += manifest.manifest_length
        places = entries.select(lambda _: True)
        if manifest.content is ManifestContent.DELETES:
            self.deletes.extend(map(entries.entry, places))
            return
        self.files.extend(entries.planned_files(places, with_metrics=False))
        live = np.array(places, np.int64)
        codes = entries.partition_of[live]
        known = np.zeros(len(entries.partitions), np.int64)
        used = np.unique(codes).tolist()
        for code in used:
            known[code] = self._partition(entries.spec_id, entries.partitions[code], ids)
        # Two specs may have equal values in one manifest only if they are one spec, so no partition counts twice.
        for place in known[used].tolist():
            self._spread[place] += 1
        self._partition_of.append(known[codes])
        if isinstance(self.column, str):
            return
        bounds = files_bounds(entries, {self.column.field_id: self.column.bounds}, {})(self.column.field_id)
        self._lower.append(bounds.lower.values[live])
        self._upper.append(bounds.upper.values[live])
        self._bounded.append((bounds.lower.known & bounds.upper.known)[live])

    def _partition(self, spec_id: int, partition: tuple[Any, ...], ids: Sequence[int]) -> int:
        """Return the index of a partition. Files of different specs share a partition if their values are equal."""
        values = dict(zip(ids, partition, strict=True))
        key = partition_key(0, tuple(values.get(field_id) for field_id in self.field_ids))
        if key not in self._partitions:
            self._partitions[key] = len(self._names)
            self._names.append((spec_id, partition))
            self._spread.append(0)
        return self._partitions[key]

    @property
    def spread(self) -> Sequence[int]:
        """The number of manifests that list the files of each partition."""
        return self._spread

    @property
    def partition_of(self) -> Integers:
        """The partition of each data file."""
        return np.concatenate((np.empty(0, np.int64), *self._partition_of))

    def depths(self) -> OverlapDepths | None:
        """Return the overlap of files; None without a sort column."""
        if isinstance(self.column, str):
            return None
        none = np.empty(0, np.int64)
        bounded = np.concatenate((np.empty(0, np.bool_), *self._bounded))
        # Manifests whose bounds are numbers and others may differ: a column may have become wider.
        lower, upper = (joined(some)[bounded] if some else none for some in (self._lower, self._upper))
        return overlap_depths(self.partition_of[bounded], *rank_values(lower, upper))

    def tasks(self, table: Table) -> tuple[ScanTask, ...]:
        """Return the scan tasks of the data files, with the delete files that may apply.

        Raises:
            CorruptFileError: A data file is listed twice, or delete files contradict each other.
        """
        if len({file.path for file in self.files}) != len(self.files):
            raise duplicate_file_error(self.files)
        index = delete_index(self.deletes, table.specs())
        return tuple(scan_task(place, file, index, {}) for place, file in enumerate(self.files))

    def partition_files(self, depths: OverlapDepths | None, metadata: TableMetadata) -> "Partitions":
        """Sum up the data files of each partition.

        Args:
            depths: The overlap of files.
            metadata: The table's metadata, with the partition specs.
        """
        places, number = self.partition_of, len(self._names)

        def sums(values: Iterable[int]) -> Integers:
            found = np.zeros(number, np.int64)
            np.add.at(found, places, np.fromiter(values, np.int64, len(places)))
            return found

        return Partitions(
            files=np.bincount(places, minlength=number),
            bytes=sums(file.file_size_in_bytes for file in self.files),
            rows=sums(file.record_count for file in self.files),
            spread=np.array(self._spread, np.int64),
            depths=None if depths is None else depths.max_by_partition(number),
            name_of=lambda place: partition_name(metadata, *self._names[place]),
        )


def joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays of numbers or objects."""
    kinds = {array.dtype for array in arrays}
    return np.concatenate(arrays if len(kinds) == 1 else [array.astype(object) for array in arrays])


def partition_name(metadata: TableMetadata, spec_id: int, partition: tuple[Any, ...]) -> str:
    spec = metadata.specs()[spec_id]
    return partition_path(spec, partition_type(spec, metadata), partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The sums of the partitions, by index.

    Attributes:
        files: The number of data files.
        bytes: Their sizes.
        rows: Their rows.
        spread: The number of manifests that list them.
        depths: The greatest overlap depths; None without a sort column.
        name_of: Returns the path of a partition.
    """

    files: Integers
    bytes: Integers
    rows: Integers
    spread: Integers
    depths: Integers | None
    name_of: Callable[[int], str]

    def greatest(self, values: Integers) -> tuple[PartitionFiles, ...]:
        """Return the partitions with the greatest values; of equal values, the first."""
        return tuple(
            PartitionFiles(
                name=self.name_of(place),
                files=int(self.files[place]),
                bytes=int(self.bytes[place]),
                rows=int(self.rows[place]),
                manifests=int(self.spread[place]),
                max_depth=None if self.depths is None else int(self.depths[place]),
            )
            for place in np.argsort(-values, kind="stable")[:LISTED].tolist()
        )


def read_files(table: Table, snapshot: Snapshot | None) -> SnapshotContent:
    """Read the manifests of a snapshot, delete manifests last, in the order of the list.

    Raises:
        CorruptFileError: A manifest is missing or damaged.
        ExecutionError: The storage failed.
    """
    manifests, io = manifests_of(table.io, snapshot), table.io
    ids = {spec_id: tuple(term.field_id for term in spec.fields) for spec_id, spec in table.specs().items()}
    content = SnapshotContent(
        column=sort_column(table),
        field_ids=tuple(sorted({field_id for some in ids.values() for field_id in some})),
        manifests=manifests,
    )
    wanted = {ManifestContent.DATA: content.wanted, ManifestContent.DELETES: KNOWN}

    def read(manifest: ManifestFile) -> list[EntryArrays]:
        return list(read_arrays((manifest,), lambda _: io, wanted[manifest.content]))

    for manifest, arrays in read_each([one for one in manifests if one.has_live_files], read):
        for entries in arrays:
            content.add(manifest, entries, ids[entries.spec_id])
    return content


# ---- figures --------------------------------------------------------------------------------------------------------


def size_quantiles(sizes: Sequence[int]) -> tuple[int, int, int]:
    """Return the smallest, the median and the largest size; zeros without sizes."""
    ordered = sorted(sizes)
    return (ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]) if ordered else (0, 0, 0)


def file_figures(tasks: Sequence[ScanTask], options: RewriteOptions) -> FileFigures:
    sizes = [task.file_size_in_bytes for task in tasks]
    small = [size for size in sizes if size < options.min_file_size_bytes]
    least, median, greatest = size_quantiles(sizes)
    return FileFigures(
        files=len(sizes),
        bytes=sum(sizes),
        rows=sum(task.record_count for task in tasks),
        target_bytes=options.target_file_size_bytes,
        small_files=len(small),
        small_bytes=sum(small),
        large_files=sum(size > options.max_file_size_bytes for size in sizes),
        min_bytes=least,
        median_bytes=median,
        max_bytes=greatest,
        histogram=tuple(size_ranges(sizes, options)),
    )


def size_ranges(sizes: Sequence[int], options: RewriteOptions) -> list[SizeRange]:
    target, least, most = options.target_file_size_bytes, options.min_file_size_bytes, options.max_file_size_bytes
    limits_below = {int(target * share) for share in SIZE_LIMITS}
    edges = sorted({0, *(limit for limit in limits_below if limit < least), least, target, most + 1})
    places = np.searchsorted(edges, np.array(sizes, np.int64), side="right") - 1
    files = np.bincount(places, minlength=len(edges)).tolist()
    total = np.zeros(len(edges), np.int64)
    np.add.at(total, places, np.array(sizes, np.int64))
    return [
        SizeRange(
            from_bytes=start,
            to_bytes=end,
            files=files[place],
            bytes=int(total[place]),
            is_rewritten=start < least or start > most,
        )
        for place, (start, end) in enumerate(zip(edges, (*edges[1:], None), strict=True))
    ]


def delete_figures(found: SnapshotContent, tasks: Sequence[ScanTask], table: Table) -> DeleteFigures:
    kinds = Counter(
        "vector" if entry.data_file.is_deletion_vector else entry.data_file.content.name for entry in found.deletes
    )
    affected = [task for task in tasks if task.has_deletes]
    shared = {
        ref.key: ref.record_count
        for task in affected
        for ref in task.position_deletes
        if ref.referenced_data_file is None
    }
    rows = sum(task.record_count for task in tasks)
    deleted = min(rows, sum(map(known_deleted, affected)) + sum(shared.values()))
    if any(task.equality_deletes for task in affected):
        certainty = Certainty.ESTIMATE
    else:
        certainty = Certainty.AT_MOST if any(task.position_deletes for task in affected) else Certainty.EXACT
    most = sorted(affected, key=lambda task: (-known_deleted(task), -deletes_of(task), task.path))[:LISTED]
    return DeleteFigures(
        deletion_vectors=kinds["vector"],
        position_delete_files=kinds[FileContent.POSITION_DELETES.name],
        equality_delete_files=kinds[FileContent.EQUALITY_DELETES.name],
        bytes=sum(content_size(entry.data_file) for entry in found.deletes),
        deleted_rows=deleted,
        deleted_ratio=deleted / rows if rows else 0.0,
        certainty=certainty,
        affected_files=len(affected),
        dangling_files=count_dangling(found, table),
        most_deleted=tuple(
            DeletedFromFile(
                path=task.path,
                rows=task.record_count,
                deleted_rows=known_deleted(task),
                delete_files=deletes_of(task),
            )
            for task in most
        ),
    )


def count_dangling(found: SnapshotContent, table: Table) -> int:
    if not found.deletes:
        return 0
    files = LiveDataFiles()
    for file in found.files:
        files.add(file.path, file.spec_id, file.partition, file.data_sequence_number)
    return len(dangling_deletes(map(delete_entry, found.deletes), files, table.specs()))


def partition_figures(partitions: Partitions) -> PartitionFigures:
    number = len(partitions.files)
    mean = float(partitions.bytes.mean()) if number else 0.0
    return PartitionFigures(
        partitions=number,
        mean_bytes=round(mean),
        skew=float(partitions.bytes.max()) / mean if mean else 0.0,
        max_files=int(partitions.files.max(initial=0)),
        largest=partitions.greatest(partitions.bytes),
    )


def overlap_figures(found: SnapshotContent, depths: OverlapDepths | None, partitions: Partitions) -> OverlapFigures:
    if isinstance(found.column, str) or depths is None or partitions.depths is None:
        return OverlapFigures(column=None, reason=found.column if isinstance(found.column, str) else "")
    return OverlapFigures(
        column=found.column.name,
        mean_depth=depths.mean,
        max_depth=depths.max,
        overlapping_partitions=int((partitions.depths > 1).sum()),
        files_without_bounds=len(found.files) - depths.files,
        deepest=partitions.greatest(partitions.depths) if depths.max > 1 and len(partitions.files) > 1 else (),
    )


def manifest_figures(found: SnapshotContent, properties: Mapping[str, str]) -> ManifestFigures:
    sizes = [manifest.manifest_length for manifest in found.manifests]
    kinds = Counter(manifest.content for manifest in found.manifests)
    least, median, greatest = size_quantiles(sizes)
    return ManifestFigures(
        data_manifests=kinds[ManifestContent.DATA],
        delete_manifests=kinds[ManifestContent.DELETES],
        bytes=sum(sizes),
        target_bytes=CommitOptions.from_properties(properties).manifest_target_size,
        min_bytes=least,
        median_bytes=median,
        max_bytes=greatest,
        without_live_files=sum(not manifest.has_live_files for manifest in found.manifests),
        mean_spread=sum(found.spread) / len(found.spread) if found.spread else 0.0,
        max_spread=max(found.spread, default=0),
    )


def snapshot_figures(metadata: TableMetadata, now_ms: int) -> SnapshotFigures:
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    retention = plan_retention(metadata, RetentionRules.of(metadata.properties, now_ms))
    days = Counter(day_of(millis) for millis in times.values())
    return SnapshotFigures(
        snapshots=len(times),
        oldest_ms=min(times.values(), default=None),
        newest_ms=max(times.values(), default=None),
        by_day=tuple(sorted(days.items())),
        refs=tuple(
            RefAge(
                name=name,
                kind=ref.snapshot_ref_type.value,
                snapshot_id=ref.snapshot_id,
                age_ms=now_ms - times[ref.snapshot_id] if ref.snapshot_id in times else None,
                expires=name in retention.removed_refs,
            )
            for name, ref in metadata.refs.items()
        ),
        expiring=len(retention.expired),
        expiring_refs=len(retention.removed_refs),
    )


def day_of(millis: int) -> str:
    """Return the day of a time, of a clock that may be wrong by ages: then the last or the first day of all."""
    try:
        return (EPOCH + timedelta(milliseconds=millis)).date().isoformat()
    except OverflowError:
        return (date.max if millis > 0 else date.min).isoformat()


def metadata_figures(table: Table) -> MetadataFigures:
    location, properties = table.metadata_location, table.metadata.properties
    with file_errors(location):
        size = len(table.io.new_input(location))
    return MetadataFigures(
        bytes=size,
        old_files=len(table.metadata.metadata_log),
        previous_versions_max=integer(
            properties,
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX,
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT,
        ),
        deletes_old_files=boolean(
            properties,
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
            default=TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT,
        ),
    )


def metadata_advice(metadata: MetadataFigures) -> Iterator[Advice]:
    """Recommend to delete old metadata files after commits, once the metadata file lists as many as it keeps."""
    if not metadata.deletes_old_files and metadata.old_files >= max(1, metadata.previous_versions_max):
        files = plural(metadata.old_files, "old metadata file")
        yield Advice(
            action=f"set {TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED}",
            reason=f"{files} listed, and each commit leaves another one in the storage",
        )


def statistics_ages(metadata: TableMetadata, snapshot: Snapshot | None) -> tuple[StatisticsAge, ...]:
    history = [] if snapshot is None else list(ancestors(metadata, snapshot.snapshot_id))
    described = {
        "table": {one.snapshot_id for one in metadata.statistics},
        "partition": {one.snapshot_id for one in metadata.partition_statistics},
    }
    return tuple(
        next(
            (
                StatisticsAge(
                    kind=kind,
                    snapshot_id=one.snapshot_id,
                    snapshots_behind=behind,
                    age_ms=history[0].timestamp_ms - one.timestamp_ms,
                )
                for behind, one in enumerate(history)
                if one.snapshot_id in ids
            ),
            StatisticsAge(kind=kind),
        )
        for kind, ids in described.items()
    )


def gain_figures(compaction: WorthwhileGroups, found: SnapshotContent) -> GainFigures:
    groups, new = compaction.groups, compaction.new_files
    rewritten = sum(len(group.tasks) for group in groups)
    now, after = sum(manifest.manifest_length for manifest in found.manifests), len(found.files) - rewritten + new
    left = {
        ManifestContent.DATA: after,
        ManifestContent.DELETES: len(found.deletes) - sum(group.deletion_vectors for group in groups),
    }
    # An empty manifest has a header, too: a manifest of a few files is about as large as the smallest one.
    least = {
        content: min(one.manifest_length for one in found.manifests if one.content is content)
        for content in found.entries
    }
    manifest_bytes = sum(
        max(least[content], found.entry_bytes[content] * left[content] // entries)
        for content, entries in found.entries.items()
        if entries and left[content]
    )
    return GainFigures(
        rewritten_files=rewritten,
        rewritten_bytes=sum(group.size for group in groups),
        groups=len(groups),
        new_files=new,
        files_before=len(found.files),
        files_after=after,
        manifest_bytes=now,
        manifest_bytes_after=manifest_bytes if groups else now,
    )
