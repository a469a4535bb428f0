"""What the tests of faults share: a session whose workers find the FileIO of the tests, and the counts at the end."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

COUNTS = pytest.StashKey[list[str]]()


@pytest.fixture
def faulty_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, with few tasks."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Takes what a test counted; the end of the run shows it."""
    lines: list[str] = []
    yield lines
    request.config.stash.setdefault(COUNTS, []).extend(f"{request.node.name}: {line}" for line in lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The counts of all tests."""
    for line in config.stash.get(COUNTS, []):
        terminalreporter.write_line(line)
