"""Spark's own calls beside statements, timed: one JSON line for each case.

    python -m benchmarks.ways_in [--rows 6000000] [--rounds 3]

Planning goes up to the physical plan of a small query: median of 20, warm. `SELECT 1` does not involve RowDelta, which
is enabled and disabled in turn: median of 40. Reads and writes of the table of `datasets`, by Spark's calls and as
statements, take turns, so that other load on the machine affects both.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.datasets import ROWS
from benchmarks.runs import make_parser, run_benchmark, seconds_of

PLANNED = 20
PLAIN = 40


def plan(frame: Any) -> None:
    frame._jdf.queryExecution().executedPlan()  # noqa: SLF001  no public name


def planning(lake: Any, name: str) -> Iterator[dict[str, Any]]:
    """Plan a point query on a small table, by `spark.table` and as SQL."""
    spark = lake.spark

    def by_table() -> None:
        plan(spark.table(f"lake.{name}").where("id = 5").select("name"))

    def by_sql() -> None:
        plan(spark.sql(f"SELECT name FROM lake.{name} WHERE id = 5"))

    for case, run in (("planning by spark.table", by_table), ("planning by spark.sql", by_sql)):
        for _ in range(5):
            run()
        yield line(case, [seconds_of(run) for _ in range(PLANNED)])


def plain_statement(lake: Any) -> Iterator[dict[str, Any]]:
    """Run `SELECT 1` with RowDelta enabled and disabled."""
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
    """Run the cases in turn, after a warm-up round."""
    found: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, run in cases.items():
            found[case].append(seconds_of(partial(run, number)))
    for case, seconds in found.items():
        yield line(case, seconds[1:])


def reads(lake: Any, name: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Aggregate the whole table, and two columns with a filter."""
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
    """Write the rows of the table to a new table each time."""

    def write(way: Callable[[str], Any], number: int) -> None:
        name = f"bench.written_{number}"
        lake.sql(f"CREATE TABLE {name} AS SELECT * FROM ({rows}) LIMIT 0")
        way(name)
        lake.sql(f"DROP TABLE {name} PURGE")

    ways: dict[str, Callable[[str], Any]] = {
        "writeTo.append": lambda name: lake.spark.sql(rows).writeTo(f"lake.{name}").append(),
        "INSERT SELECT": lambda name: lake.sql(f"INSERT INTO {name} {rows}"),
    }
    yield from in_turn({case: partial(write, way) for case, way in ways.items()}, rounds)


def line(case: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "case": case,
        "seconds": round(statistics.median(seconds), 4),
        "least": round(min(seconds), 4),
        "greatest": round(max(seconds), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser(__doc__, rows=6_000_000, files=8, rounds=3).parse_args(arguments)
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
