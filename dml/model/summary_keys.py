"""Keys of RowDelta in a snapshot's summary, spelled once. Worker-safe."""

from typing import Final

__all__ = [
    "COMMAND",
    "DATA_FILES_MARKED",
    "DATA_FILES_REWRITTEN",
    "DATA_FILES_SPLICED",
    "DELETES_REAPPLIED",
    "EPOCH_ID",
    "IDEMPOTENCY_KEY",
    "MODE",
    "QUERY_ID",
    "ROWS_CARRIED",
    "ROWS_DELETED",
    "ROWS_INSERTED",
    "ROWS_MATCHED",
    "ROWS_UPDATED",
    "ROWS_VANISHED",
    "STATEMENT",
    "UNKNOWN",
    "VERSION",
]

VERSION: Final = "rowdelta-version"
"""In every snapshot that RowDelta makes."""

ROWS_DELETED: Final = "rowdelta.rows-deleted"
ROWS_UPDATED: Final = "rowdelta.rows-updated"
ROWS_INSERTED: Final = "rowdelta.rows-inserted"
ROWS_CARRIED: Final = "rowdelta.rows-carried"

DATA_FILES_SPLICED: Final = "rowdelta.data-files-spliced"
"""Of the data files added, those that copy the columns which the statement does not assign."""

DATA_FILES_REWRITTEN: Final = "rowdelta.data-files-rewritten"
"""Of a statement that chose by file: of the data files removed, those whose other rows stand in new ones."""

DATA_FILES_MARKED: Final = "rowdelta.data-files-marked"
"""Of a statement that chose by file: the data files that stay, and of which rows were marked as deleted."""

ROWS_VANISHED: Final = "rowdelta.rows-vanished"
"""Of the rows deleted, those that another commit removed with their files before this one was committed."""

DELETES_REAPPLIED: Final = "rowdelta.deletes-reapplied"
"""Rows that others had deleted in a data file which this commit rewrote: they are deleted in the new one as well."""

UNKNOWN: Final = "unknown"
"""Value of `ROWS_VANISHED` where nobody counted."""

IDEMPOTENCY_KEY: Final = "rowdelta.idempotency-key"
STATEMENT: Final = "rowdelta.statement-sha256"
"""Digest of what the statement of an idempotency key says."""

QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"
"""The streaming query and its micro-batch, under the reference's keys: either goes on where the other has stopped."""

COMMAND: Final = "rowdelta.command"
MODE: Final = "rowdelta.mode"
ROWS_MATCHED: Final = "rowdelta.rows-matched"
"""With these a second run of a statement with a key, or of a micro-batch, reports what the first one did."""
