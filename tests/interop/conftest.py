"""The shared lake of the interoperability tests, with helpers to compare readers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dml.spark.versions import arrow_table
from tests.fixtures.java.tables import place_of_tables
from tests.interop.readers import canonical, read_duckdb, read_pyiceberg
from tests.lake import Lake, new_lake

MERGE_ON_READ = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}


@dataclass(eq=False)
class InteropLake(Lake):
    """A lake that compares the rows that RowDelta, PyIceberg and DuckDB read."""

    def run(self, name: str, *statements: str) -> None:
        """Run statements, replacing `{t}` with the table's name."""
        for statement in statements:
            self.session.sql(statement.replace("{t}", name))

    def row_texts(self, name: str, columns: str = "*") -> list[str]:
        """Return the rows that RowDelta reads, as text."""
        return canonical(arrow_table(self.session.sql(f"SELECT {columns} FROM {name}")))

    def assert_readers_agree(self, name: str, count: int, *, duckdb: bool = True) -> list[str]:
        """Assert that RowDelta, PyIceberg and DuckDB read the same `count` rows, and return them."""
        location = self.table(name).metadata_location
        rows = self.row_texts(name)
        assert len(rows) == count
        assert read_pyiceberg(location) == rows
        if duckdb:
            assert read_duckdb(location) == rows
        return rows


@pytest.fixture(scope="session")
def shared_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> InteropLake:
    """The lake of all tests of the folder."""
    return InteropLake(new_lake(spark, tmp_path_factory.mktemp("interop")).session)


@pytest.fixture
def lake(shared_lake: InteropLake) -> Iterator[InteropLake]:
    """The shared lake, enabled for one test."""
    with shared_lake.enabled():
        yield shared_lake


@pytest.fixture(scope="module")
def place_of_java_tables() -> Iterator[Path]:
    """Where tables that Java wrote are laid out; other parts of the suite wait for the place."""
    with place_of_tables() as place:
        yield place
