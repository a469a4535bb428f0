"""One attempt to commit, and its checks. Driver.

Input: the request, the table's current metadata, the files that earlier attempts wrote. Output: the snapshots since the
start, the changes reconciled with concurrent deletes, and the filtered manifests, each computed once on first use; or
the error of the first check that fails.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, TableRequirement

from dml.commit.changes import FileChanges, Operation
from dml.commit.concurrent_deletes import Reconciled, reconcile
from dml.commit.followed_rewrites import follow_rewrites
from dml.commit.new_manifests import CommitFiles, FilteredManifests, ManifestFilter, NewManifests, commit_pruner
from dml.commit.validation import (
    ENTRY_CHECKS,
    Conflict,
    EntryCheck,
    check_data_sequence_number,
    check_deletes_of_replaced_files,
    check_format_version,
    check_manifests_are_live,
    check_not_upgraded,
    check_removed_files_are_live,
    check_removed_files_are_not_referenced,
    check_rewrite_adds_no_rows,
    vanished_data_files,
)
from dml.commit.window import CommitWindow, ManifestReader, open_window
from dml.deletes.delete_file_index import partition_key
from dml.errors import AnalysisError, CommitConflictError, NotFoundError
from dml.hints import did_you_mean
from dml.model.manifest import (
    ContentFile,
    DeleteFileKey,
    EntryStatus,
    ManifestContent,
    ManifestFile,
    Partition,
    unpartitioned_specs,
)
from dml.model.summary_keys import ROWS_VANISHED, UNKNOWN
from dml.pruning.pruner import AnyFilter, FileFilter, PartitionSet, Pruner
from dml.sqlparse.statements import Retention

__all__ = [
    "CHECKS",
    "NO_RETENTION",
    "Attempt",
    "Check",
    "CommitRequest",
    "TargetBranch",
    "check",
    "parent_of",
    "requirements_of",
]

NO_RETENTION: Final = Retention()
GONE: Final = frozenset({"V3", "V4", "V7"})
"""The checks that find files removed."""

DELETING: Final = frozenset({Operation.OVERWRITE, Operation.DELETE})


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetBranch:
    """The branch that a commit adds a snapshot to.

    Attributes:
        branch: The branch to move to the snapshot.
        create_branch: Create the branch from main's head if it does not exist.
        stage_only: Add the snapshot, a child of the branch's head, without moving the branch.
        retention: The retention of a branch that the commit creates.
    """

    branch: str = MAIN_BRANCH
    create_branch: bool = False
    stage_only: bool = False
    retention: Retention = NO_RETENTION


def parent_of(metadata: TableMetadata, target: TargetBranch) -> Snapshot | None:
    """Return the head of the branch, or main's head for a branch to be created; None if there is no snapshot yet.

    Raises:
        NotFoundError: The branch does not exist and may not be created.
        AnalysisError: The name is a tag.
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
        raise AnalysisError(
            f"{target.branch} is a tag, not a branch: tags cannot be written to",
            hint="Name a branch. ALTER TABLE ... CREATE BRANCH ... AS OF VERSION creates one at the snapshot of a tag",
            branch=target.branch,
        )
    return metadata.snapshot_by_id(ref.snapshot_id)


def requirements_of(
    metadata: TableMetadata, target: TargetBranch, parent: Snapshot | None
) -> tuple[TableRequirement, ...]:
    """Return the requirements of the commit: the same table, and the same head of the branch."""
    table = AssertTableUUID(uuid=metadata.table_uuid)
    if target.stage_only:
        return (table,)
    exists = target.branch in metadata.refs
    head = parent.snapshot_id if exists and parent is not None else None
    return (table, BranchHead(ref=target.branch, snapshot_id=head))


class BranchHead(AssertRefSnapshotId):
    """Requires a head of a branch; the first snapshot of a table may be on a branch other than main.

    Iceberg's Java library (a first write under `spark.wap.branch`) and REST catalogs allow that. PyIceberg 0.12, which
    checks the requirements for catalogs that write metadata themselves, rejects it for any branch.
    """

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]  # pydantic has one, too
        """Raise `CommitFailedException` if the branch has another head."""
        if base_metadata is None or base_metadata.snapshots or self.snapshot_id is not None:
            super().validate(base_metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The input that all attempts of a commit share.

    Attributes:
        io: The table's FileIO.
        planned: The table's metadata when the statement was planned.
        changes: The files to add and remove.
        target: The branch to commit to.
        snapshot_id: The id of the new snapshot.
        summary: Additional keys of its summary.
        location: Maps a file name to its location in the table's metadata folder.
        reader: Reads each manifest once.
    """

    io: FileIO = field(repr=False)
    planned: TableMetadata = field(repr=False)
    changes: FileChanges
    target: TargetBranch
    snapshot_id: int
    summary: Mapping[str, str]
    location: Callable[[str], str] = field(repr=False)
    reader: ManifestReader = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to commit on the newest metadata.

    Attributes:
        request: The commit.
        metadata: The table's newest metadata.
        files: The files that the commit has written in all attempts.
    """

    request: CommitRequest
    metadata: TableMetadata = field(repr=False)
    files: CommitFiles = field(repr=False)

    @cached_property
    def parent(self) -> Snapshot | None:
        """The parent of the new snapshot."""
        return parent_of(self.metadata, self.request.target)

    @cached_property
    def window(self) -> CommitWindow:
        """The snapshots since the statement read the table; empty if no check needs them."""
        validation = self.request.changes.validation
        if not validation.checks_history:
            return CommitWindow(snapshots=(), reader=self.request.reader)
        return open_window(
            self.metadata,
            self.request.reader,
            starting_snapshot_id=validation.starting_snapshot_id,
            head=self.parent,
            must_descend=validation.must_descend,
        )

    @cached_property
    def wanted(self) -> FileFilter:
        """The files that may hold rows that the statement read."""
        validation = self.request.changes.validation
        if validation.partitions is not None:
            return PartitionSet(validation.partitions, self.metadata)
        return commit_pruner(
            validation.conflict_filter if validation.checks_history else AlwaysTrue(),
            self.metadata,
            case_sensitive=validation.case_sensitive,
            named_by=self.request.planned.schema(),
        )

    @cached_property
    def followed(self) -> FileChanges:
        """The changes, with deletes of compacted data files moved to the new ones."""
        return follow_rewrites(self.request.changes, self.window, self.metadata, self.files, self.request.io)

    @cached_property
    def own(self) -> PartitionSet:
        """The partitions in which the commit deletes rows: concurrent changes of their data files always count."""
        partitions = [(file.spec_id, file.partition) for file in self.followed.added_delete_files]
        rows = self.followed.row_level
        if rows is not None:
            changed = [rows.tasks[path] for path in rows.changed if path in rows.tasks]
            partitions += [(task.spec_id, task.partition) for task in changed]
        return PartitionSet(partitions, self.metadata)

    @cached_property
    def without_rows(self) -> frozenset[DeleteFileKey]:
        """Concurrently added data files whose metrics may match, but that hold no row that the statement matches."""
        changes, window, known = self.request.changes, self.window, self.files.without_rows
        probe, head = changes.row_probe, self.parent
        if probe is None or not changes.validation.new_data_files or head is None or not window.snapshots:
            return frozenset()
        adding = frozenset({Operation.APPEND, Operation.OVERWRITE})
        added = window.entries(ManifestContent.DATA, EntryStatus.ADDED, adding, self.wanted)
        # If an added file was compacted meanwhile, its rows are now in another file.
        replacing = frozenset({Operation.REPLACE})
        compacted = {
            entry.data_file.key
            for entry in window.entries(ManifestContent.DATA, EntryStatus.DELETED, replacing, self.wanted)
        }
        files = {
            entry.data_file.key: entry.data_file
            for entry in added
            if self.wanted.may_match(entry.data_file) and entry.data_file.key not in compacted - known
        }
        unknown = [file for key, file in files.items() if key not in known]
        if not unknown or not probe(self.metadata, head.snapshot_id, unknown):
            known.update(files)
        return frozenset(known)

    @cached_property
    def reconciled(self) -> Reconciled:
        """The changes, reconciled with concurrent deletes row by row."""
        files = AnyFilter((self.wanted, self.own))
        return reconcile(self.followed, self.window, files, self.files, self.request.io)

    @cached_property
    def changes(self) -> FileChanges:
        """The changes to commit, without deletes in data files that a concurrent DELETE removed."""
        changes = self.reconciled.changes
        if not changes.validation.tolerate_deleted or not self.window.snapshots:
            return changes
        deleting = frozenset({Operation.DELETE})
        removed = self.window.entries(ManifestContent.DATA, EntryStatus.DELETED, deleting, self.own)
        vanished = vanished_data_files(changes, removed)
        if not vanished:
            return changes
        needed = tuple(file for file in changes.added_delete_files if file.referenced_data_file not in vanished)
        counted = [changes.rows_deleted.get(path) for path in vanished]
        rows = UNKNOWN if None in counted else str(sum(number for number in counted if number is not None))
        return replace(changes, added_delete_files=needed, summary=(*changes.summary, (ROWS_VANISHED, rows)))

    @cached_property
    def manifests(self) -> NewManifests:
        """The writer of new manifests."""
        request = self.request
        return NewManifests.of(self.metadata, request.io, self.files, request.snapshot_id, request.location)

    @cached_property
    def data(self) -> FilteredManifests:
        """The parent's data manifests, without the removed files."""
        return self._filter.data_files(self._base(ManifestContent.DATA))

    @cached_property
    def deletes(self) -> FilteredManifests:
        """The parent's delete manifests, without the removed files."""
        least = least_sequence_number(self.data.manifests, self.metadata, self.changes)
        return self._filter.delete_files(self._base(ManifestContent.DELETES), self.data.removed, least)

    @cached_property
    def _filter(self) -> ManifestFilter:
        request = self.request
        return ManifestFilter(self.metadata, request.planned.schema(), self.changes, request.reader, self.manifests)

    def _base(self, content: ManifestContent) -> list[ManifestFile]:
        """Return the manifests of the parent, with those that the commit replaces by others in their place."""
        changes = self.request.changes
        replaced = {manifest.manifest_path for manifest in changes.removed_manifests}
        added = [replace(manifest, added_snapshot_id=self.request.snapshot_id) for manifest in changes.added_manifests]
        kept = [one for one in self.request.reader.manifests(self.parent) if one.manifest_path not in replaced]
        return [manifest for manifest in (*added, *kept) if manifest.content is content]


@dataclass(frozen=True, slots=True)
class Check:
    """A named check of an attempt.

    Attributes:
        label: V1 to V10, or a word.
        run: Raises an error if the check fails.
    """

    label: str
    run: Callable[[Attempt], object]


def check(attempt: Attempt) -> None:
    """Run all checks in order.

    Raises:
        CommitConflictError: A concurrent commit conflicts.
        ValidationFailedError: The changes do not fit the table.
        NotFoundError: The branch does not exist.
        DmlError: A metadata file cannot be read or written.
    """
    for one in CHECKS:
        try:
            one.run(attempt)
        except CommitConflictError as error:
            if "conflicts" in error.context:
                error.context["conflicts"] = with_compactions(attempt, error.context["conflicts"])
            raise


def with_compactions(attempt: Attempt, conflicts: Sequence[Conflict]) -> tuple[Conflict, ...]:
    """Distinguish files that a compaction replaced from files that were removed with their rows."""
    if not any(conflict.label in GONE for conflict in conflicts):
        return tuple(conflicts)
    every = Pruner(attempt.metadata.specs(), attempt.metadata.schema(), AlwaysTrue(), case_sensitive=True)
    replaced = {
        entry.data_file.path: entry.snapshot_id
        for content in ManifestContent
        for entry in attempt.window.entries(content, EntryStatus.DELETED, frozenset({Operation.REPLACE}), every)
    }
    return tuple(
        replace(conflict, snapshot_id=replaced[conflict.path], is_compaction=True)
        if conflict.label in GONE and conflict.path in replaced
        else conflict
        for conflict in conflicts
    )


def check_upgrade(attempt: Attempt) -> None:
    planned, now = attempt.request.planned.format_version, attempt.metadata.format_version
    check_not_upgraded(attempt.request.changes, planned, now)


def check_format(attempt: Attempt) -> None:
    check_format_version(attempt.request.changes, attempt.metadata.format_version, attempt.metadata.specs())


def check_final_format(attempt: Attempt) -> None:
    check_format_version(attempt.changes, attempt.metadata.format_version, attempt.metadata.specs())


def entry_check(rule: EntryCheck) -> Check:
    """Wrap a rule about the entries of concurrent commits as a check."""

    def run(attempt: Attempt) -> None:
        changes, window = attempt.followed, attempt.window
        if not window.snapshots or not rule.applies(changes):
            return
        compared = attempt.without_rows if rule.content is ManifestContent.DATA else attempt.reconciled.compared_files
        files = attempt.own if rule.own_files else attempt.wanted
        entries = window.entries(rule.content, rule.status, rule.operations(changes), files)
        rule.run(changes, attempt.request.planned, entries, attempt.wanted, compared)

    return Check(rule.label, run)


def check_replaced_files(attempt: Attempt) -> None:
    changes = attempt.changes
    if not changes.validation.deletes_of_replaced_files or not attempt.window.snapshots:
        return
    removed, moves, operations = attempt.data.removed, None, DELETING
    partitions = {(entry.data_file.spec_id, entry.data_file.partition) for entry in removed}
    if changes.data_sequence_number is not None:
        moves = moved_partitions(partitions, changes.added_data_files)
        partitions |= moves
        # An equality delete need not apply by itself any more: a rewrite may have replaced it by positions.
        operations = DELETING | {Operation.REPLACE}
    replaced = PartitionSet(partitions, attempt.metadata, with_global_deletes=True)
    entries = attempt.window.entries(ManifestContent.DELETES, EntryStatus.ADDED, operations, replaced)
    compared = attempt.reconciled.compared_files
    check_deletes_of_replaced_files(
        removed,
        (entry for entry in entries if entry.data_file.key not in compared),
        unpartitioned_specs(attempt.metadata.specs()),
        moves=None if moves is None else {partition_key(*partition) for partition in moves},
    )


def check_replaced_manifests(attempt: Attempt) -> None:
    removed = attempt.request.changes.removed_manifests
    if removed:
        check_manifests_are_live(removed, attempt.request.reader.manifests(attempt.parent))


def moved_partitions(old: Collection[Partition], added: Iterable[ContentFile]) -> set[Partition]:
    """Return the partitions that rows leave or enter, because their new files have another partition spec.

    Args:
        old: The partitions of the replaced files.
        added: The new files.
    """
    new = {(file.spec_id, file.partition) for file in added}
    specs = {spec_id for spec_id, _ in new}
    left = {partition for partition in old if specs != {partition[0]}}
    return left | new if left and new else set()


def check_removed_data_files(attempt: Attempt) -> None:
    found = {entry.data_file.path for entry in attempt.data.removed}
    check_removed_files_are_live(attempt.changes.removed_data_files - found)


def check_rewrite(attempt: Attempt) -> None:
    changes, removed = attempt.changes, attempt.data.removed
    if changes.operation is Operation.REPLACE:
        check_rewrite_adds_no_rows(changes, removed)
        since = [snapshot.sequence_number or 0 for snapshot in attempt.window.snapshots]
        check_data_sequence_number(changes, removed, min(since, default=attempt.metadata.next_sequence_number()))


def check_removed_delete_files(attempt: Attempt) -> None:
    removed = attempt.deletes.removed
    if attempt.changes.require_removed_delete_files:
        keys = attempt.changes.removed_delete_files - {entry.data_file.key for entry in removed}
        check_removed_files_are_live(path for path, _, _ in keys)


CHECKS: Final = (
    Check("branch", lambda attempt: attempt.parent),
    Check("upgrade", check_upgrade),
    Check("manifests", check_replaced_manifests),
    Check("format", check_format),
    Check("V8", lambda attempt: check_removed_files_are_not_referenced(attempt.request.changes)),
    Check("history", lambda attempt: attempt.window),
    Check("filter", lambda attempt: attempt.wanted),
    *(entry_check(rule) for rule in ENTRY_CHECKS if rule.content is ManifestContent.DATA),
    Check("rows", lambda attempt: attempt.reconciled),
    *(entry_check(rule) for rule in ENTRY_CHECKS if rule.content is ManifestContent.DELETES),
    Check("format", check_final_format),
    Check("V9", lambda attempt: attempt.data),
    Check("V2", check_replaced_files),
    Check("V3", check_removed_data_files),
    Check("rewrite", check_rewrite),
    Check("V3", check_removed_delete_files),
)
"""All checks of an attempt, in order: cheap ones and those that a user can fix come first."""


def least_sequence_number(manifests: tuple[ManifestFile, ...], metadata: TableMetadata, changes: FileChanges) -> int:
    """Return the least data sequence number of remaining and new data files, at most the table's last one."""
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
