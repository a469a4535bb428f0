"""What a small statement costs, whatever it changes: one JSON line a statement, mode and format version.

    python -m benchmarks.statements [--rounds 20] [--only MERGE]

The table has 10,000 rows in two files, and each statement is about 10 of them, so nearly all of its time is that of any
statement: its analysis, its commands to the JVM, its Spark jobs, its commit. Medians of `--rounds` after five that warm
up; CPU is that of this process, the JVM and the Python workers together. `commands` go to the JVM by py4j, `garbage`
are those of them that let the JVM forget an object; `metadata` and `manifests` are files that the driver opens.
"""

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

from py4j.clientserver import ClientServerConnection
from pyiceberg.io.pyarrow import PyArrowFile

from benchmarks.runs import make_parser, run_benchmark
from dml import Result

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
    """What has been spent until now, or between two times.

    Attributes:
        seconds: Of the clock.
        cpu: Seconds of CPU of the process tree.
        counts: Of commands, garbage, jobs, stages, tasks, and files opened.
    """

    seconds: float
    cpu: float
    counts: Counter[str]

    def since(self, earlier: "Cost") -> "Cost":
        """What was spent after an earlier time."""
        counts = Counter({key: number - earlier.counts[key] for key, number in self.counts.items()})
        return replace(self, seconds=self.seconds - earlier.seconds, cpu=self.cpu - earlier.cpu, counts=counts)


def tree_cpu() -> float:
    """Seconds of CPU of this process and its descendants, those that have ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)], ticks[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks.get(pid, 0) for pid in mine) / os.sysconf("SC_CLK_TCK")


@contextmanager
def counting(spark: Any) -> Iterator[Callable[[], Cost]]:
    """Gives what has been spent until it is asked."""
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


def run(lake: Any, text: str) -> None:
    """A statement, and its rows where it has some."""
    outcome = lake.sql(text)
    if not isinstance(outcome, Result):
        outcome.collect()


def make_table(lake: Any, name: str, version: str, mode: str) -> None:
    """The table that statements are about."""
    modes = ", ".join(f"'write.{command}.mode'='{mode}'" for command in ("delete", "update", "merge"))
    lake.sql(f"CREATE TABLE {name} (id BIGINT, note STRING) TBLPROPERTIES ('format-version'='{version}', {modes})")
    lake.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION(2) */ id, concat('n', id) FROM range(10000)")


def measured(lake: Any, now: Callable[[], Cost], text: str, table: str, rounds: int) -> dict[str, Any]:
    """The cost of a statement that is run again and again, each time about other rows."""
    costs = []
    for number in range(WARMING + rounds):
        before = now()
        run(lake, text.format(table=table, round=number))
        costs.append(now().since(before))
    warm = costs[WARMING:]
    middle = {key: statistics.median(cost.counts[key] for cost in warm) for key in sorted(warm[-1].counts)}
    return {
        "ms": round(1000 * statistics.median(cost.seconds for cost in warm), 1),
        "cpu_ms": round(1000 * statistics.fmean(cost.cpu for cost in warm), 1),
        **{key: round(number) for key, number in middle.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="part of a statement's name")
    options = parser.parse_args(arguments)
    with run_benchmark(options) as bench, counting(bench.lake.spark) as now:
        lake = bench.lake
        make_table(lake, "bench.warm", VERSIONS[-1], MODES[-1])
        for number, text in product(range(options.rounds), STATEMENTS.values()):
            run(lake, text.format(table="bench.warm", round=number))
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
