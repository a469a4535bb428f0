"""A checked attempt of a commit to a snapshot and requests to the catalog. Driver.

Input: an `Attempt`. Output: updates and requirements; nothing is committed here.
Source: Iceberg specification, "Snapshots", "Optimistic Concurrency", "Row Lineage".
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.snapshots import Operation as IcebergOperation
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from dml.commit.attempt import Attempt, check, requirements_of
from dml.commit.changes import FileChanges
from dml.commit.manifest_filter import FilteredManifests
from dml.commit.new_manifests import merge_manifests
from dml.commit.summary import SummaryBuilder
from dml.iceberg import next_row_id
from dml.manifests.write import write_manifest_list
from dml.model.manifest import ManifestContent, ManifestFile
from dml.options import CommitOptions

__all__ = ["Prepared", "prepare"]


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
    unused_delete_files: frozenset[str]
    is_empty: bool


def prepare(attempt: Attempt) -> Prepared:
    """Check an attempt, and write its manifests and its manifest list.

    Args:
        attempt: The attempt.

    Raises:
        CommitConflictError: another commit stands in the way.
        ValidationFailedError: the changes do not fit the table.
        NotFoundError: there is no such branch.
        DmlError: metadata files cannot be read or written.
    """
    check(attempt)
    changes, data, deletes, parent = attempt.changes, attempt.data, attempt.deletes, attempt.parent
    options = CommitOptions.from_properties(attempt.metadata.properties)
    manifests = (
        *merged(attempt, ManifestContent.DATA, changes, data, options),
        *merged(attempt, ManifestContent.DELETES, changes, deletes, options),
    )
    summary = SummaryBuilder(attempt.metadata, options.partition_summary_limit)
    summary.add((*changes.added_data_files, *changes.added_delete_files))
    summary.remove(entry.data_file for entry in (*data.removed, *deletes.removed))
    parent_id = None if parent is None else parent.snapshot_id
    at_start = changes.summary_at_start if parent_id == changes.validation.starting_snapshot_id else ()
    further = {**dict(changes.summary), **dict(at_start), **attempt.request.summary}
    snapshot = new_snapshot(attempt, manifests, summary.build(summary_of(parent), further))
    written = {file.path for file in attempt.request.changes.added_delete_files} | attempt.files.delete_file_locations
    return Prepared(
        snapshot=snapshot,
        updates=updates_of(attempt, snapshot),
        requirements=requirements_of(attempt.metadata, attempt.request.target, parent),
        manifests=frozenset(manifest.manifest_path for manifest in manifests),
        unused_delete_files=frozenset(written - {file.path for file in changes.added_delete_files}),
        is_empty=not (changes.added_data_files or changes.added_delete_files or data.removed or deletes.removed),
    )


def merged(
    attempt: Attempt,
    content: ManifestContent,
    changes: FileChanges,
    filtered: FilteredManifests,
    options: CommitOptions,
) -> tuple[ManifestFile, ...]:
    files = changes.added_data_files if content is ManifestContent.DATA else changes.added_delete_files
    number = changes.data_sequence_number if content is ManifestContent.DATA else None
    added = attempt.manifests.added(content, files, number)
    if not changes.merges_manifests:
        return (*added, *filtered.manifests)
    return merge_manifests((*added, *filtered.manifests), options, attempt.request.reader, attempt.manifests)


def new_snapshot(attempt: Attempt, manifests: tuple[ManifestFile, ...], summary: Mapping[str, str]) -> Snapshot:
    metadata, request, parent = attempt.metadata, attempt.request, attempt.parent
    version = metadata.format_version
    sequence_number = metadata.next_sequence_number()
    first_row_id = next_row_id(metadata)
    location = request.location(
        f"snap-{request.snapshot_id}-{len(attempt.files.lists) + 1}-{attempt.files.commit_id}.avro"
    )
    attempt.files.lists.append(location)
    after = write_manifest_list(
        request.io,
        location,
        version=version,
        manifests=manifests,
        snapshot_id=request.snapshot_id,
        parent_snapshot_id=None if parent is None else parent.snapshot_id,
        sequence_number=sequence_number,
        first_row_id=first_row_id,
    )
    return Snapshot(
        snapshot_id=request.snapshot_id,
        parent_snapshot_id=None if parent is None else parent.snapshot_id,
        sequence_number=sequence_number,
        # A table's time never runs backwards, whatever the clocks of its writers say.
        timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms),
        manifest_list=location,
        summary=Summary(IcebergOperation(request.changes.operation.value), **summary),
        schema_id=metadata.current_schema_id,
        first_row_id=first_row_id if version > 2 else None,
        added_rows=after - first_row_id if version > 2 else None,
    )


def updates_of(attempt: Attempt, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
    target = attempt.request.target
    add = AddSnapshotUpdate(snapshot=snapshot)
    if target.stage_only:
        return (add,)
    ref = attempt.metadata.refs.get(target.branch)
    move = SetSnapshotRefUpdate(
        ref_name=target.branch,
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
