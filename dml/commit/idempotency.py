"""Idempotency keys: a statement that is in a branch's history already is not applied a second time. Driver.

Input: a key, and what the statement says. Output: keys of the snapshot's summary; on a second run the first one's
snapshot, as an error that nobody but the engine sees.

A key is looked for among the ancestors of the head of the branch that is written to, so it lives as long as its
snapshot: until it expires, or the branch is rolled back behind it.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from dml.commit.window import ancestors
from dml.errors import AnalysisError, DmlError, ErrorKind
from dml.model.summary_keys import IDEMPOTENCY_KEY, STATEMENT

__all__ = ["AlreadyAppliedError", "IdempotencyKey", "refuse_second_run"]

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


class AlreadyAppliedError(DmlError):
    """The statement is in the branch's history already: its first run's snapshot is the result.

    Args:
        key: The key.
        snapshot: The first run's snapshot.
    """

    def __init__(self, key: IdempotencyKey, snapshot: Snapshot) -> None:
        super().__init__(
            f"The statement with the idempotency key '{key.value}' was applied as snapshot {snapshot.snapshot_id}"
        )
        self.snapshot = snapshot


def refuse_second_run(metadata: TableMetadata, head: Snapshot | None, key: IdempotencyKey) -> None:
    """Look for a key in the history of a branch.

    Args:
        metadata: The table as it is now.
        head: The branch's head; None where it has no snapshot.
        key: The key.

    Raises:
        AlreadyAppliedError: the statement was applied.
        AnalysisError: another statement was applied with the key.
    """
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


def summary_value(snapshot: Snapshot, name: str) -> str | None:
    """A key of a snapshot's summary."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(name)
