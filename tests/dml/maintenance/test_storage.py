"""Listing and deleting where there are no folders: PyArrow's and fsspec's file systems."""

from datetime import UTC, datetime

import fsspec
import pytest
from pyarrow import fs as arrow_fs
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from dml.errors import ExecutionError
from dml.maintenance.storage import ArrowStorage, FsspecStorage, LocalStorage, RealNames, Storage, storage_of

NAMES = {"data/a.parquet", "data/k=a%20b/x.parquet", "data/a.parquet#1", "data/*", "metadata/v1.metadata.json"}
WRITTEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def arrow() -> tuple[Storage, str]:
    filesystem = arrow_fs._MockFileSystem(WRITTEN)
    for folder in ("bucket/t", "bucket/t2"):
        for name in NAMES:
            filesystem.create_dir(f"{folder}/{name}".rpartition("/")[0])
            filesystem.open_output_stream(f"{folder}/{name}").close()
    return ArrowStorage(io=PyArrowFileIO({}), filesystem=filesystem), "s3://bucket/t"


def memory() -> tuple[Storage, str]:
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    for folder in ("/bucket/t", "/bucket/t2"):
        for name in NAMES:
            filesystem.store[f"{folder}/{name}"] = type(
                "File", (), {"size": 0, "modified": WRITTEN, "created": WRITTEN, "getvalue": lambda self: b""}
            )()
    return FsspecStorage(filesystem), "memory://bucket/t"


@pytest.mark.parametrize("make", [arrow, memory])
def test_files_are_listed_with_their_times_and_deleted_by_their_names(make):
    """Those of the folder, not those of one whose name only begins like its."""
    storage, folder = make()
    found = {file.relative: file for file in storage.files(folder)}
    assert set(found) == NAMES
    assert {file.location for file in found.values()} == {f"{folder}/{name}" for name in NAMES}
    assert {file.modified_ms for file in found.values()} == {int(WRITTEN.timestamp() * 1000)}
    for name in ("data/a.parquet#1", "data/*"):
        storage.delete(found[name].path)
        storage.delete(found[name].path)  # gone already
    assert {file.relative for file in storage.files(folder)} == NAMES - {"data/a.parquet#1", "data/*"}
    assert {file.relative for file in storage.files(f"{folder}2")} == NAMES
    assert list(storage.files(f"{folder}3")) == []


@pytest.mark.parametrize("make", [arrow, memory])
def test_a_location_is_a_file_a_folder_or_missing(make):
    storage, folder = make()
    kinds = {name: storage.kind(f"{folder}{name}") for name in ("", "/data", "/data/a.parquet", "/nothing")}
    file_type = arrow_fs.FileType
    assert list(kinds.values()) == [file_type.Directory, file_type.Directory, file_type.File, file_type.NotFound]
    assert {file.size for file in storage.files(folder)} == {0}


def test_a_listing_of_other_paths_is_not_believed():
    """The location of a file would be a guess, and a needed file would look like an orphan."""
    filesystem = fsspec.filesystem("memory")

    class Elsewhere:
        def _strip_protocol(self, path):
            return filesystem._strip_protocol(path)

        def invalidate_cache(self):
            pass

        def find(self, root, detail):
            return {"account/t/data/a": {"type": "file", "mtime": 1.0}}

    with pytest.raises(ExecutionError, match="lists 'account/t/data/a'"):
        list(FsspecStorage(Elsewhere()).files("memory://bucket/t"))


@pytest.mark.parametrize("io", [PyArrowFileIO({}), FsspecFileIO({})], ids=lambda io: type(io).__name__)
@pytest.mark.parametrize("prefix", ["file://", "file:", ""])
def test_folders_of_this_machine_are_walked(io, prefix, tmp_path):
    """Whatever the FileIO, so that links are seen."""
    (tmp_path / "t/data").mkdir(parents=True)
    (tmp_path / "t/data/a").write_bytes(b"")
    folder = f"{prefix}{tmp_path}/t"
    storage = storage_of(io, folder)
    assert isinstance(storage, LocalStorage)
    assert [file.location for file in storage.files(folder)] == [f"{folder}/data/a"]
    assert list(storage.files(f"{folder}/nothing")) == []


def test_relative_locations_are_those_of_the_current_folder(tmp_path, monkeypatch):
    """As PyIceberg reads them."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    (file,) = LocalStorage().files("t")
    assert (file.location, file.real_location) == ("t/a", str(tmp_path / "t/a"))
    assert list(RealNames().all_of("t/a")) == ["t/a", str(tmp_path / "t/a")]
