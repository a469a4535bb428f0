"""Entries that are decoded in lockstep are those that are decoded one by one, whatever the bytes are."""

import itertools
import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from dml import limits
from dml.errors import CorruptFileError
from dml.manifests import lockstep_search
from dml.manifests.avro_decoder import CheckedDecoder
from dml.manifests.entries import EntryArrays, EvenMaps, RaggedMaps
from dml.manifests.lockstep_decoder import Lanes, Numbers, Pieces, UnsureError
from dml.manifests.read import blocks_of
from dml.manifests.read_arrays import ManifestBlocks, decode_in_lockstep, decode_one_by_one
from dml.manifests.write import ManifestWriter
from dml.model.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, ManifestEntry, ManifestFile

Blocks = list[tuple[int, bytes]]

PARTITION_TYPES: dict[str, tuple[PrimitiveType, list[Any]]] = {
    "i": (IntegerType(), [None, -1, 0, 2**31 - 1]),
    "l": (LongType(), [None, -(2**63), 0, 2**63 - 1]),
    "s": (StringType(), [None, "", "é" * 70, "a/b"]),
    "b": (BinaryType(), [None, b"", b"\x00\xff"]),
    "x": (FixedType(3), [None, b"abc"]),
    "y": (BooleanType(), [None, True, False]),
    "f": (FloatType(), [None, 0.5, -0.0]),
    "d": (DoubleType(), [None, 0.0, -0.0, float("inf")]),
    "t": (TimestampType(), [None, 0, -1, 2**60]),
    "a": (DateType(), [None, 0, 20_000]),
    "m": (DecimalType(20, 2), [None, Decimal("-1.50")]),
    "n": (DecimalType(20, 2), [None, Decimal("2.25")]),
    "u": (UUIDType(), [None, UUID(int=1)]),
    "v": (UUIDType(), [None, UUID(int=2)]),
    "z": (TimestampNanoType(), [None, -1, 2**62]),
}
SCHEMA = Schema(
    *(NestedField(place, name, kind, required=False) for place, (name, (kind, _)) in enumerate(PARTITION_TYPES.items()))
)
SPEC = PartitionSpec(
    *(PartitionField(place, 1000 + place, IdentityTransform(), name) for place, name in enumerate(PARTITION_TYPES))
)
NUMBERS = itertools.count()
LARGE = st.integers(0, 2**62)
SMALL = st.integers(0, 70)
UNKNOWN = st.just(-1)
"""What some writers say for a number that they do not know."""


def metadata(version: int, spec: PartitionSpec) -> TableMetadata:
    """A table's."""
    fields: dict[str, Any] = {"current-schema-id": 0, "schemas": [SCHEMA.model_dump()]}
    fields["partition-specs"] = [spec.model_dump()]
    fields |= {"schema": SCHEMA.model_dump(), "partition-spec": spec.model_dump()["fields"]} if version == 1 else {}
    return TableMetadataUtil.parse_obj(
        {
            "format-version": version,
            "table-uuid": "00000000-0000-0000-0000-000000000001",
            "location": "file:///t",
            "last-updated-ms": 0,
            "last-column-id": 20,
            "last-sequence-number": 5,
            "default-spec-id": 0,
            "last-partition-id": 1100,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "next-row-id": 0,
            **fields,
        }
    )


def written(folder: Path, entries: Sequence[ManifestEntry], *, version: int = 3, deletes: bool = False) -> ManifestFile:
    """A manifest, as a manifest list names it after a commit."""
    content = ManifestContent.DELETES if deletes else ManifestContent.DATA
    writer = ManifestWriter(PyArrowFileIO(), metadata(version, SPEC), 7)
    line = writer.write(f"file://{folder}/{next(NUMBERS)}.avro", 0, content, entries)
    first_row_id = 100 if version == 3 and not deletes else None
    number = 0 if version == 1 else 3
    return replace(line, sequence_number=number, min_sequence_number=number, first_row_id=first_row_id)


def read(line: ManifestFile) -> tuple[StructType, Blocks]:
    """Its type, and its blocks."""
    file_schema, blocks = blocks_of(PyArrowFileIO(), line.manifest_path, line.manifest_length)
    return file_schema, list(blocks)


def one_by_one(file_schema: StructType, blocks: Blocks, line: ManifestFile) -> EntryArrays:
    """The entries, as the other decoder has them."""
    return decode_one_by_one(file_schema, [ManifestBlocks(line, blocks)])


def in_lockstep(file_schema: StructType, blocks: Blocks, line: ManifestFile) -> EntryArrays:
    """The entries, decoded together."""
    return decode_in_lockstep(file_schema, [ManifestBlocks(line, blocks)])


def same(left: EntryArrays, right: EntryArrays) -> bool:
    """Whether two say the same of the same entries in the same order, as the same types."""
    return (
        (left.size, left.spec_id, repr(left.partitions)) == (right.size, right.spec_id, repr(right.partitions))
        and left.partition_of.tolist() == right.partition_of.tolist()
        and left.columns.keys() == right.columns.keys()
        and all(
            (column.type, column.to_pylist()) == (right.columns[key].type, right.columns[key].to_pylist())
            for key, column in left.columns.items()
        )
        and left.maps.keys() == right.maps.keys()
        and all(
            (type(maps), maps.values.type, absent(maps), [maps.of_file(place) for place in range(left.size)])
            == (type(other), other.values.type, absent(other), [other.of_file(place) for place in range(left.size)])
            for maps, other in ((maps, right.maps[key]) for key, maps in left.maps.items())
        )
    )


def absent(maps: RaggedMaps | EvenMaps) -> list[bool] | None:
    return None if maps.absent is None else maps.absent.tolist()


def cut(file_schema: StructType, blocks: Blocks, sizes: Sequence[int]) -> Blocks:
    """The same entries in blocks of other sizes, the last of what is left."""
    data, rows = b"".join(block for _, block in blocks), sum(count for count, _ in blocks)
    decoder: Any = CheckedDecoder(data)
    reader: Reader = construct_reader(file_schema)
    places = [0]
    for _ in range(rows):
        reader.read(decoder)
        places.append(decoder.tell())
    ends = [end for end in np.cumsum([0, *sizes]).tolist() if end < rows] + [rows]
    return [(end - start, data[places[start] : places[end]]) for start, end in itertools.pairwise(ends)]


@st.composite
def a_file(draw: st.DrawFn, paths: st.SearchStrategy[str], *, deletes: bool = False) -> ContentFile:
    """A file whose entry has anything that one may have."""
    ids = st.integers(0, 200)
    counts = st.dictionaries(ids, SMALL | LARGE | UNKNOWN, max_size=4)
    bounds = st.dictionaries(ids, st.binary(max_size=9) | paths.map(str.encode), max_size=4)
    content = FileContent.POSITION_DELETES if deletes else FileContent.DATA
    return ContentFile(
        content=content,
        path=draw(paths),
        file_format=draw(st.sampled_from(["parquet", "PARQUET", "avro", "puffin"])),
        spec_id=0,
        partition=tuple(draw(st.sampled_from(values)) for _, values in PARTITION_TYPES.values()),
        record_count=draw(SMALL | st.integers(0, 2**40)),
        file_size_in_bytes=draw(SMALL | LARGE),
        column_sizes=draw(counts),
        value_counts=draw(counts),
        null_value_counts=draw(counts),
        nan_value_counts=draw(counts),
        lower_bounds=draw(bounds),
        upper_bounds=draw(bounds),
        key_metadata=draw(st.none() | st.binary(max_size=5)),
        split_offsets=tuple(draw(st.lists(SMALL | LARGE | UNKNOWN, max_size=3))),
        sort_order_id=draw(st.sampled_from([None, 0, 1])),
        referenced_data_file=draw(paths) if deletes and draw(st.booleans()) else None,
        content_offset=draw(st.none() | SMALL) if deletes else None,
        content_size_in_bytes=draw(st.none() | SMALL) if deletes else None,
    )


def entry(file: ContentFile, status: EntryStatus, snapshot_id: int) -> ManifestEntry:
    """An entry; what it inherits is not written."""
    number = None if status is EntryStatus.ADDED else 2
    return ManifestEntry(
        status=status,
        snapshot_id=snapshot_id,
        data_sequence_number=number,
        file_sequence_number=number,
        data_file=file,
    )


def entries_of_files(files: st.SearchStrategy[ContentFile]) -> st.SearchStrategy[list[ManifestEntry]]:
    """Entries of any status."""
    return st.lists(
        st.builds(entry, files, st.sampled_from(list(EntryStatus)), st.sampled_from([1, 2**62 + 1, 2**63 - 1])),
        min_size=1,
        max_size=9,
    )


ALIKE = st.builds("s3://bucket/warehouse/db/t/data/p={}/{}.parquet".format, SMALL, LARGE)
ANY_PATH = ALIKE | st.text(max_size=80)
CUTS = st.lists(st.integers(1, 4), max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lockstep")


@settings(max_examples=25, deadline=None)
@given(found=entries_of_files(a_file(ALIKE)), version=st.sampled_from([1, 2, 3]), sizes=CUTS)
def test_entries_of_one_table_are_decoded_in_lockstep(
    folder: Path, found: list[ManifestEntry], version: int, sizes: list[int]
) -> None:
    """Whatever they say, and however they are put into blocks."""
    line = written(folder, found, version=version)
    file_schema, blocks = read(line)
    blocks = cut(file_schema, blocks, sizes)
    assert same(in_lockstep(file_schema, blocks, line), one_by_one(file_schema, blocks, line))


@settings(max_examples=25, deadline=None)
@given(found=entries_of_files(a_file(ALIKE, deletes=True)), version=st.sampled_from([2, 3]), sizes=CUTS)
def test_paths_that_no_entry_starts_with_are_passed_by(
    folder: Path, found: list[ManifestEntry], version: int, sizes: list[int]
) -> None:
    """Delete files name data files, and those of version 2 have paths as bounds."""
    line = written(folder, found, version=version, deletes=True)
    file_schema, blocks = read(line)
    blocks = cut(file_schema, blocks, sizes)
    assert same(in_lockstep(file_schema, blocks, line), one_by_one(file_schema, blocks, line))


@settings(max_examples=25, deadline=None)
@given(found=entries_of_files(a_file(ANY_PATH)), sizes=CUTS)
def test_paths_that_have_nothing_in_common_are_found_or_given_up(
    folder: Path, found: list[ManifestEntry], sizes: list[int]
) -> None:
    line = written(folder, found)
    file_schema, blocks = read(line)
    blocks = cut(file_schema, blocks, sizes)
    try:
        decoded = in_lockstep(file_schema, blocks, line)
    except UnsureError:
        return
    assert same(decoded, one_by_one(file_schema, blocks, line))


def test_a_path_that_begins_in_another_way_is_learnt(folder: Path) -> None:
    """A table whose files were moved, or imported from elsewhere: what all have in common is searched for."""
    places = ["s3://bucket/warehouse/db/t/data/p=1", "s3://bucket/imported", "s3://other/x", "s3a://old/place"]
    found = [
        entry(replace(PLAIN, path=f"{places[number // 50]}/{number}.parquet"), EntryStatus.ADDED, 7)
        for number in range(200)
    ]
    line = written(folder, found)
    file_schema, blocks = read(line)
    assert same(in_lockstep(file_schema, blocks, line), one_by_one(file_schema, blocks, line))


PLAIN = ContentFile(
    content=FileContent.DATA,
    path="file:///t/data/x.parquet",
    file_format="parquet",
    spec_id=0,
    partition=(None,) * len(PARTITION_TYPES),
    record_count=9,
    file_size_in_bytes=99,
    value_counts={1: 9, 2: 9},
    lower_bounds={1: b"file:///t/data/y", 2: b"\x02"},
    split_offsets=(4, 70),
)


def test_damage_is_never_read_as_something_else(folder: Path) -> None:
    """Any byte of the entries changed, and entries cut or doubled: the same as one by one, or left to that."""
    chance = random.Random(11)
    found = [
        entry(replace(PLAIN, path=f"file:///t/data/{number}.parquet", record_count=number * 1000), status, 7)
        for number, status in enumerate([*EntryStatus] * 3)
    ]
    line = written(folder, found)
    file_schema, blocks = read(line)
    blocks = cut(file_schema, blocks, [4])
    outcomes = {"same": 0, "left": 0, "refused by both": 0}
    for _ in range(500):
        damaged = [(count, bytearray(block)) for count, block in blocks]
        block = damaged[chance.randrange(len(damaged))][1]
        for _ in range(chance.choice([1, 1, 1, 3])):
            place = chance.randrange(len(block))
            kind = chance.randrange(4)
            if kind == 0:
                block[place] ^= 1 << chance.randrange(8)
            elif kind == 1:
                block[place] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
            elif kind == 2:
                del block[place : place + chance.randrange(1, 40)]
            else:
                block[place:place] = block[max(0, place - chance.randrange(1, 40)) : place]
        those = [(count, bytes(block)) for count, block in damaged]
        try:
            expected = one_by_one(file_schema, those, line)
        except (ArithmeticError, LookupError, ValueError, EOFError, CorruptFileError):
            with pytest.raises((UnsureError, ValueError)):
                in_lockstep(file_schema, those, line)
            outcomes["refused by both"] += 1
            continue
        try:
            assert same(in_lockstep(file_schema, those, line), expected)
            outcomes["same"] += 1
        except UnsureError:
            outcomes["left"] += 1
    assert outcomes["same"] > 50, outcomes
    assert outcomes["refused by both"] > 50, outcomes


def test_blocks_that_are_decoded_in_several_turns_are_one_manifest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With formats, partitions and metrics that only some of the turns have, and row ids that are counted on."""
    formats, values = ["parquet", "ORC", "Parquet", "avro"], [None, 0, 2**31 - 1]
    found = [
        entry(
            replace(
                PLAIN,
                path=f"file:///t/data/{number}",
                file_format=formats[number // 10],
                partition=(values[number // 7 % 3], *PLAIN.partition[1:]),
                value_counts=dict.fromkeys(range(number // 13), number),
                record_count=number,
            ),
            EntryStatus.ADDED,
            7,
        )
        for number in range(40)
    ]
    line = written(folder, found)
    file_schema, blocks = read(line)
    blocks = cut(file_schema, blocks, [3] * 13)
    monkeypatch.setattr(limits, "LOCKSTEP_GROUP_BYTES", 700)
    assert len(list(lockstep_search.group_blocks(blocks))) > 5
    assert same(in_lockstep(file_schema, blocks, line), one_by_one(file_schema, blocks, line))


@pytest.mark.parametrize("what", [b"file:///t/data/", b"a", b"\x80", b"\x02\x00"], ids=["paths", "a", "bits", "counts"])
@pytest.mark.parametrize("claimed", [1, 10_000, 2**40])
def test_what_looks_like_many_entries_takes_little_memory(folder: Path, what: bytes, claimed: int) -> None:
    """An entry, and then 60 MiB that are none."""
    line = written(folder, [entry(PLAIN, EntryStatus.ADDED, 7)])
    file_schema, ((_, block),) = read(line)
    data = block + what * ((60 << 20) // len(what))
    tracemalloc.start()
    with pytest.raises(UnsureError):
        in_lockstep(file_schema, [(claimed, data)], line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600 << 20


@pytest.mark.parametrize("lanes", [1_000, 20_000])
def test_entries_that_share_their_bytes_take_little_memory(folder: Path, lanes: int) -> None:
    """Thousands of paths, all of which end where one map of thousands of pairs starts."""
    many = dict.fromkeys(range(16_000), 1)
    tail_entry = replace(PLAIN, path="file:///t/data/", column_sizes=many, value_counts=many, null_value_counts=many)
    line = written(folder, [entry(tail_entry, EntryStatus.ADDED, 7)])
    file_schema, ((_, block),) = read(line)
    start = block.index(b"file:///t/data/")
    head, tail = block[: start - 1], block[start + len(b"file:///t/data/") :]
    paths = bytearray()
    each = 4 + len(b"file:///t/data/")
    for number in range(lanes):
        left = (lanes - number) * each - 4
        length = long(left)
        paths += bytes(4 - len(length)) + length + b"file:///t/data/"
    data = bytes(head + paths + tail)
    assert len(data) < 1 << 20
    tracemalloc.start()
    with pytest.raises(UnsureError):
        in_lockstep(file_schema, [(lanes, data)], line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20


def test_another_count_of_entries_is_no_entry_more_or_less(folder: Path) -> None:
    found = [entry(replace(PLAIN, path=f"file:///t/data/{number}"), EntryStatus.ADDED, 7) for number in range(6)]
    line = written(folder, found)
    file_schema, ((count, block),) = read(line)
    assert in_lockstep(file_schema, [(count, block)], line).size == 6
    for wrong in (count - 1, count + 1, 0, -1, 2**40):
        with pytest.raises(UnsureError):
            in_lockstep(file_schema, [(wrong, block)], line)
    with pytest.raises(UnsureError):
        in_lockstep(file_schema, [], line)


JAVA = Path(__file__).parents[2] / "fixtures" / "java"
TABLES = sorted(path.parent.parent.name for path in JAVA.glob("*/files/metadata"))


@pytest.mark.parametrize("name", TABLES)
def test_manifests_of_iceberg_java_are_decoded_in_lockstep(name: str) -> None:
    io = PyArrowFileIO()
    manifests = 0
    for path in sorted((JAVA / name / "files" / "metadata").glob("*-m*.avro")):
        file_schema, found = blocks_of(io, f"file://{path}")
        blocks = list(found)
        line = ManifestFile(
            manifest_path=f"file://{path}",
            manifest_length=path.stat().st_size,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=0 if name.startswith("v1") else 4,
            added_snapshot_id=9,
            first_row_id=50,
        )
        try:
            expected = one_by_one(file_schema, blocks, line)
        except CorruptFileError:
            line = replace(line, content=ManifestContent.DELETES)
            expected = one_by_one(file_schema, blocks, line)
        assert same(in_lockstep(file_schema, blocks, line), expected), path
        manifests += 1
    assert manifests


# ---- numbers --------------------------------------------------------------------------------------------------


def long(value: int) -> bytes:
    """A number as Avro has it."""
    rest, data = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), min_size=1, max_size=40))
@example([-(2**63), 2**63 - 1, 0, -1, 63, 64, -64, -65])
def test_numbers_of_all_lengths(numbers: list[int]) -> None:
    encoded = [long(number) for number in numbers]
    starts = np.cumsum([0, *map(len, encoded)])
    values, ends = Lanes(b"".join(encoded)).numbers(starts[:-1])
    assert values.tolist() == numbers
    assert ends.tolist() == starts[1:].tolist()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\xff" * 9, b"\xff" * 9 + b"\x02", b"\xff" * 11, b"\xff" * 9 + b"\x81\x00"],
    ids=["nothing", "cut", "cut late", "65 bits", "endless", "eleven bytes"],
)
def test_what_is_no_number_ends_behind_all_bytes(data: bytes) -> None:
    lanes = Lanes(data)
    _, ends = lanes.numbers(np.array([0]))
    assert ends[0] > lanes.size
    _, ends = lanes.items(ends, Pieces)
    assert ends[0] > lanes.size


@pytest.mark.parametrize("length", [-1, 4, 2**62, -(2**63)])
def test_a_piece_that_is_longer_than_what_is_left_ends_behind_all_bytes(length: int) -> None:
    lanes = Lanes(long(length) + b"abc")
    piece, ends = lanes.piece(np.array([0]))
    assert ends[0] > lanes.size
    assert piece.starts[0] <= piece.ends[0]


@pytest.mark.parametrize("count", [-1, 2**14 + 1, 2**40, 2**62])
def test_a_map_of_more_than_there_can_be_ends_behind_all_bytes(count: int) -> None:
    lanes = Lanes(long(count) + b"\x02" * 50_000)
    items, ends = lanes.items(np.array([0]), Numbers)
    assert ends[0] > lanes.size
    assert items.sizes[0] == 0
