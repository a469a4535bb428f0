"""Catalogs: the embedded one, others by properties, and that no credential is shown."""

import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import make_url

from dml.catalog import create_namespace, create_table, load, load_table
from dml.catalog.credentials import redact, storage_properties
from dml.catalog.file_access import restrict_files
from dml.catalog.loading import with_timeout
from dml.commit import AppendFiles, commit
from dml.errors import NotFoundError, SetupError

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def test_the_embedded_catalog_is_a_file_in_its_warehouse(tmp_path: Path) -> None:
    """A second one on the same folder sees the same tables; a space in the path is fine."""
    folder = tmp_path / "my lake"
    catalog = load("lake", str(folder))
    create_namespace(catalog, ("db",))
    table = create_table(catalog, ("db", "t"), SCHEMA)
    assert table.location() == f"file://{folder}/db/t"
    commit(table, AppendFiles())
    assert load_table(load("lake", f"file://{folder}"), ("db", "t")).current_snapshot() is not None
    with sqlite3.connect(folder / "catalog.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("warehouse", ["s3://bucket/lake", "{tmp}/50%", "{tmp}/a#b", "{tmp}/a?b"])
def test_a_warehouse_that_is_no_local_folder_is_refused(tmp_path: Path, warehouse: str) -> None:
    with pytest.raises(SetupError, match=r"warehouse|local folder"):
        load("lake", warehouse.replace("{tmp}", str(tmp_path)))


def test_a_warehouse_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be created"):
        load("lake", str(tmp_path / "file"))


def test_a_name_that_nothing_is_said_of_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="The catalog 'nowhere' is not configured"):
        load("nowhere")


def test_a_catalog_by_properties(tmp_path: Path) -> None:
    catalog = load("other", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}", echo=False)
    assert isinstance(catalog, SqlCatalog)
    create_namespace(catalog, ("db",))
    assert create_table(catalog, ("db", "t"), SCHEMA, properties={"format-version": "3"}).metadata.format_version == 3


def test_a_catalog_by_name_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  named:\n    warehouse: file://{tmp_path}/tables\n")
    assert load("named", uri=f"sqlite:///{tmp_path}/c.db").name == "named"


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "rest", "uri": "http://127.0.0.1:9/", "credential": "client:s3cr3t-value"},
        {"type": "sql", "uri": "postgresql+psycopg2://user:s3cr3t-value@127.0.0.1:9/db"},
        {"type": "sql", "uri": "sqlite:////nowhere/at/all/c.db", "s3.secret-access-key": "s3cr3t-value"},
        {"type": "s3cr3t-value", "uri": "x", "token": "s3cr3t-value"},
        {"py-catalog-impl": "no.such.Catalog", "token": "s3cr3t-value"},
    ],
)
def test_a_catalog_that_cannot_be_loaded_shows_no_credential(
    properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="dml"), pytest.raises(SetupError, match="cannot be loaded") as raised:
        load("broken", **properties)
    assert "s3cr3t-value" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert "s3cr3t-value" not in caplog.text


@pytest.mark.parametrize(
    ("text", "properties", "shown"),
    [
        ("bad key abcdef", {"s3.secret-access-key": "abcdef"}, "bad key ***"),
        ("http://u:hunter22@h", {"uri": "http://u:hunter22@h"}, "http://u:***@h"),
        ("p@ssw0rd", {"uri": "postgresql://u:p%40ssw0rd@h/d"}, "***"),
        ("the client:topsecret pair; topsecret", {"credential": "client:topsecret"}, "the *** pair; ***"),
        ("a true b", {"token-refresh-enabled": "b"}, "a true b"),
        ("nothing", {"uri": "http://[broken"}, "nothing"),
        ("word: in-a-parameter", {"uri": "postgresql://u@h/d?password=in-a-parameter"}, "word: ***"),
        ("the nested-one", {"auth": {"type": "oauth2", "oauth2": {"client_secret": "nested-one"}}}, "the ***"),
    ],
)
def test_redact(text: str, properties: dict[str, str], shown: str) -> None:
    assert redact(text, properties) == shown


def test_workers_get_what_opens_files_and_nothing_that_opens_the_catalog() -> None:
    """A FileIO that asks the catalog's server gets its token, also where an object of the driver holds it."""
    files = {"s3.endpoint": "http://s3", "s3.secret-access-key": "key", "client.region": "here", "level": 3}
    catalog = {"uri": "postgresql://u:p@h/d", "credential": "id:secret", "token": "old", "auth.manager": Manager()}
    expected = {key: str(value) for key, value in files.items()}
    assert storage_properties({**files, **catalog}) == expected
    ours = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    assert storage_properties({**files, **catalog, **ours}) == {**expected, **ours}
    asking = {**expected, "credential": "id:secret", "token": "of-today"}
    for setting in ({"s3.signer": "S3V4RestSigner"}, {"py-io-impl": "mine.FileIO"}):
        assert storage_properties({**files, **catalog, **setting}) == {**asking, **setting}
        server = {"uri": "https://catalog"}
        assert storage_properties({**files, **catalog, **setting, **server}) == {**asking, **setting, **server}


def test_a_table_does_not_say_where_credentials_go(tmp_path: Path) -> None:
    """Its properties are written by whoever may write to it; those that are no settings of a storage count."""
    ours = {"s3.endpoint": "http://here", "s3.secret-access-key": "secret", "gcs.oauth2.token": "token"}
    catalog = load("lake", str(tmp_path), **ours)
    create_namespace(catalog, ("db",))
    theirs = {
        "s3.endpoint": "http://elsewhere",
        "s3.proxy-uri": "http://elsewhere",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.uri": "http://elsewhere",
        "s3.retry-strategy-impl": "tests.Loaded",
        "gcs.service.host": "elsewhere",
        "adls.account-host": "elsewhere",
        "py-io-impl": "tests.Loaded",
        "uri": "http://elsewhere",
    }
    made = create_table(catalog, ("db", "t"), SCHEMA, properties={**theirs, "write.parquet.compression-codec": "zstd"})
    table_of = restrict_files(answering(ours))._response_to_table
    answer = TableResponse(metadata=made.metadata, **{"metadata-location": made.metadata_location})
    told = table_of(("db", "t"), answer.model_copy(update={"config": {"s3.session-token": "vended"}}))
    assert told.io.properties["s3.session-token"] == "vended"
    for table in (made, load_table(catalog, ("db", "t")), made.refresh(), told):
        assert theirs.items() <= table.properties.items()
        given = table.io.properties
        assert not {key for key in theirs if given.get(key) == theirs[key]}
        assert given["s3.endpoint"] == "http://here"
        assert given["write.parquet.compression-codec"] == "zstd"


def test_all_snapshots_are_loaded(tmp_path: Path) -> None:
    """With `refs` a REST catalog would load the heads of branches and tags alone."""
    assert SNAPSHOT_LOADING_MODE not in load("lake", str(tmp_path), **{SNAPSHOT_LOADING_MODE: "refs"}).properties


def answering(properties: dict[str, str]) -> RestCatalog:
    """A REST catalog that has asked its server for settings."""
    catalog = RestCatalog.__new__(RestCatalog)
    catalog.name, catalog.properties, catalog._auth_manager = "server", properties, None
    return catalog


class Manager:
    """As PyIceberg's managers of tokens."""

    def auth_header(self) -> str:
        return "Bearer of-today"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://u:p%40ss@h/d", "postgresql://u:p%40ss@h/d?connect_timeout=5"),
        (
            "postgresql+psycopg2://u@h/d?sslmode=require",
            "postgresql+psycopg2://u@h/d?connect_timeout=5&sslmode=require",
        ),
        ("postgresql://h/d?connect_timeout=60", "postgresql://h/d?connect_timeout=60"),
        ("postgresql+pg8000://h/d", "postgresql+pg8000://h/d"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_connecting_to_a_database_takes_a_bounded_time(uri: str, shown: str) -> None:
    assert make_url(with_timeout(uri)) == make_url(shown)


THREE_COMMITS = """
import sys
from dml.catalog import load, load_table
from dml.commit import AppendFiles, commit
for _ in range(3):
    commit(load_table(load("lake", sys.argv[1]), ("db", "t")), AppendFiles())
"""


def test_several_processes_commit_to_one_table(tmp_path: Path) -> None:
    """Each commit lands once, none is lost."""
    catalog = load("lake", str(tmp_path))
    create_namespace(catalog, ("db",))
    properties = {"commit.retry.num-retries": "30", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "50"}
    table = create_table(catalog, ("db", "t"), SCHEMA, properties=properties)
    writers = [subprocess.Popen([sys.executable, "-c", THREE_COMMITS, str(tmp_path)]) for _ in range(3)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    metadata = table.refresh().metadata
    assert len(metadata.snapshots) == 9
    assert sorted(snapshot.sequence_number or 0 for snapshot in metadata.snapshots) == list(range(1, 10))


@pytest.mark.parametrize("damage", ["text", "truncated", "page"])
def test_the_error_of_a_damaged_database_names_the_file_and_the_fix(tmp_path: Path, damage: str) -> None:
    catalog = load("lake", str(tmp_path))
    catalog.create_namespace("db")
    catalog.engine.dispose()  # SQLite moves the write-ahead log into the file
    file = tmp_path / "catalog.db"
    content = file.read_bytes()
    damaged = {"text": b"not a database" * 100, "truncated": content[:5000], "page": content[:100] + bytes(20_000)}
    file.write_bytes(damaged[damage])
    with pytest.raises(SetupError, match="is damaged") as found:
        load("lake", str(tmp_path))
    assert str(file) in found.value.message
    assert found.value.context["file"] == str(file)
    assert "register_table" in str(found.value.hint)
