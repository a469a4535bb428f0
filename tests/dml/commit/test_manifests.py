"""Manifests: which are opened, carried over, rewritten and merged, and what they say."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import read_manifest_list as pyiceberg_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from dml import limits
from dml.catalog import create_table
from dml.commit import AppendFiles, DeleteFiles, RowDelta, commit
from dml.commit.new_manifests import pack_from_end
from dml.errors import CorruptFileError
from dml.files.table_metadata import cached_metadata_json, parse_metadata
from dml.iceberg import metadata_json, write_metadata
from dml.manifests import write
from dml.manifests.read import entries_of, manifests_of, read_manifest_list, reader_of, type_of_records
from dml.manifests.write import ManifestWriter, write_manifest_list
from dml.model.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, ManifestEntry, ManifestFile
from dml.options import Command
from tests.dml.commit.builders import data_file, deletes, ids, new_table
from tests.other_writers import set_properties

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


def manifests(table: Table) -> tuple[ManifestFile, ...]:
    return manifests_of(table.io, table.refresh().current_snapshot())


@VERSIONS
def test_manifests_that_lose_no_file_are_carried_over(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, partitioned=True)
    first, second = data_file(table, [1], "a"), data_file(table, [2], "b")
    for file in (first, second):
        commit(table, AppendFiles(data_files=(file,)))
    newest, oldest = manifests(table)
    commit(table, DeleteFiles(row_filter=EqualTo("p", "a")))
    kept, rewritten = manifests(table)
    assert kept == newest
    assert rewritten.manifest_path != oldest.manifest_path
    (entry,) = entries_of(rewritten, table.io)
    assert (entry.status, entry.data_file.path) == (EntryStatus.DELETED, first.path)
    assert entry.snapshot_id == table.metadata.current_snapshot_id
    assert entry.data_sequence_number == (0 if version == 1 else 1)
    # What was deleted is listed by the snapshot that deleted it, and by no later one.
    commit(table, AppendFiles(data_files=(data_file(table, [3], "c"),)))
    assert rewritten.manifest_path not in {manifest.manifest_path for manifest in manifests(table)}


@VERSIONS
def test_a_filter_opens_only_manifests_that_may_list_its_files(catalog: Catalog, version: int) -> None:
    """The others could even be missing."""
    table = new_table(catalog, version, partitioned=True)
    first, second = data_file(table, [1], "a"), data_file(table, [2], "b")
    for file in (first, second):
        commit(table, AppendFiles(data_files=(file,)))
    newest, _ = manifests(table)
    table.io.delete(newest.manifest_path)
    assert commit(table, DeleteFiles(row_filter=EqualTo("p", "a"))).summary["deleted-data-files"] == "1"
    with pytest.raises(CorruptFileError, match="is missing"):
        commit(table, DeleteFiles(row_filter=EqualTo("p", "b")))


@VERSIONS
def test_files_of_two_specs_go_to_two_manifests(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    old = data_file(table, [1], "a")
    with table.update_spec() as update:
        update.add_field("p", IdentityTransform(), "p_part")
    table = table.refresh()
    new = data_file(table, [2], "a")
    made = commit(table, AppendFiles(data_files=(old, new)))
    assert sorted(manifest.partition_spec_id for manifest in manifests(table)) == [0, 1]
    assert made.summary["changed-partition-count"] == "2"
    assert ids(made.metadata_location) == [1, 2]
    deleted = commit(table, DeleteFiles(row_filter=EqualTo("p", "a")))
    assert deleted.summary["deleted-data-files"] == "2"


def test_a_partition_column_that_was_dropped_keeps_its_values(catalog: Catalog) -> None:
    table = new_table(catalog, 2, partitioned=True)
    first, second = data_file(table, [1], "a"), data_file(table, [2], "b")
    commit(table, AppendFiles(data_files=(first, second)))
    with table.refresh().update_spec() as update:
        update.remove_field("p")
    with table.refresh().update_schema() as schema_update:
        schema_update.delete_column("p")
    commit(table.refresh(), DeleteFiles(paths=frozenset({first.path})))
    (manifest,) = manifests(table)
    assert {entry.data_file.path: entry.data_file.partition for entry in entries_of(manifest, table.io)} == {
        first.path: ("a",),
        second.path: ("b",),
    }


def test_small_manifests_are_merged_when_there_are_enough(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **{"commit.manifest.min-count-to-merge": "3"})
    for number in range(3):
        made = commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
        assert len(manifests(table)) == (number + 1 if number < 2 else 1)
    assert ids(made.metadata_location) == [0, 1, 2]
    (merged,) = manifests(table)
    assert (merged.added_files_count, merged.existing_files_count, merged.min_sequence_number) == (1, 2, 1)


def test_manifests_are_not_merged_where_the_table_says_so(catalog: Catalog) -> None:
    table = new_table(
        catalog, 2, **{"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "false"}
    )
    for number in range(3):
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
    assert len(manifests(table)) == 3


def test_manifests_are_merged_up_to_their_target_size(catalog: Catalog) -> None:
    table = new_table(catalog, 2, **{"commit.manifest-merge.enabled": "false"})
    for number in range(6):
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
    sizes = [manifest.manifest_length for manifest in manifests(table)]
    set_properties(
        table,
        {
            "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "2",
            "commit.manifest.target-size-bytes": str(max(sizes) * 2),
        },
    )
    made = commit(table, AppendFiles(data_files=(data_file(table, [6]),)))
    counts = [(m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests(table)]
    assert counts == [1, 2, 2, 2]
    assert ids(made.metadata_location) == list(range(7))


@pytest.mark.parametrize("version", [2, 3])
def test_delete_manifests_are_merged_as_well_and_apart(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, **{"commit.manifest.min-count-to-merge": "3"})
    file = [data_file(table, [10 * number, 10 * number + 1]) for number in range(3)]
    commit(table, AppendFiles(data_files=tuple(file)))
    for number in range(3):
        start = table.refresh().metadata.current_snapshot_id
        delete = deletes(table, file[number], [0])
        made = commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))
    found = [(m.content, m.added_files_count, m.existing_files_count) for m in manifests(table)]
    assert found == [(ManifestContent.DATA, 3, 0), (ManifestContent.DELETES, 1, 2)]
    assert ids(made.metadata_location) == [1, 11, 21]


def test_packing_starts_with_the_oldest_and_keeps_the_order() -> None:
    lengths = [3, 5, 4, 6, 1]
    made = [
        ManifestFile(manifest_path=str(place), manifest_length=length, partition_spec_id=0, added_snapshot_id=1)
        for place, length in enumerate(lengths)
    ]
    assert [[m.manifest_length for m in group] for group in pack_from_end(made, 8)] == [[3, 5], [4], [6, 1]]
    assert [[m.manifest_length for m in group] for group in pack_from_end(made, 1)] == [[3], [5], [4], [6], [1]]


def test_manifests_of_version_1_stay_readable_after_upgrades(catalog: Catalog) -> None:
    """Their files have sequence number 0, and are rewritten with it."""
    table = new_table(catalog, 1, partitioned=True)
    first, second = data_file(table, [1], "a"), data_file(table, [2], "a")
    commit(table, AppendFiles(data_files=(first, second)))
    for version in ("2", "3"):
        table = set_properties(table, {"format-version": version})
        made = commit(table, AppendFiles(data_files=(data_file(table, [int(version) * 10], "b"),)))
    made = commit(table, DeleteFiles(paths=frozenset({first.path})))
    assert ids(made.metadata_location) == [2, 20, 30]
    entries = {entry.data_file.path: entry for m in manifests(table) for entry in entries_of(m, table.io)}
    assert entries[second.path].data_sequence_number == 0
    assert entries[second.path].first_row_id is not None


PARTITION_VALUES: tuple[tuple[Any, Any], ...] = (
    (StringType(), "ä=/ b"),
    (LongType(), -5),
    (DateType(), -1),
    (TimestampType(), 1_600_000_000_000_000),
    (DoubleType(), float("nan")),
    (DoubleType(), -0.5),
    (DecimalType(9, 2), Decimal("-12.34")),
    (UUIDType(), UUID("12345678-1234-5678-1234-567812345678")),
    (BinaryType(), b"\x00\xff"),
    (FixedType(3), b"abc"),
    (StringType(), None),
)


@VERSIONS
def test_every_type_of_partition_value_is_written_and_read_back(catalog: Catalog, version: int) -> None:
    columns = [NestedField(n, f"c{n}", kind, required=False) for n, (kind, _) in enumerate(PARTITION_VALUES, 1)]
    fields = [PartitionField(n, 999 + n, IdentityTransform(), f"c{n}") for n in range(1, len(columns) + 1)]
    table = create_table(
        catalog,
        ("db", "types"),
        Schema(*columns),
        partition_spec=PartitionSpec(*fields),
        properties={"format-version": str(version)},
    )
    partition = tuple(value for _, value in PARTITION_VALUES)
    file = replace(data_file(new_table(catalog, version), [1]), partition=partition)
    made = commit(table, AppendFiles(data_files=(file,)))
    (manifest,) = manifests(table)
    (entry,) = entries_of(manifest, table.io)
    assert repr(entry.data_file.partition) == repr(partition)
    assert made.summary["changed-partition-count"] == "1"
    assert manifest.partitions is not None
    assert (manifest.partitions[4].contains_nan, manifest.partitions[4].lower_bound) == (True, None)
    assert (manifest.partitions[10].contains_null, manifest.partitions[10].upper_bound) == (True, None)
    # PyIceberg reads the same list.
    read = list(pyiceberg_manifest_list(table.io.new_input(table.current_snapshot().manifest_list)))
    assert [m.manifest_path for m in read] == [manifest.manifest_path]
    assert read[0].fetch_manifest_entry(table.io)[0].data_file.file_path == file.path


FULL = ContentFile(
    content=FileContent.EQUALITY_DELETES,
    path="file:///x/eq.parquet",
    file_format="parquet",
    spec_id=0,
    partition=(),
    record_count=7,
    file_size_in_bytes=99,
    column_sizes={1: 10},
    value_counts={1: 7},
    null_value_counts={1: 0},
    nan_value_counts={1: 2},
    lower_bounds={1: b"a"},
    upper_bounds={1: b"z"},
    split_offsets=(4, 50),
    sort_order_id=3,
    equality_ids=(1, 2),
    key_metadata=b"key",
)
VECTOR = ContentFile(
    content=FileContent.POSITION_DELETES,
    path="file:///x/d.puffin",
    file_format="puffin",
    spec_id=0,
    partition=(),
    record_count=2,
    file_size_in_bytes=500,
    referenced_data_file="file:///x/a.parquet",
    content_offset=4,
    content_size_in_bytes=44,
)


@pytest.mark.parametrize(("version", "file"), [(2, FULL), (3, FULL), (3, VECTOR)])
def test_every_field_of_an_entry_is_written_and_read_back(catalog: Catalog, version: int, file: ContentFile) -> None:
    table = new_table(catalog, version)
    location = f"{table.location()}/metadata/m.avro"
    entries = [
        ManifestEntry(
            status=EntryStatus.ADDED,
            snapshot_id=5,
            data_sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        ),
        ManifestEntry(
            status=EntryStatus.EXISTING, snapshot_id=3, data_sequence_number=2, file_sequence_number=3, data_file=file
        ),
        ManifestEntry(
            status=EntryStatus.DELETED, snapshot_id=5, data_sequence_number=1, file_sequence_number=1, data_file=file
        ),
    ]
    made = ManifestWriter(table.io, table.metadata, 5).write(location, 0, ManifestContent.DELETES, entries)
    assert (made.added_rows_count, made.existing_rows_count, made.deleted_rows_count) == (file.record_count,) * 3
    assert (made.sequence_number, made.min_sequence_number) == (None, 2)
    read = list(entries_of(replace(made, sequence_number=9), table.io))
    assert read == [replace(entries[0], data_sequence_number=9, file_sequence_number=9), *entries[1:]]
    assert [entry.status for entry in entries_of(replace(made, sequence_number=9), table.io, live_only=True)] == [1, 0]


@VERSIONS
def test_a_manifest_list_is_written_and_read_back(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    location = f"{table.location()}/metadata/l.avro"
    made = ManifestFile(
        manifest_path="file:///m1",
        manifest_length=10,
        partition_spec_id=0,
        sequence_number=None if version > 1 else 0,
        min_sequence_number=None if version > 1 else 0,
        added_snapshot_id=7,
        added_files_count=1,
        existing_files_count=2,
        deleted_files_count=3,
        added_rows_count=10,
        existing_rows_count=20,
        deleted_rows_count=30,
        partitions=(),
        key_metadata=b"k",
    )
    kept = replace(made, manifest_path="file:///m2", sequence_number=0, min_sequence_number=0, first_row_id=None)
    after = write_manifest_list(
        table.io,
        location,
        version=version,
        manifests=[made, kept],
        snapshot_id=7,
        parent_snapshot_id=None,
        sequence_number=0 if version == 1 else 4,
        first_row_id=1000,
    )
    number = 0 if version == 1 else 4
    assigned = replace(
        made, sequence_number=number, min_sequence_number=number, first_row_id=1000 if version == 3 else None
    )
    assert read_manifest_list(table.io, location) == (
        assigned,
        replace(kept, first_row_id=1030 if version == 3 else None),
    )
    assert after == (1060 if version == 3 else 1000)


def test_an_entry_without_a_sequence_number_has_to_be_an_added_one(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    entry = ManifestEntry(
        status=EntryStatus.EXISTING, snapshot_id=3, data_sequence_number=None, file_sequence_number=None, data_file=FULL
    )
    location = f"{table.location()}/metadata/m.avro"
    made = ManifestWriter(table.io, table.metadata, 5).write(location, 0, ManifestContent.DELETES, [entry])
    with pytest.raises(CorruptFileError, match="status EXISTING and no sequence number"):
        list(entries_of(replace(made, sequence_number=9), table.io))


def test_a_damaged_manifest_is_named(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    (manifest,) = manifests(table)
    for damage in (b"", b"not avro at all", b"Obj\x01" + bytes(50)):
        with table.io.new_output(manifest.manifest_path).create(overwrite=True) as stream:
            stream.write(damage)
        with pytest.raises(CorruptFileError, match="cannot be read") as raised:
            list(entries_of(manifest, table.io))
        assert raised.value.context["file"] == manifest.manifest_path


def test_manifests_of_one_schema_share_a_reader(catalog: Catalog) -> None:
    """To make one takes longer than to read a small manifest."""
    table = new_table(catalog, 2)
    for number in range(3):
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
    before = reader_of.cache_info().misses, type_of_records.cache_info().misses
    assert sum(1 for manifest in manifests(table) for _ in entries_of(manifest, table.io)) == 3
    made = reader_of.cache_info().misses - before[0], type_of_records.cache_info().misses - before[1]
    assert max(made) <= 1


@VERSIONS
def test_a_commit_keeps_all_snapshots_and_copies_none(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg would copy all of them for each new one."""
    copied: list[int] = []
    copy = Snapshot.__deepcopy__

    def noted(snapshot: Snapshot, memo: dict[int, Any] | None = None) -> Snapshot:
        copied.append(snapshot.snapshot_id)
        return copy(snapshot, memo)

    monkeypatch.setattr(Snapshot, "__deepcopy__", noted)
    table = new_table(catalog, version)
    for number in range(4):
        committed = commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
        assert set(copied) == {committed.snapshot_id}
        copied.clear()
        found = table.refresh().metadata
        assert len(found.snapshots) == number + 1
        assert [entry.snapshot_id for entry in found.snapshot_log] == [each.snapshot_id for each in found.snapshots]


@VERSIONS
def test_of_a_long_history_only_what_is_new_is_parsed_and_encoded(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-batches are many: what one costs must not grow with those before it."""
    monkeypatch.setattr(limits, "MIN_CACHED_HISTORY", 3)
    parsed_texts: list[str] = []
    parse = Snapshot.model_validate_json

    def noted(text: str) -> Snapshot:
        parsed_texts.append(text)
        return parse(text)

    encoded: list[ManifestFile] = []
    encode = write.encode_line

    def noted_line(line: ManifestFile, format_version: int) -> bytes:
        encoded.append(line)
        return encode(line, format_version)

    monkeypatch.setattr(Snapshot, "model_validate_json", noted)
    monkeypatch.setattr(write, "encode_line", noted_line)
    table = new_table(catalog, version)
    texts = []
    for number in range(7):
        encoded.clear()
        commit(table, AppendFiles(data_files=(data_file(table, [number]),), is_fast=True))
        table.refresh()
        texts.append(Path(table.metadata_location.removeprefix("file://")).read_text())
        if number > 3:
            assert len(parsed_texts) == 1
            assert parsed_texts[0] in texts[-1]
            assert len(encoded) == 1
        parsed_texts.clear()
    assert ids(table.metadata_location) == list(range(7))
    location, text = table.metadata_location, texts[-1]
    found = parse_metadata(text, location)
    assert found == table.metadata == TableMetadataUtil.parse_raw(text)
    assert found.snapshots == TableMetadataUtil.parse_raw(text).snapshots
    # Only snapshots that were parsed from the text are written as it has them.
    marked = text.replace('"operation":"append"', '"operation":"append","more":"1"')
    assert cached_metadata_json(metadata_json, parse_metadata(marked, location), location) == marked
    expired = found.model_copy(update={"snapshots": found.snapshots[2:]})
    assert cached_metadata_json(metadata_json, expired, location) == metadata_json(expired)
    assert parse_metadata(metadata_json(expired), location).snapshots == found.snapshots[2:]
    if version == 3:  # what PyIceberg made may lack it
        lacking = parse_metadata(text, location).model_copy(update={"next_row_id": None})
        write_metadata(lacking, table.io, f"{location}.new", overwrite=False)
        assert Path(f"{location}.new".removeprefix("file://")).read_text() == text
    # As Java writes it.
    spaced = json.dumps(json.loads(text), indent=2)
    assert parse_metadata(spaced, location) == found
    for damaged in (
        text[:-9],
        text.replace('"snapshot-id"', '"snapshot"'),
        text.replace('"snapshots":[', '"snapshots":[7,'),
    ):
        with pytest.raises(ValidationError) as expected:
            TableMetadataUtil.parse_raw(damaged)
        with pytest.raises(ValidationError) as raised:
            parse_metadata(damaged, location)
        assert str(raised.value) == str(expected.value)
