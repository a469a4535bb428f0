"""One attempt of a commit: the table as it is now and what changes, to a snapshot and requests to the catalog. Driver.

Input: fresh metadata, `FileChanges`, where to commit to. Output: updates and requirements; nothing is committed here.
Source: Iceberg specification, "Snapshots", "Optimistic Concurrency", "Row Lineage".
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation as IcebergOperation
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from dml.commit.changes import FileChanges, Operation
from dml.commit.concurrent_deletes import ConcurrentDeletes
from dml.commit.manifest_filter import FilteredManifests, ManifestFilter, commit_pruner
from dml.commit.new_manifests import NewManifests, merge_manifests
from dml.commit.summary import SummaryBuilder
from dml.commit.validation import (
    CHECKS,
    check_data_sequence_number,
    check_deletes_of_replaced_files,
    check_format_version,
    check_not_upgraded,
    check_removed_files_are_live,
    check_removed_files_are_not_referenced,
    check_rewrite_adds_no_rows,
    vanished_data_files,
)
from dml.commit.window import CommitWindow, EntryReader, open_window
from dml.errors import AnalysisError, NotFoundError
from dml.iceberg import next_row_id
from dml.manifests.write import write_manifest_list
from dml.model.manifest import DeleteFileKey, EntryStatus, ManifestContent, ManifestFile, unpartitioned_specs
from dml.model.summary_keys import ROWS_VANISHED, UNKNOWN
from dml.options import CommitOptions
from dml.pruning.pruner import AnyOf, FileFilter, PartitionSet
from dml.suggestions import did_you_mean

__all__ = ["Prepared", "SnapshotProducer", "Target", "parent_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a snapshot goes.

    Attributes:
        branch: The branch that moves to it.
        create_branch: Whether the branch may be created, from main's head.
        stage_only: Add the snapshot, a child of the branch's head, without moving anything.
    """

    branch: str = MAIN_BRANCH
    create_branch: bool = False
    stage_only: bool = False


def parent_of(metadata: TableMetadata, target: Target) -> Snapshot | None:
    """The head of the branch; of a branch that is to be created, main's; None where there is no snapshot yet.

    Raises:
        NotFoundError: there is no such branch, and it may not be created.
        AnalysisError: it is a tag.
    """
    ref = metadata.refs.get(target.branch)
    if ref is None:
        if target.branch == MAIN_BRANCH or target.create_branch:
            return metadata.current_snapshot()
        raise NotFoundError(
            f"Cannot use branch (does not exist): {target.branch}",
            hint=did_you_mean(target.branch, metadata.refs),
            branch=target.branch,
        )
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise AnalysisError(f"{target.branch} is a tag, not a branch: tags cannot be written to", branch=target.branch)
    return metadata.snapshot_by_id(ref.snapshot_id)


def requirements_of(metadata: TableMetadata, target: Target, parent: Snapshot | None) -> tuple[TableRequirement, ...]:
    """What has to be true of the table when the snapshot is committed: the same table, the same head."""
    table = AssertTableUUID(uuid=metadata.table_uuid)
    if target.stage_only:
        return (table,)
    exists = target.branch in metadata.refs
    head = parent.snapshot_id if exists and parent is not None else None
    return (table, BranchHead(ref=target.branch, snapshot_id=head))


class BranchHead(AssertRefSnapshotId):
    """The head of a branch; the first snapshot of a table may be that of another branch than main.

    So it is with Iceberg's Java library (a first write under `spark.wap.branch`) and with REST catalogs. PyIceberg
    0.12, which checks the requirements of the catalogs that write metadata themselves, refuses it whatever the branch.
    """

    def validate(self, base_metadata: TableMetadata | None) -> None:
        """Raise `CommitFailedException` where the head is another one."""
        if base_metadata is None or base_metadata.snapshots or self.snapshot_id is not None:
            super().validate(base_metadata)


DELETING = frozenset({Operation.OVERWRITE, Operation.DELETE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An attempt, ready for the catalog.

    Attributes:
        snapshot: The new snapshot.
        updates: What the catalog is to change.
        requirements: What has to be true of the table for that.
        manifests: Locations of all manifests of the snapshot.
        unused_delete_files: Locations of new delete files that turned out not to be needed.
        is_empty: Whether no file is added or removed.
    """

    snapshot: Snapshot
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    manifests: frozenset[str]
    unused_delete_files: set[str]
    is_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProducer:
    """Prepares attempts of one commit.

    Attributes:
        io: The table's FileIO.
        planned: The table as the statement knows it.
        changes: What the commit does.
        target: Where it goes.
        snapshot_id: The id of the snapshot, the same in each attempt.
        summary: Further keys of the summary.
        location: A file's name to its location in the table's metadata folder.
        reader: Reads manifests, each once.
        written: Writes manifests, each once.
        lists: Locations of the manifest lists written so far.
        concurrent: Brings the deletes of others and our own together.
        without_rows: Data files of others that were found to hold no row of the statement.
    """

    io: FileIO
    planned: TableMetadata
    changes: FileChanges
    target: Target
    snapshot_id: int
    summary: Mapping[str, str]
    location: Callable[[str], str]
    reader: EntryReader
    written: NewManifests
    lists: list[str] = field(default_factory=list)
    concurrent: ConcurrentDeletes = field(default_factory=ConcurrentDeletes)
    without_rows: set[DeleteFileKey] = field(default_factory=set)

    def prepare(self, metadata: TableMetadata) -> Prepared:
        """Validate against the table as it is now, and write the manifests and the manifest list.

        Args:
            metadata: Fresh metadata.

        Raises:
            CommitConflictError: another commit stands in the way.
            ValidationFailedError: the changes do not fit the table.
            NotFoundError: there is no such branch.
            DmlError: metadata files cannot be read or written.
        """
        parent = parent_of(metadata, self.target)
        check_not_upgraded(self.changes, self.planned.format_version, metadata.format_version)
        check_format_version(self.changes, metadata.format_version, metadata.specs())
        check_removed_files_are_not_referenced(self.changes)
        window = self._window(metadata, parent)
        wanted, own = self._wanted(metadata), self._own(metadata)
        without_rows = self._files_without_rows(metadata, parent, window, wanted)
        self._check(window, wanted, own, ManifestContent.DATA, without_rows)
        reconciled = self.concurrent.reconcile(self.changes, window, AnyOf((wanted, own)))
        self._check(window, wanted, own, ManifestContent.DELETES, reconciled.settled)
        changes = self._without_vanished(reconciled.changes, window, own)
        check_format_version(changes, metadata.format_version, metadata.specs())
        self.written.at(metadata)
        data, deletes = self._removed(metadata, changes, parent, window, reconciled.settled)
        options = CommitOptions.from_properties(metadata.properties)
        manifests = (
            *self._merged(ManifestContent.DATA, changes, data, options),
            *self._merged(ManifestContent.DELETES, changes, deletes, options),
        )
        summary = SummaryBuilder(metadata, options.partition_summary_limit)
        summary.add((*changes.added_data_files, *changes.added_delete_files))
        summary.remove(entry.data_file for entry in (*data.removed, *deletes.removed))
        parent_id = None if parent is None else parent.snapshot_id
        at_start = changes.summary_at_start if parent_id == changes.validation.starting_snapshot_id else ()
        further = {**dict(changes.summary), **dict(at_start), **self.summary}
        snapshot = self._snapshot(metadata, parent, manifests, summary.build(summary_of(parent), further))
        used = {file.path for file in changes.added_delete_files}
        return Prepared(
            snapshot=snapshot,
            updates=self._updates(metadata, snapshot),
            requirements=requirements_of(metadata, self.target, parent),
            manifests=frozenset(manifest.manifest_path for manifest in manifests),
            unused_delete_files=self._delete_files() - used,
            is_empty=not (changes.added_data_files or changes.added_delete_files or data.removed or deletes.removed),
        )

    def _delete_files(self) -> set[str]:
        return {file.path for file in self.changes.added_delete_files} | self.concurrent.written

    def _window(self, metadata: TableMetadata, head: Snapshot | None) -> CommitWindow:
        validation = self.changes.validation
        if not validation.checks_history:
            return CommitWindow(snapshots=(), reader=self.reader)
        return open_window(
            metadata,
            self.reader,
            starting_snapshot_id=validation.starting_snapshot_id,
            head=head,
            must_descend=validation.must_descend,
        )

    def _wanted(self, metadata: TableMetadata) -> FileFilter:
        validation = self.changes.validation
        if validation.partitions is not None:
            return PartitionSet(validation.partitions, metadata)
        return commit_pruner(
            validation.conflict_filter if validation.checks_history else AlwaysTrue(),
            metadata,
            case_sensitive=validation.case_sensitive,
            named_by=self.planned.schema(),
        )

    def _own(self, metadata: TableMetadata) -> FileFilter:
        """The partitions in which the commit itself deletes rows: what happened to these data files always counts."""
        partitions = [(file.spec_id, file.partition) for file in self.changes.added_delete_files]
        rows = self.changes.row_level
        if rows is not None:
            changed = [rows.tasks[path] for path in rows.changed if path in rows.tasks]
            partitions += [(task.spec_id, task.partition) for task in changed]
        return PartitionSet(partitions, metadata)

    def _check(
        self,
        window: CommitWindow,
        wanted: FileFilter,
        own: FileFilter,
        content: ManifestContent,
        settled: frozenset[DeleteFileKey] = frozenset(),
    ) -> None:
        for check in CHECKS if window.snapshots else ():
            if check.content is content and check.applies(self.changes):
                files = own if check.own_files else wanted
                entries = window.entries(content, check.status, check.operations(self.changes), files)
                check.run(self.changes, self.planned, entries, wanted, settled)

    def _files_without_rows(
        self, metadata: TableMetadata, head: Snapshot | None, window: CommitWindow, wanted: FileFilter
    ) -> frozenset[DeleteFileKey]:
        """New data files of others that may match by their metrics, but hold no row which the statement matches."""
        changes = self.changes
        if changes.row_probe is None or not changes.validation.new_data_files or head is None or not window.snapshots:
            return frozenset()
        adding = frozenset({Operation.APPEND, Operation.OVERWRITE})
        added = window.entries(ManifestContent.DATA, EntryStatus.ADDED, adding, wanted)
        # The rows of a file that was compacted since live on in another one.
        compacted = {
            entry.data_file.key
            for entry in window.entries(
                ManifestContent.DATA, EntryStatus.DELETED, frozenset({Operation.REPLACE}), wanted
            )
        }
        files = {
            entry.data_file.key: entry.data_file
            for entry in added
            if wanted.may_match(entry.data_file) and entry.data_file.key not in compacted - self.without_rows
        }
        unknown = [file for key, file in files.items() if key not in self.without_rows]
        if unknown and changes.row_probe.matches(metadata, head.snapshot_id, unknown):
            return frozenset(self.without_rows)
        self.without_rows.update(files)
        return frozenset(self.without_rows)

    def _without_vanished(self, changes: FileChanges, window: CommitWindow, own: FileFilter) -> FileChanges:
        """The changes without deletes in data files that a concurrent DELETE removed: nothing is left to mark."""
        if not changes.validation.tolerate_deleted or not window.snapshots:
            return changes
        removed = window.entries(ManifestContent.DATA, EntryStatus.DELETED, frozenset({Operation.DELETE}), own)
        vanished = vanished_data_files(changes, removed)
        needed = tuple(file for file in changes.added_delete_files if file.referenced_data_file not in vanished)
        if not vanished:
            return changes
        counted = [changes.rows_deleted.get(path) for path in vanished]
        rows = UNKNOWN if None in counted else str(sum(number for number in counted if number is not None))
        return replace(changes, added_delete_files=needed, summary=(*changes.summary, (ROWS_VANISHED, rows)))

    def _removed(
        self,
        metadata: TableMetadata,
        changes: FileChanges,
        parent: Snapshot | None,
        window: CommitWindow,
        settled: frozenset[DeleteFileKey],
    ) -> tuple[FilteredManifests, FilteredManifests]:
        """The parent's manifests without the files that go: of data, and of deletes."""
        base = self.reader.manifests(parent)
        manifest_filter = ManifestFilter(metadata, self.planned.schema(), changes, self.reader, self.written)
        data = manifest_filter.data_files([m for m in base if m.content is ManifestContent.DATA])
        if changes.validation.deletes_of_replaced_files and window.snapshots:
            replaced = PartitionSet(
                ((entry.data_file.spec_id, entry.data_file.partition) for entry in data.removed),
                metadata,
                with_global_deletes=True,
            )
            entries = window.entries(ManifestContent.DELETES, EntryStatus.ADDED, DELETING, replaced)
            added = (entry for entry in entries if entry.data_file.key not in settled)
            check_deletes_of_replaced_files(
                data.removed,
                added,
                unpartitioned_specs(metadata.specs()),
                ignore_equality_deletes=changes.data_sequence_number is not None,
            )
        check_removed_files_are_live(changes.removed_data_files - {entry.data_file.path for entry in data.removed})
        if changes.operation is Operation.REPLACE:
            check_rewrite_adds_no_rows(changes, data.removed)
            since = [snapshot.sequence_number or 0 for snapshot in window.snapshots]
            check_data_sequence_number(changes, data.removed, min(since, default=metadata.next_sequence_number()))
        least = least_sequence_number(data.manifests, metadata, changes)
        deletes = manifest_filter.delete_files(
            [m for m in base if m.content is ManifestContent.DELETES], data.removed, least
        )
        if changes.require_removed_delete_files:
            keys = changes.removed_delete_files - {entry.data_file.key for entry in deletes.removed}
            check_removed_files_are_live(path for path, _, _ in keys)
        return data, deletes

    def _merged(
        self, content: ManifestContent, changes: FileChanges, filtered: FilteredManifests, options: CommitOptions
    ) -> tuple[ManifestFile, ...]:
        files = changes.added_data_files if content is ManifestContent.DATA else changes.added_delete_files
        number = changes.data_sequence_number if content is ManifestContent.DATA else None
        added = self.written.added(content, files, number)
        return merge_manifests((*added, *filtered.manifests), options, self.reader, self.written)

    def _snapshot(
        self,
        metadata: TableMetadata,
        parent: Snapshot | None,
        manifests: tuple[ManifestFile, ...],
        summary: Mapping[str, str],
    ) -> Snapshot:
        version = metadata.format_version
        sequence_number = metadata.next_sequence_number()
        first_row_id = next_row_id(metadata)
        location = self.location(f"snap-{self.snapshot_id}-{len(self.lists) + 1}-{self.written.commit_id}.avro")
        self.lists.append(location)
        after = write_manifest_list(
            self.io,
            location,
            version=version,
            manifests=manifests,
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=sequence_number,
            first_row_id=first_row_id,
        )
        return Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=sequence_number,
            # A table's time never runs backwards, whatever the clocks of its writers say.
            timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms),
            manifest_list=location,
            summary=Summary(IcebergOperation(self.changes.operation.value), **summary),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id if version > 2 else None,
            added_rows=after - first_row_id if version > 2 else None,
        )

    def _updates(self, metadata: TableMetadata, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
        add = AddSnapshotUpdate(snapshot=snapshot)
        if self.target.stage_only:
            return (add,)
        ref = metadata.refs.get(self.target.branch)
        move = SetSnapshotRefUpdate(
            ref_name=self.target.branch,
            type="branch",
            snapshot_id=snapshot.snapshot_id,
            min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
            max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
            max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        )
        return (add, move)


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str] | None:
    if snapshot is None:
        return None
    return snapshot.summary.additional_properties if snapshot.summary else {}


def least_sequence_number(manifests: tuple[ManifestFile, ...], metadata: TableMetadata, changes: FileChanges) -> int:
    """The least data sequence number of the data files that stay or come; at most the table's last one."""
    if metadata.format_version == 1:
        return 0
    numbers = [
        manifest.min_sequence_number
        for manifest in manifests
        if manifest.min_sequence_number is not None and manifest.has_live_files
    ]
    if changes.data_sequence_number is not None:
        numbers.append(changes.data_sequence_number)
    return min([*numbers, metadata.last_sequence_number])
