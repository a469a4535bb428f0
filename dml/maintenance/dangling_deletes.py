"""Remove delete files that apply to no data file of a branch. Driver.

Input: a table and a branch. Output: a commit without them. Spec: "Scan Planning". Source: Iceberg's
`RemoveDanglingDeletesSparkAction`, which does nothing on branches and on unpartitioned tables.

A delete file is dangling if all data files to which it could apply are removed or newer. A position delete file applies
to data files of its partition that are not newer. An equality delete file applies to older data files of its partition,
or of all partitions if its spec is unpartitioned. A deletion vector, or a position delete file for one data file, is
also dangling if that data file is removed.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dml.catalog.tables import load_table
from dml.commit import RewriteFiles, commit
from dml.deletes.delete_file_index import DeleteEntry, DeleteKind, partition_key
from dml.errors import CommitConflictError
from dml.manifests.cache import cache_of
from dml.manifests.read import read_each
from dml.model.manifest import DeleteFileKey, ManifestContent, unpartitioned_specs
from dml.scan.planner import delete_entry

__all__ = ["LiveDataFiles", "dangling_deletes", "find_dangling_deletes", "remove_dangling_deletes"]


@dataclass(slots=True, kw_only=True)
class LiveDataFiles:
    """What delete files depend on: the paths and ages of a snapshot's data files.

    Attributes:
        paths: Their paths.
        oldest: The least data sequence number in each spec and partition.
    """

    paths: set[str] = field(default_factory=set)
    oldest: dict[Hashable, int] = field(default_factory=dict)

    def add(self, path: str, spec_id: int, partition: tuple[Any, ...], data_sequence_number: int) -> None:
        """Add a data file."""
        self.paths.add(path)
        key = partition_key(spec_id, partition)
        self.oldest[key] = min(data_sequence_number, self.oldest.get(key, data_sequence_number))


def dangling_deletes(
    entries: Iterable[DeleteEntry], files: LiveDataFiles, specs: Mapping[int, PartitionSpec]
) -> list[DeleteEntry]:
    """Return the delete files that apply to no data file.

    Args:
        entries: The live delete files.
        files: The live data files.
        specs: The partition specs by id.
    """
    unpartitioned = frozenset(unpartitioned_specs(specs))
    oldest_of_all = min(files.oldest.values(), default=None)

    def applies(entry: DeleteEntry) -> bool:
        if entry.kind is not DeleteKind.EQUALITY_DELETES and entry.data_file is not None:
            if entry.data_file not in files.paths:
                return False
            if entry.kind is DeleteKind.DELETION_VECTOR:
                return True
        everywhere = entry.kind is DeleteKind.EQUALITY_DELETES and (
            entry.spec_id in unpartitioned or not entry.partition
        )
        oldest = oldest_of_all if everywhere else files.oldest.get(partition_key(entry.spec_id, entry.partition))
        if oldest is None:
            return False
        number = entry.data_sequence_number
        return oldest < number if entry.kind is DeleteKind.EQUALITY_DELETES else oldest <= number

    return [entry for entry in entries if not applies(entry)]


def remove_dangling_deletes(table: Table, branch: str, summary: Mapping[str, str]) -> int:
    """Remove the dangling delete files of a branch, in a commit of its own.

    Args:
        table: The table, newly loaded.
        branch: The branch.
        summary: Keys of the engine and of the user for the snapshot's summary.

    Returns:
        The number of removed delete files.

    Raises:
        CommitConflictError: The branch was rolled back meanwhile.
        DmlError: A metadata file cannot be read or written.
    """
    while True:
        snapshot = table.snapshot_by_name(branch)
        keys = frozenset[DeleteFileKey]() if snapshot is None else find_dangling_deletes(table, snapshot)
        if snapshot is None or not keys:
            return 0
        action = RewriteFiles(removed_delete_files=keys, starting_snapshot_id=snapshot.snapshot_id)
        try:
            commit(table, action, branch=branch, summary=summary)
        except CommitConflictError as error:
            if {conflict.label for conflict in error.context.get("conflicts", ())} != {"V3"}:
                raise
            table = load_table(table.catalog, table.name())  # others have removed some of them: look again
            continue
        return len(keys)


def find_dangling_deletes(table: Table, snapshot: Snapshot) -> frozenset[DeleteFileKey]:
    """Return the keys of the dangling delete files of a snapshot.

    Raises:
        CorruptFileError: A manifest is missing or damaged.
        ExecutionError: The storage failed.
    """
    manifests = [one for one in cache_of(table).manifests(table.io, snapshot) if one.has_live_files]
    entries_of = cache_of(table).entries(manifests, table.io, len(table.schema().field_ids))
    files = LiveDataFiles()
    deletes: list[DeleteEntry] = []
    for manifest, entries in read_each(manifests, entries_of):
        places = entries.select(lambda _: True)
        if manifest.content is ManifestContent.DELETES:
            deletes.extend(delete_entry(entries.entry(place)) for place in places)
            continue
        for file in entries.planned_files(places, with_metrics=False):
            files.add(file.path, file.spec_id, file.partition, file.data_sequence_number)
    return frozenset(entry.payload.data_file.key for entry in dangling_deletes(deletes, files, table.specs()))
