"""Bytes and memory that a metadata file cannot ask for, and numbers that writers do not know."""

import bz2
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from dml.errors import CorruptFileError
from dml.manifests.avro_schema import avro_schema
from dml.manifests.entries import NULL_VALUE_COUNTS
from dml.manifests.entry_columns import CONTENT, STATUS, read_columns
from dml.manifests.read import (
    ENTRY_READ_SCHEMA,
    MANIFEST_LIST_SCHEMA,
    LineReader,
    entries_of,
    read_manifest_list,
)
from dml.manifests.weights import MAX_KEPT_LINE
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile, PartitionSummary
from dml.pruning.file_bounds import MetricBounds, MetricColumn
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
    decode = LineReader.decoded

    def noted(reader: LineReader, line: bytes) -> ManifestFile:
        decoded.append(line)
        return decode(reader, line)

    monkeypatch.setattr(LineReader, "decoded", noted)
    for length, times in ((20, 1), (MAX_KEPT_LINE, 2)):
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


def test_partitions_that_nobody_asked_for_are_passed_over(tmp_path: Path) -> None:
    """Decimals among them, which have no length before them."""
    values = tuple(values[-1] for _, values in PARTITION_TYPES.values())
    found = [entry(replace(PLAIN, partition=values), EntryStatus.ADDED, 7)] * 3
    line = written(tmp_path, found)
    assert read_columns(line, IO, ()).values == {STATUS: [1, 1, 1], CONTENT: [0, 0, 0]}
