"""Micro-batches of a stream, timed: one JSON line for each hundred of them.

    python -m benchmarks.streams [--batches 1000] [--rows 1000] [--case append|merge]

The source is a folder of Parquet files, one for each micro-batch. Half of the rows that `merge` receives are new, half
match earlier micro-batches. `seconds` is the median time of a micro-batch by Spark's progress, `commit` its part in
`addBatch`. Neither should grow from line to line.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.datasets import in_mode, properties_clause
from benchmarks.runs import make_parser, run_benchmark

SHOWN = 100


def write_input(folder: Path, batches: int, rows: int) -> None:
    """Write a file for each micro-batch; half of its ids are those of the file before."""
    folder.mkdir()
    for number in range(batches):
        start = number * rows // 2
        ids = pa.array(range(start, start + rows), pa.int64())
        table = pa.table({"id": ids, "n": pa.array([number] * rows, pa.int64()), "s": pa.array(["text"] * rows)})
        pq.write_table(table, folder / f"{number:05}.parquet")


def start_query(lake: Any, case: str, folder: Path) -> Any:
    """Start the query of a case over all files."""
    spark = lake.spark
    source = (
        spark.readStream.schema("id bigint, n bigint, s string")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(folder / "in"))
    )
    checkpoint = str(folder / f"checkpoint-{case}")
    clause = properties_clause({"format-version": "3", **in_mode("merge-on-read")})
    lake.sql(f"CREATE TABLE bench.{case} (id bigint, n bigint, s string) {clause}")
    if case == "append":
        writer = source.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return writer.toTable(f"lake.bench.{case}")
    merging = lake.stream_merge(source, f"bench.{case}", on=["id"], latest_by="n")
    return merging.whenMatched().updateAll().whenNotMatched().insertAll().trigger(availableNow=True).start(checkpoint)


def lines(case: str, progress: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the medians of each hundred micro-batches."""
    for start in range(0, len(progress), SHOWN):
        shown = progress[start : start + SHOWN]
        yield {
            "case": case,
            "batches": f"{start}..{start + len(shown) - 1}",
            "seconds": round(statistics.median(one.durationMs["triggerExecution"] for one in shown) / 1000, 3),
            "commit": round(statistics.median(one.durationMs["addBatch"] for one in shown) / 1000, 3),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, batches=1_000, rows=1_000)
    parser.add_argument("--case", choices=["append", "merge"], action="append")
    options = parser.parse_args(arguments)
    with run_benchmark(options, {"spark.sql.streaming.numRecentProgressUpdates": str(options.batches + 10)}) as bench:
        write_input(bench.folder / "in", options.batches, options.rows)
        for case in options.case or ["append", "merge"]:
            query = start_query(bench.lake, case, bench.folder)
            query.awaitTermination()
            for line in lines(case, [one for one in query.recentProgress if one.numInputRows]):
                bench.show(line)
            count = bench.lake.table(f"bench.{case}").count()
            distinct = (options.batches + 1) * options.rows // 2
            assert count == (options.batches * options.rows if case == "append" else distinct), count
        bench.record("streams")


if __name__ == "__main__":
    main()
