"""One lake for the tests of the folder; tables of both versions, modes, with and without partitions."""

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

COMMANDS = ("delete", "update", "merge")


@dataclass
class Lake:
    """A session, and names for new tables."""

    session: Session
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_name(self) -> str:
        return f"db.t{next(self.numbers)}"

    def create(self, columns: str, clauses: str = "", **properties: str) -> str:
        """A new table's name."""
        name = self.new_name()
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self.session.sql(
            f"CREATE TABLE {name} ({columns}) {clauses}" + (f" TBLPROPERTIES ({listed})" if listed else "")
        )
        return name

    def table(self, name: str) -> Table:
        return self.session.registry.catalogs["lake"].load_table(tuple(name.split(".")))

    def rows(self, query: str) -> list[tuple]:
        """The rows of a table or query, in order of their text."""
        text = query if " " in query else f"SELECT * FROM {query}"
        return sorted((tuple(row) for row in self.session.query(text).collect()), key=repr)

    def data_files(self, name: str) -> list[ContentFile]:
        """The live data files."""
        table = self.table(name)
        manifests = manifests_of(table.io, table.current_snapshot())
        entries = (entry for manifest in manifests for entry in entries_of(manifest, table.io, live_only=True))
        return [entry.data_file for entry in entries if entry.data_file.content is FileContent.DATA]

    def folder(self, name: str) -> Path:
        return Path(self.table(name).location().removeprefix("file://"))

    def state(self, name: str) -> tuple[str, frozenset[Path]]:
        """The metadata's location and all files: equal states mean that nothing happened."""
        paths = frozenset(path for path in self.folder(name).rglob("*") if path.is_file())
        return self.table(name).metadata_location, paths


@pytest.fixture(scope="session")
def engine_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of all tests of the folder."""
    session = dml.connect(str(tmp_path_factory.mktemp("engine")), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    session.disable()
    return Lake(session)


@pytest.fixture
def lake(engine_lake: Lake) -> Iterator[Lake]:
    """The lake, taking `spark.sql` for one test."""
    engine_lake.session.enable()
    yield engine_lake
    engine_lake.session.disable()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A version, a mode and whether there are partitions.

    Attributes:
        lake: Where tables are made.
        version: The format version.
        mode: Of all commands.
        partitioned: By `k`.
    """

    lake: Lake
    version: int
    mode: str
    partitioned: bool

    @property
    def copy_on_write(self) -> bool:
        return self.mode == "copy-on-write"

    def create(self, columns: str = "id BIGINT, k INT, s STRING") -> str:
        """An empty table."""
        properties = {f"write.{command}.mode": self.mode for command in COMMANDS}
        clause = "PARTITIONED BY (k)" if self.partitioned else ""
        return self.lake.create(columns, clause, **{"format-version": str(self.version)}, **properties)

    def filled(self) -> str:
        """A table of three data files: the ids 0 to 3 with k = 0, 4 to 7 with k = 1, 8 to 11 with k = 2."""
        name = self.create()
        for k in range(3):
            query = f"SELECT /*+ COALESCE(1) */ id, {k}, concat('s', id) FROM range({4 * k}, {4 * k + 4})"
            self.lake.session.sql(f"INSERT INTO {name} {query}")
        return name


BALANCED = (
    (2, "copy-on-write", False),
    (2, "merge-on-read", True),
    (3, "copy-on-write", True),
    (3, "merge-on-read", False),
)
"""Half of the kinds of tables: every pair of version, mode and layout is among them."""
ALWAYS = ((2, "copy-on-write", False), (3, "merge-on-read", True))
"""What a table is without properties, and a kind that differs from it in everything."""
ALL = tuple(itertools.product((2, 3), ("copy-on-write", "merge-on-read"), (False, True)))


@pytest.fixture(
    params=[pytest.param(one, marks=[] if one in ALWAYS else [pytest.mark.nightly]) for one in ALL], ids=str
)
def kind(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """Every kind of table: two with every change, the others by night."""
    version, mode, partitioned = request.param
    return Kind(lake=lake, version=version, mode=mode, partitioned=partitioned)


@pytest.fixture(params=BALANCED, ids=str)
def balanced_kind(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """Half of the kinds: where position deletes, vectors and rewritten files may each go wrong in another way."""
    version, mode, partitioned = request.param
    return Kind(lake=lake, version=version, mode=mode, partitioned=partitioned)
