"""Rows into many partitions, timed: one JSON line for each way that they go.

    python -m benchmarks.partitions [--rows 6000000] [--partitions 100] [--rounds 3]

`hash` brings the rows of a partition to one task; with `fanout` each task keeps a file of every partition open.
`seconds` is the median of the rounds after one that warms up, `cpu` that of the CPU of
driver, JVM and workers; `files` are those that an INSERT added.
"""

import statistics
import time
from collections.abc import Sequence

from benchmarks.datasets import COLUMNS, ROWS
from benchmarks.runs import make_parser, run_benchmark
from benchmarks.statements import tree_cpu
from dml import Result

WAYS = {
    "hash": {"write.distribution-mode": "hash"},
    "fanout": {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    rows = ROWS.format(rows=options.rows, files=options.tasks)
    with run_benchmark(options, {"spark.sql.shuffle.partitions": "4"}) as bench:
        for way, properties in WAYS.items():
            seconds, cpu, files = [], [], 0
            for number in range(options.rounds + 1):
                listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
                table = f"bench.{way}{number}"
                bench.lake.sql(f"CREATE TABLE {table} ({COLUMNS}, p INT) PARTITIONED BY (p) TBLPROPERTIES ({listed})")
                start, used = time.perf_counter(), tree_cpu()
                result = bench.lake.sql(
                    f"INSERT INTO {table} SELECT *, CAST(pmod(hash(id), {options.partitions}) AS INT) FROM ({rows})"
                )
                seconds.append(time.perf_counter() - start)
                cpu.append(tree_cpu() - used)
                assert isinstance(result, Result)
                files = result.data_files_added
                assert result.rows_inserted == options.rows, result
                bench.lake.sql(f"DROP TABLE {table} PURGE")
            medians = {"seconds": statistics.median(seconds[1:]), "cpu": statistics.median(cpu[1:])}
            line = {"engine": "RowDelta", "way": way, "rows": options.rows, "partitions": options.partitions}
            bench.show({**line, **{name: round(value, 2) for name, value in medians.items()}, "files": files})
        bench.record("partitions")


if __name__ == "__main__":
    main()
