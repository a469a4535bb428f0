"""Where the files of a table may lie: the rule, and that all that opens, writes, deletes and lists files keeps it."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from dml import catalog as catalogs
from dml.catalog import load
from dml.catalog.credentials import storage_properties
from dml.errors import NotSupportedError
from dml.files.file_io import file_io
from dml.files.schemes import ALLOWED_SCHEMES, allowed_schemes, check_location, restrict_schemes
from dml.iceberg import commit_table
from dml.maintenance.storage import storage_of

S3 = {"s3", "s3a", "s3n"}
ADLS = {"abfs", "abfss", "wasb", "wasbs"}
GCS = {"gs", "gcs"}
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.mark.parametrize(
    ("catalog", "io", "metadata", "allowed"),
    [
        ({"warehouse": "s3://b/w"}, {}, "s3://b/w/t/m.json", S3),
        ({"warehouse": "s3://b/w"}, {}, "s3a://other/t/m.json", S3),
        ({"warehouse": "s3://b/w"}, {}, "file:///tmp/t/m.json", S3),
        ({"warehouse": "s3://b/w"}, {}, "/tmp/t/m.json", S3),
        ({"warehouse": "s3://b/w"}, {}, "FILE:/tmp/t/m.json", S3),
        ({"warehouse": "s3://b/w"}, {}, "gs://b/t/m.json", S3 | GCS),
        ({"warehouse": "s3://b/w", ALLOWED_SCHEMES: "file, abfss"}, {}, "s3://b/t/m.json", S3 | ADLS | {"file"}),
        ({"warehouse": "prod", "s3.endpoint": "http://x"}, {}, "s3://b/t/m.json", S3),
        ({"warehouse": "prod", "s3.endpoint": "http://x"}, {}, "file:///tmp/t/m.json", S3),
        ({"warehouse": "prod"}, {"adls.account-name": "x"}, "abfss://c@x/t/m.json", ADLS),
        ({"warehouse": "prod"}, {}, "file:///tmp/t/m.json", {"file"}),
        ({}, {}, "hdfs://nn/t/m.json", {"hdfs", "viewfs"}),
        ({"warehouse": "arn:aws:s3tables:eu-1:1:bucket/b"}, {}, "s3://b/t/m.json", S3),
        ({"warehouse": "file:///w"}, {}, "file:///w/t/m.json", {"file"}),
        ({"warehouse": "/w"}, {}, "/w/t/m.json", {"file"}),
        ({"warehouse": "some/w", "type": "sql", "s3.region": "x"}, {}, "/w/t/m.json", S3 | {"file"}),
        ({"warehouse": "w", "uri": "sqlite:///c.db", "s3.region": "x"}, {}, "/w/t/m.json", S3 | {"file"}),
        ({"warehouse": "w", "uri": "https://c", "s3.region": "x"}, {}, "/w/t/m.json", S3),
        ({"warehouse": "file:///w", "s3.region": "x"}, {}, "s3://b/t/m.json", S3),
        ({"warehouse": "file:///w", "s3.region": "x"}, {}, "/w/t/m.json", S3 | {"file"}),
    ],
)
def test_the_rule(catalog: Mapping[str, str], io: Mapping[str, str], metadata: str, allowed: set[str]) -> None:
    """Where the metadata file lies, object stores that are set up, and local files for local tables alone."""
    assert allowed_schemes(catalog, io, metadata) == allowed


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "/etc/passwd", "etc/passwd", "FILE:///etc/passwd", " file:///etc/passwd", "file:/etc/passwd",
     "http://169.254.169.254/latest/meta-data", "ftp://host/f", "hdfs://nn/f", "memory://f", "gs://b/f"],
)  # fmt: skip
@pytest.mark.parametrize("implementation", ["pyarrow.PyArrowFileIO", "fsspec.FsspecFileIO"])
def test_a_table_in_s3_names_no_other_file(location: str, implementation: str) -> None:
    """Reading, writing, deleting and listing are refused before anything is opened, and the error says what to set."""
    settings = {"py-io-impl": f"pyiceberg.io.{implementation}"}
    io = restrict_schemes(load_file_io(settings), allowed_schemes({"warehouse": "s3://b"}, {}, "s3://b/m.json"))
    for action in (io.new_input, io.new_output, io.delete, lambda folder: storage_of(io, folder)):
        with pytest.raises(NotSupportedError) as raised:
            action(location)
        assert location in str(raised.value)
        assert ALLOWED_SCHEMES in str(raised.value)
        assert raised.value.context["file"] == location


def test_workers_are_sent_the_schemes_of_the_driver(tmp_path: Path) -> None:
    """The properties are all that they get."""
    io = restrict_schemes(load_file_io({}), frozenset({"s3", "s3a"}))
    sent = storage_properties(io.properties)
    check_location(file_io(sent, "s3://b/f"), "s3a://b/f")
    with pytest.raises(NotSupportedError):
        file_io(sent, "file:///etc/passwd").new_input("file:///etc/passwd")
    nothing = storage_properties(restrict_schemes(load_file_io({}), frozenset()).properties)
    with pytest.raises(NotSupportedError, match="only for none"):
        file_io(nothing, "/etc/passwd").new_input("/etc/passwd")


def test_a_restricted_file_io_survives_pickling() -> None:
    """And restricts what it restricted before."""
    io = pickle.loads(pickle.dumps(restrict_schemes(load_file_io({}), frozenset({"s3"}))))
    with pytest.raises(NotSupportedError):
        io.new_input("/etc/passwd")


@pytest.fixture
def local(tmp_path: Path) -> Catalog:
    catalog = load("lake", str(tmp_path / "w"))
    catalog.create_namespace("db")
    return catalog


def test_a_table_does_not_choose_its_file_io_nor_what_it_opens(local: Catalog) -> None:
    """Its properties come into those of its FileIO; these two do not."""
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", ALLOWED_SCHEMES: "http,s3"}
    table = catalogs.create_table(local, ("db", "t"), SCHEMA, properties=properties)
    table = catalogs.load_table(local, table.name())
    assert type(table.io).__name__ == "PyArrowFileIO"
    assert table.io.properties[ALLOWED_SCHEMES] == "file"


def test_a_local_warehouse_reads_paths_with_and_without_a_scheme(local: Catalog, tmp_path: Path) -> None:
    """As Hadoop's tables have them."""
    io = catalogs.create_table(local, ("db", "t"), SCHEMA).io
    file = tmp_path / "f"
    file.write_bytes(b"x")
    for location in (str(file), f"file:{file}", f"file://{file}"):
        with io.new_input(location).open() as stream:
            assert stream.read() == b"x"
    with pytest.raises(NotSupportedError, match="s3"):
        io.new_input("s3://b/f")


def test_a_metadata_file_elsewhere_is_not_opened(local: Catalog, tmp_path: Path) -> None:
    """A row of the catalog's database leads to it; a catalog of an object store does not follow it to this machine."""
    table = catalogs.create_table(local, ("db", "t"), SCHEMA)
    local.properties = {**local.properties, "warehouse": "s3://b/w"}
    with pytest.raises(NotSupportedError, match=r"metadata\.json"):
        catalogs.load_table(local, table.name())


def test_a_table_is_not_made_where_it_could_not_be_read(local: Catalog, tmp_path: Path) -> None:
    """Nothing is written."""
    remote = load("remote", "s3://b/w", type="sql", uri=local.properties["uri"])
    place = tmp_path / "never"
    with pytest.raises(NotSupportedError, match="never"):
        catalogs.create_table(remote, ("db", "u"), SCHEMA, location=f"file://{place}")
    with pytest.raises(NotSupportedError, match="never"):
        catalogs.stage_table(remote, ("db", "u"), SCHEMA, location=str(place))
    assert not place.exists()


@pytest.mark.parametrize("place", ["hdfs://nowhere/x", "s3://b/k"])
def test_metadata_is_not_written_elsewhere(local: Catalog, place: str) -> None:
    """A property of the table says where it goes, and the table is not trusted."""
    table = catalogs.create_table(local, ("db", "t"), SCHEMA)
    change = SetPropertiesUpdate(updates={"write.metadata.path": place})
    with pytest.raises(NotSupportedError, match="not set up for the scheme"):
        commit_table(local, table, (), (change,))
    assert catalogs.load_table(local, ("db", "t")).metadata_location == table.metadata_location
    with pytest.raises(NotSupportedError, match="not set up for the scheme"):
        catalogs.create_table(local, ("db", "u"), SCHEMA, properties={"write.metadata.path": place})


@pytest.mark.parametrize("location", ["file:///w/a.parquet#1", "file:///w/a?b=c", "file:///w/a\nb", "s3://b/k#1"])
def test_a_location_that_is_taken_for_another_file_is_refused(location: str) -> None:
    """PyIceberg would open, write or delete the file whose name is the beginning of it."""
    io = restrict_schemes(load_file_io({}), frozenset({"file", "s3"}))
    for action in (io.new_input, io.new_output, io.delete):
        with pytest.raises(NotSupportedError, match="cannot be distinguished from"):
            action(location)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a#b", "a?b", "a\nb", "a\tb", "a\x00b", ""])
def test_a_name_that_is_none_of_a_folder_needs_a_location(local: Catalog, tmp_path: Path, name: str) -> None:
    """Nothing is written; with a location of its own the table can have the name, where the catalog takes it."""
    for make in (catalogs.create_table, catalogs.stage_table):
        with pytest.raises(NotSupportedError, match="LOCATION"):
            make(local, ("db", name), SCHEMA)
    assert not [path for path in (tmp_path / "w").rglob("*") if path.suffix == ".json"]
    if name in {"a/b", "a#b", "a?b"}:
        table = catalogs.create_table(local, ("db", name), SCHEMA, location=f"file://{tmp_path}/w/own")
        assert catalogs.load_table(local, table.name()).location() == f"file://{tmp_path}/w/own"


def test_dropping_with_purge_deletes_nothing_elsewhere(local: Catalog, tmp_path: Path) -> None:
    """The metadata log is what the table says; the table stays, for who wants to look."""
    table = catalogs.create_table(local, ("db", "t"), SCHEMA)
    victim = "http://host/victim"
    path = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "metadata-log": [{"metadata-file": victim, "timestamp-ms": 1}]}))
    with pytest.raises(NotSupportedError, match="host/victim"):
        catalogs.drop_table(local, table.name(), purge=True)
    assert path.exists()
    assert catalogs.table_exists(local, table.name())
