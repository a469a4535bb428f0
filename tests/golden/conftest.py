"""One lake for all golden scripts."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import dml
from dml.session import Session

pytest.register_assert_rewrite("tests.golden.runner")  # before its import: its assertions show what they compared

from tests.golden.doors import entrances  # noqa: E402
from tests.golden.runner import GoldenRunner  # noqa: E402


@pytest.fixture(scope="session")
def golden_session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session on an embedded catalog."""
    session = dml.connect(str(tmp_path_factory.mktemp("golden")), spark=spark, progress=False)
    yield session
    session.disable()


@pytest.fixture(scope="session")
def golden(golden_session: Session) -> GoldenRunner:
    """Runs scripts through the doors of a classic session."""
    catalog = golden_session.registry.catalogs["lake"]
    return GoldenRunner(catalog=catalog, doors=entrances(golden_session), make=golden_session.sql)
