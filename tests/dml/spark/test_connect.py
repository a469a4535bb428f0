"""The same on Spark Connect, in a process of its own: PySpark allows one kind of session in each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.spark
@pytest.mark.parametrize(
    "program", ["connect_engine.py", pytest.param("connect_streams.py", marks=pytest.mark.nightly)]
)
def test_statements_columns_and_streams_on_spark_connect(program):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    outcome = subprocess.run(
        [sys.executable, str(FOLDER / program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    assert outcome.stdout.strip() == "all statements ran"
