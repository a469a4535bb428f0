"""A snapshot and a filter to scan tasks. Driver.

Input: a table, a snapshot, an Iceberg expression. Output: one `ScanTask` for each data file that may hold matching
rows, with the delete files that apply to it. Spec: "Scan Planning".

What cannot match is left out three times: manifests by their partition summaries, files by their partition, files by
their column metrics.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import inclusive_projection
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from dml.deletes.delete_file_index import DeleteEntry, DeleteFileIndex, DeleteKind
from dml.deletes.position_delete_file import FILE_PATH_ID
from dml.errors import NotFoundError
from dml.manifests import entries_of, manifests_of
from dml.model.content_file import FileContent
from dml.model.manifest import ManifestContent, ManifestEntry, ManifestFile
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.pruning.file_bounds import file_bounds, partition_bounds, primitive_types, summary_bounds
from dml.pruning.row_tests import any_match, optional_schema

__all__ = ["ScanPlan", "plan_scan"]

MAX_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What to read of a snapshot.

    Attributes:
        snapshot_id: The snapshot; None for a table that has none yet.
        tasks: One for each data file that may hold matching rows; `file_ordinal` is its place here.
        total_data_files: Live data files of the snapshot.
        skipped_data_files: Those that cannot hold matching rows.
        total_manifests: Manifests of the snapshot, of data and of deletes.
        manifests_read: Those that were opened.
    """

    snapshot_id: int | None
    tasks: tuple[ScanTask, ...] = ()
    total_data_files: int = 0
    skipped_data_files: int = 0
    total_manifests: int = 0
    manifests_read: int = 0


def plan_scan(
    table: Table,
    snapshot_id: int | None,
    row_filter: BooleanExpression | None = None,
    *,
    case_sensitive: bool = False,
    schema: Schema | None = None,
) -> ScanPlan:
    """Finds the data files that may hold rows for which a filter is true.

    Args:
        table: The table.
        snapshot_id: The snapshot to read; None for the current one.
        row_filter: An unbound expression; None for all rows.
        case_sensitive: How the filter's names match.
        schema: The schema that the filter's names belong to; None for the table's current one.

    Raises:
        NotFoundError: the table has no such snapshot.
        CorruptFileError: metadata files are missing or broken.
        ExecutionError: the storage failed.
        ValidationFailedError: delete files contradict each other or their data files.
    """
    snapshot = find_snapshot(table, snapshot_id)
    if snapshot is None:
        return ScanPlan(snapshot_id=None)
    manifests = manifests_of(table.io, snapshot)
    pruner = Pruner(table.specs(), schema or table.schema(), row_filter or AlwaysTrue(), case_sensitive=case_sensitive)
    live = [manifest for manifest in manifests if manifest.has_live_files and pruner.manifest(manifest)]
    data = [manifest for manifest in live if manifest.content is ManifestContent.DATA]
    read = read_all(data, table.io, pruner.data_file)
    entries = [entry for of_manifest in read for entry in of_manifest.wanted]
    deletes = [manifest for manifest in live if manifest.content is ManifestContent.DELETES] if entries else []
    applicable = read_all(deletes, table.io, pruner.delete_file)
    index = delete_index((entry for of_manifest in applicable for entry in of_manifest.wanted), table.specs())
    opened = {manifest.manifest_path for manifest in data}
    total = sum(of_manifest.live for of_manifest in read) + unopened_files(manifests, opened)
    return ScanPlan(
        snapshot_id=snapshot.snapshot_id,
        tasks=tuple(scan_task(ordinal, entry, index) for ordinal, entry in enumerate(entries)),
        total_data_files=total,
        skipped_data_files=total - len(entries),
        total_manifests=len(manifests),
        manifests_read=len(data) + len(deletes),
    )


def find_snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    """The snapshot to read.

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


class Pruner:
    """Decides what cannot match; a filter is projected and bound once for each spec.

    Args:
        specs: The table's partition specs.
        schema: The schema that the filter's names belong to.
        row_filter: An unbound expression.
        case_sensitive: How its names match.
    """

    def __init__(
        self,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool,
    ) -> None:
        plain = optional_schema(schema)
        self.prunes = not isinstance(row_filter, AlwaysTrue)
        self.types = primitive_types(plain)
        self.file_test = any_match(row_filter, plain, case_sensitive=case_sensitive)
        # A spec whose source column was dropped since decides nothing: its files are told by their metrics alone.
        specs = {
            spec_id: spec
            for spec_id, spec in specs.items()
            if all(plain.find_column_name(field.source_id) is not None for field in spec.fields)
        }
        self.fields = {spec_id: spec.partition_type(plain) for spec_id, spec in specs.items()}
        self.partition_tests = {
            spec_id: any_match(
                inclusive_projection(plain, spec, case_sensitive)(row_filter),
                Schema(*self.fields[spec_id].fields),
                case_sensitive=True,
            )
            for spec_id, spec in specs.items()
        }

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list files with matching rows, or deletes for such files."""
        spec_id = manifest.partition_spec_id
        if not self.prunes or manifest.partitions is None or spec_id not in self.fields:
            return True
        return self.partition_tests[spec_id](summary_bounds(manifest.partitions, self.fields[spec_id]))

    def data_file(self, entry: ManifestEntry) -> bool:
        """Whether a data file may hold matching rows."""
        file = entry.data_file
        return file.record_count != 0 and (
            not self.prunes or (self.delete_file(entry) and self.file_test(file_bounds(file, self.types)))
        )

    def delete_file(self, entry: ManifestEntry) -> bool:
        """Whether a delete file may apply to a data file with matching rows: its partition tells."""
        file = entry.data_file
        fields = self.fields.get(file.spec_id)
        if not self.prunes or fields is None:
            return True
        return self.partition_tests[file.spec_id](partition_bounds(file.partition, fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadManifest:
    """What a manifest holds.

    Attributes:
        wanted: The live entries that may matter.
        live: How many live entries there are.
    """

    wanted: tuple[ManifestEntry, ...]
    live: int


def read_all(
    manifests: Sequence[ManifestFile], io: FileIO, wanted: Callable[[ManifestEntry], bool]
) -> list[ReadManifest]:
    """The live entries of manifests, in their order; several are read at once."""

    def read(manifest: ManifestFile) -> ReadManifest:
        live = 0
        kept = []
        for entry in entries_of(manifest, io, live_only=True):
            live += 1
            if wanted(entry):
                kept.append(entry)
        return ReadManifest(wanted=tuple(kept), live=live)

    if len(manifests) < 2:
        return [read(manifest) for manifest in manifests]
    with ThreadPoolExecutor(min(MAX_THREADS, len(manifests)), thread_name_prefix="manifests") as pool:
        return list(pool.map(read, manifests))


def delete_index(entries: Iterable[ManifestEntry], specs: Mapping[int, PartitionSpec]) -> DeleteFileIndex:
    """The delete files by what they apply to."""
    unpartitioned = {
        spec_id
        for spec_id, spec in specs.items()
        if all(isinstance(field.transform, VoidTransform) for field in spec.fields)
    }
    return DeleteFileIndex(map(delete_entry, entries), unpartitioned)


def delete_entry(entry: ManifestEntry) -> DeleteEntry:
    """A delete file as the index wants it."""
    file = entry.data_file
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


def scan_task(ordinal: int, entry: ManifestEntry, index: DeleteFileIndex) -> ScanTask:
    """The task of a whole data file."""
    file = entry.data_file
    sequence_number = entry.data_sequence_number or 0
    deletes = index.for_data_file(file.path, file.spec_id, file.partition, sequence_number)
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
        data_sequence_number=sequence_number,
        first_row_id=entry.first_row_id,
        split_offsets=file.split_offsets,
        deletion_vector=None if deletes.deletion_vector is None else delete_ref(deletes.deletion_vector),
        position_deletes=tuple(map(delete_ref, deletes.position_deletes)),
        equality_deletes=tuple(map(delete_ref, deletes.equality_deletes)),
    )


def delete_ref(delete: DeleteEntry) -> DeleteFileRef:
    """A delete file as a task carries it."""
    file = delete.payload.data_file
    return DeleteFileRef(
        path=file.path,
        file_format=file.file_format,
        content_offset=file.content_offset,
        content_size_in_bytes=file.content_size_in_bytes,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        referenced_data_file=delete.data_file,
        equality_ids=file.equality_ids,
        data_sequence_number=delete.data_sequence_number,
    )


def unopened_files(manifests: Iterable[ManifestFile], opened: Collection[str]) -> int:
    """Live data files of the data manifests that were not opened, as far as the manifest list counts them."""
    return sum(
        (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        for manifest in manifests
        if manifest.content is ManifestContent.DATA and manifest.manifest_path not in opened
    )
