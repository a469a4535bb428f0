"""Row-level DML, timed: one JSON line an operation.

    python -m benchmarks [--rows 6000000] [--files 8] [--rounds 3] [--mode copy-on-write --format-version 2 ...]
                         [--java "python .../java_server.py"] [--sail "SAIL_PYTHON benchmarks/sail_server.py"]
    python -m benchmarks --case update-wide --case delete-groups [--rows 2000000] [--results benchmarks/results]

With `--case`, the named measurements of `cases`, or `all` of them: each beside delta-rs if it has such a statement, and
beside the programs of `--java` and `--sail`. `ratio` is the time relative to RowDelta's. Without `--case`:

operations, in this order, on a table fresh for each round (`datasets`): load; scan; DELETE k = 7 (0.1 % of the rows,
scattered over all files); UPDATE of one column of 1 %; MERGE of 2 %, 5/6 matched; a second DELETE; scan. A warm-up
round on a small table comes first. `seconds` is the median of the rounds, `peak_rss_mb` the maximum resident memory of
the engine's processes during that operation in any round. `ratio_to_delta_rs` compares with delta-rs in the same run.
Each round runs all engines but delta-rs in turn; delta-rs runs before them, in a process of its own. At the end the
tables of the programs are read back and must hold RowDelta's rows. A statement that an engine refuses has `error`
instead of `seconds`.
"""

import argparse
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

from benchmarks import operations
from benchmarks.cases import CASES, ModuleCase, SqlCase
from benchmarks.datasets import ROWS, SOURCE
from benchmarks.named import OURS, run_cases, run_module
from benchmarks.peers import PeerError, Program, RowDelta, SqlEngine, add_peer_options, start_programs
from benchmarks.processes import PeakMemory
from benchmarks.runs import Bench, make_parser, run_benchmark, run_sql, seconds_of

Configuration = tuple[str, int]
"""A mode and a format version."""

CONFIGURATIONS: tuple[Configuration, ...] = (
    ("copy-on-write", 2),
    ("merge-on-read", 2),
    ("copy-on-write", 3),
    ("merge-on-read", 3),
)


@dataclass(slots=True)
class Measured:
    """One operation in all rounds."""

    seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    error: str | None = None

    def line(self) -> dict[str, Any]:
        """Return its part of a JSON line."""
        if self.error is not None:
            return {"error": self.error}
        runs = [round(run, 3) for run in self.seconds]
        return {"seconds": round(statistics.median(runs), 3), "peak_rss_mb": round(self.peak_mb), "runs": runs}


def measure(run: Callable[[], Any], memory: PeakMemory, measured: Measured) -> None:
    """Run an operation once."""
    try:
        measured.seconds.append(seconds_of(run))
    except PeerError as error:
        measured.error = str(error).splitlines()[0]
    else:
        measured.peak_mb = max(measured.peak_mb, memory.peak)


def measure_delta_rs(options: argparse.Namespace) -> dict[str, Measured]:
    """Measure delta-rs in all rounds. For a process of its own: the rows stay in its memory, and in its JVM's."""
    found: dict[str, Measured] = {}
    with run_benchmark(options) as bench:
        memory = PeakMemory()
        table = bench.lake.spark.sql(ROWS.format(rows=options.rows, files=options.files)).toArrow()
        source = bench.lake.spark.sql(SOURCE.format(count=options.rows // 50)).toArrow()
        for number in range(options.rounds):
            target = bench.folder / f"delta{number}"
            for name, run in operations.delta_operations(table, source, target, files=options.files).items():
                memory.reset()
                measure(run, memory, found.setdefault(name, Measured()))
            shutil.rmtree(target)
    return found


def measure_sql(
    bench: Bench,
    programs: Mapping[str, Program],
    memory: PeakMemory,
    mode: str,
    version: int,
    options: argparse.Namespace,
) -> dict[str, dict[str, Measured]]:
    """Measure RowDelta and the programs in one mode on one format version, after a warm-up, by engine and operation."""
    engines: dict[str, SqlEngine] = {OURS: RowDelta(bench.lake), **programs}
    found: dict[str, dict[str, Measured]] = {}
    for one in engines.values():
        one.name = table_name(mode, version)
    for number in range(-1, options.rounds):
        rows = min(options.rows, 50_000) if number < 0 else options.rows
        shape = {"rows": rows, "mode": mode, "format_version": version}
        for engine, one in engines.items():
            measured = {} if number < 0 else found.setdefault(engine, {})
            for statement in operations.prepare(one.table, **shape):
                one.sql(statement)
            for name, statement in operations.statements(one.table, rows=rows, files=options.files).items():
                if isinstance(one, Program):
                    memory.reset(one.pid)
                else:
                    memory.reset(without=[program.pid for program in programs.values()])
                measure(partial(one.sql, statement), memory, measured.setdefault(name, Measured()))
            if number < options.rounds - 1:
                one.drop()
    return found


def compare_rows(
    bench: Bench,
    programs: Mapping[str, Program],
    configurations: Mapping[Configuration, Any],
    options: argparse.Namespace,
) -> None:
    """Compare the rows of the programs' tables with RowDelta's without the refused operations, and drop all tables."""
    ours = RowDelta(bench.lake)
    for (mode, version), found in configurations.items():
        shape = {"rows": options.rows, "mode": mode, "format_version": version}
        for one in (ours, *programs.values()):
            one.name = table_name(mode, version)
        expected = checksum(bench.lake, ours.table) if programs else []
        for engine, program in programs.items():
            refused = {name for name, operation in found[engine].items() if operation.error is not None}
            wanted = checksum_without(refused, bench.lake, shape, options.files) if refused else expected
            read = read_back(bench.lake, program.metadata_location())
            assert read == wanted, f"{engine}, {mode}, version {version}: {read}, RowDelta: {wanted}"
        for one in (ours, *programs.values()):
            one.drop()


def table_name(mode: str, version: int) -> str:
    """Return the name of the table of a configuration."""
    return f"{mode.replace('-', '_')}_{version}"


def checksum(lake: Any, table: str) -> list[Any]:
    """Return the number of rows, and a sum of hashes that rows in any order have in common."""
    hashed = "sum(CAST(xxhash64(id, k, grp, amt, note, ts) AS DECIMAL(38, 0)))"
    return list(lake.sql(f"SELECT count(*), {hashed} FROM {table}").collect()[0])


def read_back(lake: Any, metadata_location: str) -> list[Any]:
    """Return the checksum of a peer's table, as RowDelta reads it."""
    catalog = lake.registry.catalog(lake.registry.current_catalog)
    catalog.register_table("bench.read_back", metadata_location)
    try:
        return checksum(lake, "bench.read_back")
    finally:
        catalog.drop_table("bench.read_back")


def checksum_without(refused: set[str], lake: Any, shape: Mapping[str, Any], files: int) -> list[Any]:
    """Return the checksum of RowDelta's table after all operations but those that a peer refused."""
    for statement in operations.prepare("bench.expected", **shape):
        run_sql(lake, statement)
    for name, statement in operations.statements("bench.expected", rows=shape["rows"], files=files).items():
        if name not in refused:
            run_sql(lake, statement)
    found = checksum(lake, "bench.expected")
    lake.sql("DROP TABLE bench.expected PURGE")
    return found


def lines(
    engine: str,
    found: Mapping[str, Measured],
    ratios: Mapping[str, Mapping[str, Measured]],
    about: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of an engine in one configuration, with a ratio to each of the given engines."""
    for operation, measured in found.items():
        line = {"engine": engine, "op": operation, **about, **measured.line()}
        for name, other in ratios.items():
            if operation in other and measured.seconds and other[operation].seconds:
                ratio = statistics.median(measured.seconds) / statistics.median(other[operation].seconds)
                line[name] = round(ratio, 2)
        yield line


def run_operations(options: argparse.Namespace) -> None:
    """Measure all operations in the configurations that the options select."""
    table = {"rows": options.rows, "files": options.files}
    shuffle = {"spark.sql.shuffle.partitions": str(2 * options.cores)}
    delta = {}
    if not options.no_delta_rs:
        with ProcessPoolExecutor(1, get_context("fork")) as process:
            delta = process.submit(measure_delta_rs, options).result()
    with run_benchmark(options, shuffle) as bench, start_programs(options, bench) as programs:
        memory = PeakMemory()
        for line in lines("delta-rs", delta, {}, {"mode": "copy-on-write", **table}):
            bench.show(line)
        measured = {}
        for mode, version in CONFIGURATIONS:
            if options.mode in {None, mode} and options.format_version in {None, version}:
                found = measured[mode, version] = measure_sql(bench, programs, memory, mode, version, options)
                for engine, one in found.items():
                    ratios = {"ratio_to_delta_rs": delta} if engine == OURS else {"ratio": found[OURS]}
                    for line in lines(engine, one, ratios, {"mode": mode, "format_version": version, **table}):
                        bench.show(line)
        # Only now: it makes the JVM's heap larger for the rest of the session.
        compare_rows(bench, programs, measured, options)
        bench.record("operations")


def main() -> None:
    parser = make_parser(__doc__, rows=6_000_000, files=8, rounds=3)
    parser.add_argument("--mode", choices=("copy-on-write", "merge-on-read"))
    parser.add_argument("--format-version", type=int, choices=(2, 3))
    parser.add_argument("--no-delta-rs", action="store_true")
    parser.add_argument("--case", action="append", choices=[*CASES, "all"], help="named measurements instead")
    add_peer_options(parser)
    options = parser.parse_args()
    if not options.case:
        run_operations(options)
        return
    # Other modules have defaults of their own, so they receive only what the command line holds.
    given = vars(parser.parse_args(namespace=argparse.Namespace(**dict.fromkeys(vars(options)))))
    named = {name: case for name, case in CASES.items() if name in options.case or "all" in options.case}
    for case in named.values():
        if isinstance(case, ModuleCase):
            run_module(case, given)
    if measured := {name: case for name, case in named.items() if isinstance(case, SqlCase)}:
        run_cases(measured, options)


if __name__ == "__main__":
    main()
