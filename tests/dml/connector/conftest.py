"""One lake whose catalog Spark knows, for the tests of the folder."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import dml
from tests.dml.engine.conftest import Lake


@pytest.fixture(scope="session")
def connector_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    session = dml.connect(str(tmp_path_factory.mktemp("connector")), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    session.disable()
    return Lake(session)


@pytest.fixture
def lake(connector_lake: Lake) -> Iterator[Lake]:
    """The lake, in Spark for one test."""
    connector_lake.session.enable()
    yield connector_lake
    connector_lake.session.disable()
