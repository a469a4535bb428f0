"""Separate applications on the cluster: a submitted job with a packed environment, a server for clients."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.packed import packed_environment
from tests.cluster.standalone import SPARK_HOME, Standalone
from tests.serve.conftest import Served, said
from tests.serve.environment import client_environment
from tests.services.seaweedfs import SeaweedFs
from tests.services.server import serving

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("job.py")
JOB_SECONDS = 600
START_SECONDS = 180


def environment() -> dict[str, str]:
    """Return environment variables without those of the tests' own Spark."""
    others = ("PYSPARK_", "SPARK_", "PYTHONPATH", "PYTHONHOME")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(others)}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1"}


def conf(settings: dict[str, str]) -> list[str]:
    """Return settings as command-line options."""
    return [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]


def test_a_job_is_submitted_with_its_environment(cluster: Standalone, storage: SeaweedFs, tmp_path: Path) -> None:
    """The workers have neither RowDelta nor its dependencies; one of them unpacks the environment."""
    archive = packed_environment(tmp_path)
    settings = {**cluster.settings, "spark.archives": f"{archive}#environment", "spark.cores.max": "1"}
    (tmp_path / "catalog.json").write_text(json.dumps(storage.rest_catalog("tables")))
    outcome = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), *conf(settings), str(JOB), "submitted"],
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_SECONDS,
        cwd=tmp_path,
        env={
            **environment(),
            "PYSPARK_PYTHON": "./environment/bin/python",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )
    assert outcome.returncode == 0, outcome.stderr[-6000:]
    report = json.loads(outcome.stdout.splitlines()[-1])
    assert all(str(cluster.folder / "work") in place for row in report["places"] for place in row), report["places"]
    assert report["ok"]
    assert report["daemon"] == "dml.spark.worker_daemon"
    kept = [number for number in range(10_000) if number % 3]
    odd, even = ([number for number in kept if number % 2 == rest] for rest in (1, 0))
    new = [number * 3 for number in range(5000) if number * 3 >= 10_000]
    assert report["rows"] == [["a", len(odd), sum(odd)], ["b", len(even), sum(even)], ["c", len(new), sum(new)]]


@pytest.mark.nightly
def test_a_server_runs_its_clients_statements_on_the_cluster(
    cluster: Standalone, storage: SeaweedFs, tmp_path: Path
) -> None:
    properties = [text for pair in storage.rest_catalog("tables").items() for text in ("-p", "=".join(pair))]
    command = [sys.executable, "-P", "-m", "dml", "--catalog", "lake", *properties, "serve", "--port", "0"]
    command += conf({**cluster.settings, "spark.cores.max": "2"})
    log = tmp_path / "serve.log"
    url = said(log, r"\"(sc://[^\"]+)\"")
    variables = [f"{key}={value}" for key, value in environment().items()]
    with serving(["env", "-i", *variables, *command], url, log, seconds=START_SECONDS):
        python = client_environment(tmp_path / "client")
        served = Served(url=url(), jdbc_url="", log=log, lake=tmp_path, python=python)  # the catalog is a server
        assert served.run("statements").endswith("done")
