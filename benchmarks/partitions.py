"""Rows into many partitions, timed: one JSON line for each way that they go.

    python -m benchmarks.partitions [--rows 6000000] [--partitions 100] [--rounds 3]

`hash` brings the rows of a partition to one task; with `fanout` each task keeps a file of every partition open.
`seconds` is the median of the rounds after one that warms up, `cpu` that of the CPU of
driver, JVM and workers; `files` are those that an INSERT added.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import dml
from benchmarks.datasets import COLUMNS, ROWS
from benchmarks.statements import tree_cpu

WAYS = {
    "hash": {"write.distribution-mode": "hash"},
    "fanout": {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rowdelta-benchmark-"))
    settings = {
        "spark.master": f"local[{options.cores}]",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
    }
    lake = dml.connect(str(folder / "warehouse"), settings=settings, progress=False)
    rows = ROWS.format(rows=options.rows, files=options.tasks)
    try:
        lake.sql("CREATE NAMESPACE bench")
        for way, properties in WAYS.items():
            seconds, cpu, files = [], [], 0
            for number in range(options.rounds + 1):
                listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
                table = f"bench.{way}{number}"
                lake.sql(f"CREATE TABLE {table} ({COLUMNS}, p INT) PARTITIONED BY (p) TBLPROPERTIES ({listed})")
                start, used = time.perf_counter(), tree_cpu()
                result = lake.sql(
                    f"INSERT INTO {table} SELECT *, CAST(pmod(hash(id), {options.partitions}) AS INT) FROM ({rows})"
                )
                seconds.append(time.perf_counter() - start)
                cpu.append(tree_cpu() - used)
                assert isinstance(result, dml.Result)
                files = result.data_files_added
                assert result.rows_inserted == options.rows, result
                lake.sql(f"DROP TABLE {table} PURGE")
            medians = {"seconds": statistics.median(seconds[1:]), "cpu": statistics.median(cpu[1:])}
            line = {"way": way, **{name: round(value, 2) for name, value in medians.items()}, "files": files}
            print(json.dumps({**line, "rows": options.rows, "partitions": options.partitions}), flush=True)
    finally:
        lake.spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
