"""Runs named cases: one JSON line for each engine and size, and a picture for each case that has one."""

import argparse
import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import dml
from benchmarks.cases import CASES, ModuleCase, Size, SqlCase
from benchmarks.peers import DeltaRs, Engine, Java, RowDelta
from benchmarks.pictures import picture

__all__ = ["JAVA", "run_cases"]

JAVA = "ROWDELTA_BENCHMARK_JAVA"
"""An environment variable: the command of `benchmarks.peers.Java`."""

OURS = "RowDelta"
WARM_ROWS = 20_000


def run_cases(options: argparse.Namespace) -> None:
    """Runs the cases that the options name."""
    named = {name: CASES[name] for name in options.case}
    for case in named.values():
        if isinstance(case, ModuleCase):
            run_module(case, options)
    measured = {name: case for name, case in named.items() if isinstance(case, SqlCase)}
    if not measured:
        return
    folder = Path(tempfile.mkdtemp(prefix="rowdelta-benchmark-"))
    settings = {
        "spark.master": f"local[{options.cores}]",
        "spark.driver.memory": options.driver_memory,
        "spark.sql.shuffle.partitions": str(2 * options.cores),
    }
    lake = dml.connect(str(folder / "warehouse"), settings=settings, progress=False)
    command = options.java or os.environ.get(JAVA)
    java = Java(command, folder / "java") if command else None
    try:
        lake.sql("CREATE NAMESPACE bench")
        for name, case in measured.items():
            engines: dict[str, Engine] = {OURS: RowDelta(lake, {})}
            engines.update({f"{OURS}, {variant}": RowDelta(lake, {**more}) for variant, more in case.variants.items()})
            if not options.no_delta_rs:
                engines["delta-rs"] = DeltaRs(lake, folder / "delta")
            if java is not None:
                engines["Iceberg Java"] = java
            show(name, case, engines, options)
    finally:
        if java is not None:
            java.close()
        lake.spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run_module(case: ModuleCase, options: argparse.Namespace) -> None:
    """Runs another module with its own options."""
    rows = () if case.rows is None else (case.rows, str(options.rows))
    java = {JAVA: options.java} if options.java else {}
    with (
        mock.patch.object(sys, "argv", [case.module, *case.arguments, *rows]),
        mock.patch.dict(os.environ, java),
    ):
        importlib.import_module(f"benchmarks.{case.module}").main()


def show(name: str, case: SqlCase, engines: dict[str, Engine], options: argparse.Namespace) -> None:
    """Measures a case, prints its lines and draws its picture."""
    sizes = case.sizes(options.rows)
    with_peer = {key: engine for key, engine in engines.items() if key != "delta-rs" or sizes[0].peer is not None}
    for engine in with_peer.values():  # warm, on a table of few rows
        once(engine, case.sizes(WARM_ROWS)[0])
    points: dict[str, list[tuple[float, float]]] = {key: [] for key in with_peer}
    for size in sizes:
        runs: dict[str, list[float]] = {key: [] for key in with_peer}
        said: dict[str, Any] = {}
        for _ in range(options.rounds):
            for key, engine in with_peer.items():
                seconds, said[key] = once(engine, size)
                runs[key].append(seconds)
        middle = {key: statistics.median(found) for key, found in runs.items()}
        for key, seconds in middle.items():
            points[key].append((size.at, seconds))
            line: dict[str, Any] = {"case": name, "engine": key, case.axis: size.at, "seconds": round(seconds, 3)}
            if said[key] is not None:
                line["files_spliced"] = said[key]
            if key != OURS:
                line["ratio"] = round(seconds / middle[OURS], 2)
            print(json.dumps(line), flush=True)
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
        drawn = picture(case.title, case.axis, points, logarithmic=case.logarithmic)
        (options.pictures / f"{name}.svg").write_text(drawn)


def once(engine: Engine, size: Size) -> tuple[float, Any]:
    """Seconds of the statement on a fresh table, and what there is to say of it."""
    engine.prepare(size)
    started = time.perf_counter()
    outcome = engine.run(size)
    seconds = time.perf_counter() - started
    engine.drop()
    return seconds, outcome
