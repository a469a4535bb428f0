"""A catalog on SQLite, and statements run against it as a session would."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml.catalog import load
from dml.ddl import DdlResult, execute
from dml.sqlparse import parse


class Lake:
    """One catalog named `lake` with the namespace `db`."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def catalog_of(self, parts: tuple[str, ...]) -> tuple[str, Catalog, tuple[str, ...]]:
        parts = parts[1:] if parts[0] == "lake" else parts
        return "lake", self.catalog, parts if len(parts) > 1 else ("db", *parts)

    def namespace_of(self, parts: tuple[str, ...] | None) -> tuple[str, Catalog, tuple[str, ...]]:
        parts = ("db",) if parts is None else parts
        return "lake", self.catalog, parts[1:] if parts[:1] == ("lake",) else parts

    def time_zone(self) -> str:
        return "Europe/Berlin"

    def run(self, sql: str) -> DdlResult:
        return execute(parse(sql), self)

    def table(self, name: str = "t") -> Table:
        return self.catalog.load_table(("db", name))

    def columns(self, name: str = "t") -> list[str]:
        return [str(field) for field in self.table(name).schema().fields]

    def partitioning(self, name: str = "t") -> list[str]:
        return [str(field) for field in self.table(name).spec().fields]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    catalog = load("lake", str(tmp_path / "warehouse"))
    catalog.create_namespace_if_not_exists("db")
    return Lake(catalog)


@pytest.fixture(params=[1, 2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def new_table(lake: Lake) -> Callable[..., Lake]:
    def create(columns: str, version: int = 2, clauses: str = "") -> Lake:
        lake.run(f"CREATE TABLE db.t ({columns}) {clauses} TBLPROPERTIES ('format-version' = '{version}')")
        return lake

    return create
