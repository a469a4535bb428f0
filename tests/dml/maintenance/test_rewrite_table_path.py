"""Copies of a table at another location hold what the table holds, and the table stays as it is."""

import csv
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import StructType

from dml.catalog import register_table
from dml.commit import AppendFiles, RowDelta, commit
from dml.deletes.position_delete_file import positions_by_file
from dml.errors import AlreadyExistsError, AnalysisError, NotSupportedError
from dml.files.table_metadata import plain_json
from dml.maintenance import RewriteTablePath, rewrite_table_path
from dml.maintenance.moved_paths import PathPrefix
from dml.maintenance.rewrite_table_path import StagedDeletes, Staging, stage_manifest
from dml.manifests.avro_schema import inner_struct
from dml.manifests.changed_copy import stored_type, with_type
from dml.manifests.entry_fields import COLUMN_SIZES, DATA_FILE, SPLIT_OFFSETS
from dml.manifests.read import decoders_of, entries_of, header_and_blocks_of, read_manifest_list, records_of
from dml.manifests.write import avro_bytes
from dml.model.manifest import ContentFile, FileContent, ManifestEntry, ManifestFile
from dml.model.scan_task import DeleteFileRef
from dml.options import Command
from dml.read.applied_deletes import position_batches
from dml.result import RewrittenTablePath
from tests.dml.commit.builders import (
    data_file,
    equality_deletes,
    ids,
    ids_by_duckdb,
    new_table,
    position_deletes,
    vectors,
)
from tests.fixtures.java.tables import LOCATION, NAMES, lay_out, place_of_tables
from tests.other_writers import set_properties


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with place_of_tables() as found:
        yield found


def local(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pairs_of(staged: RewrittenTablePath) -> list[tuple[str, str]]:
    with local(staged.file_list_location).open(newline="") as lines:
        return [(source, target) for source, target in csv.reader(lines)]


def copy_files(staged: RewrittenTablePath) -> list[tuple[str, str]]:
    """What a copying tool does; the pairs."""
    pairs = pairs_of(staged)
    for source, target in pairs:
        local(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(local(source), local(target))
    return pairs


def lists_of(table: Table) -> dict[int, tuple[ManifestFile, ...]]:
    return {one.snapshot_id: read_manifest_list(table.io, one.manifest_list) for one in table.metadata.snapshots}


def moved(location: str | None, before: str, after: str) -> str | None:
    assert location is None or location.startswith(f"{before}/")
    return None if location is None else location.replace(before, after, 1)


def moved_entry(entry: ManifestEntry, before: str, after: str) -> ManifestEntry:
    file = entry.data_file
    path = moved(file.path, before, after)
    assert path is not None
    changed = replace(
        file, path=path, referenced_data_file=moved(file.referenced_data_file, before, after), partition=file.partition
    )
    return replace(entry, data_file=comparable(changed))


def comparable(file: Any) -> Any:
    """A file whose metrics are dicts, and without what a delete file that is written again has anew."""
    maps = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    file = replace(file, **{name: dict(getattr(file, name)) for name in maps})
    if file.content is not FileContent.POSITION_DELETES:
        return file
    bounds = {name: {key: one for key, one in getattr(file, name).items() if key != 2147483546} for name in maps[4:]}
    return replace(file, file_size_in_bytes=0, split_offsets=(), column_sizes={}, **bounds)


def deleted_positions(io: FileIO, entry: ManifestEntry) -> dict[str, list[int]]:
    """The positions in a delete file by data file, in their order; of a vector its bytes."""
    file = entry.data_file
    if file.is_deletion_vector:
        puffin = PuffinFile(local(file.path).read_bytes())
        (blob,) = (one for one in puffin.footer.blobs if one.offset == file.content_offset)
        return {blob.properties["referenced-data-file"]: list(puffin.get_blob_payload(blob))}
    found: dict[str, list[int]] = {}
    ref = DeleteFileRef.of(file, referenced_data_file=None, data_sequence_number=0)
    for batch in position_batches(io, ref):
        for path, positions in positions_by_file(pa.RecordBatch.from_arrays(batch.columns, batch.schema.names)):
            found.setdefault(path, []).extend(positions.tolist())
    return found


def header(io: FileIO, location: str) -> Mapping[str, bytes]:
    kept, _, _ = header_and_blocks_of(io, location)
    return {key: value for key, value in kept.items() if not key.startswith("avro.")}


def read_table(table: Table) -> dict[int, list[tuple[ManifestFile, list[ManifestEntry]]]]:
    return {
        snapshot: [(line, list(entries_of(line, table.io))) for line in lines]
        for snapshot, lines in lists_of(table).items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_copy_of_a_table_that_java_wrote_has_every_value_of_it(
    name: str, place: Path, catalog: Catalog, tmp_path: Path
) -> None:
    """Of all versions and formats, with deletes of every kind: metadata, lists, manifests, and positions."""
    metadata_location = lay_out(name)
    table = catalog.register_table(("db", "t"), metadata_location)
    before, after = f"file:{LOCATION}", f"file://{tmp_path}/moved"
    content = json.loads(plain_json(local(metadata_location).read_bytes()))
    for earlier in content["metadata-log"]:  # these were not kept
        local(earlier["metadata-file"]).write_text(json.dumps({**content, "metadata-log": []}))
    source, at_first = read_table(table), files_below(place)
    positions = {
        entry.data_file.key: deleted_positions(table.io, entry)
        for lists in source.values()
        for _, entries in lists
        for entry in entries
        if entry.is_live and entry.data_file.content is FileContent.POSITION_DELETES
    }
    headers = {
        line.manifest_path: header(table.io, line.manifest_path) for lists in source.values() for line, _ in lists
    }
    call = RewriteTablePath(
        source_prefix=str(LOCATION), target_prefix=f"{after}/", staging_location=f"{tmp_path}/staged"
    )
    staged = rewrite_table_path(table, call)
    assert files_below(place) == at_first
    copied = copy_files(staged)
    shutil.rmtree(place)

    target = next(to for _, to in reversed(copied))
    assert target == moved(metadata_location.replace("file://", "file:"), before, after)
    text = json.dumps(content).replace(f"file://{LOCATION}", before).replace(before, after)
    assert json.loads(plain_json(local(target).read_bytes())) == json.loads(text)
    copy = StaticTable.from_metadata(target)
    found = read_table(copy)
    assert staged.rewritten_manifest_file_paths_count == len(headers)
    assert staged.rewritten_delete_file_paths_count == len(positions)
    assert found.keys() == source.keys()
    for snapshot, lists in source.items():
        for (line, entries), (copied_line, copied_entries) in zip(lists, found[snapshot], strict=True):
            path = moved(line.manifest_path, before, after)
            length = local(copied_line.manifest_path).stat().st_size
            assert copied_line == replace(line, manifest_path=path, manifest_length=length)
            assert header(copy.io, copied_line.manifest_path) == headers[line.manifest_path]
            for entry, copied_entry in zip(entries, copied_entries, strict=True):
                file = copied_entry.data_file
                assert replace(copied_entry, data_file=comparable(file)) == moved_entry(entry, before, after)
                if not entry.is_live:
                    continue
                assert local(file.path).stat().st_size == file.file_size_in_bytes
                if file.content is not FileContent.POSITION_DELETES:
                    assert file == entry.data_file or file.path != entry.data_file.path
                    continue
                assert deleted_positions(copy.io, copied_entry) == {
                    moved(data_file, before, after): rows for data_file, rows in positions[entry.data_file.key].items()
                }
                found_positions = deleted_positions(copy.io, copied_entry)
                bounds = {file.lower_bounds.get(2147483546), file.upper_bounds.get(2147483546)}
                assert bounds <= {None} or bounds == {path.encode() for path in found_positions}


# ---- tables of ours, and the options --------------------------------------------------------------------------


VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


def append(table: Table, *files: ContentFile) -> Table:
    commit(table, AppendFiles(data_files=files))
    return table.refresh()


def delete(table: Table, *files: ContentFile) -> Table:
    head = table.refresh().metadata.current_snapshot_id
    commit(table, RowDelta(command=Command.UPDATE, delete_files=files, starting_snapshot_id=head))
    return table.refresh()


def make(catalog: Catalog, version: int, **properties: str) -> Table:
    """Six rows in two files; of a version with deletes, one row of each is deleted, in one file of deletes."""
    table = new_table(catalog, version, **properties)
    one, other = data_file(table, [1, 2, 3]), data_file(table, [4, 5, 6])
    table = append(append(table, one), other)
    if version == 2:
        table = delete(table, replace(position_deletes(table, one, [0]), referenced_data_file=one.path))
        return delete(table, position_deletes(table, other, [0]), equality_deletes(table, other, 5))
    return delete(table, *vectors(table, [(one, [0]), (other, [0])])) if version == 3 else table


def run(table: Table, target: Path, **options: Any) -> RewrittenTablePath:
    prefixes = {"source_prefix": table.location(), "target_prefix": f"file://{target}"}
    return rewrite_table_path(table, RewriteTablePath(**{**prefixes, **options}))


@VERSIONS
def test_others_read_the_copy_after_the_table_is_gone(version: int, catalog: Catalog, tmp_path: Path) -> None:
    """With a branch, a tag, statistics, and a folder as a property; RowDelta registers it."""
    table = make(catalog, version)
    set_properties(table, {"write.data.path": f"{table.location()}/data"})
    first, last = table.refresh().metadata.snapshots[0].snapshot_id, table.metadata.current_snapshot_id
    assert last is not None
    table.manage_snapshots().create_branch(last, "b").create_tag(first, "t").commit()
    statistics = local(table.location()) / "metadata" / "a.stats"
    statistics.write_bytes(b"stats")
    with table.transaction() as transaction, transaction.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=last,
                statistics_path=f"file://{statistics}",
                file_size_in_bytes=5,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )
    expected = ids_by_duckdb(table.metadata_location)
    staged = run(table, tmp_path / "moved")
    assert f"file://{tmp_path}/moved/metadata/a.stats" in dict(copy_files(staged)).values()
    shutil.rmtree(local(table.location()))
    target = f"file://{tmp_path}/moved/metadata/{staged.latest_version}"
    copy = register_table(catalog, ("db", "moved"), target)
    # PyIceberg reads no equality deletes.
    assert (ids_by_duckdb(target) if version == 2 else ids(target)) == expected
    assert copy.properties["write.data.path"] == f"file://{tmp_path}/moved/data"
    assert {name: ref.snapshot_id for name, ref in copy.refs().items()} == {"main": last, "b": last, "t": first}
    assert str(table.location()) not in local(target).read_text()


@VERSIONS
def test_a_later_copy_lists_new_data_files_only_and_completes_the_first(
    version: int, catalog: Catalog, tmp_path: Path
) -> None:
    """Also after the snapshots of the first have expired, and manifests were merged."""
    table = make(catalog, version, **{"commit.manifest.min-count-to-merge": "2"})
    first = run(table, tmp_path / "moved")
    copy_files(first)
    old = {entry.data_file.path for lists in read_table(table).values() for _, entries in lists for entry in entries}
    new = data_file(table, [7])
    for snapshot in append(table, new).metadata.snapshots[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        table = table.refresh()
    decided = run(table, tmp_path / "moved", start_version=first.latest_version, dry_run=True).decisions
    data = [one for one in decided if one.reason.startswith(("data file", "equality delete file"))]
    assert [one.object for one in data if one.decision == "copy"] == [new.path]
    assert {one.object for one in data if one.decision == "keep"} <= old
    second = run(table, tmp_path / "moved", start_version=first.latest_version)
    assert {target for _, target in copy_files(second) if target.endswith(".metadata.json")} == {
        f"file://{tmp_path}/moved/metadata/{Path(entry.metadata_file).name}"
        for entry in table.metadata.metadata_log
        if Path(entry.metadata_file).name > first.latest_version
    } | {f"file://{tmp_path}/moved/metadata/{second.latest_version}"}
    expected = ids_by_duckdb(table.metadata_location)
    shutil.rmtree(local(table.location()))
    assert ids_by_duckdb(f"file://{tmp_path}/moved/metadata/{second.latest_version}") == expected


def test_a_file_whose_snapshot_nobody_knows_any_more_is_copied(catalog: Catalog, tmp_path: Path) -> None:
    """Java leaves it out: it copies files of snapshots that some metadata file of the log lists."""
    table = make(catalog, 2, **{"write.metadata.previous-versions-max": "1"})
    oldest = table.metadata.snapshots[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(oldest).commit()
    table = append(append(table.refresh(), data_file(table, [7])), data_file(table, [8]))
    assert len(table.metadata.metadata_log) == 1
    expected = ids_by_duckdb(table.metadata_location)
    staged = run(table, tmp_path / "moved")
    copy_files(staged)
    shutil.rmtree(local(table.location()))
    assert ids_by_duckdb(f"file://{tmp_path}/moved/metadata/{staged.latest_version}") == expected


def test_a_dry_run_decides_about_every_file_and_writes_none(catalog: Catalog, tmp_path: Path) -> None:
    table = make(catalog, 2)
    before = files_below(tmp_path)
    dry = run(table, tmp_path / "moved", dry_run=True)
    assert files_below(tmp_path) == before
    staged = run(table, tmp_path / "moved")
    assert replace(dry, decisions=(), file_list_location=staged.file_list_location) == staged
    kinds = Counter((one.decision, one.reason.partition(":")[0]) for one in dry.decisions)
    assert kinds == {
        ("copy", "data file"): 2,
        ("copy", "equality delete file"): 1,
        ("rewrite", "position deletes"): 2,
        ("rewrite", "manifest"): 4,
        ("rewrite", "manifest list"): 4,
        ("rewrite", "metadata file"): 5,
    }
    targets = {target for _, target in pairs_of(staged)}
    assert targets == {moved(one.object, table.location(), f"file://{tmp_path}/moved") for one in dry.decisions}


def test_compressed_metadata_stays_compressed(catalog: Catalog, tmp_path: Path) -> None:
    table = make(catalog, 2)
    source = local(table.metadata_location)
    compressed = source.with_name("00009-x.gz.metadata.json")
    compressed.write_bytes(gzip.compress(source.read_bytes()))
    table = catalog.register_table(("db", "gz"), f"file://{compressed}")
    staged = run(table, tmp_path / "moved", create_file_list=False)
    assert (staged.latest_version, staged.file_list_location) == (compressed.name, "N/A")
    (copy,) = (path for path in source.parent.rglob(f"copy-table-staging-*/metadata/{compressed.name}"))
    assert json.loads(gzip.decompress(copy.read_bytes()))["location"] == f"file://{tmp_path}/moved"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"source_prefix": ""}, AnalysisError, r"Source prefix\(''\) cannot be empty"),
        ({"target_prefix": " "}, AnalysisError, r"Target prefix\(' '\) cannot be empty"),
        ({"target_prefix": "{location}/"}, AnalysisError, "Source prefix cannot be the same as target prefix"),
        ({"start_version": ""}, AnalysisError, r"Start version\(''\) cannot be empty"),
        ({"end_version": " "}, AnalysisError, r"End version\(' '\) cannot be empty"),
        ({"staging_location": ""}, AnalysisError, r"Staging location\(''\) cannot be empty"),
        (
            {"end_version": "v9.metadata.json"},
            AnalysisError,
            "Cannot find provided version file v9.metadata.json in metadata log",
        ),
        ({"start_version": "{newest}"}, AnalysisError, "does not precede the end version"),
        ({"end_version": "{listed}"}, NotSupportedError, "may contain invalid snapshots"),
        (
            {"source_prefix": "{location}/data"},
            NotSupportedError,
            "Encountered the table's location .* not under the source prefix",
        ),
        ({"source_prefix": "{location}2"}, NotSupportedError, "not under the source prefix"),
        ({"staging_location": "{location}"}, AlreadyExistsError, "The staging location has the file"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_file(
    options: dict[str, str], error: type[Exception], message: str, catalog: Catalog, tmp_path: Path
) -> None:
    table = make(catalog, 2)
    snapshot = table.metadata.snapshots[0]
    table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    local(snapshot.manifest_list).unlink()
    table = table.refresh()
    names = {
        "location": table.location(),
        "newest": Path(table.metadata_location).name,
        "listed": Path(table.metadata.metadata_log[-1].metadata_file).name,
    }
    before = files_below(tmp_path)
    with pytest.raises(error, match=message):
        run(table, tmp_path / "moved", **{name: value.format(**names) for name, value in options.items()})
    assert files_below(tmp_path) == before


def test_a_data_file_elsewhere_stops_the_call(catalog: Catalog, tmp_path: Path) -> None:
    """A folder whose name begins with that of the table's is elsewhere, too."""
    table = make(catalog, 2)
    elsewhere = Path(f"{local(table.location())}2")
    elsewhere.mkdir()
    file = data_file(table, [9])
    shutil.move(local(file.path), elsewhere / "a.parquet")
    append(table, replace(file, path=f"file://{elsewhere}/a.parquet"))
    before = files_below(tmp_path)
    with pytest.raises(NotSupportedError, match=f"Encountered data file file://{elsewhere}/a.parquet not under"):
        run(table.refresh(), tmp_path / "moved")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    ("source", "target", "location", "expected"),
    [
        ("s3://b/t", "s3://c/u", "s3://b/t/data/a", "s3://c/u/data/a"),
        ("s3://b/t/", "s3://c/u/", "s3://b/t/data/a", "s3://c/u/data/a"),
        ("s3://b/t", "s3://c/u/", "s3://b/t", "s3://c/u"),
        ("s3://b/t", "s3://c/u", "s3://b/t/", "s3://c/u"),
        ("s3://b/t", "s3://c/u", "s3://b/t2/a", None),
        ("s3://b/t", "s3://c/u", "s3://b/T/a", None),
        ("s3://b/t", "s3://c/u", "s3a://b/t/a", "s3://c/u/a"),
        ("s3a://", "s3://", "s3a://b/t/a", "s3://b/t/a"),
        ("s3://b/t", "s3://c/u", "s3://b/t//a%20b", "s3://c/u//a%20b"),
        ("/w/t", "/v/t", "file:/w/t/a", "/v/t/a"),
        ("file:/w/t", "s3://b/t", "file:///w/t/a", "s3://b/t/a"),
        ("file:///w/t/", "s3://b/t", "/w/t/a", "s3://b/t/a"),
        ("file:///w/t", "s3://b/t", "file:/w/t2/a", None),
        ("/", "s3://b/all", "file:/w/a", "s3://b/all/w/a"),
    ],
)
def test_a_prefix_is_a_folder_however_it_is_spelled(
    source: str, target: str, location: str, expected: str | None
) -> None:
    prefix = PathPrefix(source=source, target=target)
    assert prefix.move_if_below(location) == (location if expected is None else expected)
    if expected is not None:
        assert prefix.move(location, "the file") == expected
        return
    with pytest.raises(
        NotSupportedError, match=f"Encountered the file {location} not under the source prefix {source}"
    ):
        prefix.move(location, "the file")


def test_a_manifest_may_lack_optional_fields(catalog: Catalog, tmp_path: Path) -> None:
    """Some writers leave out fields that only help readers, such as split offsets and column sizes."""
    table = new_table(catalog, 2)
    file = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(file,)))
    start = table.refresh().metadata.current_snapshot_id
    delete = position_deletes(table, file, [0])
    commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    manifest = read_manifest_list(table.io, snapshot.manifest_list)[-1]
    header, file_type, blocks = header_and_blocks_of(table.io, manifest.manifest_path)
    records = list(records_of(file_type, decoders_of(blocks), stored_type(file_type)))
    data = inner_struct(file_type, DATA_FILE)
    kept = [place for place, one in enumerate(data.fields) if one.field_id not in {COLUMN_SIZES, SPLIT_OFFSETS}]
    of_data = [one.field_id for one in file_type.fields].index(DATA_FILE)
    for record in records:
        record[of_data] = [record[of_data][place] for place in kept]
    short_type = with_type(file_type, DATA_FILE, StructType(*(data.fields[place] for place in kept)))
    kept_header = {key: value.decode() for key, value in header.items() if not key.startswith("avro.")}
    content = avro_bytes(Schema(*short_type.fields), "manifest_entry", kept_header, records)
    local(manifest.manifest_path).write_bytes(content)
    short = replace(manifest, manifest_length=len(content))
    prefix = PathPrefix(source=table.location(), target="file:///elsewhere")
    staging = Staging(io=table.io, prefix=prefix, folder=f"file://{tmp_path}/staged", stores=True)
    local(f"{staging.folder}/metadata").mkdir(parents=True)
    sizes = {delete.path: StagedDeletes(size=77, split_offsets=(4,))}
    length = stage_manifest(staging, sizes, None, short)
    (entry,) = entries_of(
        replace(short, manifest_path=staging.place(manifest.manifest_path), manifest_length=length), table.io
    )
    assert entry.data_file.file_size_in_bytes == 77
    assert entry.data_file.split_offsets == ()
    assert entry.data_file.path.startswith("file:///elsewhere/data/")
