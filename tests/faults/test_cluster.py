"""A cluster whose tasks fail and whose processes are killed: each row is there once, and no file is left."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyspark
import pytest

from dml.catalog.loading import load
from dml.maintenance import RemoveOrphanFiles, remove_orphan_files
from tests.faults.bench import BEFORE, Place, wrong_rows
from tests.faults.cluster import DEATHS, kinds
from tests.faults.processes import all_ended, running

pytestmark = pytest.mark.spark

PATIENCE_SECONDS = 600
END_SECONDS = 60
DAY_SECONDS = 86_400


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.soak)])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the program told, when it has killed itself and all of its processes have ended."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_WORKER_DIR": str(folder / "work")}
    with running("tests.faults.cluster", [str(folder), request.param], folder, **spark) as process:
        assert process.wait(PATIENCE_SECONDS) == -9, (folder / "log").read_text()[-4000:]
        assert all_ended(process.pid, END_SECONDS)
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


@pytest.mark.proves("A9")
def test_each_row_is_there_once(told: list[dict[str, Any]], count: list[str], request: pytest.FixtureRequest) -> None:
    """Tasks that fail twice, killed workers and executors, a task that is run a second time beside the first."""
    *runs, _ = told
    deaths = Counter(run["what"].partition(": ")[2] for run in runs)
    assert set(deaths) == set(DEATHS)
    all_of_them = "all" in request.node.name
    assert deaths["a worker is killed in a write"] == len(kinds(all_of_them=all_of_them))
    problems = [problem for run in runs for problem in run["problems"]]
    assert not problems, "\n".join(problems)
    assert {run["outcome"] for run in runs} == {"after"}
    assert all(run["injected"] for run in runs)
    count.append(f"{len(runs)} statements: " + ", ".join(f"{what} {number} times" for what, number in deaths.items()))


def test_a_cluster_ends_with_its_driver_and_what_it_left_is_found(told: list[dict[str, Any]], count: list[str]) -> None:
    """The driver was killed while a task wrote."""
    place = Place(Path(told[-1]["folder"]))
    assert place.metadata_location is not None
    assert not wrong_rows(place.metadata_location, BEFORE)
    old = time.time() - 10 * DAY_SECONDS
    for path in place.files():
        os.utime(path, (old, old))
    left = place.left()
    catalog = load("lake", f"file://{place.folder}/lake", uri=f"sqlite:///{place.folder}/catalog.db")
    assert set(remove_orphan_files(catalog, ("db", "t"), RemoveOrphanFiles()).orphans) == left
    assert not place.left()
    count.append(f"1 kill of a driver: before; {len(left)} files left and found")
