"""Run as a program: MERGEs on a cluster of two executors, whose sources are just below and above each limit in bytes.

It prints a line for each MERGE: how the source reached the tasks, and the rows of the table afterwards.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import dml
from dml import limits
from dml.engine import row_level
from dml.plan.row_delta_plan import ThroughSpark
from dml.spark.launch import spark_session
from tests.class_archive import JVM_OPTIONS
from tests.conftest import LOGGING

SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "1024m",
    "spark.driver.memory": "800m",
    "spark.driver.extraJavaOptions": f"{LOGGING} {JVM_OPTIONS}",
    "spark.executor.extraJavaOptions": f"{LOGGING} {JVM_OPTIONS}",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "2",
}
SIZES = {"few": (10, None), "megabytes": (200_000, None), "too many": (200_000, "1000000")}
"""Rows of the source, and the table's limit."""


def main() -> None:
    """Run the MERGEs; the argument is a folder."""
    folder = Path(sys.argv[1])
    spark = spark_session(settings={**SETTINGS, "spark.local.dir": str(folder / "local")})
    lake = dml.connect(str(folder / "warehouse"), spark=spark, progress=False)
    lake.sql("CREATE NAMESPACE db")
    for mode in ("copy-on-write", "merge-on-read"):
        for what, (rows, limit) in SIZES.items():
            tell({"mode": mode, "what": what, **merged(lake, folder, mode, rows, limit)})
    spark.stop()


def merged(lake: Any, folder: Path, mode: str, rows: int, limit: str | None) -> dict[str, Any]:
    """Merge rows, half of them new, into a table of 100,000; return how they were sent, and the outcome."""
    properties = f"'format-version' = '3', 'write.merge.mode' = '{mode}'"
    if limit is not None:
        properties += f", 'write.merge.max-sent-source-bytes' = '{limit}'"
    lake.sql(f"CREATE TABLE db.t TBLPROPERTIES ({properties}) AS SELECT id, 'old' AS v FROM range(0, 100000, 1, 2)")
    stored = str(folder / f"source-{mode}-{rows}-{limit}")
    lake.spark.sql(f"SELECT id + {100_000 - rows // 2} AS id, 'new' AS v FROM range(0, {rows}, 1, 5)").write.parquet(
        stored
    )
    sent: list[Sequence[str]] = []
    original = row_level.send_source

    def noted(*args: Any) -> Any:
        found = original(*args)
        sent.append("" if isinstance(found, ThroughSpark) else type(found.rows).__name__)
        return found

    with mock.patch.object(row_level, "send_source", noted):
        result = lake.sql(
            f"MERGE INTO db.t USING parquet.`{stored}` s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        )
    counts = lake.sql("SELECT v, count(*), count(DISTINCT id), max(id) FROM db.t GROUP BY v ORDER BY v").collect()
    lake.sql("DROP TABLE db.t PURGE")
    temporary = Path(lake.spark.sparkContext._temp_dir)
    return {
        "sent": sent,
        "changed": [result.rows_updated, result.rows_inserted],
        "rows": [list(row) for row in counts],
        "left": [path.name for path in temporary.glob("*") if path.stat().st_size > limits.MAX_INLINE_SOURCE_BYTES],
    }


def tell(line: dict[str, object]) -> None:
    """Print a line for the test that started this program."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
