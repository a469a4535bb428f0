"""PySpark's calls answer on classic Spark as on Spark Connect, where tests/connect/test_calls.py makes them.

With every change those that nothing else calls on classic Spark: what the others do there is asked by the tests beside
this one, and by the program of tests/programs, whose answers are Java's. By night all of them.
"""

import pytest

from tests.dml.spark.call_cases import CASES

pytestmark = pytest.mark.spark


ALWAYS = {"rows_are_merged", "a_writer_is_called_again", "states_are_read"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name in ALWAYS else [pytest.mark.nightly])
        for name, case in CASES.items()
    ],
)
def test_calls(case, lake, spark):
    case(spark, lake.session)
