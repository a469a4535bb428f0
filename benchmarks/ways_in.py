"""Spark's own calls against statements, timed: one JSON line a case.

    python -m benchmarks.ways_in [--rows 6000000] [--rounds 3]

Planning is that of a small query, to its physical plan, warm, median of 20. `SELECT 1` has nothing of ours in it; the
session is enabled and disabled in turn, median of 40. Reads and writes are of the table of `datasets`, by the name in
Spark's catalog and by a statement in turn, so that whatever else the machine does meets both.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.datasets import ROWS
from benchmarks.runs import make_parser, run_benchmark

PLANNED = 20
PLAIN = 40


def seconds_of(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def planned(frame: Any) -> None:
    frame._jdf.queryExecution().executedPlan()  # noqa: SLF001  no public name


def planning(lake: Any, name: str) -> Iterator[dict[str, Any]]:
    """A point query on a table of a few rows, by `spark.table` and as SQL."""
    spark = lake.spark

    def by_table() -> None:
        planned(spark.table(f"lake.{name}").where("id = 5").select("name"))

    def by_sql() -> None:
        planned(spark.sql(f"SELECT name FROM lake.{name} WHERE id = 5"))

    for case, run in (("planning by spark.table", by_table), ("planning by spark.sql", by_sql)):
        for _ in range(5):
            run()
        yield line(case, [seconds_of(run) for _ in range(PLANNED)])


def plain_statement(lake: Any) -> Iterator[dict[str, Any]]:
    """`SELECT 1` with us and without."""
    found: dict[str, list[float]] = {"SELECT 1 with RowDelta": [], "SELECT 1 without": []}

    def run() -> None:
        lake.spark.sql("SELECT 1").collect()

    for _ in range(2):
        for case in found:
            (lake.enable if case.endswith("RowDelta") else lake.disable)()
            for _ in range(5):
                run()
            found[case] += [seconds_of(run) for _ in range(PLAIN // 2)]
    lake.enable()
    for case, seconds in found.items():
        yield line(case, seconds)


def in_turn(cases: dict[str, Callable[[int], Any]], rounds: int) -> Iterator[dict[str, Any]]:
    """Cases one after the other, again and again; the first round warms up and does not count."""
    found: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, run in cases.items():
            seconds = seconds_of(lambda run=run, number=number: run(number))
            if number:
                found[case].append(seconds)
    for case, seconds in found.items():
        yield line(case, seconds)


def reads(lake: Any, name: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A whole scan with an aggregate, and a scan of two columns with a filter."""
    spark = lake.spark
    aggregate, columns = "count(*), sum(id), max(amt)", "id > 100 AND k < 500"
    cases: dict[str, Callable[[int], Any]] = {
        "aggregate by spark.table": lambda _: spark.table(f"lake.{name}").selectExpr(*aggregate.split(", ")).collect(),
        "aggregate by spark.sql": lambda _: spark.sql(f"SELECT {aggregate} FROM lake.{name}").collect(),
        "filter by spark.table": lambda _: spark.table(f"lake.{name}").where(columns).selectExpr("sum(amt)").collect(),
        "filter by spark.sql": lambda _: spark.sql(f"SELECT sum(amt) FROM lake.{name} WHERE {columns}").collect(),
    }
    yield from in_turn(cases, rounds)


def writes(lake: Any, rows: str, rounds: int) -> Iterator[dict[str, Any]]:
    """The rows of the table, into a new table each time."""
    spark = lake.spark

    def target(number: int, way: str) -> str:
        name = f"bench.written_{way}_{number}"
        lake.sql(f"CREATE TABLE {name} AS SELECT * FROM ({rows}) LIMIT 0")
        return name

    def by_writer(number: int) -> None:
        name = target(number, "append")
        spark.sql(rows).writeTo(f"lake.{name}").append()
        lake.sql(f"DROP TABLE {name} PURGE")

    def by_insert(number: int) -> None:
        name = target(number, "insert")
        lake.sql(f"INSERT INTO {name} {rows}")
        lake.sql(f"DROP TABLE {name} PURGE")

    yield from in_turn({"writeTo.append": by_writer, "INSERT SELECT": by_insert}, rounds)


def line(case: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "case": case,
        "seconds": round(statistics.median(seconds), 4),
        "least": round(min(seconds), 4),
        "greatest": round(max(seconds), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    rows = ROWS.format(rows=options.rows, files=options.files)
    with run_benchmark(options) as bench:
        lake = bench.lake
        lake.sql("CREATE TABLE bench.small AS SELECT id, concat('n', id) AS name FROM range(100)")
        lake.sql(f"CREATE TABLE bench.big AS {rows}")
        for found in (
            *planning(lake, "bench.small"),
            *plain_statement(lake),
            *reads(lake, "bench.big", options.rounds),
            *writes(lake, rows, options.rounds),
        ):
            bench.show(found)
        bench.record("ways-in")


if __name__ == "__main__":
    main()
