"""Puffin files: round trips, compression by others, and what damaged or hostile bytes do."""

import contextlib
import io
import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.deletes.puffin import Blob, BlobMetadata, PuffinReader, PuffinWriter, deletion_vector_blob
from dml.errors import CorruptFileError

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
BLOBS = st.builds(
    Blob,
    type=TEXT,
    fields=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3).map(tuple),
    snapshot_id=LONG,
    sequence_number=LONG,
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
)


def puffin(blobs, created_by="test"):
    stream = io.BytesIO()
    with PuffinWriter(stream, created_by) as writer:
        for blob, payload in blobs:
            writer.write_blob(blob, payload)
    return stream.getvalue()


def assembled(payload, *, flags=0, body=b"", length=None):
    """A file with any footer payload."""
    end = struct.pack("<iI4s", len(payload) if length is None else length, flags, b"PFA1")
    return b"PFA1" + body + b"PFA1" + payload + end


def footer_json(**changes):
    blob = {"type": "t", "fields": [1], "snapshot-id": 1, "sequence-number": 1, "offset": 4, "length": 0}
    blob.update(changes)
    return json.dumps({"blobs": [{key: value for key, value in blob.items() if value is not ...}]}).encode()


def metadata(length, codec=None):
    return BlobMetadata(
        type="t", fields=(), snapshot_id=1, sequence_number=1, offset=4, length=length, compression_codec=codec
    )


@given(st.lists(st.tuples(BLOBS, st.binary(max_size=50)), max_size=4), TEXT)
def test_reader_inverts_writer(blobs, created_by):
    data = puffin(blobs, created_by)
    for source in (data, memoryview(data), io.BytesIO(data)):
        reader = PuffinReader(source, len(data), file="f")
        footer = reader.read_footer()
        assert footer.properties == {"created-by": created_by}
        assert [reader.read_blob(blob) for blob in footer.blobs] == [payload for _, payload in blobs]
        for read, (written, payload) in zip(footer.blobs, blobs, strict=True):
            assert Blob(**{name: getattr(read, name) for name in Blob.__slots__}) == written
            assert read.length == len(payload)


def test_writer_tells_offsets_lengths_and_size():
    stream = io.BytesIO()
    writer = PuffinWriter(stream, "test")
    first = writer.write_blob(deletion_vector_blob("a.parquet", 3), b"abc")
    second = writer.write_blob(deletion_vector_blob("b.parquet", 1), b"")
    assert (first.offset, first.length, second.offset, second.length) == (4, 3, 7, 0)
    assert writer.blobs == (first, second)
    assert writer.close() == len(stream.getvalue())
    assert writer.close() == len(stream.getvalue()), "closing twice writes one footer"


def test_failed_writer_leaves_no_footer():
    """So that nobody takes the file for a whole one."""
    stream = io.BytesIO()
    with contextlib.suppress(RuntimeError), PuffinWriter(stream, "test") as writer:
        writer.write_blob(deletion_vector_blob("a.parquet", 3), b"abc")
        raise RuntimeError
    assert stream.getvalue() == b"PFA1abc"
    with pytest.raises(CorruptFileError):
        PuffinReader(stream.getvalue(), file="f").read_footer()


def test_stream_that_reads_little_at_a_time_is_read_whole():
    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 3) if size > 0 else size)

    data = puffin([(deletion_vector_blob("a.parquet", 3), b"0123456789" * 10)])
    reader = PuffinReader(Slow(data), len(data), file="f")
    assert reader.read_blob(reader.read_footer().blobs[0]) == b"0123456789" * 10


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_blobs_of_others_are_read(codec):
    plain = b"some blob, " * 10_000
    data = pa.compress(plain, codec=codec, asbytes=True)
    reader = PuffinReader(assembled(b"{}", body=data), file="f")
    assert reader.read_blob(metadata(len(data), codec)) == plain
    with pytest.raises(CorruptFileError, match="longer than 1000 bytes"):
        reader.read_blob(metadata(len(data), codec), max_bytes=1000)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_damaged_compressed_blobs_are_refused(codec):
    data = pa.compress(bytes(range(256)) * 20, codec=codec, asbytes=True)
    for length in (0, 1, 5, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptFileError, match="f is corrupt"):
            PuffinReader(assembled(b"{}", body=data[:length]), file="f").read_blob(metadata(length, codec))


@given(st.binary(max_size=60), st.sampled_from(["zstd", "lz4"]))
def test_bytes_that_no_codec_made_are_refused(data, codec):
    magic = {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}[codec]
    for body in (data, magic + data):
        reader = PuffinReader(assembled(b"{}", body=body), file="f")
        with contextlib.suppress(CorruptFileError):
            assert len(reader.read_blob(metadata(len(body), codec), max_bytes=10_000)) <= 10_000


def test_unknown_codec_is_refused():
    with pytest.raises(CorruptFileError, match="'gzip'; known are lz4 and zstd"):
        PuffinReader(assembled(b"{}", body=b"abc"), file="f").read_blob(metadata(3, "gzip"))


def test_compressed_footer_of_others_is_read():
    payload = footer_json(length=3)
    data = assembled(pa.compress(payload, codec="lz4", asbytes=True), flags=1, body=b"abc")
    reader = PuffinReader(data, file="f")
    assert reader.read_blob(reader.read_footer().blobs[0]) == b"abc"


@pytest.mark.parametrize("flags", [2, 3, 256, 2**31])
def test_unknown_flags_are_refused(flags):
    with pytest.raises(CorruptFileError, match="flags that are not known"):
        PuffinReader(assembled(b'{"blobs":[]}', flags=flags), file="f").read_footer()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"blobs":{}}',
        b'{"blobs":[7]}',
        b'{"blobs":[],"properties":[]}',
        b'{"blobs":[],"properties":{"a":1}}',
        b"[" * 100_000,
        b"9" * 10_000,
        footer_json(type=...),
        footer_json(type=1),
        footer_json(fields="1"),
        footer_json(fields=[1.5]),
        footer_json(fields=[True]),
        footer_json(offset=...),
        footer_json(offset="4"),
        footer_json(offset=4.0),
        footer_json(offset=True),
        footer_json(offset=3),
        footer_json(offset=5),
        footer_json(length=-1),
        footer_json(length=1),
        footer_json(length=2**70),
        footer_json(**{"snapshot-id": None}),
        footer_json(**{"sequence-number": ...}),
        footer_json(**{"compression-codec": 1}),
        footer_json(properties={"a": None}),
    ],
)
def test_footer_that_breaks_the_format_is_refused(payload):
    with pytest.raises(CorruptFileError, match="f is corrupt"):
        PuffinReader(assembled(payload), file="f").read_footer()


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 13, 9999])
def test_footer_length_outside_the_file_is_refused(length):
    with pytest.raises(CorruptFileError, match="f is corrupt"):
        PuffinReader(assembled(b'{"blobs":[]}', length=length), file="f").read_footer()


def test_members_that_the_specification_does_not_have_are_passed_over():
    footer = PuffinReader(assembled(footer_json(future=[1])), file="f").read_footer()
    assert footer.blobs[0].type == "t"


def test_size_that_is_not_the_file_s_is_noticed():
    data = puffin([])
    with pytest.raises(CorruptFileError, match="manifest entry says 7"):
        PuffinReader(data, 7, file="f")
    for size in (len(data) - 1, len(data) + 1, 3, 0):
        with pytest.raises(CorruptFileError):
            PuffinReader(io.BytesIO(data), size, file="f").read_footer()


def vector_file():
    index = PositionDeleteIndex.from_positions([1, 5, 70_000])
    blob = encode(index)
    return puffin([(deletion_vector_blob("a.parquet", 3), blob)]), blob


def test_every_truncation_is_noticed():
    data, _ = vector_file()
    for length in range(len(data)):
        with pytest.raises(CorruptFileError):
            PuffinReader(data[:length], file="f").read_footer()


def test_every_changed_byte_is_noticed_or_harms_no_other_part():
    data, blob = vector_file()
    for place in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= change
            reader = PuffinReader(bytes(damaged), file="f")
            try:
                read = [reader.read_blob(found) for found in reader.read_footer().blobs]
            except CorruptFileError:
                continue
            in_blob = 4 <= place < 4 + len(blob)
            in_payload = 8 + len(blob) <= place < len(data) - 12
            assert in_blob or in_payload, f"byte {place} of magic, length or flags changed unnoticed"
            assert in_payload or len(read[0]) == len(blob)
