"""What keeps a statement, or a micro-batch of a stream, from being applied a second time. Driver.

Input: an idempotency key and what the statement says, or a streaming query and the number of its micro-batch. Output:
keys of the snapshot's summary; on a second run the first one's snapshot, as an error that nobody but the engine sees.

Both are looked for among the ancestors of the head of the branch that is written to, so they live as long as their
snapshot: until it expires, or the branch is rolled back behind it.

Of a query the newest snapshot counts, as in the reference: its micro-batches come one after the other, so what it has
written up to its last one is there. The first one leaves a snapshot even if it is empty. A query whose number is not 0
and of which a whole history knows nothing has therefore not written this table.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.commit.window import ancestors
from dml.errors import AnalysisError, CommitConflictError, CorruptFileError, DmlError, ErrorKind
from dml.model.summary_keys import EPOCH_ID, IDEMPOTENCY_KEY, QUERY_ID, STATEMENT

__all__ = ["AlreadyAppliedError", "CommitKey", "IdempotencyKey", "StreamEpoch", "has_epochs", "refuse_second_run"]

# ASCII, because two texts that look alike must not be two keys; no blanks, because they get lost.
ALLOWED: Final = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A key, and the statement that it is for.

    Attributes:
        value: The key.
        statement_sha256: Digest of what the statement says.
    """

    value: str
    statement_sha256: str

    @staticmethod
    def of(value: object, statement: str) -> "IdempotencyKey":
        """The key of a statement.

        Args:
            value: What the user gave.
            statement: What counts as the same statement: its text, as `canonical_text` gives it.

        Raises:
            AnalysisError: it is no key.
        """
        if not isinstance(value, str) or ALLOWED.fullmatch(value) is None:
            shown = type(value).__name__ if not isinstance(value, str) else f"{len(value)} characters: {value[:60]!a}"
            raise AnalysisError(
                f"An idempotency key is a text of 1 to 255 visible ASCII characters, and this is {shown}",
                kind=ErrorKind.INVALID_VALUE,
                hint="Use letters, digits and punctuation, such as 'orders-2026-11-21' or a UUID",
            )
        return IdempotencyKey(value=value, statement_sha256=sha256(statement.encode()).hexdigest())

    def summary(self) -> dict[str, str]:
        """Keys of the snapshot's summary."""
        return {IDEMPOTENCY_KEY: self.value, STATEMENT: self.statement_sha256}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEpoch:
    """A micro-batch of a streaming query.

    Attributes:
        query_id: The query: the id in its checkpoint, which stays when it is started again.
        epoch_id: The number of the micro-batch, from 0 on.
        table_uuid: The table that the query writes to since it was started; None where that is not known.
        adopts_checkpoint: Whether the query may go on although the table knows nothing of its earlier micro-batches.
    """

    query_id: str
    epoch_id: int
    table_uuid: UUID | None = None
    adopts_checkpoint: bool = False

    def summary(self) -> dict[str, str]:
        """Keys of the snapshot's summary."""
        return {QUERY_ID: self.query_id, EPOCH_ID: str(self.epoch_id)}

    def __str__(self) -> str:
        return f"micro-batch {self.epoch_id} of the streaming query {self.query_id}"


CommitKey = IdempotencyKey | StreamEpoch
"""What is applied once."""


class AlreadyAppliedError(DmlError):
    """The statement is in the branch's history already: its first run's snapshot is the result.

    Args:
        key: The key.
        snapshot: The first run's snapshot; of a query the newest one.
    """

    def __init__(self, key: CommitKey, snapshot: Snapshot) -> None:
        what = str(key) if isinstance(key, StreamEpoch) else f"statement with the idempotency key '{key.value}'"
        super().__init__(f"The {what} was applied before, and snapshot {snapshot.snapshot_id} has it")
        self.snapshot = snapshot


def refuse_second_run(metadata: TableMetadata, head: Snapshot | None, key: CommitKey) -> None:
    """Look for a key in the history of a branch.

    Args:
        metadata: The table as it is now.
        head: The branch's head; None where it has no snapshot.
        key: The key.

    Raises:
        AlreadyAppliedError: the statement, or the micro-batch, was applied.
        AnalysisError: another statement was applied with the key; the query has not written this table before.
        CommitConflictError: the table is not the one that the query was started on.
    """
    match key:
        case IdempotencyKey():
            refuse_second_statement(metadata, head, key)
        case StreamEpoch():
            refuse_second_epoch(metadata, head, key)


def refuse_second_statement(metadata: TableMetadata, head: Snapshot | None, key: IdempotencyKey) -> None:
    """As `refuse_second_run`, for a statement."""
    history = ancestors(metadata, None if head is None else head.snapshot_id)
    found = next((snapshot for snapshot in history if summary_value(snapshot, IDEMPOTENCY_KEY) == key.value), None)
    if found is None:
        return
    if summary_value(found, STATEMENT) != key.statement_sha256:
        raise AnalysisError(
            f"The idempotency key '{key.value}' belongs to another statement, which made snapshot {found.snapshot_id}",
            kind=ErrorKind.IDEMPOTENCY_KEY,
            hint="A key stands for one statement: use a new key for a new one. Nothing was changed",
            idempotency_key=key.value,
            snapshot_id=found.snapshot_id,
        )
    raise AlreadyAppliedError(key, found)


def refuse_second_epoch(metadata: TableMetadata, head: Snapshot | None, epoch: StreamEpoch) -> None:
    """As `refuse_second_run`, for a micro-batch."""
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
        hint="Start the stream with a new checkpoint; if it is to go on from here although rows of earlier "
        "micro-batches are not in the table, say adopt-checkpoint. Nothing was changed",
        query_id=epoch.query_id,
        epoch_id=epoch.epoch_id,
    )


def has_epochs(metadata: TableMetadata, head: Snapshot | None, epoch: StreamEpoch) -> bool:
    """Whether the history of a branch has any micro-batch of a query."""
    return newest_epoch(metadata, head, epoch.query_id) is not None


def newest_epoch(metadata: TableMetadata, head: Snapshot | None, query_id: str) -> Snapshot | None:
    """The newest snapshot of a query in the history of a branch."""
    history = ancestors(metadata, None if head is None else head.snapshot_id)
    return next((snapshot for snapshot in history if summary_value(snapshot, QUERY_ID) == query_id), None)


def epoch_of(snapshot: Snapshot) -> int:
    """The number of the micro-batch that made a snapshot.

    Raises:
        CorruptFileError: the summary has no number.
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
    """Whether the history of a branch is there from its first snapshot on: none of it has expired."""
    if head is None:
        return True
    *_, first = ancestors(metadata, head.snapshot_id)
    return first.parent_snapshot_id is None


def summary_value(snapshot: Snapshot, name: str) -> str | None:
    """A key of a snapshot's summary."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(name)
