"""The fixed cost of a statement: one JSON line for each statement, mode and format version.

    python -m benchmarks.statements [--rounds 20] [--only MERGE]

Statements change 10 rows of a table of 10,000 in two files. Most of their time goes into what all statements need:
analysis, commands to the JVM, Spark jobs, the commit. Medians of `--rounds` after five warm-up rounds. `cpu_ms` covers
the driver, the JVM and the workers. `commands` counts py4j commands without `garbage`, those that release an object of
the JVM. `metadata` and `manifests` count files that the driver opens.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from unittest import mock

from py4j.clientserver import ClientServerConnection
from pyiceberg.io.pyarrow import PyArrowFile

from benchmarks.datasets import in_mode, properties_clause
from benchmarks.processes import tree_cpu
from benchmarks.runs import make_parser, run_benchmark, run_sql

WARMING = 5
VERSIONS = ("2", "3")
MODES = ("copy-on-write", "merge-on-read")
SOURCE = "(SELECT id * 1000 + {round} AS id, concat('m', id) AS note FROM range(10))"
STATEMENTS = {
    "DELETE": "DELETE FROM {table} WHERE id % 1000 = {round}",
    "UPDATE": "UPDATE {table} SET note = 'u' WHERE id % 1000 = 500 + {round}",
    "MERGE": f"MERGE INTO {{table}} t USING {SOURCE} s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET note = s.note WHEN NOT MATCHED THEN INSERT *",
    "INSERT": "INSERT INTO {table} VALUES ({round} + 20000, 'new')",
    "SELECT": "SELECT * FROM {table} WHERE id % 1000 = {round}",
    "CREATE TABLE": "CREATE TABLE {table}_{round} (id BIGINT, note STRING)",
    "DROP TABLE": "DROP TABLE {table}_{round}",
}
FREE_OF_MODES = ("INSERT", "SELECT", "CREATE TABLE", "DROP TABLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost up to now, or between two times.

    Attributes:
        seconds: Wall time.
        cpu: CPU seconds of the process tree.
        counts: The numbers of commands, garbage, jobs, stages, tasks and opened files.
    """

    seconds: float
    cpu: float
    counts: Counter[str]

    def since(self, earlier: "Cost") -> "Cost":
        counts = Counter({key: number - earlier.counts[key] for key, number in self.counts.items()})
        return replace(self, seconds=self.seconds - earlier.seconds, cpu=self.cpu - earlier.cpu, counts=counts)


@contextmanager
def counting(spark: Any) -> Iterator[Callable[[], Cost]]:
    """Count while the context is open; yield a function that returns the cost up to now."""
    counts: Counter[str] = Counter()
    send, open_file = ClientServerConnection.send_command, PyArrowFile.open
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  no public name
    scheduler, tasks = context.dagScheduler(), context.taskScheduler()
    numbers = {"jobs": scheduler.nextJobId, "stages": scheduler.nextStageId, "tasks": tasks.nextTaskId}

    def sent(self: Any, command: str) -> Any:
        counts["garbage" if command.startswith("m") else "commands"] += 1
        return send(self, command)

    def opened(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts["metadata" if self.location.endswith(".metadata.json") else "manifests"] += 1
        return open_file(self, *args, **kwargs)

    def now() -> Cost:
        found = counts.copy()
        found.update({name: number() for name, number in numbers.items()})
        counts["commands"] -= len(numbers)
        return Cost(seconds=time.perf_counter(), cpu=tree_cpu(), counts=found)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(ClientServerConnection, "send_command", sent))
        stack.enter_context(mock.patch.object(PyArrowFile, "open", opened))
        yield now


def make_table(lake: Any, name: str, version: str, mode: str) -> None:
    clause = properties_clause({"format-version": version, **in_mode(mode)})
    lake.sql(f"CREATE TABLE {name} (id BIGINT, note STRING) {clause}")
    lake.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION(2) */ id, concat('n', id) FROM range(10000)")


def measured(lake: Any, now: Callable[[], Cost], text: str, table: str, rounds: int) -> dict[str, Any]:
    """Run a statement for other rows each time, and return its cost."""
    costs = []
    for number in range(WARMING + rounds):
        before = now()
        run_sql(lake, text.format(table=table, round=number))
        costs.append(now().since(before))
    warm = costs[WARMING:]
    middle = {key: statistics.median(cost.counts[key] for cost in warm) for key in sorted(warm[-1].counts)}
    return {
        "ms": round(1000 * statistics.median(cost.seconds for cost in warm), 1),
        "cpu_ms": round(1000 * statistics.fmean(cost.cpu for cost in warm), 1),
        **{key: round(number) for key, number in middle.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, rounds=20)
    parser.add_argument("--only", default="", help="part of a statement's name")
    options = parser.parse_args(arguments)
    with run_benchmark(options) as bench, counting(bench.lake.spark) as now:
        lake = bench.lake
        make_table(lake, "bench.warm", VERSIONS[-1], MODES[-1])
        for number, text in product(range(options.rounds), STATEMENTS.values()):
            run_sql(lake, text.format(table="bench.warm", round=number))
        for version, mode, statement in product(VERSIONS, MODES, STATEMENTS):
            once = statement in FREE_OF_MODES and mode != MODES[0]
            if once or options.only not in statement:
                continue
            # What is created is dropped by the case after it.
            table = f"bench.v{version}_{MODES.index(mode)}_{statement.split()[0]}".replace("DROP", "CREATE")
            if statement != "DROP TABLE":
                make_table(lake, table, version, mode)
            found = measured(lake, now, STATEMENTS[statement], table, options.rounds)
            bench.show({"statement": statement, "mode": mode, "format_version": int(version), **found})
        bench.record("statements")


if __name__ == "__main__":
    main()
