"""Row-level DML, timed: one JSON line an operation.

    python -m benchmarks [--rows 6000000] [--files 8] [--rounds 3] [--mode copy-on-write --format-version 2 ...]
    python -m benchmarks --case update-wide --case delete-groups [--rows 2000000] [--pictures docs/pictures]
                         [--java "python .../java_server.py"]

With `--case` the named measurements of `cases`, or `all` of them: each beside delta-rs, where that has such a
statement, and beside Iceberg's Java library, where a program runs it (`peers.Java`); `ratio` says how many times as
long as RowDelta the others take. Without:

operations, in this order, on a table fresh for each round (`datasets`): load; scan; DELETE k = 7 (0.1 % of the rows,
scattered over all files); UPDATE of one column of 1 %; MERGE of 2 %, 5/6 matched; a second DELETE; scan. A warm-up
round on a small table comes first. `seconds` is the median of the rounds, `peak_rss_mb` the greatest resident memory of
the process tree during that operation in any round. `ratio_to_delta_rs` compares with delta-rs in the same run.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dml
from benchmarks import delta_rs, rowdelta
from benchmarks.cases import CASES
from benchmarks.datasets import ROWS, SOURCE
from benchmarks.memory import PeakMemory
from benchmarks.named import JAVA, run_cases

CONFIGURATIONS = (
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
    outcome: Any = None


def measure(
    memory: PeakMemory, operations: dict[str, Callable[[], Any]], into: dict[str, Measured] | None = None
) -> None:
    """Run the operations of a round."""
    for name, run in operations.items():
        memory.reset()
        started = time.perf_counter()
        outcome = run()
        seconds = time.perf_counter() - started
        if into is not None:
            measured = into.setdefault(name, Measured())
            measured.seconds.append(seconds)
            measured.peak_mb = max(measured.peak_mb, memory.peak)
            measured.outcome = outcome


def measure_delta_rs(lake: Any, memory: PeakMemory, folder: Path, options: argparse.Namespace) -> dict[str, Measured]:
    """All rounds of delta-rs."""
    table = lake.spark.sql(ROWS.format(rows=options.rows, files=options.files)).toArrow()
    source = lake.spark.sql(SOURCE.format(count=options.rows // 50)).toArrow()
    found: dict[str, Measured] = {}
    for number in range(options.rounds):
        target = folder / f"delta{number}"
        measure(memory, delta_rs.operations(table, source, target, files=options.files), found)
        shutil.rmtree(target)
    return found


def measure_rowdelta(
    lake: Any, memory: PeakMemory, mode: str, version: int, options: argparse.Namespace
) -> dict[str, Measured]:
    """All rounds of one mode on one format version, after a warm-up."""
    found: dict[str, Measured] = {}
    for number in range(-1, options.rounds):
        name = f"bench.t{version}_{mode.replace('-', '_')}_{number + 1}"
        rows = min(options.rows, 50_000) if number < 0 else options.rows
        operations = rowdelta.operations(lake, name, rows=rows, files=options.files, mode=mode, format_version=version)
        measure(memory, operations, None if number < 0 else found)
        lake.sql(f"DROP TABLE {name} PURGE")
    return found


def lines(
    found: dict[str, Measured],
    engine: str,
    mode: str,
    version: int | None,
    options: argparse.Namespace,
    peer: dict[str, Measured] | None = None,
) -> Iterator[dict[str, Any]]:
    """The JSON lines of one configuration."""
    for op, measured in found.items():
        seconds = statistics.median(measured.seconds)
        line: dict[str, Any] = {
            "engine": engine,
            "op": op,
            "mode": mode,
            "format_version": version,
            "seconds": round(seconds, 3),
            "peak_rss_mb": round(measured.peak_mb),
            "rows": options.rows,
            "files": options.files,
            "runs": [round(run, 3) for run in measured.seconds],
        }
        if peer and op in peer:
            line["ratio_to_delta_rs"] = round(seconds / statistics.median(peer[op].seconds), 2)
        if op == "scan":
            line["check"] = measured.outcome
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--driver-memory", default="2g", help="the JVM's greatest heap")
    parser.add_argument("--mode", choices=("copy-on-write", "merge-on-read"))
    parser.add_argument("--format-version", type=int, choices=(2, 3))
    parser.add_argument("--no-delta-rs", action="store_true")
    parser.add_argument("--case", action="append", choices=[*CASES, "all"], help="named measurements instead")
    parser.add_argument("--pictures", type=Path, help="where pictures of the named measurements go")
    parser.add_argument("--java", help=f"a program that runs Iceberg's JAR; else what {JAVA} says, or none")
    options = parser.parse_args()
    if options.case:
        options.case = list(CASES) if "all" in options.case else options.case
        run_cases(options)
        return
    folder = Path(tempfile.mkdtemp(prefix="rowdelta-benchmark-"))
    settings = {
        "spark.master": f"local[{options.cores}]",
        "spark.driver.memory": options.driver_memory,
        "spark.sql.shuffle.partitions": str(2 * options.cores),
    }
    lake = dml.connect(str(folder / "warehouse"), settings=settings, progress=False)
    memory = PeakMemory()
    try:
        peer = None if options.no_delta_rs else measure_delta_rs(lake, memory, folder, options)
        if peer:
            for line in lines(peer, "delta-rs", "copy-on-write", None, options):
                print(json.dumps(line), flush=True)
        for mode, version in CONFIGURATIONS:
            if options.mode in {None, mode} and options.format_version in {None, version}:
                found = measure_rowdelta(lake, memory, mode, version, options)
                for line in lines(found, "rowdelta", mode, version, options, peer):
                    print(json.dumps(line), flush=True)
    finally:
        lake.spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
