"""One lake for all golden scripts."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import dml

pytest.register_assert_rewrite("tests.golden.runner")  # before its import: its assertions show what they compared

from tests.golden.runner import GoldenRunner  # noqa: E402


@pytest.fixture(scope="session")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenRunner]:
    """Runs scripts on an embedded catalog."""
    lake = dml.connect(str(tmp_path_factory.mktemp("golden")), spark=spark, progress=False)
    yield GoldenRunner(lake=lake)
    lake.disable()
