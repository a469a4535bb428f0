"""Random statements on tables of both versions, modes and all partitionings do what they do in DuckDB."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from tests.stateful.machine import TableMachine

pytestmark = pytest.mark.spark

EXAMPLES_SHARE = 25
"""Each statement is a Spark job: of the profile's examples, the nightly test takes one in so many."""

STORY = (
    "create", "delete", "update", "merge", "evolve_partitions", "insert", "rename_column", "delete",
    "add_column", "update", "merge", "delete",
)  # fmt: skip
"""Deletes on files with deletes, and changes of old files after the table's definition has changed."""

MODES = pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
VERSIONS = pytest.mark.parametrize("version", [2, 3])


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """An empty lake on the shared session."""
    session = dml.connect(str(tmp_path_factory.mktemp("lake")), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    yield session
    session.disable()


@pytest.fixture
def machine(lake: Session, version: int, mode: str) -> type[TableMachine]:
    """The machine of one kind of table."""
    return type("Machine", (TableMachine,), {"lake": lake, "version": version, "mode": mode, "tables": 0})


@MODES
@VERSIONS
def test_random_statements_in_a_set_order_leave_the_rows_that_duckdb_has(
    machine: type[TableMachine], version: int, mode: str
) -> None:
    """For every change: one story for each kind of table, the same on every run, with statements of each sort."""

    @seed(f"{version} {mode}")
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
        table = machine()
        for step in STORY:
            getattr(table, step)(data)
        table.teardown()

    told()


@pytest.mark.nightly
@MODES
@VERSIONS
def test_random_statements_in_any_order_leave_the_rows_that_duckdb_has(
    machine: type[TableMachine],
) -> None:
    """Whatever comes after whatever, rows, counts, row ids and files are right."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(2, settings.default.max_examples // EXAMPLES_SHARE),
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
