"""INSERT into many partitions, timed: one JSON line for each way of distributing the rows.

    python -m benchmarks.partitions [--rows 6000000] [--partitions 100] [--rounds 3]

With `hash` one task writes all rows of a partition; with `fanout` each task keeps a file of every partition open.
`seconds`, and `cpu` of the driver, the JVM and the workers together, are medians of the rounds after a warm-up round.
`files` is the number of files that an INSERT added.
"""

import statistics
import time
from collections.abc import Sequence

from benchmarks.datasets import COLUMNS, ROWS, properties_clause
from benchmarks.processes import tree_cpu
from benchmarks.runs import make_parser, run_benchmark
from dml import Result

WAYS = {
    "hash": {"write.distribution-mode": "hash"},
    "fanout": {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser(__doc__, rows=6_000_000, partitions=100, tasks=8, rounds=3).parse_args(arguments)
    rows = ROWS.format(rows=options.rows, files=options.tasks)
    with run_benchmark(options, {"spark.sql.shuffle.partitions": "4"}) as bench:
        for way, properties in WAYS.items():
            seconds, cpu, files = [], [], 0
            for number in range(options.rounds + 1):
                table, clause = f"bench.{way}{number}", properties_clause(properties)
                bench.lake.sql(f"CREATE TABLE {table} ({COLUMNS}, p INT) PARTITIONED BY (p) {clause}")
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
