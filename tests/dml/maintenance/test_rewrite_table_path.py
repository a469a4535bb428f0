"""Copies of a table at another location hold what the table holds, and the table stays as it is."""

import csv
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.puffin import PuffinFile

from dml.deletes.position_delete_file import positions_by_file
from dml.maintenance import RewriteTablePath, rewrite_table_path
from dml.manifests.read import entries_of, header_and_blocks_of, read_manifest_list
from dml.model.manifest import FileContent, ManifestEntry, ManifestFile
from dml.model.scan_task import DeleteFileRef
from dml.read.applied_deletes import position_batches
from dml.result import RewrittenTablePath
from tests.fixtures.java.tables import LOCATION, NAMES, lay_out, place_of_tables


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
    content = json.loads(local(metadata_location).read_text())
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
    assert json.loads(local(target).read_text()) == json.loads(text)
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
                single = file.lower_bounds.get(2147483546)
                assert (
                    single is None
                    or single
                    == file.upper_bounds[2147483546]
                    == [*deleted_positions(copy.io, copied_entry)][0].encode()
                )
