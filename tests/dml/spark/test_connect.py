"""The same on Spark Connect, in a process of its own: PySpark allows one kind of session in each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import importable_tests

FOLDER = Path(__file__).parent


@pytest.mark.spark
@pytest.mark.parametrize(
    "program",
    [
        ("connect_engine.py",),
        pytest.param(("connect_streams.py",), marks=pytest.mark.nightly),
        pytest.param(("connect_golden.py",), marks=pytest.mark.nightly),
        *(
            pytest.param(("connect_matrix.py", file_format), marks=pytest.mark.nightly)
            for file_format in ("parquet", "orc", "avro")
        ),
    ],
    ids=lambda words: "-".join(words).removesuffix(".py"),
)
def test_statements_columns_and_streams_on_spark_connect(program, tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    environment["PYTHONPATH"] = importable_tests(tmp_path)
    outcome = subprocess.run(
        [sys.executable, str(FOLDER / program[0]), *program[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=1_200,
        env=environment,
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    assert outcome.stdout.strip() == "all statements ran"
