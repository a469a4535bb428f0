"""PySpark's calls behave on Spark Connect as on classic Spark (tests/dml/connector/test_calls.py)."""

import pytest

from tests.dml.spark.call_cases import CASES

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_calls(case, lake, spark):
    case(spark, lake.session)
