"""PySpark's calls answer on classic Spark as on Spark Connect, where `tests/dml/spark/connect_engine.py` makes them."""

import pytest

from tests.dml.spark.call_cases import CASES

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_calls(case, lake, spark):
    case(spark, lake.session)
