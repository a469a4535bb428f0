"""Runs of benchmarks: the session that a benchmark runs in, and the files of `benchmarks/results` that record it."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import dml

__all__ = ["RESULTS", "Bench", "Run", "make_parser", "run_benchmark", "run_sql", "seconds_of"]

RESULTS = Path(__file__).resolve().parent / "results"
PATH_OPTIONS = ("--java", "--sail", "--results")
LIBRARIES = ("rowdelta", "pyspark", "pyiceberg", "pyarrow", "deltalake")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The measurements of one run.

    Runs older than this format were copied from pages. Their attributes are empty where the page did not record them.

    Attributes:
        date: ISO 8601, UTC; the date of `recorded_in` where `commit` is unknown.
        commit: The commit of the measured code.
        recorded_in: The commit that put the figures into a page, if `commit` is unknown.
        command: The command that repeats the run.
        machine: Processor, cores, memory in GB, system, and the one-minute load before and after.
        versions: Versions of the libraries and of the peers' engines.
        note: Conditions that the other attributes do not hold.
        lines: The measurements, as the benchmark prints them.
    """

    date: str = ""
    commit: str = ""
    recorded_in: str = ""
    command: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    lines: Sequence[Mapping[str, Any]] = ()

    def write(self, path: Path) -> None:
        """Write a JSON file with one attribute or measurement per line, so that a diff shows which ones changed."""
        about = {name: value for name, value in asdict(self).items() if value and name != "lines"}
        head = [f'  "{name}": {json.dumps(value)},' for name, value in about.items()]
        lines = ",\n".join(f"    {json.dumps(line)}" for line in self.lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["{", *head, '  "lines": [', lines, "  ]", "}", ""]), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Read a file of results."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


class Bench:
    """A session to measure, and the measurements since the last record.

    Args:
        lake: The session.
        folder: For temporary files.
        results: The folder to write results to, if any.
    """

    def __init__(self, lake: Any, folder: Path, results: Path | None) -> None:
        self.lake = lake
        self.folder = folder
        self.versions = {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
        self._results = results
        self._lines: list[Mapping[str, Any]] = []
        self._load = os.getloadavg()[0]
        self._commit = current_commit()  # later ones are not the code that was imported

    def show(self, line: Mapping[str, Any]) -> None:
        """Print a measurement, and keep it for `record`."""
        self._lines.append(line)
        print(json.dumps(line), flush=True)

    def record(self, name: str) -> None:
        """Write the measurements since the last record to a file of this name, which replaces an older one."""
        lines, self._lines = self._lines, []
        if self._results is None:
            return
        run = Run(
            date=datetime.now(UTC).isoformat(timespec="minutes"),
            commit=self._commit,
            command=describe_command(sys.argv),
            machine=describe_machine() | {"load": [round(load, 1) for load in (self._load, os.getloadavg()[0])]},
            versions=self.versions,
            lines=lines,
        )
        run.write(self._results / f"{name}.json")


def describe_command(words: Sequence[str]) -> str:
    """Return the command of this process without the options whose values are paths of the machine."""
    program = Path(words[0]).stem
    module = "benchmarks" if program == "__main__" else f"benchmarks.{program}"
    shown = [
        word
        for before, word in pairwise(words)
        if before not in PATH_OPTIONS and word.partition("=")[0] not in PATH_OPTIONS
    ]
    return " ".join(["python -m", module, *shown])


def describe_machine() -> dict[str, Any]:
    """Return what the timings depend on."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": names[0].partition(": ")[2] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": platform.platform(),
    }


def current_commit() -> str:
    """Return the commit of this folder, with `-dirty` if files differ from it, or "" without a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False).stdout.strip()


def make_parser(description: str | None, **numbers: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks, and the numbers that one takes, with their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--driver-memory", default="2g", help="the JVM's maximum heap")
    parser.add_argument("--results", type=Path, help="folder to write results to")
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    return parser


@contextmanager
def run_benchmark(options: argparse.Namespace, settings: Mapping[str, str] | None = None) -> Iterator[Bench]:
    """Run a benchmark in a local session with an empty catalog that has the namespace `bench`."""
    folder = Path(tempfile.mkdtemp(prefix="rowdelta-benchmark-"))
    local = {"spark.master": f"local[{options.cores}]", "spark.driver.memory": options.driver_memory}
    lake = dml.connect(str(folder / "warehouse"), settings={**local, **(settings or {})}, progress=False)
    try:
        lake.sql("CREATE NAMESPACE bench")
        yield Bench(lake, folder, options.results)
    finally:
        lake.spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def run_sql(lake: Any, text: str) -> dml.Result | None:
    """Run a statement and return its result, or fetch the rows of a query and return None."""
    found = lake.sql(text)
    if isinstance(found, dml.Result):
        return found
    found.collect()
    return None


def seconds_of(run: Callable[[], Any]) -> float:
    """Return the wall time of a call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
