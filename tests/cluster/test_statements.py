"""Statements leave the same rows on a cluster as in a local session, and every table verifies after each of them."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dml.session import Session
from tests.cluster.statements import KINDS, Left, kind_name, left_by_statements
from tests.faults.processes import running
from tests.marks import by_night
from tests.services.lakes import puffin_properties

pytestmark = pytest.mark.spark

PATIENCE_SECONDS = 1800
ROWS = 200_000
MANY_ROWS = 3_000_000
CASES = [*((ROWS, *kind) for kind in (KINDS[0], KINDS[-1])), *((MANY_ROWS, *kind) for kind in KINDS)]


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """A local session that runs the statements beside the cluster.

    Attributes:
        rows: The number of rows that the first statement inserts.
        process: The process of the session.
        folder: The folder of its output.
    """

    rows: int
    process: subprocess.Popen[str]
    folder: Path

    def left(self, version: int, mode: str) -> list[Left]:
        """Wait for the session to end; return the state after each statement on tables of a kind."""
        assert self.process.wait(PATIENCE_SECONDS) == 0, (self.folder / "log").read_text()[-4000:]
        outcomes = json.loads((self.folder / "out").read_text())[kind_name(version, mode)]
        return [(text, sums, counts) for text, sums, counts in outcomes]


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRun]:
    """A local session."""
    rows: int = request.param
    folder: Path = tmp_path_factory.mktemp("local")
    kinds = [kind_name(version, mode) for known, version, mode in CASES if known == rows]
    with running("tests.cluster.statements", [str(folder), str(rows), *kinds], folder) as process:
        yield LocalRun(rows=rows, process=process, folder=folder)


@pytest.mark.parametrize(
    ("local", "version", "mode"), by_night(CASES, lambda case: case[0] == ROWS), indirect=["local"]
)
def test_a_cluster_leaves_what_a_local_session_leaves(lake: Session, local: LocalRun, version: int, mode: str) -> None:
    name = f"statements_{version}_{mode[0]}_{local.rows}"
    left = left_by_statements(lake, name, version, mode, local.rows, puffin_properties(version, name))
    for ours, theirs in zip(left, local.left(version, mode), strict=True):
        assert ours == theirs
