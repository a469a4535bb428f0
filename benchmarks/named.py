"""Runs named cases: one JSON line for each engine and size."""

import argparse
import importlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.cases import ModuleCase, Size, SqlCase
from benchmarks.peers import DeltaRs, PeerError, RowDelta, SqlEngine, start_programs
from benchmarks.runs import Bench, run_benchmark

__all__ = ["OURS", "run_cases", "run_module"]

OURS = "RowDelta"


def run_cases(cases: Mapping[str, SqlCase], options: argparse.Namespace) -> None:
    """Measure cases in one session."""
    shuffle = {"spark.sql.shuffle.partitions": str(2 * options.cores)}
    with run_benchmark(options, shuffle) as bench, start_programs(options, bench) as programs:
        for name, case in cases.items():
            engines: dict[str, SqlEngine | DeltaRs] = {OURS: RowDelta(bench.lake)}
            for variant, conditions in case.variants.items():
                engines[f"{OURS}, {variant}"] = RowDelta(bench.lake, conditions)
            if not options.no_delta_rs:
                engines["delta-rs"] = DeltaRs(bench.lake, bench.folder / "delta")
            measure_case(name, case, engines | programs, bench, options)
            bench.record(name)


def run_module(case: ModuleCase, given: Mapping[str, Any]) -> None:
    """Run another module. It receives the options given on the command line that it has as well."""
    shared = ("--results", "--cores", "--driver-memory", *case.options)
    values = {option: given[option.removeprefix("--").replace("-", "_")] for option in shared}
    words = [word for option, value in values.items() if value is not None for word in (option, str(value))]
    importlib.import_module(f"benchmarks.{case.module}").main([*case.arguments, *words])


def measure_case(
    name: str, case: SqlCase, engines: Mapping[str, SqlEngine | DeltaRs], bench: Bench, options: argparse.Namespace
) -> None:
    """Measure a case and show its lines. A statement that an engine refuses has `error` instead of `seconds`."""
    sizes = case.sizes(options.rows)
    if sizes[0].peer is None:
        engines = {engine: one for engine, one in engines.items() if engine != "delta-rs"}
    for one in engines.values():  # warm up on the first table: a smaller one may use another reader
        run_once(one, sizes[0])
    for size in sizes:
        runs: dict[str, list[float]] = {engine: [] for engine in engines}
        found: dict[str, dict[str, Any]] = {}
        for _ in range(options.rounds):
            for engine, one in engines.items():
                seconds, found[engine] = run_once(one, size)
                runs[engine].append(seconds)
        medians = {engine: statistics.median(seconds) for engine, seconds in runs.items()}
        for engine, seconds in medians.items():
            line: dict[str, Any] = {"case": name, "engine": engine, "axis": case.axis, "size": size.at}
            if "error" not in found[engine]:
                line["seconds"] = round(seconds, 3)
                if engine != OURS:
                    line["ratio"] = round(seconds / medians[OURS], 2)
            bench.show(line | found[engine])


def run_once(engine: SqlEngine | DeltaRs, size: Size) -> tuple[float, dict[str, Any]]:
    """Return the seconds of the statement on a fresh table, and what else its line holds."""
    engine.prepare(size)
    started = time.perf_counter()
    try:
        result = engine.run(size)
        found: dict[str, Any] = {} if result is None else {"files_spliced": result.data_files_spliced}
    except PeerError as error:
        found = {"error": str(error).splitlines()[0]}
    seconds = time.perf_counter() - started
    engine.drop()
    return seconds, found
