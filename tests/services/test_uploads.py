"""The requests that writing a file takes: one PUT if the bytes fit into one part."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy
from pyspark.sql import SparkSession

import dml
from dml.files.file_io import file_io
from tests.services.conftest import FSSPEC
from tests.services.counting import Requests, counting
from tests.services.seaweedfs import SeaweedFs
from tests.services.server import HOST

KINDS = [{}, FSSPEC]
PART = 10 * 2**20
"""The bytes that PyArrow sends in one request."""


class Patient(AwsStandardS3RetryStrategy):
    """A retry strategy that a catalog may name."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)


@pytest.fixture
def requests(storage: SeaweedFs) -> Iterator[Requests]:
    """The requests through a proxy of S3."""
    with counting(storage.s3_port) as found:
        yield found


def proxied(storage: SeaweedFs, requests: Requests) -> dict[str, str]:
    return {**storage.file_io(), "s3.endpoint": f"http://{HOST}:{requests.port}"}


@pytest.mark.parametrize("further", [*KINDS, {"s3.retry-strategy-impl": f"{__name__}.Patient"}], ids=str)
def test_a_file_of_some_kilobytes_is_one_put(storage: SeaweedFs, requests: Requests, further: dict[str, str]) -> None:
    """Even if it is written in pieces, as Parquet files are."""
    kind = "fsspec" if further == FSSPEC else "arrow"
    location = f"s3://plain/db/{kind}{len(further)}/data/v.puffin"
    io = file_io({**proxied(storage, requests), **further}, location)
    with io.new_output(location).create(overwrite=True) as stream:
        for _ in range(4):
            stream.write(b"x" * 5_000)
    assert requests.writes() == {location.removeprefix("s3:/"): ["PUT"]}
    assert [request.method for request in requests.seen] == ["PUT"]
    assert len(io.new_input(location)) == 20_000


def test_a_file_of_several_parts_is_still_uploaded_in_parts(storage: SeaweedFs, requests: Requests) -> None:
    location = "s3://plain/parts/large.parquet"
    io = file_io(proxied(storage, requests), location)
    with io.new_output(location).create(overwrite=True) as stream:
        for _ in range(3):
            stream.write(b"x" * PART)
    (writes,) = requests.writes().values()
    assert len(writes) > 3
    assert len(io.new_input(location)) == 3 * PART
    assert storage.uploads("plain") == []


@pytest.mark.spark
@pytest.mark.parametrize("further", KINDS, ids=["arrow", "fsspec"])
def test_each_file_of_a_statement_is_one_put(
    spark: SparkSession, storage: SeaweedFs, requests: Requests, further: dict[str, str], tmp_path: Path
) -> None:
    """Data files, deletion vectors, manifests, their lists and metadata, by tasks and by the driver."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://plain/counted"}
    settings = {**properties, **proxied(storage, requests), **further}
    session = dml.connect(catalog="counted", spark=spark, progress=False, **settings)
    try:
        session.sql("CREATE NAMESPACE db")
        session.sql(
            "CREATE TABLE db.t (id BIGINT, s STRING) TBLPROPERTIES ('format-version' = '3', "
            "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )
        session.sql("INSERT INTO db.t SELECT id, uuid() FROM range(0, 100000, 1, 2)")
        deleted = session.sql("DELETE FROM db.t WHERE hash(id) % 3 = 0").rows_deleted
        assert isinstance(deleted, int)
        assert deleted > 30_000
        session.sql("UPDATE db.t SET s = 'u' WHERE id % 1000 = 1")
        assert session.sql("SELECT count(*) FROM db.t").collect()[0][0] > 60_000
        session.sql("DROP TABLE db.t PURGE")
    finally:
        session.close()
    # PyArrow creates an empty object for the folder of a file that it deletes.
    written = {path: how for path, how in requests.writes().items() if not path.endswith("/")}
    assert {path.rpartition(".")[2] for path in written} >= {"parquet", "puffin", "avro", "json"}
    assert {path: how for path, how in written.items() if how != ["PUT"]} == {}
