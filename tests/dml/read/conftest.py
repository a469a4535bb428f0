"""A folder of files to read."""

from pathlib import Path

import pytest

from tests.dml.read.files import FileFolder, with_id


@pytest.fixture
def lake(tmp_path: Path) -> FileFolder:
    """An empty folder."""
    return FileFolder(tmp_path)


@pytest.fixture
def field():
    """Makes an Arrow field that carries its Iceberg id."""
    return with_id
