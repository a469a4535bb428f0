"""Tags that a table gets by itself: of each commit, or of the last commit of each hour or day. Pure; driver.

Input: the table's metadata, the snapshot that was just committed to main. Output: refs to add and to remove, as one
change of the metadata. The tag of a day is made by the first commit of a later one, at the last snapshot of the day, so
it never moves. If that commit's own attempt failed, the next commits make up for it.

Tags that are too old, or too many, go with the next change. They are known by their names: the prefix, and what this
module would call their snapshot. Source: Paimon's documentation, "Manage Tags"; Iceberg specification, "Snapshot
References" (`max-ref-age-ms`).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from dml.commit import ancestors
from dml.ddl.commit import MetadataChange
from dml.hook_options import HookOptions, TagCreation

__all__ = ["is_tagged", "tag_change"]

FORMATS = {TagCreation.HOURLY: "%Y-%m-%d-%H", TagCreation.DAILY: "%Y-%m-%d"}


def tag_change(metadata: TableMetadata, snapshot_id: int, options: HookOptions, *, now_ms: int) -> MetadataChange:
    """The tags to make and to remove after a commit.

    Args:
        metadata: The table as it is now.
        snapshot_id: The snapshot that was committed.
        options: What the table asks for.
        now_ms: The time, in milliseconds since 1970.
    """
    found = tagged_snapshot(metadata, snapshot_id, options)
    updates: list[TableUpdate] = []
    requirements: list[TableRequirement] = []
    mine = dict(automatic_tags(metadata, options))
    if found is not None and not is_expired(found, options, now_ms):
        name = tag_name(found, options)
        if name not in metadata.refs:
            mine[name] = found
            requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=None))
            updates.append(
                SetSnapshotRefUpdate(
                    ref_name=name,
                    type=SnapshotRefType.TAG,
                    snapshot_id=found.snapshot_id,
                    max_ref_age_ms=options.tag_max_age_ms,
                    max_snapshot_age_ms=None,
                    min_snapshots_to_keep=None,
                )
            )
    for name in surplus(mine, options, now_ms):
        if name in metadata.refs:
            requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=metadata.refs[name].snapshot_id))
            updates.append(RemoveSnapshotRefUpdate(ref_name=name))
    return MetadataChange(updates=tuple(updates), requirements=tuple(requirements))


def is_tagged(metadata: TableMetadata, options: HookOptions, *, now_ms: int) -> bool:
    """Whether nothing can be to do, as the table was before the commit: most commits are not the first of their day.

    Args:
        metadata: The table as the statement loaded it.
        options: What the table asks for.
        now_ms: The time, in milliseconds since 1970.
    """
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    if head is None or options.tag_creation not in FORMATS:
        return False
    now = local_time(now_ms, options.time_zone).strftime(FORMATS[options.tag_creation])
    return period(head, options) == now and not tag_change(metadata, head.snapshot_id, options, now_ms=now_ms).updates


def tagged_snapshot(metadata: TableMetadata, snapshot_id: int, options: HookOptions) -> Snapshot | None:
    """The snapshot that gets a tag: the new one, or the last one of an hour or day before it."""
    history = ancestors(metadata, snapshot_id)
    newest = next(history, None)
    if newest is None or options.tag_creation in {TagCreation.COMMIT, TagCreation.NONE}:
        return newest
    current = period(newest, options)
    return next((snapshot for snapshot in history if period(snapshot, options) < current), None)


def tag_name(snapshot: Snapshot, options: HookOptions) -> str:
    """The name of a snapshot's tag."""
    if options.tag_creation is TagCreation.COMMIT:
        return f"{options.tag_prefix}{snapshot.snapshot_id}"
    return f"{options.tag_prefix}{period(snapshot, options)}"


def period(snapshot: Snapshot, options: HookOptions) -> str:
    """The hour or day of a snapshot; later ones are greater texts."""
    return local_time(snapshot.timestamp_ms, options.time_zone).strftime(FORMATS[options.tag_creation])


def local_time(timestamp_ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone(zone)


def automatic_tags(metadata: TableMetadata, options: HookOptions) -> Iterator[tuple[str, Snapshot]]:
    """The tags of a table that were made here, with their snapshots."""
    for name, ref in metadata.refs.items():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        if is_tag(ref) and snapshot is not None and name == tag_name(snapshot, options):
            yield name, snapshot


def is_tag(ref: SnapshotRef) -> bool:
    return ref.snapshot_ref_type is SnapshotRefType.TAG


def surplus(tags: dict[str, Snapshot], options: HookOptions, now_ms: int) -> list[str]:
    """The tags that are too old, and the oldest of those that are too many."""
    newest_first = sorted(
        tags, key=lambda name: (tags[name].timestamp_ms, tags[name].sequence_number or 0), reverse=True
    )
    kept = newest_first[: options.tag_num_retained]
    return [name for name in newest_first if name not in kept or is_expired(tags[name], options, now_ms)]


def is_expired(snapshot: Snapshot, options: HookOptions, now_ms: int) -> bool:
    """Whether a tag of a snapshot is too old, by the snapshot's time, as Iceberg's expiration counts."""
    return options.tag_max_age_ms is not None and now_ms - snapshot.timestamp_ms > options.tag_max_age_ms
