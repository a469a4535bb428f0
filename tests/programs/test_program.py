"""A program of PySpark's calls does on RowDelta what it does on Iceberg's Java library, but for what the docs list."""

import json

import pytest
from pyspark.sql import SparkSession

import dml
from tests.programs.all_calls import CALLS, differences, listed_differences
from tests.programs.program import Program, answer

pytestmark = pytest.mark.spark


def test_the_program_answers_as_java_does(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """On classic Spark: the same rows, the same kinds of errors; a call that is listed as different is different."""
    assert len({call.name for call in CALLS}) == len(CALLS) >= 100
    with dml.connect(str(tmp_path_factory.mktemp("program")), spark=spark, progress=False):
        program = Program(spark)
        program.prepare()
        found = {call.name: answer(call, program) for call in CALLS}
    different = differences(found)
    assert different.keys() == listed_differences("classic"), json.dumps(different, indent=1)
