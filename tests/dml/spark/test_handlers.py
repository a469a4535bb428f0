"""Which statements are ours, while one of ours runs."""

import pytest
from pyspark.sql import SparkSession

from dml.spark.handlers import find_handler, run_as_handler, session_key
from tests.dml.spark.conftest import LakeHandler

pytestmark = pytest.mark.spark


def test_running_nests(spark: SparkSession, handler: LakeHandler) -> None:
    """A statement that runs another one is itself still running afterwards: what it gives to Spark is Spark's."""
    key, text = session_key(spark), "SELECT * FROM lake.t"
    with run_as_handler():
        with run_as_handler():
            assert find_handler(key, text, lambda: spark) is None
        assert find_handler(key, text, lambda: spark) is None
    assert find_handler(key, text, lambda: spark) == handler.registered()
