"""A catalog in a temporary folder."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from dml.catalog import create_namespace, load


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """An embedded catalog with the namespace `db`."""
    loaded = load("lake", str(tmp_path / "warehouse"))
    create_namespace(loaded, ("db",))
    return loaded
