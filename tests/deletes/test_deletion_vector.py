"""The codec of deletion vectors: round trips, and what damaged or hostile bytes do."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap

from dml.deletes import deletion_vector
from dml.deletes.deletion_vector import decode, encode
from dml.deletes.position_index import MAX_POSITION, PositionDeleteIndex
from dml.errors import CorruptFileError, NotSupportedError

MAGIC = b"\xd1\xd3\x39\x64"

RANGES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 400_000), st.integers(2**32 - 300, 2**32 + 300), st.integers(0, 2**35)),
        st.one_of(st.integers(1, 6), st.integers(1, 90_000)),
    ),
    max_size=12,
)


def index_of(ranges):
    index = PositionDeleteIndex()
    for start, length in ranges:
        index.add_range(start, start + length)
    return index


def framed(vector):
    """A blob with right length and checksum around any vector: what gets past the frame."""
    body = MAGIC + vector
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decoded_or_refused(blob):
    """The index, or None if the blob was refused as it should be; any other exception fails the test."""
    try:
        return decode(blob, file="dv.puffin", cardinality=None)
    except CorruptFileError as error:
        refusal = error
    assert refusal.context["file"] == "dv.puffin"
    assert "dv.puffin" in str(refusal)
    return None


@given(RANGES)
def test_decode_inverts_encode(ranges):
    index = index_of(ranges)
    blob = encode(index)
    assert decode(blob, file="f", cardinality=len(index)) == index
    assert decode(memoryview(b"xx" + blob)[2:], file="f", cardinality=None) == index
    assert index == index_of(ranges), "encoding leaves the index as it is"


@given(RANGES)
def test_equal_indexes_encode_to_equal_bytes(ranges):
    """Whether they were filled by ranges, by single positions, by union, or read."""
    by_ranges = index_of(ranges)
    by_positions = PositionDeleteIndex.from_positions(by_ranges.to_numpy())
    by_union = index_of(ranges[::2]).union(index_of(ranges[1::2]))
    blob = encode(by_positions)
    assert encode(by_ranges) == encode(by_union) == blob
    assert encode(decode(blob, file="f", cardinality=None)) == blob


@given(st.sets(st.integers(0, 40), max_size=30), st.integers(0, 3))
def test_container_is_never_longer_than_its_values(positions, container):
    values = [container * 2**16 + position for position in positions]
    index = PositionDeleteIndex()
    for value in values:
        index.add_range(value, value + 1)
    assert len(encode(index)) <= 12 + 8 + 4 + 16 + 2 * len(values)


@pytest.mark.parametrize("ranges", [[], [(0, 1)], [(0, 3), (2**32 + 5, 9)], [(k * 3, 1) for k in range(40)]])
def test_every_changed_byte_is_noticed(ranges):
    blob = encode(index_of(ranges))
    for place in range(len(blob)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(blob)
            damaged[place] ^= change
            assert decoded_or_refused(bytes(damaged)) is None, f"byte {place} xor {change}"


@pytest.mark.parametrize("ranges", [[], [(0, 1)], [(0, 3), (2**32 + 5, 9)]])
def test_every_truncation_and_extension_is_noticed(ranges):
    blob = encode(index_of(ranges))
    for length in range(len(blob)):
        assert decoded_or_refused(blob[:length]) is None
        assert decoded_or_refused(framed(blob[8:-4][:length])) is None or length >= len(blob) - 12
    assert decoded_or_refused(blob + b"\0") is None
    assert decoded_or_refused(framed(blob[8:-4] + b"\0")) is None


@given(RANGES.filter(bool), st.lists(st.tuples(st.integers(0), st.integers(1, 255)), min_size=1, max_size=4))
def test_damaged_vector_with_right_checksum_is_refused_or_well_formed(ranges, changes):
    vector = bytearray(encode(index_of(ranges))[8:-4])
    for place, change in changes:
        vector[place % len(vector)] ^= change
    index = decoded_or_refused(framed(bytes(vector)))
    if index is not None:
        mask = index.deleted_mask(0, 1000)
        assert decode(encode(index), file="f", cardinality=len(index)).deleted_mask(0, 1000).tolist() == mask.tolist()


@given(st.binary(max_size=200))
@example(struct.pack("<Q", 2**64 - 1))
@example(struct.pack("<Q", 2**31) + bytes(12))
@example(struct.pack("<QIII", 1, 0, 12346, 2**32 - 1))
@example(struct.pack("<QIII", 1, 0, 12347 | 0xFFFF << 16, 0))
@example(struct.pack("<QII", 1, 0, 12347) + b"\x01" + struct.pack("<HHH", 0, 0, 0xFFFF))
def test_any_vector_is_refused_or_well_formed(vector):
    index = decoded_or_refused(framed(vector))
    if index is not None:
        assert decode(encode(index), file="f", cardinality=None) == index


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (b"", "fewer than its number of bitmaps"),
        (struct.pack("<Q", 10**12), "claims 1000000000000 bitmaps"),
        (struct.pack("<QIII", 2, 1, 12346, 0) + struct.pack("<III", 0, 12346, 0), "do not ascend"),
        (struct.pack("<QIII", 2, 0, 12346, 0) + struct.pack("<III", 0, 12346, 0), "do not ascend"),
        (struct.pack("<QI", 1, 2**31 - 1) + BitMap([1]).serialize(), "do not ascend"),
        (struct.pack("<QI", 1, 2**32 - 1) + BitMap([1]).serialize(), "do not ascend"),
        (struct.pack("<QIII", 1, 0, 99, 0), "cookie 99"),
        (struct.pack("<QIII", 1, 0, 12346, 65_537), "65537 containers"),
        (struct.pack("<QIII", 1, 0, 12346, 60_000), "claims 60000 containers"),
        (struct.pack("<QI", 1, 0) + BitMap(range(0, 90, 2)).serialize()[:-1], "does not fit"),
        (struct.pack("<QI", 2, 0) + BitMap(range(0, 90, 2)).serialize(), "before its last bitmap"),
        (struct.pack("<QI", 1, 0) + BitMap([1]).serialize() + b"!", "1 bytes follow"),
        (struct.pack("<QIIIHHIHH", 1, 0, 12346, 1, 0, 1, 16, 9, 3), "not well formed"),
    ],
)
def test_refusal_says_what_is_wrong(vector, message):
    with pytest.raises(CorruptFileError, match=message):
        decode(framed(vector), file="f", cardinality=None)


def test_frame_is_checked():
    blob = encode(PositionDeleteIndex.from_positions([1, 2, 3]))
    for damaged, message in (
        (b"", "fewer than its frame"),
        (blob[:11], "fewer than its frame"),
        (struct.pack(">I", 7) + blob[4:], "length as 7"),
        (blob[:4] + b"\xd1\xd3\x39\x65" + blob[8:], "instead of d1d33964"),
        (blob[:-1] + bytes([blob[-1] ^ 1]), "checksum"),
    ):
        with pytest.raises(CorruptFileError, match=message):
            decode(damaged, file="f", cardinality=None)


@pytest.mark.parametrize("cardinality", [0, 2, 4])
def test_cardinality_of_the_manifest_must_agree(cardinality):
    blob = encode(PositionDeleteIndex.from_positions([1, 2, 3]))
    with pytest.raises(CorruptFileError, match=f"holds 3 positions.*has {cardinality}"):
        decode(blob, file="f", cardinality=cardinality)


def test_vectors_without_empty_bitmaps_are_read_too():
    """Other writers leave out keys that hold nothing."""
    vector = struct.pack("<QI", 2, 3) + BitMap([7]).serialize() + struct.pack("<I", 9) + BitMap([8]).serialize()
    index = decode(framed(vector), file="f", cardinality=2)
    assert index.to_numpy().tolist() == [3 * 2**32 + 7, 9 * 2**32 + 8]


def test_long_stretches_of_empty_bitmaps_are_read_at_once():
    index = PositionDeleteIndex.from_positions([5, 60_000 * 2**32 + 5, 60_001 * 2**32])
    blob = encode(index)
    assert len(blob) > 60_000 * 12
    assert decode(blob, file="f", cardinality=3) == index


def test_claimed_sizes_allocate_nothing():
    """Each of these claims far more than its bytes hold."""
    hostile = [
        struct.pack("<Q", 2**63),
        struct.pack("<QIII", 1, 0, 12346, 65_536) + bytes(100),
        struct.pack("<QII", 1, 0, 12347 | 0xFFFF << 16) + b"\xff" * 8192 + bytes(100),
        struct.pack("<QII", 1, 0, 12347) + b"\x01" + struct.pack("<HHH", 0, 65_535, 65_535),
    ]
    tracemalloc.start()
    try:
        for vector in hostile:
            assert decoded_or_refused(framed(vector)) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


@pytest.mark.parametrize("position", [(2**16 + 1) * 2**32, 2**62, MAX_POSITION])
def test_position_beyond_any_file_does_not_bring_gigabytes_of_empty_bitmaps(position):
    index = PositionDeleteIndex.from_positions([0, position])
    blob = encode(index)
    assert len(blob) < 100
    assert decode(blob, file="f", cardinality=2) == index


def test_vector_too_long_for_other_readers_is_refused(monkeypatch):
    monkeypatch.setattr(deletion_vector, "MAX_VECTOR_BYTES", 100)
    with pytest.raises(NotSupportedError, match="cannot be written: the greatest is 100"):
        encode(PositionDeleteIndex.from_positions(range(0, 1000, 2)))


def test_scattered_positions_round_trip():
    positions = np.sort(np.random.default_rng(7).choice(10_000_000, 100_000, replace=False))
    blob = encode(PositionDeleteIndex.from_positions(positions))
    index = decode(blob, file="f", cardinality=100_000)
    np.testing.assert_array_equal(index.to_numpy(), positions)
    masks = [index.deleted_mask(start, 65_536) for start in range(0, 10_000_000, 65_536)]
    np.testing.assert_array_equal(np.flatnonzero(np.concatenate(masks)), positions)
