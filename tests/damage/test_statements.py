"""Damaged files and files elsewhere, as users meet them: a statement fails, names the file, and nothing is written."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from dml.commit import AppendFiles, commit
from dml.errors import CorruptFileError, DmlError, NotSupportedError
from dml.files.schemes import ALLOWED_SCHEMES
from dml.manifests.cache import CACHE_ENABLED
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent, ManifestContent
from tests.lake import Lake, new_lake

pytestmark = pytest.mark.spark

STATEMENTS = (
    "DELETE FROM {t} WHERE id = 5",
    "UPDATE {t} SET s = 'u' WHERE id = 5",
    "MERGE INTO {t} t USING (SELECT 5L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'm'",
)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    uncached = {CACHE_ENABLED: "false"}  # what is damaged later is read again
    with new_lake(spark, tmp_path_factory.mktemp("damage"), **uncached).enabled() as lake:
        yield lake


def filled(lake: Lake, version: int, mode: str = "merge-on-read") -> str:
    """Two data files, one of them with a deleted row."""
    name = lake.create("id BIGINT, s STRING", version=version, mode=mode)
    for start in (0, 10):
        lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 's' FROM range({start}, {start + 10})")
    lake.session.sql(f"DELETE FROM {name} WHERE id = 2")
    return name


def failed_query(lake: Lake, name: str) -> str:
    """What a query's failure says; it runs when Spark wants its rows, so in tasks the error is Spark's."""
    with pytest.raises((DmlError, PythonException)) as raised:
        lake.session.sql(f"SELECT * FROM {name}").collect()
    return str(raised.value)


def files_of(lake: Lake, name: str) -> dict[str, Path]:
    """A file of each kind that statements about the row 5 have to read."""
    table = lake.table(name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = manifests_of(table.io, snapshot)
    deletes = next(manifest for manifest in manifests if manifest.content is ManifestContent.DELETES)
    vector = next(entries_of(deletes, table.io)).data_file
    data = next(file for file in lake.data_files(name) if file.lower_bounds[1] == bytes(8))
    found = {
        "metadata": table.metadata_location,
        "manifest list": snapshot.manifest_list,
        "manifest": deletes.manifest_path,
        "data": data.path,
        "deletes": vector.path,
    }
    return {kind: Path(location.removeprefix("file://")) for kind, location in found.items()}


def damaged(content: bytes) -> bytes:
    """Another byte near the start, and the end gone: whatever is read of it, something is wrong."""
    return content[:4] + bytes([content[4] ^ 0xFF]) + content[5 : len(content) * 2 // 3]


@pytest.mark.parametrize("version", [2, 3])
def test_a_statement_that_meets_a_damaged_file_names_it_and_writes_nothing(
    lake: Lake, tried: Counter[str], version: int
) -> None:
    name = filled(lake, version)
    before, rows = lake.state(name), lake.rows(name)
    for number, (kind, path) in enumerate(files_of(lake, name).items()):
        right = path.read_bytes()
        path.write_bytes(damaged(right))
        with pytest.raises(CorruptFileError) as raised:
            lake.session.sql(STATEMENTS[number % 3].replace("{t}", name))
        assert path.name in str(raised.value), kind
        assert "go back to" in str(raised.value) or "register an earlier" in str(raised.value), kind
        assert path.name in failed_query(lake, name), kind
        tried[f"{kind}, met by a statement: refused"] += 2
        path.write_bytes(right)
        assert lake.state(name) == before, kind
    assert lake.rows(name) == rows


def with_file(lake: Lake, location: str) -> str:
    """A table whose metadata lists one file, which somebody else has put there."""
    name = lake.create("id BIGINT, s STRING", **{"format-version": "2", "write.delete.mode": "merge-on-read"})
    file = ContentFile(
        content=FileContent.DATA,
        path=location,
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=10,
        file_size_in_bytes=1000,
    )
    commit(lake.table(name), AppendFiles(data_files=(file,)))
    return name


def test_a_file_elsewhere_is_not_opened_by_workers(lake: Lake) -> None:
    """The error says which file, and how to allow it."""
    location = "http://169.254.169.254/latest/meta-data"
    name = with_file(lake, location)
    before = lake.state(name)
    with pytest.raises(NotSupportedError) as raised:
        lake.session.sql(STATEMENTS[0].replace("{t}", name))
    for told in (str(raised.value), failed_query(lake, name)):
        assert location in told
        assert ALLOWED_SCHEMES in told
    assert lake.state(name) == before


def test_a_catalog_of_an_object_store_opens_no_local_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what the metadata names nor the folders that it calls the table's own."""
    name = filled(lake, 2)
    catalog = lake.session.registry.catalogs["lake"]
    before = lake.state(name)
    monkeypatch.setattr(catalog, "properties", {**catalog.properties, "warehouse": "s3://bucket/warehouse"})
    for statement in (*STATEMENTS, "DROP TABLE {t} PURGE", f"CALL lake.system.remove_orphan_files(table => '{name}')"):
        with pytest.raises(NotSupportedError, match="'file'"):
            lake.session.sql(statement.replace("{t}", name))
    monkeypatch.undo()
    assert lake.state(name) == before


def test_files_are_neither_written_nor_looked_for_elsewhere(lake: Lake) -> None:
    """A table says itself where its data goes."""
    folder = "gs://bucket/f"
    name = filled(lake, 2)
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.data.path' = '{folder}')")
    before = lake.state(name)
    for statement in (
        f"INSERT INTO {name} VALUES (1, 'x')",
        f"CALL lake.system.remove_orphan_files(table => '{name}')",
    ):
        with pytest.raises(DmlError) as raised:
            lake.session.sql(statement)
        assert folder in str(raised.value)
        assert ALLOWED_SCHEMES in str(raised.value)
    assert lake.state(name) == before
