"""One lake for the tests of the folder; tables of both versions, modes, with and without partitions."""

import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
)
from pyspark.sql import SparkSession

import dml
from dml.engine.engine import Engine
from dml.iceberg import metadata_json
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.session import Session, runner_of

COMMANDS = ("delete", "update", "merge")
NAME_OF_TABLE = re.compile(r"db\.\w+")
PLAIN_TYPES = (BooleanType, IntegerType, LongType, FloatType, DoubleType, StringType, DateType, DecimalType)
"""Types whose values PyIceberg and PySpark give as equal Python objects."""


def rows_of_plain_types(table: Table) -> list[tuple] | None:
    """Return the rows of a table as PyIceberg reads them.

    Returns:
        None if PySpark has to read them: for other types or formats, or where `spark.wap.branch` may name a branch.
    """
    if table.properties.get("write.wap.enabled") == "true":
        return None
    fields = table.schema().fields
    if any(not isinstance(field.field_type, PLAIN_TYPES) or field.initial_default is not None for field in fields):
        return None
    tasks = list(table.scan().plan_files())
    if any(task.file.file_format is not FileFormat.PARQUET for task in tasks):
        return None
    read = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
    return list(zip(*(column.to_pylist() for column in read.columns), strict=True))


@dataclass
class Lake:
    """A session, and names for new tables.

    Attributes:
        session: The session.
        numbers: The numbers of new tables.
        computed: What `once` has computed, by key.
    """

    session: Session
    numbers: Iterator[int] = field(default_factory=itertools.count)
    computed: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        """The context of the session's statements."""
        return runner_of(self.session).engine

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

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Compute a value at the first call with a key, and return it at each later one."""
        if key not in self.computed:
            self.computed[key] = compute()
        return self.computed[key]

    def copy(self, name: str, **properties: str) -> str:
        """Return a new table with the rows and the history of another one, and further properties.

        The copy reads the other table's files and writes to a location of its own, so it costs one metadata file.
        Never drop it with PURGE, which deletes the shared files.
        """
        original, copied = self.table(name).metadata, self.new_name()
        location = f"{original.location}-{copied.partition('.')[2]}"
        folder = Path(location.removeprefix("file://"))
        for inner in ("metadata", "data"):
            (folder / inner).mkdir(parents=True)
        path = folder / "metadata" / "00000.metadata.json"
        changes = {
            "location": location,
            "table_uuid": uuid4(),
            "properties": {**original.properties, **properties},
        }
        path.write_text(metadata_json(original.model_copy(update=changes)))
        self.session.registry.catalogs["lake"].register_table(tuple(copied.split(".")), f"file://{path}")
        return copied

    def copy_of(self, key: Hashable, make: Callable[[], str], **properties: str) -> str:
        """Return a copy of the table that `make` creates at the first call with a key, with further properties."""
        return self.copy(self.once(key, make), **properties)

    def table(self, name: str) -> Table:
        return self.session.registry.catalogs["lake"].load_table(tuple(name.split(".")))

    def rows(self, query: str) -> list[tuple]:
        """Return the rows of a table or query, in order of their text.

        PyIceberg reads a table of plain types that is given by its name, in a tenth of the time of a Spark job. A test
        of what Spark reads gives a query.
        """
        if " " not in query:
            read = rows_of_plain_types(self.table(query)) if NAME_OF_TABLE.fullmatch(query) else None
            if read is not None:
                return sorted(read, key=repr)
            query = f"SELECT * FROM {query}"
        return sorted((tuple(row) for row in self.session.sql(query).collect()), key=repr)

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

    @property
    def key(self) -> tuple[int, str, bool]:
        """What distinguishes a kind from others."""
        return self.version, self.mode, self.partitioned

    def copy_of(self, make: Callable[["Kind"], str], **properties: str) -> str:
        """Return a copy of the table that `make` creates of this kind, once, with further properties."""
        return self.lake.copy_of((make, self.key), lambda: make(self), **properties)

    @property
    def properties(self) -> dict[str, str]:
        """Of a table of the kind."""
        return {"format-version": str(self.version), **{f"write.{command}.mode": self.mode for command in COMMANDS}}

    def create(self, columns: str = "id BIGINT, k INT, s STRING") -> str:
        """An empty table."""
        return self.lake.create(columns, "PARTITIONED BY (k)" if self.partitioned else "", **self.properties)

    def filled(self) -> str:
        """A table of three data files: the ids 0 to 3 with k = 0, 4 to 7 with k = 1, 8 to 11 with k = 2.

        Other tables read the same files: a test that damages or deletes them takes `filled_alone`.
        """
        return self.copy_of(Kind.filled_alone)

    def filled_alone(self) -> str:
        """The same with files of its own."""
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
REWRITTEN = (3, "copy-on-write", True)
"""Files are rewritten as in another kind, with row lineage, which tests of its own ask for."""
ALWAYS = ((2, "copy-on-write", False), (3, "merge-on-read", True))
"""What a table is without properties, and a kind that differs from it in everything."""
ALL = tuple(itertools.product((2, 3), ("copy-on-write", "merge-on-read"), (False, True)))


def in_turn(values: Iterable[Any], always: Callable[[Any], bool] = lambda _: True, *, first: int = 0) -> list[Any]:
    """Return kinds with values, as `parametrize` takes them with `indirect=["kind"]`.

    With every change a value meets one of the kinds in `ALWAYS`, in turn. By night each meets all kinds.

    Args:
        values: The values, or tuples of the values of several parameters.
        always: Whether a value is run with every change.
        first: The place in `ALWAYS` of the first value's kind.
    """
    turns, found = itertools.cycle(ALWAYS[first:] + ALWAYS[:first]), []
    for value in values:
        words = value if isinstance(value, tuple) else (value,)
        chosen = next(turns) if always(value) else None
        found += [
            pytest.param(
                one, *words, marks=[] if one == chosen else [pytest.mark.nightly], id="-".join(map(str, (one, *words)))
            )
            for one in ALL
        ]
    return found


@pytest.fixture(
    params=[pytest.param(one, marks=[] if one in ALWAYS else [pytest.mark.nightly]) for one in ALL], ids=str
)
def kind(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """Every kind of table: two with every change, the others by night."""
    version, mode, partitioned = request.param
    return Kind(lake=lake, version=version, mode=mode, partitioned=partitioned)


@pytest.fixture(
    params=[pytest.param(one, marks=[] if one == ALWAYS[-1] else [pytest.mark.nightly]) for one in ALL], ids=str
)
def any_kind(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """The kind that differs from the default in everything, for tests that are about another thing; others by night."""
    version, mode, partitioned = request.param
    return Kind(lake=lake, version=version, mode=mode, partitioned=partitioned)


@pytest.fixture(
    params=[pytest.param(one, marks=[pytest.mark.nightly] if one == REWRITTEN else []) for one in BALANCED], ids=str
)
def balanced_kind(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """Half of the kinds: where position deletes, vectors and rewritten files may each go wrong in another way."""
    version, mode, partitioned = request.param
    return Kind(lake=lake, version=version, mode=mode, partitioned=partitioned)
