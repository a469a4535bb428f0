"""Bytes and memory that a metadata file cannot ask for, and numbers that writers do not know."""

import bz2
import json
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from dml import limits
from dml.errors import CorruptFileError
from dml.manifests.avro_schema import avro_schema
from dml.manifests.entries import EntryArrays
from dml.manifests.entry_fields import (
    CONTENT,
    ENTRY_READ_SCHEMA,
    FILE_PATH,
    NULL_VALUE_COUNTS,
    STATUS,
    VALUE_COUNTS,
)
from dml.manifests.read import (
    MANIFEST_LIST_SCHEMA,
    LineReader,
    entries_of,
    read_manifest_list,
    type_of_records,
)
from dml.manifests.read_arrays import ManifestBlocks, decode_in_lockstep, decode_one_by_one, entry_arrays
from dml.manifests.read_arrays import read_arrays as read_wanted
from dml.metadata_tables.entry_scan import map_array
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile, PartitionSummary
from dml.pruning.file_bounds import MetricBounds, MetricColumn
from tests.damage.hostile import FILE, SCHEMA, manifest_schema
from tests.dml.manifests.array_files import read_arrays
from tests.dml.manifests.test_lockstep_entries import PARTITION_TYPES, PLAIN, entry, written
from tests.dml.manifests.test_lockstep_lines import long, sized
from tests.dml.manifests.test_lockstep_lines import written as written_list

IO = PyArrowFileIO()


def bomb(path: Path, schema: Schema, blocks: int) -> ManifestFile:
    """A file of blocks of zeros, each of 16 MB, in some hundred bytes."""
    block = bz2.compress(bytes((1 << 24) - 1))
    sync = bytes(range(16))
    header = {b"avro.schema": avro_schema(schema, "r").encode(), b"avro.codec": b"bzip2"}
    data = b"Obj\x01" + long(len(header)) + b"".join(sized(key) + sized(value) for key, value in header.items())
    data += long(0) + sync + (long(1) + sized(block) + sync) * blocks
    path.write_bytes(data)
    return ManifestFile(
        manifest_path=f"file://{path}",
        manifest_length=len(data),
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=1,
        added_snapshot_id=1,
        added_files_count=1000,
    )


@pytest.mark.parametrize("is_list", [False, True], ids=["manifest", "list"])
def test_many_blocks_that_decompress_to_much_are_refused(tmp_path: Path, *, is_list: bool) -> None:
    line = bomb(tmp_path / "m.avro", MANIFEST_LIST_SCHEMA if is_list else ENTRY_READ_SCHEMA, 100)
    assert line.manifest_length < 20_000
    tracemalloc.start()
    with pytest.raises(CorruptFileError, match="bytes when they are decompressed"):
        read_manifest_list(IO, line.manifest_path) if is_list else read_arrays(line, IO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 << 20


def test_long_lines_of_manifest_lists_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bounds may be of any length, and what the process keeps of lines no property bounds."""
    decoded: list[bytes] = []
    decode = LineReader.decode

    def noted(reader: LineReader, lines: Sequence[bytes]) -> list[ManifestFile]:
        decoded.extend(lines)
        return decode(reader, lines)

    monkeypatch.setattr(LineReader, "decode", noted)
    for length, times in ((20, 1), (limits.MAX_CACHED_LINE_BYTES, 2)):
        summary = PartitionSummary(contains_null=False, contains_nan=None, lower_bound=bytes(length), upper_bound=b"")
        lines = [
            ManifestFile(
                manifest_path=f"file:///t/{length}/{number}.avro",
                manifest_length=9,
                partition_spec_id=0,
                sequence_number=1,
                min_sequence_number=1,
                added_snapshot_id=number,
                partitions=(summary,),
            )
            for number in range(200)
        ]
        location = written_list(tmp_path, lines, 2)
        decoded.clear()
        found = read_manifest_list(IO, location)
        assert [line.partitions for line in found] == [(summary,)] * 200
        assert read_manifest_list(IO, location) == found
        assert len(decoded) == 200 * times


def test_a_count_below_0_is_read_as_it_is_and_says_nothing(tmp_path: Path) -> None:
    """Both ways of reading, and both of pruning: -1 values of which -1 are NULL are not nothing but NULLs."""
    unknown = {3: -1}
    file = replace(PLAIN, value_counts=unknown, null_value_counts=unknown, nan_value_counts={}, split_offsets=(4, -1))
    line = written(tmp_path, [entry(file, EntryStatus.ADDED, 7)])
    (one,) = entries_of(line, IO)
    many = read_arrays(line, IO)
    for found in (one.data_file, many.entry(0).data_file):
        assert dict(found.null_value_counts) == unknown
        assert found.split_offsets == (4, -1)
        bounds = MetricBounds(found, 3, MetricColumn.of(LongType()))
        assert (bounds.values, bounds.nulls) == (True, True)
    assert many.maps[NULL_VALUE_COUNTS].of_file(0) == unknown


@pytest.mark.parametrize("files", [3, 300])
def test_columns_that_nobody_asked_for_are_passed_over(tmp_path: Path, files: int) -> None:
    """Decimals in partitions among them, which have no length before them."""
    values = tuple(values[-1] for _, values in PARTITION_TYPES.values())
    found = [
        entry(replace(PLAIN, path=f"file:///t/{number}", partition=values), EntryStatus.ADDED, 7)
        for number in range(files)
    ]
    (arrays,) = read_wanted([written(tmp_path, found)], lambda _: IO, ())
    assert (arrays.values(STATUS), arrays.values(CONTENT)) == ([1] * files, [0] * files)
    assert (arrays.partitions, len(arrays.partition_of)) == ((), 0)
    assert FILE_PATH not in arrays.columns
    assert arrays.maps == {}


@pytest.mark.parametrize("decode", [decode_one_by_one, decode_in_lockstep])
def test_an_empty_map_is_not_an_absent_one(decode: Callable[..., EntryArrays]) -> None:
    """Metadata tables show NULL for metrics that an entry does not have."""
    head = long(1) + sized(b"s3://bucket/t/data/f") + sized(b"parquet") + long(1) * 2
    null, empty, one = long(0), long(1) + long(0), long(1) + long(1) + long(5) + long(7) + long(0)
    block = b"".join(head + counts + null * 2 for counts in (null, empty, one))
    line = ManifestFile(manifest_path="f", manifest_length=9, partition_spec_id=0, added_snapshot_id=1)
    group = [ManifestBlocks(line, [(3, block)])]
    found = decode(type_of_records(json.dumps(SCHEMA).encode()), group).maps[VALUE_COUNTS]
    assert found.absent is not None
    assert found.absent.tolist() == [True, False, False]
    assert [found.of_file(place) for place in range(3)] == [{}, {}, {5: 7}]
    assert map_array(found, pa.map_(pa.int32(), pa.int64())).to_pylist() == [None, [], [(5, 7)]]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda fields: [*fields, {**fields[3], "name": "again"}], r"the field .record_count. with the id 103 twice"),
        (lambda fields: [*fields[:3], {**fields[3], "type": ["null", "long"]}, *fields[4:]], r"lack the .* \[103\]"),
    ],
    ids=["twice", "optional"],
)
@pytest.mark.parametrize("entries", [1, 1000])
def test_entries_have_each_field_once_and_what_is_required(
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], what: str, entries: int
) -> None:
    kind = type_of_records(json.dumps(manifest_schema(change(FILE[:-1]))).encode())
    line = ManifestFile(manifest_path="f", manifest_length=9, partition_spec_id=0, added_snapshot_id=1)
    with pytest.raises(CorruptFileError, match=what):
        entry_arrays(kind, [ManifestBlocks(line, [(entries, bytes(1000))])])
