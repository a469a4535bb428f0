"""The procedures about snapshots, branches and the catalog's entry of a table. Driver.

Rollbacks, `set_current_snapshot` and `fast_forward` move a reference and change nothing else: schema, partitioning and
properties stay. `cherrypick_snapshot` and `publish_changes` commit the changes of a staged snapshot to main. Each
attempt starts from the newest metadata. Publications run the post-commit actions, because main got new rows.

Source: Iceberg's Spark procedures and `SnapshotManager`, whose messages these are.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId

from dml.catalog import register_table
from dml.commit import (
    NO_RETENTION,
    CherryPick,
    ancestors,
    branch_update,
    commit,
    is_fast_forward,
    picked_changes,
    refuse_second_pick,
)
from dml.ddl.commit import MetadataChange, commit_change
from dml.engine.engine import Engine
from dml.engine.procedures.declaration import BIGINT, STRING, TABLE, TIMESTAMP, Parameter, Procedure, whole_table
from dml.engine.publish import PublishedHead, finish_publication
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CommitConflictError,
    ErrorKind,
    NotFoundError,
    ValidationFailedError,
)
from dml.hints import did_you_mean
from dml.model.summary_keys import WAP_ID
from dml.sqlparse.quoting import quote_name

__all__ = ["HISTORY", "ancestor_before", "cherry_pick", "fast_forward_move", "staged_snapshot_id"]

Row = tuple[Any, ...]
Values = Mapping[str, Any]

SNAPSHOTS_HINT: Final = "Take one from the table's metadata table 'snapshots'; it may have been expired"


# ---- moving main ----------------------------------------------------------------------------------------------


def rollback_to_snapshot(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Move main back to an ancestor."""
    return move_main(engine, parts, lambda metadata: ancestor_of_main(metadata, values["snapshot_id"]))


def rollback_to_timestamp(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Move main back to its newest ancestor before a time."""
    return move_main(engine, parts, lambda metadata: ancestor_before(metadata, values["timestamp"]))


def set_current_snapshot(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Move main to any snapshot, or to that of a branch or tag."""
    if ("snapshot_id" in values) == ("ref" in values):
        raise AnalysisError(
            "Either snapshot_id or ref must be provided, not both",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give snapshot_id => the id of a snapshot, or ref => the name of a branch or tag",
        )
    if "ref" in values:
        return move_main(engine, parts, lambda metadata: ref_snapshot_id(metadata, values["ref"]))
    return move_main(engine, parts, lambda metadata: known_snapshot_id(metadata, values["snapshot_id"]))


def move_main(engine: Engine, parts: tuple[str, ...], choose: Callable[[TableMetadata], int]) -> list[Row]:
    """Move main to the snapshot that `choose` returns for the newest metadata."""
    resolved = whole_table(engine, parts, "the procedure moves the branch main")
    moved: dict[str, int | None] = {}

    def change(metadata: TableMetadata) -> MetadataChange:
        snapshot_id = choose(metadata)
        moved.update(previous=metadata.current_snapshot_id, current=snapshot_id)
        return branch_move(metadata, MAIN_BRANCH, snapshot_id)

    commit_change(resolved.catalog, resolved.identifier, change)
    return [(moved["previous"], moved["current"])]


def branch_move(metadata: TableMetadata, branch: str, snapshot_id: int) -> MetadataChange:
    """Return the change that moves or creates a branch; empty if the branch is already at the snapshot."""
    ref = metadata.refs.get(branch)
    head_id = None if ref is None else ref.snapshot_id
    if head_id == snapshot_id:
        return MetadataChange()
    return MetadataChange(
        updates=(branch_update(branch, snapshot_id, metadata.refs.get(branch, NO_RETENTION)),),
        requirements=(AssertRefSnapshotId(ref=branch, snapshot_id=head_id),),
    )


def known_snapshot_id(metadata: TableMetadata, snapshot_id: int) -> int:
    if metadata.snapshot_by_id(snapshot_id) is None:
        raise NotFoundError(
            f"Cannot roll back to unknown snapshot id: {snapshot_id}", hint=SNAPSHOTS_HINT, snapshot_id=snapshot_id
        )
    return snapshot_id


def ancestor_of_main(metadata: TableMetadata, snapshot_id: int) -> int:
    known_snapshot_id(metadata, snapshot_id)
    if all(one.snapshot_id != snapshot_id for one in ancestors(metadata, metadata.current_snapshot_id)):
        raise ValidationFailedError(
            f"Cannot roll back to snapshot, not an ancestor of the current state: {snapshot_id}",
            hint="ancestors_of lists the ancestors; set_current_snapshot moves main to any snapshot",
            snapshot_id=snapshot_id,
        )
    return snapshot_id


def ancestor_before(metadata: TableMetadata, moment: datetime) -> int:
    """Return the newest ancestor of main's head that was committed before a time.

    Raises:
        ValidationFailedError: There is none.
    """
    millis = int(moment.timestamp() * 1000)
    history = list(ancestors(metadata, metadata.current_snapshot_id))
    older = [one for one in history if one.timestamp_ms < millis]
    if not older:
        early = f"{moment.isoformat()} is before the first snapshot that main still has; ancestors_of lists them"
        raise ValidationFailedError(
            f"Cannot roll back, no valid snapshot older than: {millis}",
            hint=early if history else "Main has no snapshots",
        )
    return max(older, key=lambda one: one.timestamp_ms).snapshot_id


def ref_snapshot_id(metadata: TableMetadata, ref: str) -> int:
    """Return the snapshot of a branch or tag.

    Raises:
        NotFoundError: There is no such branch or tag.
    """
    found = metadata.refs.get(ref)
    if found is None:
        raise NotFoundError(
            f"Cannot find matching snapshot ID for ref {ref}", hint=did_you_mean(ref, metadata.refs), branch=ref
        )
    return found.snapshot_id


def ancestors_of(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Return a snapshot and its ancestors, newest first, with their times in milliseconds."""
    metadata = whole_table(engine, parts, "the ancestors of a snapshot are those of the whole table").table.metadata
    snapshot_id = values.get("snapshot_id", metadata.current_snapshot_id)
    if snapshot_id is not None and metadata.snapshot_by_id(snapshot_id) is None:
        raise NotFoundError(f"Cannot find snapshot: {snapshot_id}", hint=SNAPSHOTS_HINT, snapshot_id=snapshot_id)
    return [(one.snapshot_id, one.timestamp_ms) for one in ancestors(metadata, snapshot_id)]


# ---- branches -------------------------------------------------------------------------------------------------


def fast_forward(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Move a branch to the head of another one that descends from it."""
    resolved = whole_table(engine, parts, "the procedure takes the branches as arguments")
    branch, to = values["branch"], values["to"]
    if not branch:
        raise AnalysisError(
            "The name of the branch is empty",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give branch => 'main' or another name. A branch that does not exist is created",
        )
    started = time.perf_counter()
    moved: dict[str, int | None] = {}

    def change(metadata: TableMetadata) -> MetadataChange:
        ref = metadata.refs.get(branch)
        planned = fast_forward_move(metadata, branch, to)
        moved.update(previous=None if ref is None else ref.snapshot_id, updated=metadata.refs[to].snapshot_id)
        return planned

    newest = commit_change(resolved.catalog, resolved.identifier, change)
    head = newest.metadata.snapshot_by_id(moved["updated"] or 0)
    is_new_branch = moved["previous"] is None and branch != MAIN_BRANCH
    if head is not None and moved["previous"] != moved["updated"] and not is_new_branch:
        finish_publication(
            engine, resolved, "FAST FORWARD", branch, PublishedHead.of(head), time.perf_counter() - started
        )
    return [(branch, moved["previous"], moved["updated"])]


def fast_forward_move(metadata: TableMetadata, branch: str, to: str) -> MetadataChange:
    """Return the change that moves a branch to a branch or tag that descends from it, or creates it there.

    Raises:
        NotFoundError: There is no reference `to`.
        AnalysisError: `branch` is a tag.
        ValidationFailedError: The branch's head is not an ancestor of `to`.
    """
    target, ref = metadata.refs.get(to), metadata.refs.get(branch)
    if target is None:
        raise NotFoundError(f"Ref does not exist: {to}", hint=did_you_mean(to, metadata.refs), branch=to)
    if ref is not None and ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise AnalysisError(
            f"Ref {branch} is a tag not a branch", kind=ErrorKind.INVALID_VALUE, hint="Tags do not move", branch=branch
        )
    history = ancestors(metadata, target.snapshot_id)
    if ref is not None and all(one.snapshot_id != ref.snapshot_id for one in history):
        raise ValidationFailedError(
            f"Cannot fast-forward: {branch} is not an ancestor of {to}",
            hint=f"{branch} has commits that {to} lacks: write the changes of {to} to {branch} by a statement",
            branch=branch,
        )
    return branch_move(metadata, branch, target.snapshot_id)


# ---- publishing staged snapshots ------------------------------------------------------------------------------


def cherrypick_snapshot(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Commit the changes of a snapshot to main."""
    return pick(engine, parts, "CHERRYPICK SNAPSHOT", lambda _: values["snapshot_id"])


def publish_changes(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Commit the changes that were staged under a WAP id to main."""
    return pick(engine, parts, "PUBLISH CHANGES", lambda metadata: staged_snapshot_id(metadata, values["wap_id"]))


def pick(engine: Engine, parts: tuple[str, ...], command: str, choose: Callable[[TableMetadata], int]) -> list[Row]:
    """Cherry-pick the snapshot that `choose` returns, and run the post-commit actions."""
    started = time.perf_counter()
    resolved = whole_table(engine, parts, "the procedure writes to main")
    snapshot_id = choose(resolved.table.metadata)
    picked = cherry_pick(resolved.table, snapshot_id, engine.commit_summary())
    finish_publication(engine, resolved, command, MAIN_BRANCH, picked, time.perf_counter() - started)
    return [(snapshot_id, picked.snapshot_id)]


def staged_snapshot_id(metadata: TableMetadata, wap_id: str) -> int:
    """Return the snapshot that was staged under a WAP id.

    Raises:
        NotFoundError: There is none.
        ValidationFailedError: There are several.
    """
    found = [
        one.snapshot_id
        for one in metadata.snapshots
        if one.summary is not None and one.summary.additional_properties.get(WAP_ID) == wap_id
    ]
    if not found:
        raise NotFoundError(
            f"Cannot apply unknown WAP ID '{wap_id}'",
            hint="Statements stage snapshots while spark.wap.id is set and the table has write.wap.enabled = true",
            wap_id=wap_id,
        )
    if len(found) > 1:
        raise ValidationFailedError(
            f"Cannot apply non-unique WAP ID. Found multiple snapshots with WAP ID '{wap_id}'",
            hint=f"Publish one of them by cherrypick_snapshot: {', '.join(map(str, found))}",
            wap_id=wap_id,
        )
    return found[0]


def cherry_pick(table: Table, snapshot_id: int, summary: Mapping[str, str]) -> PublishedHead:
    """Move main to a snapshot that directly follows it, or else commit its changes as a new snapshot.

    Args:
        table: The table.
        snapshot_id: The snapshot.
        summary: Keys of the engine for a new snapshot's summary.

    Returns:
        The snapshot of main with the changes.

    Raises:
        NotFoundError: The table has no such snapshot.
        ValidationFailedError: Main has the changes already, or they do not fit its newest state.
        DmlError: The commit failed.
    """
    pick = CherryPick.of(table.metadata, snapshot_id)
    table = commit_change(table.catalog, table.name(), partial(pick_by_fast_forward, pick=pick))
    metadata = table.metadata
    for one in ancestors(metadata, metadata.current_snapshot_id):
        if one.snapshot_id == snapshot_id:
            return PublishedHead.of(one)
    try:
        committed = commit(table, picked_changes(table, pick), summary=summary, idempotency_key=pick)
    except CommitConflictError as error:
        if "conflicts" not in error.context:  # the catalog was busy, or the history is incomplete
            raise
        raise ValidationFailedError(
            f"Cannot cherry-pick replace partitions with changed partition: {error.message}",
            hint="Its partitions were changed after it was staged: run its statement again",
            snapshot_id=snapshot_id,
        ) from error
    return PublishedHead(snapshot_id=committed.snapshot_id, operation=committed.operation, summary=committed.summary)


def pick_by_fast_forward(metadata: TableMetadata, *, pick: CherryPick) -> MetadataChange:
    """Return the move of main to a snapshot that directly follows it; empty for other snapshots."""
    snapshot = pick.snapshot_of(metadata)
    refuse_second_pick(metadata, metadata.current_snapshot(), pick)
    if not is_fast_forward(metadata, snapshot):
        return MetadataChange()
    return branch_move(metadata, MAIN_BRANCH, pick.snapshot_id)


# ---- the catalog's entry --------------------------------------------------------------------------------------


def register(engine: Engine, parts: tuple[str, ...], values: Values) -> list[Row]:
    """Add a table to the catalog by its metadata file."""
    location = values["metadata_file"]
    if not location.strip():
        raise AnalysisError(
            "Cannot handle an empty argument metadata_file",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give the location of a file '*.metadata.json' of the table",
        )
    catalog_name, identifier = engine.registry.split(parts)
    if len(identifier) < 2:
        raise AnalysisError(
            f"The table name '{'.'.join(parts)}' has no namespace",
            kind=ErrorKind.INVALID_VALUE,
            hint=f"Include the namespace, for example 'db.{identifier[-1]}'",
        )
    catalog = engine.registry.catalog(catalog_name)
    try:
        snapshot = register_table(catalog, identifier, location).current_snapshot()
    except AlreadyExistsError as error:
        error.hint = "Register it under another name, or drop the existing table first"
        raise
    except NotFoundError as error:
        error.hint = f"Create the namespace first: CREATE NAMESPACE {quote_name(identifier[:-1])}"
        raise
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    totals = (summary.get(key) for key in ("total-records", "total-data-files"))
    counts = (None if total is None else int(total) for total in totals)
    return [(None if snapshot is None else snapshot.snapshot_id, *counts)]


MOVED: Final = "previous_snapshot_id bigint, current_snapshot_id bigint"
PICKED: Final = "source_snapshot_id bigint, current_snapshot_id bigint"
SNAPSHOT: Final = Parameter(name="snapshot_id", type=BIGINT, required=True, doc="The id of the snapshot")

HISTORY: Final = (
    Procedure(
        name="rollback_to_snapshot",
        summary="Move main back to one of its earlier snapshots.",
        parameters=(TABLE, SNAPSHOT),
        columns=MOVED,
        run=rollback_to_snapshot,
        changes_table=True,
    ),
    Procedure(
        name="rollback_to_timestamp",
        summary="Move main back to its newest snapshot before a time.",
        parameters=(
            TABLE,
            Parameter(name="timestamp", type=TIMESTAMP, required=True, doc="The time, such as '2026-01-31 12:00:00'"),
        ),
        columns=MOVED,
        run=rollback_to_timestamp,
        changes_table=True,
    ),
    Procedure(
        name="set_current_snapshot",
        summary="Move main to any snapshot, or to that of a branch or tag.",
        parameters=(
            TABLE,
            Parameter(name="snapshot_id", type=BIGINT, doc="The id of the snapshot"),
            Parameter(name="ref", type=STRING, doc="The branch or tag, instead of a snapshot"),
        ),
        columns=MOVED,
        run=set_current_snapshot,
        changes_table=True,
    ),
    Procedure(
        name="cherrypick_snapshot",
        summary="Commit the changes of a staged snapshot to main.",
        parameters=(TABLE, SNAPSHOT),
        columns=PICKED,
        run=cherrypick_snapshot,
        changes_table=True,
    ),
    Procedure(
        name="publish_changes",
        summary="Commit the changes that were staged under a WAP id to main.",
        parameters=(TABLE, Parameter(name="wap_id", type=STRING, required=True, doc="The WAP id")),
        columns=PICKED,
        run=publish_changes,
        changes_table=True,
    ),
    Procedure(
        name="fast_forward",
        summary="Move a branch to the head of another one that descends from it.",
        parameters=(
            TABLE,
            Parameter(name="branch", type=STRING, required=True, doc="The branch to move"),
            Parameter(name="to", type=STRING, required=True, doc="The branch or tag to move it to"),
        ),
        columns="branch_updated string, previous_ref bigint, updated_ref bigint",
        run=fast_forward,
        changes_table=True,
    ),
    Procedure(
        name="ancestors_of",
        summary="List a snapshot and its ancestors, newest first.",
        parameters=(TABLE, Parameter(name="snapshot_id", type=BIGINT, doc="The snapshot; the current one by default")),
        columns="snapshot_id bigint, timestamp bigint",
        run=ancestors_of,
    ),
    Procedure(
        name="register_table",
        summary="Add a table to the catalog by its metadata file.",
        parameters=(
            TABLE,
            Parameter(
                name="metadata_file", type=STRING, required=True, doc="The location of the table's newest metadata file"
            ),
        ),
        columns="current_snapshot_id bigint, total_records_count bigint, total_data_files_count bigint",
        run=register,
    ),
)
