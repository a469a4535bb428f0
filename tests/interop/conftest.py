"""One lake for all tests of the folder, and what they ask of it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import dml
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.session import Session
from dml.spark.versions import arrow_table
from tests.fixtures.java.tables import place_of_tables
from tests.interop.readers import canonical, read_duckdb, read_pyiceberg

MERGE_ON_READ = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}


@dataclass(eq=False)
class Lake:
    """A session, and names for new tables."""

    session: Session
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def create(self, columns: str, clauses: str = "", *, version: int = 2, mode: str = "", **properties: str) -> str:
        """A new table's name; `mode` is of all three commands."""
        name = f"db.t{next(self.numbers)}"
        modes = dict.fromkeys(MERGE_ON_READ, mode) if mode else {}
        listed = {"format-version": str(version), **modes, **properties}
        text = ", ".join(f"'{key}' = '{value}'" for key, value in listed.items())
        self.session.sql(f"CREATE TABLE {name} ({columns}) {clauses} TBLPROPERTIES ({text})")
        return name

    def run(self, name: str, *statements: str) -> None:
        """Run statements, in which `t` in braces is the table."""
        for statement in statements:
            self.session.sql(statement.replace("{t}", name))

    def table(self, name: str) -> Table:
        return self.session.registry.catalogs["lake"].load_table(tuple(name.split(".")))

    def rows(self, name: str, columns: str = "*") -> list[str]:
        """The rows that we read."""
        return canonical(arrow_table(self.session.sql(f"SELECT {columns} FROM {name}")))

    def files(self, name: str, content: FileContent) -> list[ContentFile]:
        """The live files of a kind."""
        table = self.table(name)
        manifests = manifests_of(table.io, table.current_snapshot())
        entries = (entry for manifest in manifests for entry in entries_of(manifest, table.io, live_only=True))
        return [entry.data_file for entry in entries if entry.data_file.content is content]

    def delete_files(self, name: str) -> list[ContentFile]:
        """The live position delete files and deletion vectors."""
        return self.files(name, FileContent.POSITION_DELETES)

    def agree(self, name: str, count: int, *, duckdb: bool = True) -> list[str]:
        """All readers find the same rows, so many of them."""
        location = self.table(name).metadata_location
        rows = self.rows(name)
        assert len(rows) == count
        assert read_pyiceberg(location) == rows
        if duckdb:
            assert read_duckdb(location) == rows
        return rows


@pytest.fixture(scope="session")
def interop_session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A session on an empty lake."""
    session = dml.connect(str(tmp_path_factory.mktemp("interop")), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    return session


@pytest.fixture(scope="session")
def shared_lake(interop_session: Session) -> Lake:
    """The lake of all tests of the folder."""
    return Lake(interop_session)


@pytest.fixture
def lake(shared_lake: Lake) -> Iterator[Lake]:
    """The lake, taking `spark.sql` for one test."""
    shared_lake.session.enable()
    yield shared_lake
    shared_lake.session.disable()


@pytest.fixture(scope="module")
def place_of_java_tables() -> Iterator[Path]:
    """Where tables that Java wrote are laid out; other parts of the suite wait for the place."""
    with place_of_tables() as place:
        yield place
