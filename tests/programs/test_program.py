"""A program of PySpark's calls does on RowDelta what it does on Iceberg's Java library, but for what the docs list."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from dml.spark.versions import INSTALLED_FEATURES, Feature
from tests.programs.all_calls import CALLS, differences, listed_differences
from tests.programs.program import Program, answer

ROOT = Path(__file__).parents[2]
OF_FUNCTIONS = {
    "bucket_in_a_condition",
    "truncate_in_an_expression",
    "days_by_call_function",
    "months_and_hours_in_expressions",
    "function_exists",
    "wrong_type_for_a_bucket",
}
"""Calls with Iceberg's functions."""

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("compiled")
def test_the_program_answers_as_java_does(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """On classic Spark: the same rows, the same kinds of errors; a call that is listed as different is different."""
    assert len({call.name for call in CALLS}) == len(CALLS) >= 100
    with dml.connect(str(tmp_path_factory.mktemp("program")), spark=spark, progress=False):
        program = Program(spark)
        program.prepare()
        found = {call.name: answer(call, program) for call in CALLS}
    different = differences(found)
    listed = listed_differences("classic")
    if spark.version < "4.1":
        listed -= {"append_of_too_few_columns"}
    if Feature.CATALOG_FUNCTIONS not in INSTALLED_FEATURES:
        listed |= OF_FUNCTIONS
    assert different.keys() == listed, json.dumps(different, indent=1)


@pytest.mark.nightly
@pytest.mark.needs(Feature.CATALOG_FUNCTIONS)
def test_the_program_on_spark_connect(tmp_path: Path) -> None:
    """On a server that is not ours, in a process of its own: PySpark allows one kind of session in each."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    (tmp_path / "importable").mkdir()
    (tmp_path / "importable" / "tests").symlink_to(ROOT / "tests")
    outcome = subprocess.run(
        [sys.executable, "-m", "tests.programs.on_connect", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(tmp_path / "importable")},
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    different = differences(json.loads(outcome.stdout.splitlines()[-1]))
    assert different.keys() == listed_differences("Connect"), json.dumps(different, indent=1)
