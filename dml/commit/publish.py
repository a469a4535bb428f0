"""Committing: attempts until one is taken, and no file left behind. Driver.

Input: a table and an action. Output: a `CommittedSnapshot`.

Rules: each attempt starts from the newest metadata. Commits of one process to one table take turns: threads that race
each other would only use up their retries. After an answer that says nothing, the table is asked whether it has the
snapshot. Metadata files of attempts that are certainly lost are deleted; data files never: they are the caller's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Literal, overload
from weakref import WeakValueDictionary

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from dml.catalog.tables import CommitBase, LoadState, load_table
from dml.catalog.translation import error_text, shown_cause, translate, unmet_requirement
from dml.commit.actions import Action, changes_of
from dml.commit.attempt import Attempt, CommitRequest, TargetBranch, parent_of
from dml.commit.changes import FileChanges
from dml.commit.idempotency import CommitKey, refuse_second_run
from dml.commit.new_manifests import CommitFiles
from dml.commit.outcome import CommitOutcome, find_commit, is_another_table, outcome_of, was_outrun
from dml.commit.snapshot_producer import Prepared, prepare
from dml.commit.window import ManifestReader
from dml.errors import CommitConflictError, CommitStateUnknownError, DmlError, NotFoundError
from dml.files.deletion import delete_files
from dml.iceberg import commit_table
from dml.options import CommitOptions
from dml.retry import commit_retries

__all__ = ["Action", "CommittedSnapshot", "commit"]


GUARD = Lock()


class Turn:
    """A lock that can be held weakly: it goes when nobody waits for it. A catalog may commit again while it commits."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = RLock()


TURNS: WeakValueDictionary[object, Turn] = WeakValueDictionary()


@contextmanager
def turn(table: object) -> Iterator[bool]:
    """Wait until no other thread of this process commits to a table.

    Args:
        table: What identifies the table, its UUID.

    Yields:
        Whether it had to wait.
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


WAP_ID = "wap.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedSnapshot:
    """A snapshot that the table has.

    Attributes:
        snapshot_id: Its id.
        parent_snapshot_id: The snapshot that it followed.
        sequence_number: Its sequence number; 0 in format version 1.
        operation: `append`, `delete`, `overwrite` or `replace`.
        summary: All keys of its summary, without the operation.
        metadata_location: The table's metadata file that has it.
        attempts: How many attempts it took.
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
    summary: Mapping[str, str] | None = ...,
    wap_id: str | None = ...,
    stage_only: bool = ...,
    skip_empty: Literal[False] = ...,
    load_state: LoadState | None = ...,
    idempotency_key: CommitKey | None = ...,
) -> CommittedSnapshot: ...


@overload
def commit(
    table: Table,
    action: Action,
    *,
    branch: str = ...,
    create_branch: bool = ...,
    summary: Mapping[str, str] | None = ...,
    wap_id: str | None = ...,
    stage_only: bool = ...,
    skip_empty: bool,
    load_state: LoadState | None = ...,
    idempotency_key: CommitKey | None = ...,
) -> CommittedSnapshot | None: ...


def commit(
    table: Table,
    action: Action,
    *,
    branch: str = MAIN_BRANCH,
    create_branch: bool = False,
    summary: Mapping[str, str] | None = None,
    wap_id: str | None = None,
    stage_only: bool = False,
    skip_empty: bool = False,
    load_state: LoadState | None = None,
    idempotency_key: CommitKey | None = None,
) -> CommittedSnapshot | None:
    """Commit an action.

    Args:
        table: The table; its handle is not changed.
        action: What to do.
        branch: The branch to commit to.
        create_branch: Whether the branch may be created, from main's head.
        summary: Keys of the engine and of the user for the snapshot's summary.
        wap_id: Write-audit-publish: stage the snapshot under this id instead of moving the branch.
        stage_only: Stage the snapshot without an id.
        skip_empty: Commit nothing where no file would be added or removed.
        load_state: Where this commit also creates or replaces `table`, or changes its schema: finds it as it is for
            each attempt, with these changes.
        idempotency_key: Commit only if the branch's history does not have the key, and record it there.

    Returns:
        The snapshot; None where there was nothing to commit, and that was to be skipped.

    Raises:
        CommitConflictError: other commits stand in the way; nothing was published, the caller deletes its files.
        ValidationFailedError: the table cannot take the files; likewise.
        CommitStateUnknownError: the commit may have landed; no file may be deleted.
        NotFoundError: the table or the branch is not there.
        AlreadyAppliedError: the history has the key; nothing was published, the caller deletes its files.
        DmlError: metadata files could not be read or written; nothing was published.
    """
    further = {
        **(summary or {}),
        **({WAP_ID: wap_id} if wap_id is not None else {}),
        **({} if idempotency_key is None else idempotency_key.summary()),
    }
    target = TargetBranch(branch=branch, create_branch=create_branch, stage_only=stage_only or wap_id is not None)
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
        idempotency_key: CommitKey | None,
    ) -> None:
        self._skip_empty = skip_empty
        self._idempotency_key = idempotency_key
        self._name = table.name()
        self._action = f"Committing to the table '{'.'.join(self._name)}'"
        self._catalog = table.catalog
        self._uuid = table.metadata.table_uuid
        self._load_state = load_state
        planned = table.metadata
        self._state = self._loaded()
        table = self._state.table
        location = table.location_provider().new_metadata_location
        snapshot_id = table.metadata.new_snapshot_id()
        self._attempts = 0
        # An attempt was answered as lost, and the table was not looked at since: it may have won (see `_landed`).
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

    def _loaded(self) -> CommitBase:
        if self._load_state is None:
            state = CommitBase(table=load_table(self._catalog, self._name))
        else:
            state = self._load_state()
        if state.table.metadata.table_uuid != self._uuid:
            raise CommitConflictError(
                f"The table '{'.'.join(self._name)}' was dropped and created anew since the statement read it",
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
            found = self._landed(error)
            if found is None:
                self._delete_all()
                raise CommitConflictError(
                    f"Committing to the table '{'.'.join(self._name)}' lost the race {self._attempts} times: "
                    f"{error_text(error, self._catalog.properties)}",
                    hint="Run the statement again, or raise the table's property commit.retry.num-retries",
                    attempts=self._attempts,
                ) from self._cause(error)
        except Exception as error:
            # All that is left was raised before the catalog was asked, or is its refusal. An interrupt is no Exception:
            # it may come while the catalog is at work, and then nothing may be deleted.
            found = self._landed(error) if self._in_doubt else None
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
        return self._committed(snapshot, location)

    def _landed(self, error: Exception) -> tuple[TableMetadata, str] | None:
        """The table, if it has the snapshot although an attempt lost: to itself, when its request was sent twice.

        A proxy before the catalog may do that; the next attempt finds out, and after the last one there is none.

        Raises:
            CommitStateUnknownError: the table cannot be looked at.
        """
        try:  # as it is: what the commit changes besides may not fit the table any more, and the snapshot be there
            table = load_table(self._catalog, self._name)
        except NotFoundError:
            return None
        except DmlError:
            raise self._unknown(error) from self._cause(error)
        if table.metadata.table_uuid != self._uuid:
            return None  # created anew: no snapshot of ours is in it
        self._in_doubt = False
        has_it = table.metadata.snapshot_by_id(self._request.snapshot_id) is not None
        return (table.metadata, table.metadata_location) if has_it else None

    def _unknown(self, error: Exception) -> CommitStateUnknownError:
        text = translate(error, self._action, self._catalog.properties).message
        return CommitStateUnknownError(
            f"{text}; whether the snapshot {self._request.snapshot_id} was committed is not known",
            hint="Look at the table's snapshots before running the statement again. No file was deleted",
            snapshot_id=self._request.snapshot_id,
        )

    def _attempt(self) -> tuple[TableMetadata, str] | None:
        """Try once: the table's metadata that has the snapshot, and its location; None where nothing is to be done."""
        self._attempts += 1
        with turn(self._uuid) as waited:
            return self._attempt_now(refresh=waited or self._attempts > 1)

    def _attempt_now(self, *, refresh: bool) -> tuple[TableMetadata, str] | None:
        if refresh:
            self._state = self._loaded()
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
            # A table that the commit changes otherwise too is not the one that its requirements are about.
            unmet = None if self._state.updates else unmet_requirement(requirements, table.metadata, self._action)
            if unmet is not None and self._landed(error) is None:
                raise unmet from self._cause(error)
            raise
        except Exception as error:  # noqa: BLE001 - each catalog raises what its drivers raise
            return self._answered(error, prepared.snapshot)
        return response.metadata, response.metadata_location

    def _answered(self, error: Exception, snapshot: Snapshot) -> tuple[TableMetadata, str]:
        """What became of a commit that the catalog answered with an error."""
        outcome = outcome_of(error)
        if outcome is CommitOutcome.LOST:
            raise error
        action = self._action
        if outcome is CommitOutcome.REFUSED or is_another_table(
            error, self._catalog, self._name, self._request.snapshot_id
        ):
            if was_outrun(error, self._catalog, self._name, snapshot):
                raise CommitFailedException(str(error)) from error
            raise translate(error, action, self._catalog.properties) from self._cause(error)
        target = self._request.target
        branch = None if target.stage_only else target.branch
        options = CommitOptions.from_properties(self._state.table.metadata.properties)
        landed = find_commit(self._catalog, self._name, snapshot, branch, options)
        if landed is None:
            raise self._unknown(error) from self._cause(error)
        return landed

    def _cause(self, error: Exception) -> Exception | None:
        return shown_cause(error, self._catalog.properties)

    def _committed(self, snapshot: Snapshot, location: str) -> CommittedSnapshot:
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
        """Delete manifests and manifest lists of attempts that were lost."""
        prepared = self._prepared.get(snapshot.manifest_list)
        if prepared is not None:
            used = prepared.manifests | {snapshot.manifest_list}
            mine = (*self._files.metadata_locations, *prepared.unused_delete_files)
            delete_files(self._state.table.io, [location for location in mine if location not in used])

    def _delete_all(self) -> None:
        mine = (*self._files.metadata_locations, *self._files.delete_file_locations)
        delete_files(self._state.table.io, mine)
