"""The operations of `python -m benchmarks` in their order: as SQL, and by delta-rs (in process, copy-on-write)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from benchmarks.datasets import COLUMNS, ROWS, SOURCE, in_mode, properties_clause

__all__ = ["delta_operations", "prepare", "statements"]

SCAN = "SELECT count(*), sum(k), max(note), sum(amt) FROM {table}"


def prepare(table: str, *, rows: int, mode: str, format_version: int) -> list[str]:
    """Return the statements that create the empty table and the source of the MERGE."""
    properties = {"format-version": str(format_version), **in_mode(mode), "write.distribution-mode": "none"}
    return [
        f"CREATE TABLE {table} ({COLUMNS}) USING iceberg {properties_clause(properties)}",
        f"CREATE OR REPLACE TEMPORARY VIEW bench_source AS {SOURCE.format(count=rows // 50)}",
    ]


def statements(table: str, *, rows: int, files: int) -> dict[str, str]:
    """Return the timed statements by operation."""
    return {
        "load": f"INSERT INTO {table} " + ROWS.format(rows=rows, files=files),
        "scan-without-deletes": SCAN.format(table=table),
        "delete": f"DELETE FROM {table} WHERE k = 7",
        "update": f"UPDATE {table} SET amt = amt * 2 WHERE grp = 'g5'",
        "merge": f"MERGE INTO {table} t USING bench_source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "delete2": f"DELETE FROM {table} WHERE k = 8",
        "scan": SCAN.format(table=table),
    }


def delta_operations(rows: pa.Table, source: pa.Table, folder: Path, *, files: int) -> dict[str, Callable[[], Any]]:
    """Return the operations of delta-rs on a new table of as many files."""
    location = str(folder)
    size = -(-rows.num_rows // files)

    def load() -> None:
        for start in range(0, rows.num_rows, size):
            deltalake.write_deltalake(location, rows.slice(start, size), mode="append")

    def table() -> deltalake.DeltaTable:
        return deltalake.DeltaTable(location)

    def merge() -> Any:
        return (
            table()
            .merge(source, predicate="t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    return {
        "load": load,
        "delete": lambda: table().delete("k = 7"),
        "update": lambda: table().update(updates={"amt": "amt * 2"}, predicate="grp = 'g5'"),
        "merge": merge,
        "delete2": lambda: table().delete("k = 8"),
    }
