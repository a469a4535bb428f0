"""The servers, started once, and a lake on each kind of catalog and storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from tests.services.lakes import LocalFiles, S3Files, ServerLake
from tests.services.postgresql import PostgreSql, postgresql
from tests.services.seaweedfs import SeaweedFs, seaweedfs

LAKES = ("sql_local", "sql_s3_arrow", "sql_s3_fsspec", "rest_s3")
FSSPEC = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSql]:
    """A PostgreSQL server."""
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def storage() -> Iterator[SeaweedFs]:
    """An S3 and REST catalog server."""
    with seaweedfs() as server:
        server.create_bucket("plain")
        server.create_table_bucket("tables")
        yield server


@pytest.fixture(scope="session")
def lakes(
    spark: SparkSession, postgres: PostgreSql, storage: SeaweedFs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ServerLake]]:
    """A lake of each kind, all in one Spark session."""
    folder: Path = tmp_path_factory.mktemp("warehouse")
    s3_files = S3Files(server=storage, buckets=("plain", "tables"))
    sql = {"type": "sql", "uri": postgres.create_database("catalogs")}
    on_s3 = {**sql, **storage.file_io()}
    properties = {
        "sql_local": {**sql, "warehouse": f"file://{folder}"},
        "sql_s3_arrow": {**on_s3, "warehouse": "s3://plain/arrow"},
        "sql_s3_fsspec": {**on_s3, **FSSPEC, "warehouse": "s3://plain/fsspec"},
        "rest_s3": storage.rest_catalog("tables"),
    }
    made = {
        name: ServerLake(
            session=dml.connect(catalog=name, spark=spark, progress=False, **properties[name]),
            catalog=name,
            storage=LocalFiles(folder=folder) if name == "sql_local" else s3_files,
            properties=properties[name],
        )
        for name in LAKES
    }
    for lake in made.values():
        lake.session.disable()
        lake.session.sql("CREATE NAMESPACE db")
    yield made
    for lake in made.values():
        lake.session.close()
