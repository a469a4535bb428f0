"""Catalogs of three kinds, each with its storage, for many writers at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from dml.catalog.loading import load
from tests.services.lakes import Files, LocalFiles, S3Files
from tests.services.postgresql import postgresql
from tests.services.seaweedfs import seaweedfs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A catalog with its storage.

    Attributes:
        name: The catalog's name.
        properties: The catalog's.
        files: Its storage.
        plain: Where a table's data is to go that the catalog's own bucket does not take.
    """

    name: str
    properties: dict[str, str]
    files: Files
    plain: str | None = None

    def catalog(self) -> Catalog:
        """A connection of our own."""
        return load(self.name, **self.properties)

    def create(self, table: str, version: int, **properties: str) -> str:
        """A statement that makes a table of accounts."""
        listed = {"format-version": str(version), **properties}
        if self.plain is not None and version > 2:
            # SeaweedFS takes no Puffin file into a bucket of tables, from nobody.
            listed["write.data.path"] = f"{self.plain}/{table}"
        text = ", ".join(f"'{key}' = '{value}'" for key, value in listed.items())
        return f"CREATE TABLE {self.name}.db.{table} (id BIGINT, balance BIGINT, key STRING) TBLPROPERTIES ({text})"


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """SQLite with local files, PostgreSQL with local files, REST with S3."""
    folder: Path = tmp_path_factory.mktemp("soak")
    with postgresql() as postgres, seaweedfs() as storage:
        storage.create_bucket("plain")
        storage.create_table_bucket("tables")
        found = [
            Place(
                name="sqlite",
                properties={"warehouse": str(folder / "sqlite")},
                files=LocalFiles(folder=folder / "sqlite"),
            ),
            Place(
                name="postgres",
                properties={
                    "type": "sql",
                    "uri": postgres.create_database("catalogs"),
                    "warehouse": f"file://{folder}/postgres",
                },
                files=LocalFiles(folder=folder / "postgres"),
            ),
            Place(
                name="rest",
                properties=storage.rest_catalog("tables"),
                files=S3Files(server=storage, buckets=("plain", "tables")),
                plain="s3://plain/rest",
            ),
        ]
        yield {place.name: place for place in found}
