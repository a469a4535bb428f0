"""An embedded catalog for each test, copied from one that is made once: SQLite's tables take longest to make."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from dml.catalog import create_namespace, load
from dml.catalog.loading import DATABASE_FILE


@cache
def database() -> bytes:
    """Return the SQLite file of a catalog that has the namespace `db` and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = load("lake", folder)
        create_namespace(catalog, ("db",))
        catalog.close()
        return (Path(folder) / DATABASE_FILE).read_bytes()


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """An embedded catalog with the namespace `db`."""
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    (warehouse / DATABASE_FILE).write_bytes(database())
    return load("lake", str(warehouse))
