"""Thousands of queries in one session leave nothing behind: not in Python, not in the JVM, not between them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROUNDS = 200
MOST_A_ROUND = {
    "java_objects": 0.5,
    "proxies": 0.1,
    "heap": 4_000,
    "threads": 0.2,
    "python_objects": 20,
    "resident": 30_000,
}
"""So much of each may be more after a round of eight queries; to keep one Java object of each would be eight."""


@pytest.mark.nightly
@pytest.mark.spark
def test_thousands_of_queries_leave_nothing_behind(tmp_path: Path) -> None:
    """What grows with them is compared over most of the time, so that one measure more or less says nothing."""
    outcome = subprocess.run(
        [sys.executable, "-m", "tests.dml.connector.many_queries", str(tmp_path), str(ROUNDS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=7200,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    _, *measured = [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]
    first, last = measured[0], measured[-1]
    rounds = last["rounds"] - first["rounds"]
    grown = {name: (last[name] - first[name]) / rounds for name in MOST_A_ROUND}
    assert {name: value for name, value in grown.items() if value > MOST_A_ROUND[name]} == {}, measured
