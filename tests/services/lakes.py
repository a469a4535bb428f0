"""A session on a catalog of a server, and what tests ask of it and of its storage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import duckdb
from pyiceberg.table import Table

from dml.manifests.read import entries_of, manifests_of
from dml.spark.versions import arrow_table
from tests.interop.readers import canonical, duckdb_connection
from tests.lake import Lake
from tests.services.seaweedfs import ACCESS_KEY, REGION, SECRET_KEY, SeaweedFs

__all__ = ["Files", "LocalFiles", "S3Files", "ServerLake", "is_metadata_file", "leftovers", "puffin_properties"]


class Files(Protocol):
    """The files of a warehouse."""

    def below(self, location: str) -> set[str]:
        """Locations of all files below a folder."""
        ...

    def uploads(self) -> list[str]:
        """Uploads that were begun and not ended."""
        ...

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB that can read them."""
        ...


@dataclass(frozen=True, kw_only=True)
class LocalFiles:
    """Files in a folder of this machine."""

    folder: Path

    def below(self, location: str) -> set[str]:
        root = Path(location.removeprefix("file://"))
        return {f"file://{path}" for path in root.rglob("*") if path.is_file()}

    def uploads(self) -> list[str]:
        return []

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        return duckdb_connection()


@dataclass(frozen=True, kw_only=True)
class S3Files:
    """Objects on S3."""

    server: SeaweedFs
    buckets: tuple[str, ...]

    def below(self, location: str) -> set[str]:
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        # PyArrow leaves an empty object in place of the folder of a file that it deletes.
        return {f"s3://{bucket}/{key}" for key in self.server.keys(bucket, prefix) if not key.endswith("/")}

    def uploads(self) -> list[str]:
        return [key for bucket in self.buckets for key in self.server.uploads(bucket)]

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb_connection("httpfs")
        # A table that was dropped and created again has files with the same names.
        connection.execute("SET enable_external_file_cache = false")
        connection.execute(
            f"CREATE OR REPLACE SECRET (TYPE s3, KEY_ID '{ACCESS_KEY}', SECRET '{SECRET_KEY}', REGION '{REGION}', "
            f"ENDPOINT '{self.server.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
        )
        return connection


@dataclass(kw_only=True)
class ServerLake(Lake):
    """A lake on a catalog server, whose tables are named with their catalog.

    Attributes:
        storage: The files of the storage.
        properties: The catalog's properties.
    """

    storage: Files
    properties: dict[str, str]

    def new_name(self) -> str:
        return f"{self.catalog}.db.t{next(self.numbers)}"

    def create_keyed_table(self, version: int, mode: str, **properties: str) -> str:
        """Create a table with the columns `id BIGINT` and `s STRING`. `mode` applies to DELETE, UPDATE and MERGE."""
        if self.catalog == "rest_s3":
            properties = {**puffin_properties(version, f"rest/{uuid4().hex}"), **properties}
        return self.create("id BIGINT, s STRING", version=version, mode=mode, **properties)

    def rows_by_id(self, name: str) -> dict[int, str]:
        """Return `s` by `id`, as RowDelta reads them."""
        return {row.id: row.s for row in self.session.table(name).collect()}

    def assert_readers_agree(self, name: str, expected: dict[int, str]) -> None:
        """Assert that RowDelta, PyIceberg and DuckDB read these rows from the storage."""
        table = self.table(name)
        rows = sorted(repr(row) for row in expected.items())
        assert canonical(arrow_table(self.session.table(name))) == rows
        assert canonical(table.scan().to_arrow()) == rows
        location = table.metadata_location.removeprefix("file://")
        found = self.storage.duckdb().execute(f"SELECT * FROM iceberg_scan('{location}')").to_arrow_table()
        assert canonical(found) == rows

    def leftovers(self, name: str) -> set[str]:
        """Files of a table, its metadata files aside, that no snapshot of it has; and uploads that were left."""
        return leftovers(self.table(name), self.storage)


def puffin_properties(version: int, folder: str) -> dict[str, str]:
    """Return properties for tables with deletion vectors: SeaweedFS allows no Puffin files in table buckets."""
    return {"write.data.path": f"s3://plain/{folder}"} if version == 3 else {}


def leftovers(table: Table, files: Files) -> set[str]:
    """Files of a table, its metadata files aside, that no snapshot of it has; and uploads that were left."""
    folders = {table.location(), table.properties.get("write.data.path", table.location())}
    found = {path for folder in folders for path in files.below(folder) if not is_metadata_file(path)}
    return (found - referenced(table)) | set(files.uploads())


def is_metadata_file(path: str) -> bool:
    """Whether it is of the table as a whole: REST servers keep them as they like."""
    return path.endswith((".metadata.json", "version-hint.text"))


def referenced(table: Table) -> set[str]:
    """All files that the snapshots of a table name."""
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in manifests_of(table.io, snapshot):
            found.add(manifest.manifest_path)
            found.update(entry.data_file.path for entry in entries_of(manifest, table.io))
    return found
