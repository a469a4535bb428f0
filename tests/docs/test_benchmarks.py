"""Each benchmark runs at a small size, and the pages show what it writes."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import pages
from benchmarks.cases import CASES, SqlCase
from benchmarks.runs import Run

SQL_CASES = [name for name, case in CASES.items() if isinstance(case, SqlCase)]
RUNS = {
    "operations": "benchmarks --rows 10000 --files 2 --rounds 1",
    "metadata-tables": "benchmarks.metadata_tables --files 10 --manifests 2 --rounds 1",
    "modes": "benchmarks.modes --rows 1000 --statements 6",
    "modes-ratios": "benchmarks.modes --rows 1000 --statements 6 --ratios 0.1 0.2 --details",
    "partitions": "benchmarks.partitions --rows 1000 --partitions 3 --rounds 1",
    "expiry": "benchmarks.expiry --sizes 12 15 --rounds 1",
    "planning": "benchmarks.planning --files 10 --manifests 2 --rounds 1",
    "many-manifests": "benchmarks.planning --files 10 --manifests 2 --rounds 1 --changes",
    "statements": "benchmarks.statements --rounds 1",
    "streams": "benchmarks.streams --batches 3 --rows 10",
    "walk-scan-tasks": "benchmarks.walks --walk scan-tasks --sizes 10 20 --rounds 1",
    "walk-insert-held": "benchmarks.walks --walk insert-held --sizes 10 20 --rounds 1",
    "ways-in": "benchmarks.ways_in --rows 1000 --rounds 1",
}
pytestmark = pytest.mark.nightly


def run_benchmark(words: str, results: Path) -> None:
    """Run a benchmark in a process of its own, since it configures the JVM."""
    command = [sys.executable, "-m", *words.split(), "--driver-memory", "1g", "--results", str(results)]
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.parametrize("name", RUNS)
def test_pages_show_each_line_that_a_benchmark_writes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_benchmark(RUNS[name], tmp_path)
    run = Run.read(tmp_path / f"{name}.json")
    assert run.lines
    assert all(line.get("seconds", 1) > 0 for line in run.lines)
    assert run.command == f"python -m {RUNS[name]} --driver-memory 1g"
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    for path in pages.PAGES:
        for block in pages.BLOCK.finditer(path.read_text(encoding="utf-8")):
            if name in block["names"].split() or (block["names"] == "walk-*" and name.startswith("walk-")):
                filled = pages.fill_in(block[0]).splitlines()
                rows = [line.split("|")[2:-1] for line in filled if line.startswith("| ")][2:]
                assert rows, filled
                layout = dict(part.split(" ", 1) for part in block["layout"].split("; "))
                if "fields" in layout:
                    assert all(cell.strip() for cell in rows[-1]), filled
                    continue
                parts = [layout["rows"], layout["columns"], layout["cells"]]
                shown = pages.selected(run.lines, layout.get("where", ""))
                complete = [line for line in shown if None not in {pages.fill(part, line) for part in parts}]
                assert sum(bool(cell.strip()) for row in rows for cell in row) == len(complete) > 0, filled


def test_pictures_show_what_named_cases_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_benchmark(f"benchmarks --case {' --case '.join(SQL_CASES)} --rows 20000 --rounds 1", tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    drawn = pages.pictures()
    for name in SQL_CASES:
        engines = {line["engine"] for line in Run.read(tmp_path / f"{name}.json").lines}
        case = CASES[name]
        assert isinstance(case, SqlCase)
        assert engines >= {"RowDelta", *(f"RowDelta, {variant}" for variant in case.variants)}
        labels = {label.text for label in ElementTree.fromstring(drawn[name]).iter("{http://www.w3.org/2000/svg}text")}
        assert engines <= labels
