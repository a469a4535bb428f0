"""The table of all measurements: 6 columns, scattered values, files of equal size.

id bigint, k int (id % 1000), grp string (id % 97), amt double, note string (about 40 characters), ts timestamp
"""

from collections.abc import Mapping

__all__ = ["COLUMNS", "ROWS", "SOURCE", "in_mode", "properties_clause"]

COLUMNS = "id bigint, k int, grp string, amt double, note string, ts timestamp"

ROWS = (
    "SELECT id, CAST(id % 1000 AS INT) AS k, concat('g', id % 97) AS grp, CAST(id % 9973 AS DOUBLE) / 8 AS amt, "
    "concat('note-', id, '-', substring(md5(CAST(id AS STRING)), 1, 24)) AS note, "
    "timestamp_seconds(1600000000 + id) AS ts FROM range(0, {rows}, 1, {files})"
)

SOURCE = (
    "SELECT id * 60 AS id, 1 AS k, 'x' AS grp, 0.5D AS amt, 'merged' AS note, timestamp_seconds(0) AS ts "
    "FROM range(0, {count})"
)
"""2 % of the rows, 5/6 of which match."""


def in_mode(mode: str) -> dict[str, str]:
    """Return the table properties that select a mode for DELETE, UPDATE and MERGE."""
    return {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}


def properties_clause(properties: Mapping[str, str]) -> str:
    """Return the TBLPROPERTIES of a CREATE TABLE, or "" without properties."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    return f"TBLPROPERTIES ({listed})" if listed else ""
