"""One lake for the tests of the folder; tables of both versions, modes, with and without partitions."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lake import COMMANDS, Lake, new_lake


@pytest.fixture(scope="session")
def engine_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of all tests of the folder."""
    return new_lake(spark, tmp_path_factory.mktemp("engine"))


@pytest.fixture
def lake(engine_lake: Lake) -> Iterator[Lake]:
    """The lake, taking `spark.sql` for one test."""
    with engine_lake.enabled():
        yield engine_lake


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
