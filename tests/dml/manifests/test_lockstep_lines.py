"""Manifest lists whose lines are cut apart first say what they say line by line."""

import io
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from dml import limits
from dml.errors import CorruptFileError
from dml.manifests.avro_container import AvroContainer
from dml.manifests.lockstep_search import lockstep_lines
from dml.manifests.read import blocks_of, read_manifest_list
from dml.manifests.write import write_manifest_list
from dml.model.manifest import ManifestContent, ManifestFile, PartitionSummary

JAVA = Path(__file__).parents[2] / "fixtures" / "java"
NUMBERS = itertools.count()

COUNTS = st.integers(0, 70) | st.integers(0, 2**31 - 1)
SUMMARIES = st.builds(
    PartitionSummary,
    contains_null=st.booleans(),
    contains_nan=st.booleans() | st.none(),
    lower_bound=st.none() | st.binary(max_size=9) | st.just(b"s3://bucket/w/x"),
    upper_bound=st.none() | st.binary(max_size=9),
)
LINES = st.builds(
    ManifestFile,
    manifest_path=st.builds("s3://bucket/w/t/metadata/{}-m{}.avro".format, st.text(max_size=50), COUNTS),
    manifest_length=COUNTS,
    partition_spec_id=st.integers(0, 3),
    content=st.sampled_from(list(ManifestContent)),
    sequence_number=st.integers(1, 900),
    min_sequence_number=st.integers(1, 900),
    added_snapshot_id=st.integers(0, 2**63 - 1),
    added_files_count=COUNTS,
    existing_files_count=COUNTS,
    deleted_files_count=COUNTS,
    added_rows_count=COUNTS,
    existing_rows_count=COUNTS,
    deleted_rows_count=COUNTS,
    partitions=st.none() | st.lists(SUMMARIES, max_size=3).map(tuple),
    key_metadata=st.none() | st.binary(max_size=4),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


def written(folder: Path, lines: Sequence[ManifestFile], version: int) -> str:
    """A manifest list."""
    location = f"file://{folder}/{next(NUMBERS)}.avro"
    write_manifest_list(
        PyArrowFileIO(),
        location,
        version=version,
        manifests=lines,
        snapshot_id=1,
        parent_snapshot_id=None,
        sequence_number=1000,
        first_row_id=0,
    )
    return location


def both(location: str) -> list[tuple[ManifestFile, ...] | None]:
    """What a list says, with lines cut apart and without; None where it is damaged."""
    found: list[tuple[ManifestFile, ...] | None] = []
    for many in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "MIN_LOCKSTEP_LINES", many)
            try:
                found.append(read_manifest_list(PyArrowFileIO(), location))
            except CorruptFileError:
                found.append(None)
    return found


def lines_of(location: str) -> int:
    """How many lines are cut apart."""
    file_type, blocks = blocks_of(PyArrowFileIO(), location)
    return len(lockstep_lines(file_type, [(count, block) for count, block in blocks if count or block]))


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=9), version=st.sampled_from([1, 2, 3]))
def test_lines_are_cut_apart_where_they_end(folder: Path, lines: list[ManifestFile], version: int) -> None:
    location = written(folder, lines, version)
    cut, plain = both(location)
    assert cut is not None
    assert cut == plain
    # What stands before a path may look like a part of its length.
    if all(line.key_metadata is None for line in lines):
        assert lines_of(location) == len(lines)


@pytest.mark.parametrize("path", sorted(JAVA.glob("*/files/metadata/snap-*.avro")), ids=lambda path: path.parts[-4])
def test_lists_of_iceberg_java_are_cut_apart(path: Path) -> None:
    cut, plain = both(f"file://{path}")
    assert cut is not None
    assert cut == plain
    assert lines_of(f"file://{path}") == len(cut)


def test_a_damaged_list_is_damaged_both_ways(folder: Path) -> None:
    """Any bit turned in a file that is not compressed: what one way refuses the other does, and else both agree."""
    chance = random.Random(3)
    summary = PartitionSummary(contains_null=False, contains_nan=None, lower_bound=b"s3://bucket/w", upper_bound=b"b")
    lines = [
        ManifestFile(
            manifest_path=f"s3://bucket/w/t/{number}.avro",
            manifest_length=number * 999,
            partition_spec_id=0,
            sequence_number=number,
            min_sequence_number=1,
            added_snapshot_id=2**62 + number,
            partitions=(summary,) * (number % 3),
        )
        for number in range(1, 7)
    ]
    content = plain_container(Path(written(folder, lines, 2).removeprefix("file://")).read_bytes())
    path = folder / "damaged.avro"
    path.write_bytes(content)
    assert both(f"file://{path}") == [tuple(read_manifest_list(PyArrowFileIO(), f"file://{path}"))] * 2
    outcomes = {"read": 0, "refused": 0}
    start = content.rfind(b"avro.schema")
    for _ in range(300):
        damaged = bytearray(content)
        damaged[chance.randrange(content.find(b"s3://", start) - 3, len(content) - 16)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        cut, plain = both(f"file://{path}")
        assert cut == plain
        outcomes["refused" if cut is None else "read"] += 1
    assert min(outcomes.values()) > 30, outcomes


def plain_container(content: bytes) -> bytes:
    """A container file of one block without compression: no checksum finds the damage, and no inflater does."""
    container = AvroContainer(io.BytesIO(content).read, len(content))
    ((count, block),) = container.blocks()
    schema = container.metadata["avro.schema"]
    header = b"Obj\x01" + long(2) + sized(b"avro.schema") + sized(schema) + sized(b"avro.codec") + sized(b"null")
    sync = bytes(range(16))
    return header + long(0) + sync + long(count) + long(len(block)) + block + sync


def long(value: int) -> bytes:
    """A number as Avro has it."""
    rest, data = value << 1, bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])


def sized(value: bytes) -> bytes:
    """Bytes as Avro has them."""
    return long(len(value)) + value
