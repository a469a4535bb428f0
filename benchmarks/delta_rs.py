"""The same operations by delta-rs (PyPI `deltalake`): Rust, in process, copy-on-write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

__all__ = ["operations"]


def operations(rows_table: pa.Table, source: pa.Table, folder: Path, *, files: int) -> dict[str, Callable[[], Any]]:
    """The operations in their order, on a table of as many files."""
    location = str(folder)
    size = -(-rows_table.num_rows // files)

    def load() -> None:
        for start in range(0, rows_table.num_rows, size):
            deltalake.write_deltalake(location, rows_table.slice(start, size), mode="append")

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
