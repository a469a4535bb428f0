"""Thousands of queries in one session leave nothing behind: not in Python, not in the JVM, not between them."""

import json
import sys
from pathlib import Path

import pytest

from tests.faults.processes import running

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
    arguments = [str(tmp_path / "warehouse"), str(ROUNDS)]
    with running("tests.dml.connector.many_queries", arguments, tmp_path, PYSPARK_PYTHON=sys.executable) as process:
        assert process.wait(7200) == 0, (tmp_path / "log").read_text()[-4000:]
    printed = (tmp_path / "out").read_text().splitlines()
    _, *measured = [json.loads(line) for line in printed if line.startswith("{")]
    first, last = measured[0], measured[-1]
    rounds = last["rounds"] - first["rounds"]
    grown = {name: (last[name] - first[name]) / rounds for name in MOST_A_ROUND}
    assert {name: value for name, value in grown.items() if value > MOST_A_ROUND[name]} == {}, measured
