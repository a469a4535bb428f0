"""Manifests that are decoded together give what each of them gives alone."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import StructType

from dml import limits
from dml.errors import CorruptFileError
from dml.manifests.entries import EntryArrays
from dml.manifests.entry_fields import KNOWN
from dml.manifests.read_arrays import ManifestBlocks, decode_in_lockstep, decode_one_by_one, read_arrays, read_blocks
from dml.metadata_tables.entry_scan import EntryReader, EntryScan
from dml.metadata_tables.tables import MetadataTable, table_schema
from dml.model.manifest import EntryStatus, FileContent, ManifestFile
from tests.dml.manifests.test_lockstep_entries import (
    PARTITION_TYPES,
    PLAIN,
    SPEC,
    a_file,
    entry,
    metadata,
    same,
    written,
)

IO = PyArrowFileIO()
PATHS = st.integers(0, 50).map(lambda number: f"s3://bucket/t/data/{number}.parquet")


def alone(found: ManifestBlocks, kind: StructType) -> list[object]:
    return [decode_one_by_one(kind, [found]).entry(place) for place in range(found.rows)]


def all_entries(arrays: EntryArrays) -> list[object]:
    return [arrays.entry(place) for place in range(arrays.size)]


@st.composite
def a_manifest(draw: st.DrawFn, folder: Path) -> ManifestFile:
    """A manifest with values of its own that its entries inherit."""
    deletes = draw(st.booleans())
    number = draw(st.sampled_from([0, 3, 9]))
    statuses = st.sampled_from([EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED])
    files = draw(st.lists(st.tuples(a_file(PATHS, deletes=deletes), statuses), max_size=4))
    line = written(
        folder, [entry(file, status, draw(st.sampled_from([5, 7]))) for file, status in files], deletes=deletes
    )
    return replace(
        line,
        sequence_number=number,
        added_snapshot_id=draw(st.integers(1, 9)),
        first_row_id=draw(st.sampled_from([None, 0, 1000])),
    )


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_entries_inherit_from_their_own_manifest(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        lines = data.draw(st.lists(a_manifest(Path(folder)), min_size=1, max_size=6))
        read = [read_blocks(line, IO) for line in lines]
        # Data and delete manifests have one schema.
        assert len({id(kind) for kind, _ in read}) == 1
        kind, group = read[0][0], [found for _, found in read]
        expected = [one for found in group for one in alone(found, kind)]
        together = decode_one_by_one(kind, group)
        assert repr(all_entries(together)) == repr(expected)
        (arrays,) = read_arrays(lines, lambda _: IO, KNOWN)
        assert same(arrays, together)
        if expected:
            assert same(decode_in_lockstep(kind, group), together)


def lines_of(folder: Path, sizes: list[int]) -> list[ManifestFile]:
    return [
        written(
            folder,
            [entry(replace(PLAIN, path=f"file:///t/{place}/{number}"), EntryStatus.ADDED, 7) for number in range(size)],
        )
        for place, size in enumerate(sizes)
    ]


def test_groups_end_where_they_are_large_or_the_next_spec_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MANIFEST_GROUP_ENTRIES", 10)
    lines = lines_of(tmp_path, [4, 0, 5, 6, 1, 30, 2, 2])
    lines[-1] = replace(lines[-1], partition_spec_id=1)
    found = list(read_arrays(lines, lambda _: IO, KNOWN))
    assert [(arrays.size, arrays.spec_id) for arrays in found] == [(15, 0), (31, 0), (2, 0), (2, 1)]
    monkeypatch.setattr(limits, "LOCKSTEP_GROUP_BYTES", 1)
    assert [arrays.size for arrays in read_arrays(lines, lambda _: IO, KNOWN)] == [4, 5, 6, 1, 30, 2, 2]


@pytest.mark.parametrize("size", [1, 100])
def test_the_damaged_one_is_named(tmp_path: Path, size: int) -> None:
    lines = lines_of(tmp_path, [size] * 5)
    # Existing entries have a sequence number of their own.
    wrong = written(tmp_path, [entry(replace(PLAIN, content=FileContent.DATA), EntryStatus.ADDED, 7)])
    path = Path(wrong.manifest_path.removeprefix("file://"))
    for line in (
        replace(wrong, manifest_length=wrong.manifest_length + 1),
        replace(wrong, content=1 - wrong.content),
        replace(wrong, manifest_path=f"file://{path}.gone"),
    ):
        with pytest.raises(CorruptFileError) as error:
            list(read_arrays([*lines[:3], line, *lines[3:]], lambda _: IO, KNOWN))
        assert error.value.context["file"] == line.manifest_path


def test_a_filter_of_partitions_applies_though_no_column_shows_them(tmp_path: Path) -> None:
    nulls = (None,) * (len(PARTITION_TYPES) - 1)
    lines = [
        written(tmp_path, [entry(replace(PLAIN, path=f"f{n}{i}", partition=(i, *nulls)), EntryStatus.ADDED, 7)])
        for n in range(150)
        for i in (0, 2)
    ]
    schema = table_schema(MetadataTable.FILES, metadata(3, PartitionSpec(SPEC.fields[0])))
    scan = EntryScan(
        schema_json=schema.model_dump_json(),
        columns=("file_path",),
        metrics_json=StructType().model_dump_json(),
        live_only=True,
        row_filter=EqualTo("partition.i", 2),
    )
    for some in (lines[:4], lines):
        rows = pa.Table.from_batches(EntryReader(scan, lambda _: IO).batches(some))["file_path"].to_pylist()
        assert rows == [f"f{n}2" for n in range(len(some) // 2)]
