"""Golden scripts on Spark Connect: a rotating subset with every change, the rest by night."""

import pytest

from tests.golden.doors import Door, SparkSql
from tests.lake import Lake

pytest.register_assert_rewrite("tests.golden.runner")  # before its import: its assertions show what they compared

from tests.golden.runner import GoldenRunner  # noqa: E402
from tests.golden.turns import Run, runs  # noqa: E402

pytestmark = pytest.mark.spark

CASES = [
    pytest.param(run, id=str(run), marks=[pytest.mark.nightly] if run.nightly else []) for run in runs(Door.CONNECT)
]


@pytest.fixture(scope="module")
def golden(lake: Lake) -> GoldenRunner:
    """Runs scripts by `spark.sql` of a Connect session."""
    session = lake.session
    door = SparkSql(spark=session.spark)
    return GoldenRunner(catalog=session.registry.catalogs["lake"], doors={Door.CONNECT: door}, make=session.sql)


@pytest.mark.parametrize("run", CASES)
def test_the_script_gives_what_it_says(golden: GoldenRunner, run: Run) -> None:
    golden.run(run.script, run.combination, Door.CONNECT)
