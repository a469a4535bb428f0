"""Statements leave the same rows on a cluster as in a local session, and every table verifies after each of them.

With every change, the rows are compared with `left.json`, which a local session wrote; by night, with a local session
that runs beside the cluster. `python -m tests.cluster.statements FOLDER 200000 v2-copy-on-write` prints
`left.json`.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dml.session import Session
from tests.cluster.statements import KINDS, Left, kind_name, left_by_statements
from tests.faults.processes import running
from tests.services.lakes import puffin_properties

pytestmark = pytest.mark.spark

PATIENCE_SECONDS = 1800
ROWS = 200_000
MANY_ROWS = 3_000_000
RECORDED = Path(__file__).with_name("left.json")


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
    kinds = [kind_name(version, mode) for version, mode in KINDS]
    with running("tests.cluster.statements", [str(folder), str(rows), *kinds], folder) as process:
        yield LocalRun(rows=rows, process=process, folder=folder)


def recorded() -> list[Left]:
    """Return the recorded sums and counts after each statement, which are the same for all kinds of tables."""
    (left,) = json.loads(RECORDED.read_text()).values()
    return [(text, sums, counts) for text, sums, counts in left]


def left_on_cluster(lake: Session, rows: int, version: int, mode: str) -> list[Left]:
    """Run the statements on the cluster."""
    name = f"statements_{version}_{mode[0]}_{rows}"
    return left_by_statements(lake, name, version, mode, rows, puffin_properties(version, name))


@pytest.mark.parametrize(("version", "mode"), [KINDS[0], KINDS[-1]])
def test_a_cluster_leaves_what_a_local_session_left(lake: Session, version: int, mode: str) -> None:
    for found, expected in zip(left_on_cluster(lake, ROWS, version, mode), recorded(), strict=True):
        assert found == expected


@pytest.mark.nightly
@pytest.mark.parametrize("local", [MANY_ROWS], indirect=True)
@pytest.mark.parametrize(("version", "mode"), KINDS)
def test_a_cluster_leaves_what_a_local_session_leaves(lake: Session, local: LocalRun, version: int, mode: str) -> None:
    left = left_on_cluster(lake, local.rows, version, mode)
    for found, expected in zip(left, local.left(version, mode), strict=True):
        assert found == expected


@pytest.mark.nightly
@pytest.mark.parametrize("local", [ROWS], indirect=True)
@pytest.mark.parametrize(("version", "mode"), KINDS)
def test_the_recorded_values_are_those_of_a_local_session(local: LocalRun, version: int, mode: str) -> None:
    assert local.left(version, mode) == recorded()
