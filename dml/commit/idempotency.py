"""Applies a statement, or a micro-batch of a stream, only once. Driver.

Input: an idempotency key and the text of the statement, or a streaming query and the number of its micro-batch. Output:
keys for the snapshot's summary; on a second run the first run's snapshot, in an error that only the engine handles.

Keys are searched among the ancestors of the target branch's head. They last as long as their snapshot: until it
expires or the branch is rolled back past it.

For a query the newest snapshot counts, as in the reference: its micro-batches are committed in order, so all earlier
ones have landed. The first micro-batch leaves a snapshot even if it is empty. A query at a number other than 0 that has
no snapshot in a complete history has therefore not written this table.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.commit.cherry_pick import CherryPick, refuse_second_pick
from dml.commit.window import ancestors
from dml.errors import AnalysisError, CommitConflictError, CorruptFileError, DmlError, ErrorKind
from dml.model.summary_keys import EPOCH_ID, IDEMPOTENCY_KEY, QUERY_ID, STATEMENT

__all__ = ["AlreadyAppliedError", "CommitKey", "IdempotencyKey", "StreamEpoch", "has_epochs", "refuse_second_run"]

# ASCII, because two texts that look alike must not be two keys; no blanks, because they get lost.
ALLOWED: Final = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A key and its statement.

    Attributes:
        value: The key.
        statement_sha256: The digest of the statement's canonical text.
    """

    value: str
    statement_sha256: str

    @staticmethod
    def of(value: object, statement: str) -> "IdempotencyKey":
        """Validate a key and bind it to a statement.

        Args:
            value: The user's value.
            statement: The statement's text, normalized by `canonical_text`.

        Raises:
            AnalysisError: The value is not a valid key.
        """
        if not isinstance(value, str) or ALLOWED.fullmatch(value) is None:
            shown = type(value).__name__ if not isinstance(value, str) else f"{len(value)} characters: {value[:60]!a}"
            raise AnalysisError(
                f"An idempotency key is a string of 1 to 255 visible ASCII characters, got {shown}",
                kind=ErrorKind.INVALID_VALUE,
                hint="Use letters, digits and punctuation, such as 'orders-2026-11-21' or a UUID",
            )
        return IdempotencyKey(value=value, statement_sha256=sha256(statement.encode()).hexdigest())

    def summary(self) -> dict[str, str]:
        """Return the key as keys of the snapshot's summary."""
        return {IDEMPOTENCY_KEY: self.value, STATEMENT: self.statement_sha256}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEpoch:
    """A micro-batch of a streaming query.

    Attributes:
        query_id: The query's id in its checkpoint, which survives restarts.
        epoch_id: The number of the micro-batch, from 0.
        table_uuid: The table that the query was started on; None if unknown.
        adopts_checkpoint: The query may continue although the table has none of its earlier micro-batches.
    """

    query_id: str
    epoch_id: int
    table_uuid: UUID | None = None
    adopts_checkpoint: bool = False

    def summary(self) -> dict[str, str]:
        """Return the micro-batch as keys of the snapshot's summary."""
        return {QUERY_ID: self.query_id, EPOCH_ID: str(self.epoch_id)}

    def __str__(self) -> str:
        return f"micro-batch {self.epoch_id} of the streaming query {self.query_id}"


CommitKey = IdempotencyKey | StreamEpoch
"""The identity of a change that is applied once."""


class AlreadyAppliedError(DmlError):
    """The branch's history already contains the statement; its first run's snapshot is the result.

    Args:
        key: The key.
        snapshot: The first run's snapshot; for a query its newest one.
    """

    def __init__(self, key: CommitKey, snapshot: Snapshot) -> None:
        what = str(key) if isinstance(key, StreamEpoch) else f"statement with the idempotency key '{key.value}'"
        super().__init__(f"The {what} was applied before, and snapshot {snapshot.snapshot_id} has it")
        self.snapshot = snapshot


def refuse_second_run(metadata: TableMetadata, head: Snapshot | None, key: CommitKey | CherryPick) -> None:
    """Raise if a key is in the history of a branch.

    Args:
        metadata: The table's newest metadata.
        head: The branch's head; None without a snapshot.
        key: The key.

    Raises:
        AlreadyAppliedError: The statement or micro-batch was applied.
        AnalysisError: Another statement used the key, or the query has not written this table before.
        CommitConflictError: The table is not the one that the query was started on.
        ValidationFailedError: The history has the changes of the cherry-pick.
    """
    match key:
        case IdempotencyKey():
            refuse_second_statement(metadata, head, key)
        case StreamEpoch():
            refuse_second_epoch(metadata, head, key)
        case CherryPick():
            refuse_second_pick(metadata, head, key)


def refuse_second_statement(metadata: TableMetadata, head: Snapshot | None, key: IdempotencyKey) -> None:
    history = ancestors(metadata, None if head is None else head.snapshot_id)
    found = next((snapshot for snapshot in history if summary_value(snapshot, IDEMPOTENCY_KEY) == key.value), None)
    if found is None:
        return
    if summary_value(found, STATEMENT) != key.statement_sha256:
        raise AnalysisError(
            f"The idempotency key '{key.value}' belongs to another statement, which made snapshot {found.snapshot_id}",
            kind=ErrorKind.IDEMPOTENCY_KEY,
            hint="A key belongs to one statement: use a new key for a new one. Nothing was changed",
            idempotency_key=key.value,
            snapshot_id=found.snapshot_id,
        )
    raise AlreadyAppliedError(key, found)


def refuse_second_epoch(metadata: TableMetadata, head: Snapshot | None, epoch: StreamEpoch) -> None:
    if epoch.table_uuid is not None and metadata.table_uuid != epoch.table_uuid:
        raise CommitConflictError(
            f"The table at {metadata.location} is not the one that the stream was started on: "
            "that one was dropped, and another one created in its place",
            hint="Start the stream again, with a new checkpoint. Nothing was changed",
        )
    found = newest_epoch(metadata, head, epoch.query_id)
    if found is not None:
        if epoch.epoch_id <= epoch_of(found):
            raise AlreadyAppliedError(epoch, found)
        return
    if epoch.epoch_id == 0 or epoch.adopts_checkpoint or not is_whole(metadata, head):
        return
    raise AnalysisError(
        f"The checkpoint is at {epoch}, and no micro-batch of it before is in the history of the table at "
        f"{metadata.location}: the checkpoint belongs to a stream into another table or branch, "
        "or this one was replaced or rolled back",
        kind=ErrorKind.CHECKPOINT,
        hint="Start the stream with a new checkpoint; to continue from here although the table lacks the "
        "rows of earlier micro-batches, set the option adopt-checkpoint. Nothing was changed",
        query_id=epoch.query_id,
        epoch_id=epoch.epoch_id,
    )


def has_epochs(metadata: TableMetadata, head: Snapshot | None, epoch: StreamEpoch) -> bool:
    """Return True if the history of a branch has any micro-batch of the query."""
    return newest_epoch(metadata, head, epoch.query_id) is not None


def newest_epoch(metadata: TableMetadata, head: Snapshot | None, query_id: str) -> Snapshot | None:
    """Return the newest snapshot of a query in the history of a branch."""
    history = ancestors(metadata, None if head is None else head.snapshot_id)
    return next((snapshot for snapshot in history if summary_value(snapshot, QUERY_ID) == query_id), None)


def epoch_of(snapshot: Snapshot) -> int:
    """Return the number of the micro-batch that committed a snapshot.

    Raises:
        CorruptFileError: The summary has no valid number.
    """
    text = summary_value(snapshot, EPOCH_ID) or ""
    try:
        return int(text)
    except ValueError:
        raise CorruptFileError(
            f"The summary of snapshot {snapshot.snapshot_id} names a streaming query, but '{EPOCH_ID}' is '{text}'",
            hint="Start the stream with a new checkpoint",
            snapshot_id=snapshot.snapshot_id,
        ) from None


def is_whole(metadata: TableMetadata, head: Snapshot | None) -> bool:
    """Return True if the history of a branch is complete: none of it has expired."""
    if head is None:
        return True
    *_, first = ancestors(metadata, head.snapshot_id)
    return first.parent_snapshot_id is None


def summary_value(snapshot: Snapshot, name: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(name)
