"""The samples, made once, and how many damaged files were tried."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conftest import importable_tests
from tests.damage.samples import Sample, make_sample


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Sample]:
    """A table of each format version that has deletes."""
    return {version: make_sample(tmp_path_factory.mktemp(f"v{version}"), version) for version in (2, 3)}


@dataclass(frozen=True)
class Program:
    """Runs a program of the folder in a process of its own, on the package as it is installed.

    Attributes:
        path: A folder that has the tests, and nothing else of the checkout.
    """

    path: str

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What came of it."""
        command = [sys.executable, "-P", "-m", f"tests.damage.{name}", *arguments]
        environment = {**os.environ, "PYTHONPATH": self.path}
        return subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Runs the programs of the folder."""
    return Program(importable_tests(tmp_path_factory.mktemp("program")))


@pytest.fixture(scope="session")
def tried() -> Iterator[Counter[str]]:
    """Counts damaged files by kind and outcome; the numbers are printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    print("\ndamaged files tried:", sum(counts.values()))
    for name, count in sorted(counts.items()):
        print(f"  {count:6} {name}")
