"""Golden scripts through a client of `dml serve`, in the combinations of `tests.golden.turns`."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dml.catalog.loading import load
from tests.golden.doors import Door, ServeClient
from tests.golden.runner import GoldenRunner
from tests.golden.turns import Run, runs
from tests.serve.conftest import Served

pytestmark = pytest.mark.spark

CASES = [pytest.param(run, id=str(run), marks=[pytest.mark.nightly] if run.nightly else []) for run in runs(Door.SERVE)]


@pytest.fixture(scope="module")
def golden(served: Served) -> Iterator[GoldenRunner]:
    """The runner of scripts for a client; the tests read the tables' metadata in the catalog that is served."""
    with pytest.MonkeyPatch.context() as patched:
        # `create` sets it for good, and servers that later tests start would inherit it.
        patched.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        spark = SparkSession.builder.remote(served.url).create()
        catalog = load("lake", str(served.lake))
        client = ServeClient(spark=spark)
        yield GoldenRunner(catalog=catalog, doors={Door.SERVE: client}, make=client.run)
        catalog.close()
        spark.stop()


@pytest.mark.parametrize("run", CASES)
def test_the_script_gives_what_it_says(golden: GoldenRunner, run: Run) -> None:
    golden.run(run.script, run.combination, Door.SERVE)
