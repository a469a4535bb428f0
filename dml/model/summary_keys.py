"""Keys in a snapshot's summary: RowDelta's, and Iceberg's of write-audit-publish. Worker-safe."""

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
    "PUBLISHED_WAP_ID",
    "QUERY_ID",
    "REPLACE_PARTITIONS",
    "ROWS_CARRIED",
    "ROWS_DELETED",
    "ROWS_FOLLOWED",
    "ROWS_INSERTED",
    "ROWS_MATCHED",
    "ROWS_UPDATED",
    "ROWS_VANISHED",
    "ROW_ID",
    "ROW_MAP",
    "ROW_MAPS",
    "SOURCE_SNAPSHOT_ID",
    "STATEMENT",
    "UNKNOWN",
    "VERSION",
    "WAP_ID",
]

VERSION: Final = "rowdelta-version"
"""Present in every snapshot that RowDelta commits."""

ROWS_DELETED: Final = "rowdelta.rows-deleted"
ROWS_UPDATED: Final = "rowdelta.rows-updated"
ROWS_INSERTED: Final = "rowdelta.rows-inserted"
ROWS_CARRIED: Final = "rowdelta.rows-carried"

DATA_FILES_SPLICED: Final = "rowdelta.data-files-spliced"
"""Added data files that copy the columns which the statement does not assign."""

DATA_FILES_REWRITTEN: Final = "rowdelta.data-files-rewritten"
"""In adaptive mode: removed data files whose other rows were carried over to new files."""

DATA_FILES_MARKED: Final = "rowdelta.data-files-marked"
"""In adaptive mode: data files that stay and have rows marked as deleted."""

ROWS_VANISHED: Final = "rowdelta.rows-vanished"
"""Deleted rows that another commit removed with their files before this one was committed."""

DELETES_REAPPLIED: Final = "rowdelta.deletes-reapplied"
"""Late deletes: rows that concurrent commits deleted in files that this commit rewrote; the new files lack them too."""

ROWS_FOLLOWED: Final = "rowdelta.rows-followed"
"""How rows of files were found that a rewrite replaced meanwhile: `row-map`, `row-id`, or both with a comma."""
ROW_MAP: Final = "row-map"
ROW_ID: Final = "row-id"

ROW_MAPS: Final = "rowdelta.row-maps"
"""`footer` in a compaction whose new data files tell in their footers where their rows came from."""

UNKNOWN: Final = "unknown"
"""Value of `ROWS_VANISHED` if the rows were not counted."""

IDEMPOTENCY_KEY: Final = "rowdelta.idempotency-key"
STATEMENT: Final = "rowdelta.statement-sha256"
"""Digest of the text of the statement with an idempotency key."""

QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"
"""The streaming query and its micro-batch, under Iceberg's own keys: its sink and RowDelta's can resume each other's
queries."""

COMMAND: Final = "rowdelta.command"
MODE: Final = "rowdelta.mode"
ROWS_MATCHED: Final = "rowdelta.rows-matched"
"""With these keys a repeated statement with an idempotency key, or a repeated micro-batch, reports the first result."""

WAP_ID: Final = "wap.id"
"""The id under which a snapshot was staged."""

PUBLISHED_WAP_ID: Final = "published-wap-id"
SOURCE_SNAPSHOT_ID: Final = "source-snapshot-id"
"""The WAP id and the snapshot whose changes a cherry-pick applied again."""

REPLACE_PARTITIONS: Final = "replace-partitions"
"""`true` for a dynamic overwrite."""
