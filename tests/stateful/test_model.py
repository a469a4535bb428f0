"""Random statements on tables of both versions, modes and all partitionings do what they do in DuckDB."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from tests.stateful.machine import TableMachine

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

EXAMPLES_SHARE = 25
"""Each statement is a Spark job: of the profile's examples, one in so many."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """An empty lake on the shared session."""
    session = dml.connect(str(tmp_path_factory.mktemp("lake")), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    yield session
    session.disable()


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("version", [2, 3])
def test_random_statements_leave_the_rows_that_duckdb_has(lake: Session, version: int, mode: str) -> None:
    """Whatever comes after whatever, rows, counts, row ids and files are right."""
    machine = type("Machine", (TableMachine,), {"lake": lake, "version": version, "mode": mode, "tables": 0})
    chosen = settings(
        max_examples=max(2, settings.default.max_examples // EXAMPLES_SHARE),
        stateful_step_count=6 if settings.default.max_examples <= 100 else 15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)
