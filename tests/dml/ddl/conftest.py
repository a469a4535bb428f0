"""A catalog on SQLite, and statements run against it as a session would."""

from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml.catalog.registry import CatalogRegistry
from dml.ddl import DdlResult, execute
from dml.sqlparse import parse


class DdlCatalog:
    """One catalog named `lake` with the namespace `db`."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.registry = CatalogRegistry(catalogs={"lake": catalog}, current_catalog="lake", current_namespace=("db",))

    def run(self, sql: str) -> DdlResult:
        return execute(parse(sql), self.registry, time_zone="Europe/Berlin")

    def table(self, name: str = "t") -> Table:
        return self.catalog.load_table(("db", name))

    def columns(self, name: str = "t") -> list[str]:
        return [str(field) for field in self.table(name).schema().fields]

    def partitioning(self, name: str = "t") -> list[str]:
        return [str(field) for field in self.table(name).spec().fields]


@pytest.fixture
def lake(catalog: Catalog) -> DdlCatalog:
    return DdlCatalog(catalog)


@pytest.fixture(params=[1, 2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def new_table(lake: DdlCatalog) -> Callable[..., DdlCatalog]:
    def create(columns: str, version: int = 2, clauses: str = "") -> DdlCatalog:
        lake.run(f"CREATE TABLE db.t ({columns}) {clauses} TBLPROPERTIES ('format-version' = '{version}')")
        return lake

    return create
