"""Commits an action: retries until an attempt is accepted, then cleans up. Driver.

Input: a table and an action. Output: a `CommittedSnapshot`. `prepare` turns a checked `Attempt` into a snapshot and
requests to the catalog. Source: Iceberg specification, "Snapshots", "Optimistic Concurrency", "Row Lineage".

Rules: each attempt starts from the newest metadata. Commits of one process to one table take turns, because racing
threads would only use up their retries. A catalog error has one of three outcomes: another commit landed first, and the
attempt may be retried; it was rejected for good; or the outcome is unknown. For an unknown outcome the table is
reloaded and searched for the snapshot. Metadata files of attempts that certainly failed are deleted. Data files never
are: the caller owns them.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock, RLock
from typing import Literal, overload
from weakref import WeakValueDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Operation as IcebergOperation
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from dml.catalog.tables import CommitBase, LoadState, load_table
from dml.catalog.translation import error_text, shown_cause, translate, unmet_requirement
from dml.commit.actions import Action, changes_of
from dml.commit.attempt import NO_RETENTION, Attempt, CommitRequest, TargetBranch, check, parent_of, requirements_of
from dml.commit.changes import FileChanges
from dml.commit.cherry_pick import CherryPick
from dml.commit.idempotency import CommitKey, refuse_second_run
from dml.commit.new_manifests import CommitFiles, FilteredManifests, merge_manifests
from dml.commit.summary import SummaryBuilder, manifest_counts
from dml.commit.window import ManifestReader, walk_back
from dml.errors import CommitConflictError, CommitStateUnknownError, DmlError, NotFoundError
from dml.files.file_io import delete_files
from dml.iceberg import commit_table, next_row_id, taken_numbers
from dml.manifests.write import write_manifest_list
from dml.model.manifest import ContentFile, FileContent, ManifestContent, ManifestFile
from dml.model.summary_keys import WAP_ID
from dml.options import CommitOptions
from dml.retry import commit_retries, status_checks
from dml.sqlparse.statements import Retention

__all__ = ["Action", "CommittedSnapshot", "branch_update", "commit", "outcome_of", "prepare"]


class CommitOutcome(Enum):
    """The outcome that an error implies: another commit landed first, the catalog refused, or it may have landed."""

    LOST = "lost"
    REFUSED = "refused"
    UNKNOWN = "unknown"


# The catalog rejected the request, or never received it because its new metadata was not written.
REFUSALS = (
    AuthorizationExpiredError,
    BadRequestError,
    DmlError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TooManyRequestsError,
    UnauthorizedError,
)


def outcome_of(error: Exception) -> CommitOutcome:
    """Classify an error; unless it is known to be harmless, it may have been raised after the commit."""
    if isinstance(error, CommitFailedException):
        return CommitOutcome.LOST
    return CommitOutcome.REFUSED if isinstance(error, REFUSALS) else CommitOutcome.UNKNOWN


def is_lost_race(error: Exception, catalog: Catalog, identifier: Identifier, snapshot: Snapshot) -> bool:
    """Return True if a refusal means that a commit to another branch landed first.

    A conflict is 409, but many servers answer 400 to a snapshot whose sequence number is taken (apache/iceberg#15001).
    """
    if not isinstance(error, BadRequestError):
        return False
    try:
        metadata = catalog.load_table(identifier).metadata
    except Exception:  # noqa: BLE001 - the refusal stands, whatever the catalog raises now
        return False
    return taken_numbers(metadata, snapshot) is not None


def is_another_table(error: Exception, catalog: Catalog, identifier: Identifier, snapshot_id: int) -> bool:
    """Return True if a creation failed because another writer created the table.

    A request that was sent twice gets the same answer because of our own table.
    """
    if not isinstance(error, TableAlreadyExistsError):
        return False
    try:
        return catalog.load_table(identifier).metadata.snapshot_by_id(snapshot_id) is None
    except Exception:  # noqa: BLE001 - as for `find_commit`
        return False


def find_commit(
    catalog: Catalog, identifier: Identifier, snapshot: Snapshot, branch: str | None, options: CommitOptions
) -> tuple[TableMetadata, str] | None:
    """Search the table for a snapshot whose commit has an unknown outcome, polling while it is absent.

    Args:
        catalog: The catalog.
        identifier: The table.
        snapshot: The snapshot.
        branch: The branch to move; None if the snapshot is only staged.
        options: The number and interval of the checks.

    Returns:
        The table's metadata with the snapshot, and its location; None if the outcome stays unknown.

    Raises:
        CommitFailedException: The branch moved on without the snapshot, which can no longer land: retry.
    """
    return status_checks(options)(find_commit_once, catalog, identifier, snapshot, branch)


def find_commit_once(
    catalog: Catalog, identifier: Identifier, snapshot: Snapshot, branch: str | None
) -> tuple[TableMetadata, str] | None:
    """Check once; see `find_commit`."""
    try:
        table = catalog.load_table(identifier)
    except Exception:  # noqa: BLE001 - whatever a failing catalog raises, the outcome stays unknown
        return None
    metadata = table.metadata
    if metadata.snapshot_by_id(snapshot.snapshot_id) is not None:
        return metadata, table.metadata_location
    head = metadata.refs.get(branch) if branch is not None else None
    if head is not None and has_passed(metadata, head.snapshot_id, snapshot):
        # The request requires the old head: from now on the catalog refuses it, even if it arrives late.
        raise CommitFailedException(f"The commit was not answered, and the branch {branch} moved on without it")
    return None


def has_passed(metadata: TableMetadata, head_id: int, snapshot: Snapshot) -> bool:
    """Return True if a branch moved from a snapshot's parent to its current head without that snapshot.

    Returns False if expired snapshots leave a gap: the snapshot may have been among them.
    """
    passed, end_id = walk_back(metadata, head_id, snapshot.parent_snapshot_id)
    return bool(passed) and end_id == snapshot.parent_snapshot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An attempt, ready for the catalog.

    Attributes:
        snapshot: The new snapshot.
        updates: The updates for the catalog.
        requirements: The requirements of those updates.
        manifests: Locations of all manifests of the snapshot.
        unused_delete_files: Locations of new delete files that the snapshot does not need.
        is_empty: No file is added or removed.
    """

    snapshot: Snapshot
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    manifests: frozenset[str]
    unused_delete_files: frozenset[str]
    is_empty: bool


def prepare(attempt: Attempt) -> Prepared:
    """Check an attempt, and write its manifests and its manifest list.

    Raises:
        CommitConflictError: A concurrent commit conflicts.
        ValidationFailedError: The changes do not fit the table.
        NotFoundError: The branch does not exist.
        DmlError: A metadata file cannot be read or written.
    """
    check(attempt)
    changes, data, deletes, parent = attempt.changes, attempt.data, attempt.deletes, attempt.parent
    options = CommitOptions.from_properties(attempt.metadata.properties)
    manifests = (
        *merged_manifests(attempt, ManifestContent.DATA, changes, data, options),
        *merged_manifests(attempt, ManifestContent.DELETES, changes, deletes, options),
    )
    summary = SummaryBuilder(attempt.metadata, options.partition_summary_limit)
    summary.add((*changes.added_data_files, *changes.added_delete_files))
    summary.remove(entry.data_file for entry in (*data.removed, *deletes.removed))
    parent_id = None if parent is None else parent.snapshot_id
    at_start = changes.summary_at_start if parent_id == changes.validation.starting_snapshot_id else ()
    counts = manifest_counts(changes, len(manifests))
    further = {**dict(changes.summary), **dict(at_start), **attempt.request.summary, **counts}
    snapshot = new_snapshot(attempt, manifests, summary.build(summary_of(parent), further))
    written = {file.path for file in attempt.request.changes.added_delete_files} | attempt.files.delete_file_locations
    return Prepared(
        snapshot=snapshot,
        updates=updates_of(attempt, snapshot),
        requirements=requirements_of(attempt.metadata, attempt.request.target, parent),
        manifests=frozenset(manifest.manifest_path for manifest in manifests),
        unused_delete_files=frozenset(written - {file.path for file in changes.added_delete_files}),
        is_empty=not (
            changes.added_data_files
            or changes.added_delete_files
            or changes.removed_manifests
            or data.removed
            or deletes.removed
        ),
    )


def merged_manifests(
    attempt: Attempt,
    content: ManifestContent,
    changes: FileChanges,
    filtered: FilteredManifests,
    options: CommitOptions,
) -> tuple[ManifestFile, ...]:
    files = changes.added_data_files if content is ManifestContent.DATA else changes.added_delete_files

    def number_of(file: ContentFile) -> int | None:
        is_data = file.content is FileContent.DATA
        return changes.data_sequence_number if is_data else changes.delete_sequence_numbers.get(file.key)

    added = attempt.manifests.write_added(content, files, number_of)
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
        # Snapshot timestamps never decrease, even if the clocks of writers differ.
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
    kept = attempt.metadata.refs.get(target.branch, target.retention)
    return (add, branch_update(target.branch, snapshot.snapshot_id, kept))


def branch_update(branch: str, snapshot_id: int, retention: SnapshotRef | Retention) -> SetSnapshotRefUpdate:
    """Return the update that moves a branch, or creates it.

    Args:
        branch: The branch.
        snapshot_id: Its new head.
        retention: The retention that it has, or gets if it is new.
    """
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type="branch",
        snapshot_id=snapshot_id,
        min_snapshots_to_keep=retention.min_snapshots_to_keep,
        max_snapshot_age_ms=retention.max_snapshot_age_ms,
        max_ref_age_ms=retention.max_ref_age_ms,
    )


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str] | None:
    if snapshot is None:
        return None
    return snapshot.summary.additional_properties if snapshot.summary else {}


GUARD = Lock()


class Turn:
    """A weakly referenced lock, freed with its last waiter. Reentrant: a catalog may commit while it commits."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = RLock()


TURNS: WeakValueDictionary[object, Turn] = WeakValueDictionary()


@contextmanager
def turn(table: object) -> Iterator[bool]:
    """Wait until no other thread of this process commits to a table.

    Args:
        table: The table's UUID.

    Yields:
        True if the thread had to wait.
    """
    with GUARD:
        held = TURNS.get(table)
        if held is None:
            held = TURNS[table] = Turn()
    waited = not held.lock.acquire(blocking=False)
    if waited:
        held.lock.acquire()
    try:
        yield waited
    finally:
        held.lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedSnapshot:
    """A committed snapshot.

    Attributes:
        snapshot_id: The id of the snapshot.
        parent_snapshot_id: The id of its parent.
        sequence_number: Its sequence number; 0 in format version 1.
        operation: `append`, `delete`, `overwrite` or `replace`.
        summary: All keys of its summary, without the operation.
        metadata_location: The location of the table's metadata file with the snapshot.
        attempts: The number of attempts.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    operation: str
    summary: Mapping[str, str] = field(repr=False)
    metadata_location: str
    attempts: int


@overload
def commit(
    table: Table,
    action: Action,
    *,
    branch: str = ...,
    create_branch: bool = ...,
    retention: Retention = ...,
    summary: Mapping[str, str] | None = ...,
    wap_id: str | None = ...,
    stage_only: bool = ...,
    skip_empty: Literal[False] = ...,
    load_state: LoadState | None = ...,
    idempotency_key: CommitKey | CherryPick | None = ...,
) -> CommittedSnapshot: ...


@overload
def commit(
    table: Table,
    action: Action,
    *,
    branch: str = ...,
    create_branch: bool = ...,
    retention: Retention = ...,
    summary: Mapping[str, str] | None = ...,
    wap_id: str | None = ...,
    stage_only: bool = ...,
    skip_empty: bool,
    load_state: LoadState | None = ...,
    idempotency_key: CommitKey | CherryPick | None = ...,
) -> CommittedSnapshot | None: ...


def commit(
    table: Table,
    action: Action,
    *,
    branch: str = MAIN_BRANCH,
    create_branch: bool = False,
    retention: Retention = NO_RETENTION,
    summary: Mapping[str, str] | None = None,
    wap_id: str | None = None,
    stage_only: bool = False,
    skip_empty: bool = False,
    load_state: LoadState | None = None,
    idempotency_key: CommitKey | CherryPick | None = None,
) -> CommittedSnapshot | None:
    """Commit an action.

    Args:
        table: The table; its handle is not changed.
        action: The action.
        branch: The branch to commit to.
        create_branch: Create the branch from main's head if it does not exist.
        retention: The retention of a branch that the commit creates.
        summary: Keys of the engine and of the user for the snapshot's summary.
        wap_id: Write-audit-publish: stage the snapshot under this id instead of moving the branch.
        stage_only: Stage the snapshot without an id.
        skip_empty: Commit nothing if no file would be added or removed.
        load_state: For a commit that also creates or replaces `table`, or changes its schema: loads the newest table
            with those changes, once per attempt.
        idempotency_key: Commit only if the branch's history does not have the key, and record it there. For a
            cherry-pick: only if the history does not have the changes of the snapshot.

    Returns:
        The snapshot; None if `skip_empty` skipped an empty commit.

    Raises:
        CommitConflictError: Concurrent commits conflict; nothing was published, the caller deletes its files.
        ValidationFailedError: The files do not fit the table; likewise.
        CommitStateUnknownError: The commit may have landed; no file may be deleted.
        NotFoundError: The table or the branch does not exist.
        AlreadyAppliedError: The history has the key; nothing was published, the caller deletes its files.
        ValidationFailedError: The history has the changes of the cherry-pick; nothing was published.
        DmlError: A metadata file could not be read or written; nothing was published.
    """
    further = {
        **(summary or {}),
        **({WAP_ID: wap_id} if wap_id is not None else {}),
        **({} if idempotency_key is None else idempotency_key.summary()),
    }
    target = TargetBranch(
        branch=branch,
        create_branch=create_branch,
        stage_only=stage_only or wap_id is not None,
        retention=retention,
    )
    return Publication(
        table,
        changes_of(action),
        target,
        further,
        skip_empty=skip_empty,
        load_state=load_state,
        idempotency_key=idempotency_key,
    ).run()


class Publication:
    """One commit, through all its attempts."""

    def __init__(
        self,
        table: Table,
        changes: FileChanges,
        target: TargetBranch,
        summary: Mapping[str, str],
        *,
        skip_empty: bool,
        load_state: LoadState | None,
        idempotency_key: CommitKey | CherryPick | None,
    ) -> None:
        self._skip_empty = skip_empty
        self._idempotency_key = idempotency_key
        self._name = table.name()
        self._action = f"Committing to the table '{'.'.join(self._name)}'"
        self._catalog = table.catalog
        self._uuid = table.metadata.table_uuid
        self._load_state = load_state
        planned = table.metadata
        self._state = self._load()
        table = self._state.table
        location = table.location_provider().new_metadata_location
        snapshot_id = table.metadata.new_snapshot_id()
        self._attempts = 0
        # True after an attempt that the catalog reported as lost, until the table is reloaded: it may have landed
        # (see `_find_landed`).
        self._in_doubt = False
        self._prepared: dict[str, Prepared] = {}
        self._files = CommitFiles()
        self._request = CommitRequest(
            io=table.io,
            planned=planned,
            changes=changes,
            target=target,
            snapshot_id=snapshot_id,
            summary=summary,
            location=location,
            reader=ManifestReader(table.io),
        )

    def _load(self) -> CommitBase:
        if self._load_state is None:
            state = CommitBase(table=load_table(self._catalog, self._name))
        else:
            state = self._load_state()
        if state.table.metadata.table_uuid != self._uuid:
            raise CommitConflictError(
                f"The table '{'.'.join(self._name)}' was dropped and recreated since the statement read it",
                hint="Run the statement again",
            )
        return state

    def run(self) -> CommittedSnapshot | None:
        options = CommitOptions.from_properties(self._state.table.metadata.properties)
        try:
            found = commit_retries(options, CommitFailedException)(self._attempt)
        except CommitStateUnknownError:
            raise
        except CommitFailedException as error:
            found = self._find_landed(error)
            if found is None:
                self._delete_all()
                raise CommitConflictError(
                    f"Committing to the table '{'.'.join(self._name)}' failed {self._attempts} times because other "
                    f"commits landed first: {error_text(error, self._catalog.properties)}",
                    hint="Run the statement again, or raise the table's property commit.retry.num-retries",
                    attempts=self._attempts,
                ) from self._cause(error)
        except Exception as error:
            # Other errors were raised before the request or are the catalog's refusal. Interrupts are not an Exception:
            # during a request the commit may land, so nothing may be deleted.
            found = self._find_landed(error) if self._in_doubt else None
            if found is None:
                self._delete_all()
                raise
        if found is None:
            self._delete_all()
            return None
        metadata, location = found
        snapshot = metadata.snapshot_by_id(self._request.snapshot_id)
        assert snapshot is not None
        self._delete_unused(snapshot)
        return self._committed_snapshot(snapshot, location)

    def _find_landed(self, error: Exception) -> tuple[TableMetadata, str] | None:
        """Return the table's metadata if a supposedly lost attempt has landed, else None.

        A proxy may send a request twice, so that an attempt loses to itself. The next attempt would notice; after the
        last one there is none.

        Raises:
            CommitStateUnknownError: The table cannot be loaded.
        """
        try:  # without `load_state`, whose changes may not fit the table even if the snapshot landed
            table = load_table(self._catalog, self._name)
        except NotFoundError:
            return None
        except DmlError:
            raise self._state_unknown(error) from self._cause(error)
        if table.metadata.table_uuid != self._uuid:
            return None  # recreated: it cannot contain this commit's snapshot
        self._in_doubt = False
        has_it = table.metadata.snapshot_by_id(self._request.snapshot_id) is not None
        return (table.metadata, table.metadata_location) if has_it else None

    def _state_unknown(self, error: Exception) -> CommitStateUnknownError:
        text = translate(error, self._action, self._catalog.properties).message
        return CommitStateUnknownError(
            f"{text}; the commit of snapshot {self._request.snapshot_id} may have landed",
            hint="Look at the table's snapshots before running the statement again. No file was deleted",
            snapshot_id=self._request.snapshot_id,
        )

    def _attempt(self) -> tuple[TableMetadata, str] | None:
        """Try once; return the metadata with the snapshot and its location, or None if there is nothing to commit."""
        self._attempts += 1
        with turn(self._uuid) as waited:
            return self._attempt_now(refresh=waited or self._attempts > 1)

    def _attempt_now(self, *, refresh: bool) -> tuple[TableMetadata, str] | None:
        if refresh:
            self._state = self._load()
            self._in_doubt = False
        table = self._state.table
        if refresh and table.metadata.snapshot_by_id(self._request.snapshot_id) is not None:
            return table.metadata, table.metadata_location
        if self._idempotency_key is not None:
            head = parent_of(table.metadata, self._request.target)
            refuse_second_run(table.metadata, head, self._idempotency_key)
        prepared = prepare(Attempt(request=self._request, metadata=table.metadata, files=self._files))
        self._prepared[prepared.snapshot.manifest_list] = prepared
        if prepared.is_empty and self._skip_empty:
            return None
        requirements = prepared.requirements if self._state.requirements is None else self._state.requirements
        requirements = (*requirements, *self._state.further_requirements)
        try:
            response = commit_table(self._catalog, table, requirements, (*self._state.updates, *prepared.updates))
        except CommitFailedException as error:
            self._in_doubt = True
            # With further updates, the requirements refer to another state of the table than the loaded one.
            unmet = None if self._state.updates else unmet_requirement(requirements, table.metadata, self._action)
            if unmet is not None and self._find_landed(error) is None:
                raise unmet from self._cause(error)
            raise
        except Exception as error:  # noqa: BLE001 - each catalog raises what its drivers raise
            return self._resolve_error(error, prepared.snapshot)
        return response.metadata, response.metadata_location

    def _resolve_error(self, error: Exception, snapshot: Snapshot) -> tuple[TableMetadata, str]:
        """Determine the outcome of a commit whose request raised an error."""
        outcome = outcome_of(error)
        if outcome is CommitOutcome.LOST:
            raise error
        action = self._action
        if outcome is CommitOutcome.REFUSED or is_another_table(
            error, self._catalog, self._name, self._request.snapshot_id
        ):
            if is_lost_race(error, self._catalog, self._name, snapshot):
                raise CommitFailedException(str(error)) from error
            raise translate(error, action, self._catalog.properties) from self._cause(error)
        target = self._request.target
        branch = None if target.stage_only else target.branch
        options = CommitOptions.from_properties(self._state.table.metadata.properties)
        landed = find_commit(self._catalog, self._name, snapshot, branch, options)
        if landed is None:
            raise self._state_unknown(error) from self._cause(error)
        return landed

    def _cause(self, error: Exception) -> Exception | None:
        return shown_cause(error, self._catalog.properties)

    def _committed_snapshot(self, snapshot: Snapshot, location: str) -> CommittedSnapshot:
        assert snapshot.summary is not None
        return CommittedSnapshot(
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number or 0,
            operation=snapshot.summary.operation.value,
            summary=dict(snapshot.summary.additional_properties),
            metadata_location=location,
            attempts=self._attempts,
        )

    def _delete_unused(self, snapshot: Snapshot) -> None:
        """Delete manifests and manifest lists of lost attempts."""
        prepared = self._prepared.get(snapshot.manifest_list)
        if prepared is not None:
            used = prepared.manifests | {snapshot.manifest_list}
            mine = (*self._files.metadata_locations, *prepared.unused_delete_files)
            delete_files(self._state.table.io, [location for location in mine if location not in used])

    def _delete_all(self) -> None:
        mine = (*self._files.metadata_locations, *self._files.delete_file_locations)
        delete_files(self._state.table.io, mine)
