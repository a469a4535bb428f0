"""On real tables of PyIceberg: orphans go, and nothing else ever does."""

import gzip
import json
import os
import re
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate

from dml.errors import (
    AnalysisError,
    CommitConflictError,
    CorruptFileError,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
)
from dml.maintenance import PrefixMismatchMode, RemoveOrphanFiles, remove_orphan_files
from dml.maintenance.storage import LocalStorage

NAME = ("db", "t")
OLD = time.time() - 10 * 86_400
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
LATER = datetime.now(UTC) + timedelta(days=2)


def make(catalog: Catalog, name: tuple[str, ...] = NAME, appends: int = 2, **arguments) -> Table:
    table = catalog.create_table(name, ROWS.schema, **arguments)
    for _ in range(appends):
        table.append(ROWS)
    return catalog.load_table(name)


def folder(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def age(*places: Path) -> None:
    """Let all files be ten days old."""
    for place in places:
        for path in [place, *place.rglob("*")]:
            if path.is_file() and not path.is_symlink():
                os.utime(path, (OLD, OLD))


def stray(path: Path) -> Path:
    """A file that no table knows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"stray")
    os.utime(path, (OLD, OLD))
    return path


def files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


def remove(catalog: Catalog, name: tuple[str, ...] = NAME, **call) -> set[Path]:
    found = remove_orphan_files(catalog, name, RemoveOrphanFiles(**call)).orphans
    assert len(set(found)) == len(found)
    return {Path(location.removeprefix("file://")) for location in found}


# ---- what goes and what stays


def test_orphans_go_and_the_table_stays_as_it_is(catalog):
    """Of data and metadata; twice finds nothing more."""
    table = make(catalog)
    table.delete("id = 1")
    place = folder(table)
    age(place)
    before = files(place)
    strays = {stray(place / name) for name in ("data/a.parquet", "data/k=1/b#c*.parquet", "metadata/x-m0.avro", "x")}
    assert remove(catalog) == strays
    assert files(place) == before
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 4
    assert remove(catalog) == set()


def test_a_dry_run_deletes_nothing(catalog):
    """And may look at files of any age."""
    place = folder(make(catalog))
    old = stray(place / "data/a.parquet")
    young = place / "data/b.parquet"
    young.write_bytes(b"")
    assert remove(catalog, dry_run=True) == {old}
    assert remove(catalog, dry_run=True, older_than=LATER) == {old, young}
    assert remove(catalog) == {old}
    assert young.exists()


def test_a_dry_run_gives_the_reason_for_each_unneeded_file(catalog):
    """Needed files are only counted: a table may have millions."""
    place = folder(make(catalog))
    age(place)
    needed = len(files(place))
    old, hidden = stray(place / "data/a.parquet"), stray(place / "data/_tmp/b.parquet")
    young = place / "data/c.parquet"
    young.write_bytes(b"")
    older_than = datetime(2026, 1, 1, tzinfo=UTC)
    os.utime(young, (older_than.timestamp(),) * 2)
    os.utime(old, (older_than.timestamp() - 1,) * 2)
    removal = remove_orphan_files(catalog, NAME, RemoveOrphanFiles(dry_run=True, older_than=older_than))
    found = {one.object.rpartition("/")[2]: (one.decision, one.reason) for one in removal.decisions}
    days = r"it is \d+\.\d days old"
    unneeded = "the table's metadata does not need it"
    assert set(found) == {"a.parquet", "b.parquet", "c.parquet", f"{needed} files"}
    assert found["a.parquet"][0] == "delete"
    assert re.fullmatch(f"{unneeded}, and {days}", found["a.parquet"][1])
    assert found["b.parquet"][0] == found["c.parquet"][0] == found[f"{needed} files"][0] == "keep"
    assert re.fullmatch(
        rf"{unneeded}, but its name, or that of a folder, starts with _ or \. \({days}\)", found["b.parquet"][1]
    )
    assert re.fullmatch(
        rf"{unneeded}, but it was not written before 2026-01-01 00:00:00.000\+00:00 \({days}\)", found["c.parquet"][1]
    )
    assert removal.decisions[0].object == removal.orphans[0]
    assert files(place) >= {old, hidden, young}
    assert remove_orphan_files(catalog, NAME, RemoveOrphanFiles()).decisions == ()


def test_less_than_a_day_is_refused(catalog):
    """Files of statements that run now are in no snapshot."""
    make(catalog)
    with pytest.raises(AnalysisError, match="less than 24 hours"):
        RemoveOrphanFiles(older_than=datetime.now(UTC) - timedelta(hours=23))
    with pytest.raises(AnalysisError, match="max_concurrent_deletes"):
        RemoveOrphanFiles(max_concurrent_deletes=0)
    RemoveOrphanFiles(older_than=datetime.now(UTC) - timedelta(hours=25))


def test_a_name_with_special_characters_is_that_file_alone(catalog):
    """`a.parquet#1` is not `a.parquet`, and a star is no pattern: also where the other is needed."""
    table = make(catalog)
    place = folder(table)
    age(place)
    before = files(place)
    data = next(path for path in before if path.suffix == ".parquet")
    strays = {stray(data.with_name(name)) for name in (f"{data.name}#1", f"{data.name}?x", "*", "0*", "[0-9]*")}
    assert remove(catalog) == strays
    assert files(place) == before


def test_branches_tags_and_staged_snapshots_keep_their_files(catalog):
    """Every listed snapshot counts."""
    table = make(catalog)
    first, second = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    table.manage_snapshots().create_tag(first, "v1").create_branch(second, "audit").commit()
    table.append(ROWS, branch="audit")
    table.overwrite(ROWS)
    place = folder(table)
    age(place)
    assert remove(catalog) == set()
    assert catalog.load_table(NAME).scan(snapshot_id=first).to_arrow().num_rows == 3


def test_statistics_files_stay(catalog):
    """Of tables and of partitions."""
    table = make(catalog)
    place = folder(table)
    kept = [stray(place / "metadata" / name) for name in ("a.stats", "p.stats")]
    snapshot_id = table.current_snapshot().snapshot_id
    with table.transaction() as transaction:
        with transaction.update_statistics() as update:
            update.set_statistics(
                StatisticsFile(
                    snapshot_id=snapshot_id,
                    statistics_path=f"file://{kept[0]}",
                    file_size_in_bytes=5,
                    file_footer_size_in_bytes=1,
                    blob_metadata=[],
                )
            )
        partitions = PartitionStatisticsFile(
            snapshot_id=snapshot_id, statistics_path=f"file:{kept[1]}", file_size_in_bytes=5
        )
        transaction._apply((SetPartitionStatisticsUpdate(partition_statistics=partitions),), ())
    lost = stray(place / "metadata/lost.stats")
    age(place)
    assert remove(catalog) == {lost}


def test_the_metadata_log_stays_also_where_only_an_older_log_names_it(catalog):
    """The log of the newest file has one entry here; and the hint of folder catalogs is none of ours to take."""
    table = make(catalog, appends=4, properties={"write.metadata.previous-versions-max": "1"})
    assert len(table.metadata.metadata_log) == 1
    place = folder(table)
    stray(place / "metadata/version-hint.text")
    failed = stray(place / "metadata/00009-failed.metadata.json")
    age(place)
    before = files(place)
    assert remove(catalog) == {failed}
    assert files(place) == before - {failed}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_metadata_files_that_fell_out_of_the_log_are_orphans_once_they_are_old(catalog, compression):
    """In Java too few are: it keeps whatever a log of an earlier file names."""
    properties = {"write.metadata.previous-versions-max": "2", "write.metadata.compression-codec": compression}
    table = make(catalog, appends=4, properties=properties)
    metadata = folder(table) / "metadata"
    if compression == "gzip":  # as Java writes them, also where this PyIceberg does not
        path = metadata / "00099-untracked.gz.metadata.json"
        text = Path(table.metadata.metadata_log[0].metadata_file.removeprefix("file://")).read_bytes()
        path.write_bytes(text if text.startswith(b"\x1f\x8b") else gzip.compress(text))
    tracked = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
    untracked = {path for path in metadata.glob("*.metadata.json") if f"file://{path}" not in tracked}
    assert len(tracked) == 3
    assert len(untracked) == (3 if compression == "gzip" else 2)
    age(metadata)
    assert remove(catalog, dry_run=True, older_than=LATER) == untracked


def test_files_of_an_expired_snapshot_stay_while_it_was_listed_since_then(catalog):
    """A query may still read it: only what was not needed at `older_than` goes."""
    table = make(catalog)
    table.overwrite(ROWS)
    first = table.metadata.snapshots[0].snapshot_id
    before = files(folder(table))
    table.maintenance.expire_snapshots().by_id(first).commit()
    age(folder(table))
    assert remove(catalog) == set()
    gone = remove(catalog, dry_run=True, older_than=LATER)
    assert gone
    assert gone < before
    assert not any(path.name.endswith(".metadata.json") for path in gone)


def test_what_expired_and_is_gone_already_does_not_matter(catalog):
    """Other engines delete the files of a snapshot when it expires."""
    table = make(catalog)
    expired = table.metadata.snapshots[0]
    table.overwrite(ROWS)
    table.maintenance.expire_snapshots().by_id(expired.snapshot_id).commit()
    Path(expired.manifest_list.removeprefix("file://")).unlink()
    orphan = stray(folder(table) / "data/a.parquet")
    age(folder(table))
    assert remove(catalog) == {orphan}


def test_a_damaged_table_is_left_alone(catalog):
    """What a missing manifest needs is not known."""
    table = make(catalog)
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).unlink()
    orphan = stray(folder(table) / "data/a.parquet")
    with pytest.raises(CorruptFileError, match="missing"):
        remove(catalog)
    assert orphan.exists()


# ---- others work meanwhile


def test_a_commit_after_the_listing_keeps_its_files(catalog, monkeypatch):
    """Its files are listed, old by their times, and are needed when metadata is read."""
    table = make(catalog)
    plain = LocalStorage.files

    def listing(self, place):
        added = folder(table) / "data/added.parquet"
        pa.parquet.write_table(ROWS, added)
        stray(folder(table) / "data/orphan.parquet")
        age(folder(table))
        found = list(plain(self, place))
        catalog.load_table(NAME).add_files([f"file://{added}"])
        return iter(found)

    monkeypatch.setattr(LocalStorage, "files", listing)
    assert {path.name for path in remove(catalog, dry_run=True)} == {"orphan.parquet"}  # which looks only once
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 9


def test_a_commit_before_the_deletion_keeps_its_files(catalog, monkeypatch):
    """What came into use after it was found to be an orphan is no orphan any more."""
    table = make(catalog)
    added = folder(table) / "data/added.parquet"
    pa.parquet.write_table(ROWS, added)
    orphan = stray(folder(table) / "data/orphan.parquet")
    age(folder(table))
    module = __import__("sys").modules["dml.maintenance.remove_orphan_files"]
    plain = module.delete_orphans

    def deleted(search, rules, orphans):
        assert {file.path for file in orphans} == {str(added), str(orphan)}
        catalog.load_table(NAME).add_files([f"file:{added}"])
        return plain(search, rules, orphans)

    monkeypatch.setattr(module, "delete_orphans", deleted)
    assert remove(catalog) == {orphan}
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 9


def test_a_table_that_was_replaced_meanwhile_is_left_alone(catalog, monkeypatch):
    """The files of the new one look like orphans of the old one."""
    table = make(catalog)
    orphan = stray(folder(table) / "data/orphan.parquet")
    plain = LocalStorage.files

    def listing(self, place):
        found = list(plain(self, place))
        catalog.drop_table(NAME)
        make(catalog)
        return iter(found)

    monkeypatch.setattr(LocalStorage, "files", listing)
    with pytest.raises(CommitConflictError, match="replaced"):
        remove(catalog)
    assert orphan.exists()


# ---- other tables


def test_a_table_below_is_never_touched(catalog):
    """Nor its data folder, which lies elsewhere in ours; nor a copy of our own metadata."""
    table = make(catalog)
    place = folder(table)
    inner = make(
        catalog,
        ("db", "inner"),
        location=f"file://{place}/data/inner",
        properties={"write.data.path": f"file://{place}/for-inner"},
    )
    shutil.copytree(place / "metadata", place / "backup/metadata")
    stray(place / "backup/data/a.parquet")
    stray(place / "data/inner/data/a.parquet")
    stray(place / "for-inner/a.parquet")
    orphan = stray(place / "data/a.parquet")
    age(place)
    before = files(place)
    assert remove(catalog) == {orphan}
    assert files(place) == before - {orphan}
    assert inner.scan().to_arrow().num_rows == 6


def test_two_tables_at_one_location_are_refused(catalog):
    """A table that was renamed keeps its folder, and a new one of the old name gets the same."""
    make(catalog)
    catalog.rename_table(NAME, ("db", "renamed"))
    table = make(catalog)
    age(folder(table))
    before = files(folder(table))
    with pytest.raises(NotSupportedError, match="Another table"):
        remove(catalog)
    assert files(folder(table)) == before


def test_a_shared_data_folder_is_refused(catalog, tmp_path):
    """Its other tables are known to the catalog alone; one table's own folder is cleaned."""
    shared = f"file://{tmp_path}/shared"
    make(catalog, properties={"write.data.path": shared, "write.metadata.path": f"file://{tmp_path}/meta"})
    make(catalog, ("db", "other"), properties={"write.data.path": f"{shared}/other"})
    strays = {stray(tmp_path / "shared/a.parquet"), stray(tmp_path / "meta/a.avro")}
    age(tmp_path / "shared", tmp_path / "meta")
    with pytest.raises(NotSupportedError, match=r"db\.other"):
        remove(catalog)
    catalog.drop_table(("db", "other"))
    shutil.rmtree(tmp_path / "shared/other")
    assert remove(catalog) == strays
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 6


def test_another_table_that_cannot_be_read_is_named(catalog, tmp_path):
    """Whether it shares the folder is not known; the error is not about the table that is cleaned."""
    make(catalog, properties={"write.data.path": f"file://{tmp_path}/shared"})
    broken = make(catalog, ("db", "broken"))
    orphan = stray(tmp_path / "shared/a.parquet")
    age(tmp_path / "shared")
    Path(broken.metadata_location.removeprefix("file://")).write_text("{}")
    with pytest.raises(NotSupportedError, match=r"if the table 'db\.broken' also keeps files in .*/shared'"):
        remove(catalog)
    catalog.drop_table(("db", "broken"))
    assert remove(catalog) == {orphan}


def test_a_table_whose_files_are_shared_is_refused(catalog):
    """`gc.enabled`."""
    make(catalog, properties={"gc.enabled": "false"})
    with pytest.raises(NotSupportedError, match=r"gc\.enabled"):
        remove(catalog)


def test_a_table_that_is_not_there(catalog):
    """As in every statement."""
    with pytest.raises(NotFoundError):
        remove(catalog)


# ---- places


def test_a_location_narrows_the_search_and_must_be_the_tables(catalog, tmp_path):
    """Elsewhere everything would look like an orphan."""
    place = folder(make(catalog))
    first, second = stray(place / "data/a.parquet"), stray(place / "metadata/a.avro")
    other = folder(make(catalog, ("db", "other")))
    for location in (f"file://{other}", f"file://{place}2", f"file://{place.parent}", str(tmp_path)):
        with pytest.raises(AnalysisError, match="no folder of the table"):
            remove(catalog, location=location)
    assert remove(catalog, location=f"{place}/metadata/") == {second}
    assert remove(catalog, location=f"file:{place}") == {first}


def test_links_are_not_followed(catalog, tmp_path):
    """Neither to folders nor to files; what metadata needs through a link stays."""
    table = make(catalog)
    place = folder(table)
    outside = stray(tmp_path / "elsewhere/a.parquet")
    (place / "data/link").symlink_to(tmp_path / "elsewhere")
    (place / "data/file-link").symlink_to(outside)
    data = next(path for path in files(place) if path.suffix == ".parquet")
    moved = place / "data" / "moved.parquet"
    data.rename(moved)
    data.symlink_to(moved)
    age(place)
    assert remove(catalog) == set()
    assert outside.exists()
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 6


def test_a_table_that_is_reached_by_a_link(catalog, tmp_path):
    """Its location goes through a link, other engines wrote the real folder into metadata."""
    real = tmp_path / "disk"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    make(catalog, location=f"file://{tmp_path}/link/t")
    added = real / "t/data/added.parquet"
    pa.parquet.write_table(ROWS, added)
    catalog.load_table(NAME).add_files([f"file://{added}"])
    stray(real / "t/data/orphan.parquet")
    age(real)
    assert {path.name for path in remove(catalog)} == {"orphan.parquet"}
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 9


def test_hidden_files_stay_and_partitions_are_not_hidden(catalog):
    """A partition field may begin with an underscore."""
    table = catalog.create_table(NAME, pa.schema([("_k", pa.int64()), ("id", pa.int64())]))
    with table.update_spec() as update:
        update.add_identity("_k")
    table.append(pa.table({"_k": pa.array([1], pa.int64()), "id": pa.array([1], pa.int64())}))
    place = folder(table)
    stray(place / "data/_temporary/a.parquet")
    stray(place / "_SUCCESS")
    orphan = stray(place / "data/_k=7/a.parquet")
    age(place)
    assert remove(catalog) == {orphan}


def test_a_folder_that_cannot_be_read_is_an_error(catalog, monkeypatch):
    """An empty listing of our metadata must not be believed."""
    make(catalog)
    orphan = stray(folder(catalog.load_table(NAME)) / "data/a.parquet")
    plain = os.scandir

    def scandir(path):
        if str(path).endswith("/metadata"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ExecutionError, match="Permission denied"):
        remove(catalog)
    assert orphan.exists()


def test_what_cannot_be_deleted_is_told(catalog, monkeypatch):
    """The others are gone, and a file that is gone already is fine."""
    place = folder(make(catalog))
    strays = [stray(place / f"data/{number}.parquet") for number in range(4)]
    plain = LocalStorage.delete

    def delete(self, path):
        if path == str(strays[1]):
            raise PermissionError("no")
        if path == str(strays[2]):
            strays[2].unlink()
        plain(self, path)

    monkeypatch.setattr(LocalStorage, "delete", delete)
    with pytest.raises(
        ExecutionError, match=r"1 of 4 orphan files could not be deleted: '.*1\.parquet' \(no\)"
    ) as raised:
        remove(catalog)
    assert raised.value.context["files"] == (f"file://{strays[1]}",)
    assert [path.exists() for path in strays] == [False, True, False, False]


def test_another_authority_in_metadata_is_an_error(catalog):
    """The table was written under a host's name and is listed under another."""
    table = make(catalog, location=f"file://{catalog.properties['warehouse'].removeprefix('file://')}/x")
    place = folder(table)
    age(place)
    moved = stray(place / "data/a.parquet")
    statistics = StatisticsFile(
        snapshot_id=table.current_snapshot().snapshot_id,
        statistics_path=f"hdfs://nn:8020{moved}",
        file_size_in_bytes=5,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    with table.update_statistics() as update:
        update.set_statistics(statistics)
    with pytest.raises(AnalysisError, match="hdfs://nn:8020") as raised:
        remove(catalog)
    assert raised.value.context["conflicts"] == ((f"file://{moved}", "hdfs", "nn:8020"),)
    assert remove(catalog, prefix_mismatch_mode=PrefixMismatchMode.IGNORE) == set()
    assert remove(catalog, equal_schemes={"hdfs,viewfs": "file"}) == set()
    assert remove(catalog, prefix_mismatch_mode=PrefixMismatchMode.DELETE) == {moved}
    assert not moved.exists()


def test_a_storage_that_cannot_list_is_refused(catalog, monkeypatch):
    """It is not guessed what is there."""

    class Blind(PyArrowFileIO):
        pass

    table = make(catalog)
    assert json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())["location"]
    module = __import__("sys").modules["dml.maintenance.storage"]
    monkeypatch.setattr(module, "PyArrowFileIO", Blind)
    with pytest.raises(NotSupportedError, match="cannot list"):
        remove(catalog)
