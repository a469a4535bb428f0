"""RowDelta's operations on the table of `datasets`."""

from collections.abc import Callable
from typing import Any

from benchmarks.datasets import COLUMNS, ROWS, SOURCE

__all__ = ["operations"]


def operations(
    lake: Any, table: str, *, rows: int, files: int, mode: str, format_version: int
) -> dict[str, Callable[[], Any]]:
    """The operations in their order; the table is made here, each operation runs once."""
    modes = ", ".join(f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge"))
    lake.sql("CREATE NAMESPACE IF NOT EXISTS bench")
    lake.sql(
        f"CREATE TABLE {table} ({COLUMNS}) TBLPROPERTIES ('format-version' = '{format_version}', {modes}, "
        "'write.distribution-mode' = 'none')"
    )
    lake.spark.sql(SOURCE.format(count=rows // 50)).createOrReplaceTempView("bench_source")

    def scan() -> list[Any]:
        row = lake.sql(f"SELECT count(*), sum(k), max(note), sum(amt) FROM {table}").collect()[0]
        return list(row)[:3]

    return {
        "load": lambda: lake.sql(f"INSERT INTO {table} " + ROWS.format(rows=rows, files=files)),
        "scan-without-deletes": scan,
        "delete": lambda: lake.sql(f"DELETE FROM {table} WHERE k = 7"),
        "update": lambda: lake.sql(f"UPDATE {table} SET amt = amt * 2 WHERE grp = 'g5'"),
        "merge": lambda: lake.sql(
            f"MERGE INTO {table} t USING bench_source s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
        "delete2": lambda: lake.sql(f"DELETE FROM {table} WHERE k = 8"),
        "scan": scan,
    }
