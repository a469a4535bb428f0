"""Read Avro object container files: the header, then blocks of records. Worker-safe.

Input: a function that reads a file of known size. Output: the header's metadata; the number of records and the bytes of
each block. Spec: Avro 1.11, "Object Container Files".

The bytes are untrusted: every length is checked against the file before it is used, a decompression bomb is rejected
before it becomes large, and a truncated file is an error.
"""

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from dml import limits

__all__ = ["AvroContainer"]

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
CODEC_KEY: Final = "avro.codec"
RAW_DEFLATE: Final = -15
CRC_BYTES: Final = 4


class AvroContainer:
    """An open container file. The constructor reads the header.

    Args:
        read: Reads up to a number of bytes sequentially from the start of the file; returns no bytes at its end.
        size: The size of the file in bytes.

    Attributes:
        metadata: The metadata in the header.

    Raises:
        ValueError: it is no container file, or a length in it is invalid.
        EOFError: it ends in its header.
    """

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        if self._exactly(len(MAGIC)) != MAGIC:
            raise ValueError("it is no Avro file")
        self.metadata = dict(self._header())
        self._sync = self._exactly(SYNC_BYTES)
        self._codec = self.metadata.get(CODEC_KEY, b"null").decode()
        if self._codec not in {"null", "deflate", "snappy", "zstandard", "bzip2"}:
            raise ValueError(f"it is compressed with the unknown codec '{self._codec}'")

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks in order: the number of records, and their bytes, decompressed.

        Raises:
            ValueError: a block breaks the format.
            EOFError: the file ends in a block.
        """
        empty = 0
        while first := self._read(1):
            count = self._long(first)
            data = self._exactly(self._long())
            if self._exactly(SYNC_BYTES) != self._sync:
                raise ValueError("a block does not end with the file's sync marker")
            if count < 0:
                raise ValueError(f"a block claims {count} records")
            plain = self._decompressed(data)
            if count > len(plain):
                empty += count
                if empty > limits.MAX_EMPTY_AVRO_RECORDS:
                    raise ValueError(f"a block of {len(plain)} bytes claims {count} records")
            yield count, plain

    def _header(self) -> Iterator[tuple[str, bytes]]:
        while count := self._long():
            if count < 0:
                self._long()
                count = -count
            for _ in range(count):
                key = self._exactly(self._long()).decode()
                yield key, self._exactly(self._long())

    def _long(self, first: bytes = b"") -> int:
        value = shift = 0
        while shift < 70:
            (byte,) = first or self._exactly(1)
            first = b""
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError("a number has more than ten bytes")

    def _exactly(self, length: int) -> bytes:
        if not 0 <= length <= self._size:
            raise ValueError(f"a part of it has the length {length}, of {self._size} bytes")
        data = bytes(self._read(length))
        if len(data) != length:
            raise EOFError(f"it ends {length - len(data)} bytes too early")
        return data

    def _decompressed(self, data: bytes) -> bytes:
        limit = min(
            limits.MAX_DECOMPRESSED_BYTES, max(limits.FREE_BLOCK_BYTES, limits.MAX_DECOMPRESSION_RATIO * len(data))
        )
        match self._codec:
            case "null":
                return data
            case "deflate":
                inflater = zlib.decompressobj(RAW_DEFLATE)
                return check_size(inflater.decompress(data, limit + 1), limit, complete=inflater.eof)
            case "bzip2":
                unpacker = bz2.BZ2Decompressor()
                return check_size(unpacker.decompress(data, limit + 1), limit, complete=unpacker.eof)
            case "snappy":
                return from_snappy(data, limit)
            case _:
                return from_zstandard(data, limit)


def check_size(plain: bytes, limit: int, *, complete: bool) -> bytes:
    if len(plain) > limit:
        raise ValueError(f"a block has more than {limit} bytes when it is decompressed")
    if not complete:
        raise EOFError("the compressed bytes of a block end too early")
    return plain


def from_zstandard(data: bytes, limit: int) -> bytes:
    plain = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while len(plain) <= limit and (piece := stream.read(limits.AVRO_READ_BYTES)):
            plain += piece
    return check_size(bytes(plain), limit, complete=True)


def from_snappy(data: bytes, limit: int) -> bytes:
    compressed, checksum = data[:-CRC_BYTES], data[-CRC_BYTES:]
    length = shift = 0
    for byte in compressed[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > limit:
        raise ValueError(f"a block claims {length} bytes when it is decompressed, more than {limit}")
    plain: bytes = pa.Codec("snappy").decompress(compressed, length, asbytes=True)
    if zlib.crc32(plain).to_bytes(CRC_BYTES, "big") != checksum:
        raise ValueError("the checksum of a block is wrong")
    return plain
