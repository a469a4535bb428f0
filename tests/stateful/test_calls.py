"""Random calls of PySpark on tables in Spark's catalog leave, and find, the rows that they would without files."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from tests.stateful.calls import CallMachine

pytestmark = pytest.mark.spark

EXAMPLES_SHARE = 25
"""Each call is a Spark job: of the profile's examples, the nightly test takes one in so many."""

STORIES = {
    2: ("create", "delete", "append", "merge", "overwrite_partitions"),
    3: ("create", "add_column", "update", "overwrite", "read"),
}
"""Writes on files with deletes and on files of an older schema, each followed by reads."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """An empty lake that Spark's catalog knows."""
    session = dml.connect(str(tmp_path_factory.mktemp("calls")), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    yield session
    session.disable()


def machine_of(lake: Session, version: int) -> type[CallMachine]:
    """The machine of one kind of table."""
    return type("Machine", (CallMachine,), {"lake": lake, "version": version, "tables": 0})


@pytest.mark.parametrize("version", [2, 3])
def test_random_calls_in_a_set_order_leave_the_rows_of_plain_values(lake: Session, version: int) -> None:
    """For every change: one story for each version, the same on every run."""

    @seed(f"calls {version}")
    @settings(
        max_examples=1,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def told(data: st.DataObject) -> None:
        # The first example is always the simplest one, all of whose conditions compare with NULL.
        assume(data.draw(st.integers(0, 2**16)) != 0)
        table = machine_of(lake, version)()
        try:
            for step in STORIES[version]:
                getattr(table, step)(data)
        finally:
            table.teardown()

    told()


@pytest.mark.nightly
@pytest.mark.parametrize("version", [2, 3])
def test_random_calls_in_any_order_leave_the_rows_of_plain_values(lake: Session, version: int) -> None:
    """Whatever comes after whatever."""
    run_state_machine_as_test(
        machine_of(lake, version),
        settings=settings(
            max_examples=max(2, settings.default.max_examples // EXAMPLES_SHARE),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
