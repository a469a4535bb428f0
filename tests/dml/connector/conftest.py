"""One lake whose catalog Spark knows, for the tests of the folder."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.lake import Lake, new_lake


@pytest.fixture(scope="session")
def connector_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return new_lake(spark, tmp_path_factory.mktemp("connector"))


@pytest.fixture
def lake(connector_lake: Lake) -> Iterator[Lake]:
    """The lake, in Spark for one test."""
    with connector_lake.enabled():
        yield connector_lake
