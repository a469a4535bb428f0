"""The blob of a deletion vector: an index of positions to bytes and back. Worker-safe.

Input and output: `PositionDeleteIndex` and bytes. Source: Iceberg specification, Puffin, "deletion-vector-v1 blob
type". A blob is::

    4 bytes, big-endian   length of magic and vector
    4 bytes               D1 D3 39 64
    ...                   vector: portable 64-bit roaring
    4 bytes, big-endian   CRC-32 of magic and vector
"""

import struct
import zlib

from dml.deletes.bitmap import corrupt_vector, read_vector, write_vector
from dml.deletes.position_index import PositionDeleteIndex

__all__ = ["decode", "encode"]

MAGIC = b"\xd1\xd3\x39\x64"
WORD = struct.Struct(">I")
FRAME_BYTES = WORD.size + len(MAGIC) + WORD.size


def encode(index: PositionDeleteIndex) -> bytes:
    """The whole blob: length, magic, vector, checksum. Equal indexes give equal bytes.

    Raises:
        NotSupportedError: the blob would be longer than 2 GiB.
    """
    # Writing changes the form of bitmaps; the caller's index may be shared between threads.
    vector = write_vector({key: bitmap.copy() for key, bitmap in index.bitmaps.items()})
    checksum = zlib.crc32(vector, zlib.crc32(MAGIC))
    return b"".join((WORD.pack(len(MAGIC) + len(vector)), MAGIC, vector, WORD.pack(checksum)))


def decode(blob: bytes | memoryview, *, file: str, cardinality: int | None) -> PositionDeleteIndex:
    """The index that a whole blob holds.

    Args:
        blob: The bytes of the blob, from its length to its checksum.
        file: The Puffin file, for messages.
        cardinality: The number of positions that the manifest entry gives (`record_count`); None if there is none.

    Raises:
        CorruptFileError: length, magic, checksum, the vector itself or the number of positions is wrong.
    """
    data = memoryview(blob).cast("B")
    if len(data) < FRAME_BYTES:
        raise corrupt_vector(file, f"the blob has {len(data)} bytes, fewer than its frame of {FRAME_BYTES}")
    (length,) = WORD.unpack_from(data)
    body = data[WORD.size : -WORD.size]
    if length != len(body):
        raise corrupt_vector(file, f"it gives its length as {length}, but {len(body)} bytes are there")
    if body[: len(MAGIC)] != MAGIC:
        raise corrupt_vector(file, f"it starts with {body[: len(MAGIC)].hex()} instead of {MAGIC.hex()}")
    (expected,), checksum = WORD.unpack_from(data, len(data) - WORD.size), zlib.crc32(body)
    if checksum != expected:
        raise corrupt_vector(file, f"the checksum of its bytes is {checksum:08x}, not {expected:08x}")
    index = PositionDeleteIndex.from_bitmaps(read_vector(body[len(MAGIC) :], file=file))
    if cardinality is not None and len(index) != cardinality:
        raise corrupt_vector(file, f"it holds {len(index)} positions, but its manifest entry says {cardinality}")
    return index
