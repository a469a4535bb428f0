"""Puffin files that we write: PyIceberg, which is not ours, reads them."""

import contextlib
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.puffin import PuffinFile

from dml.deletes.deletion_vector import Blob, PuffinWriter, deletion_vector_blob

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
BLOBS = st.builds(
    Blob,
    type=TEXT,
    fields=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3).map(tuple),
    snapshot_id=LONG,
    sequence_number=LONG,
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
    compression_codec=st.none() | st.just("zstd"),
)


@given(st.lists(st.tuples(BLOBS, st.binary(max_size=50)), max_size=4), TEXT)
def test_others_read_what_is_written(blobs, created_by):
    stream = io.BytesIO()
    with PuffinWriter(stream.write, created_by) as writer:
        stored = [
            writer.write_blob(blob, payload if blob.compression_codec is None else pa.compress(payload, "zstd", True))
            for blob, payload in blobs
        ]
    file = PuffinFile(stream.getvalue())
    assert file.footer.properties == {"created-by": created_by}
    assert [file.get_blob_payload(blob) for blob in file.footer.blobs] == [payload for _, payload in blobs]
    for read, written in zip(file.footer.blobs, stored, strict=True):
        assert (read.type, tuple(read.fields)) == (written.type, written.fields)
        assert (read.snapshot_id, read.sequence_number) == (written.snapshot_id, written.sequence_number)
        assert (read.properties, read.compression_codec) == (written.properties, written.compression_codec)
        assert (read.offset, read.length) == (written.offset, written.length)


def test_writer_tells_offsets_lengths_and_size():
    stream = io.BytesIO()
    writer = PuffinWriter(stream.write, "test")
    first = writer.write_blob(deletion_vector_blob("a.parquet", 3), b"abc")
    second = writer.write_blob(deletion_vector_blob("b.parquet", 1), b"")
    assert (first.offset, first.length, second.offset, second.length) == (4, 3, 7, 0)
    assert writer.blobs == (first, second)
    assert writer.close() == len(stream.getvalue())
    assert stream.getvalue()[-writer.footer_size :].startswith(b"PFA1{")
    assert stream.getvalue()[: -writer.footer_size] == b"PFA1abc"
    assert writer.close() == len(stream.getvalue()), "closing twice writes one footer"


def test_failed_writer_leaves_no_footer():
    """So that nobody takes the file for a whole one."""
    stream = io.BytesIO()
    with contextlib.suppress(RuntimeError), PuffinWriter(stream.write, "test") as writer:
        writer.write_blob(deletion_vector_blob("a.parquet", 3), b"abc")
        raise RuntimeError
    assert stream.getvalue() == b"PFA1abc"
    with pytest.raises(ValueError, match="magic"):
        PuffinFile(stream.getvalue())
