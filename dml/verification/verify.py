"""Recounting a snapshot from its files. Driver.

Input: a table and a snapshot. Output: a `Verification`. Read are the manifests of the snapshot and of its parent, and
the data files that the snapshot touched, each with the delete files that apply to it before and after.
"""

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.model.manifest import EntryStatus
from dml.model.summary_keys import ROWS_DELETED, ROWS_INSERTED, ROWS_VANISHED, UNKNOWN
from dml.verification.checks import CHECKS, Evidence, counts_of
from dml.verification.recount import FileKey, Recounter, SnapshotFiles, deletes_of, files_of
from dml.verification.report import FileRole, Verification, VerifiedFile

__all__ = ["verify"]


def verify(table: Table, snapshot: Snapshot | None, name: str, *, every_file: bool = False) -> Verification:
    """Recount a snapshot.

    Args:
        table: The table.
        snapshot: The snapshot; None where the table has none.
        name: What the report calls the table.
        every_file: Open all data files of the snapshot, not only those that it touched.

    Raises:
        CorruptFileError: a manifest is missing or damaged, so that the files are not known.
        ExecutionError: the storage failed.
    """
    if snapshot is None:
        return Verification(table=name, snapshot_id=None)
    parent = parent_of(table.metadata, snapshot)
    after, before = files_of(table, snapshot), files_of(table, parent)
    # Expiring a snapshot may also take its id out of the one that followed it.
    complete = parent is not None or (snapshot.parent_snapshot_id is None and not after.inherits)
    roles = roles_of(before, after) if complete else roles_without_parent(after, snapshot)
    opened = {path: role for path, role in roles.items() if every_file or role is not FileRole.UNTOUCHED}
    recounter = Recounter(table)
    entries = {**before.data_files, **after.data_files}
    recounter.open_data_files(entries[path] for path in opened)
    tasks = [files.tasks[path] for files in (before, after) for path in opened if path in files.tasks]
    recounter.open_delete_files(ref for task in tasks for ref in deletes_of(task))
    files = tuple(
        VerifiedFile(
            path=path,
            role=role,
            rows_by_manifest=entries[path].data_file.record_count,
            rows=recounter.data_files[path].rows,
            rows_before=live_rows(recounter, before, path) if complete else None,
            rows_after=live_rows(recounter, after, path),
        )
        for path, role in opened.items()
    )
    summary = {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)
    evidence = Evidence(
        snapshot=snapshot,
        summary=summary,
        before=before,
        after=after,
        complete=complete,
        files=files,
        recounter=recounter,
    )
    counts = counts_of(evidence)
    return Verification(
        table=name,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        operation=None if snapshot.summary is None else snapshot.summary.operation.value,
        counts=counts,
        files=files,
        problems=tuple(problem for check in CHECKS for problem in check(evidence, counts)),
        unverified=tuple(unverified(evidence)),
    )


def parent_of(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot before; None where there is none, or where it has expired."""
    parent_id = snapshot.parent_snapshot_id
    return None if parent_id is None else metadata.snapshot_by_id(parent_id)


def roles_of(before: SnapshotFiles, after: SnapshotFiles) -> dict[str, FileRole]:
    """What became of each data file of a snapshot and its parent."""
    old, new = before.data_files, after.data_files
    roles = {}
    for path in {**old, **new}:
        if path not in old:
            roles[path] = FileRole.ADDED
        elif path not in new:
            roles[path] = FileRole.REMOVED
        elif deletes_at(before, path) != deletes_at(after, path):
            roles[path] = FileRole.DELETED_FROM
        else:
            roles[path] = FileRole.UNTOUCHED
    return roles


def roles_without_parent(after: SnapshotFiles, snapshot: Snapshot) -> dict[str, FileRole]:
    """The same as far as the snapshot alone shows it, where its parent has expired."""
    added = {
        path
        for path, entry in after.data_files.items()
        if entry.status is EntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
    }
    return {path: FileRole.ADDED if path in added else FileRole.UNTOUCHED for path in after.data_files}


def deletes_at(files: SnapshotFiles, path: str) -> frozenset[FileKey]:
    """The delete files that apply to a data file."""
    task = files.tasks.get(path)
    return frozenset() if task is None else frozenset(ref.key for ref in deletes_of(task))


def live_rows(recounter: Recounter, files: SnapshotFiles, path: str) -> int | None:
    """Live rows of a data file in a snapshot: 0 where it is not in it, None where they cannot be counted."""
    task = files.tasks.get(path)
    if task is None:
        return 0 if path not in files.data_files else None
    return recounter.live_rows(task)


def unverified(evidence: Evidence) -> Iterator[str]:
    """What could not be checked, and why."""
    if not evidence.complete:
        yield "The parent snapshot has expired: what was removed or deleted is not known"
    if ROWS_INSERTED not in evidence.summary and ROWS_DELETED not in evidence.summary:
        yield "The summary has no counts of rows deleted, updated, inserted and carried: another engine made it"
    if evidence.summary.get(ROWS_VANISHED) == UNKNOWN:
        yield "Another commit removed files with rows that this one deleted, and how many is not known"
