"""Reads a Puffin file: its footer, and blobs by their place. Worker-safe.

Input: bytes, or a stream that the caller opened. Output: `PuffinFooter` and blobs' bytes. Source: Iceberg
specification, Puffin, "File structure".

Bytes read here may come from anybody: what is allocated is bounded by the file's size and, for compressed parts, by a
limit that the caller sets.
"""

import io
import struct
from typing import Protocol

import pyarrow as pa

from dml.deletes.puffin.blob import BlobMetadata
from dml.deletes.puffin.footer import MAGIC, PuffinFooter, corrupt_puffin, parse_footer_payload

__all__ = ["InputStream", "PuffinReader"]

FOOTER_END = struct.Struct("<iI4s")
MIN_FILE_BYTES = 2 * len(MAGIC) + FOOTER_END.size
COMPRESSED_FOOTER = 1
CODECS = ("lz4", "zstd")
MAX_FOOTER_BYTES = 256 * 2**20
MAX_BLOB_BYTES = 2**30
READ_BYTES = 2**20


class InputStream(Protocol):
    """What is asked of a stream: both Python's files and PyIceberg's have it."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes to a place."""

    def read(self, size: int = -1, /) -> bytes:
        """Reads up to so many bytes."""


class PuffinReader:
    """Reads one Puffin file.

    Args:
        source: The whole file as bytes, or a stream that can seek; the caller closes it.
        size: The file's size in bytes; may be left out for bytes.
        file: Its location, for messages.
    """

    def __init__(self, source: bytes | memoryview | InputStream, size: int | None = None, *, file: str) -> None:
        if isinstance(source, (bytes, memoryview)):
            if size is not None and size != len(source):
                raise corrupt_puffin(file, f"it has {len(source)} bytes where its manifest entry says {size}")
            self._stream: InputStream = io.BytesIO(source)
            self._size = len(source)
        else:
            assert size is not None, "the size of a stream must be given"
            self._stream = source
            self._size = size
        self._file = file

    def read_footer(self) -> PuffinFooter:
        """The file's blobs and properties.

        Raises:
            CorruptFileError: the file is cut short, has flags that are not known, or its footer is not well formed.
        """
        if self._size < MIN_FILE_BYTES:
            raise corrupt_puffin(self._file, f"it has {self._size} bytes; an empty one has more")
        end = self._size - FOOTER_END.size
        length, flags, magic = FOOTER_END.unpack(self._read(end, FOOTER_END.size))
        start = end - length - len(MAGIC)
        if magic != MAGIC or self._read(0, len(MAGIC)) != MAGIC:
            raise corrupt_puffin(self._file, f"it does not start and end with {MAGIC.decode()}")
        if length < 0 or start < len(MAGIC):
            raise corrupt_puffin(self._file, f"it gives the length of its footer as {length} of {self._size} bytes")
        if flags & ~COMPRESSED_FOOTER:
            raise corrupt_puffin(self._file, f"its footer has flags that are not known ({flags:08x})")
        if self._read(start, len(MAGIC)) != MAGIC:
            raise corrupt_puffin(self._file, f"its footer does not start with {MAGIC.decode()}")
        payload = self._read(start + len(MAGIC), length)
        if flags & COMPRESSED_FOOTER:
            payload = self._decompress(payload, "lz4", MAX_FOOTER_BYTES)
        footer = parse_footer_payload(payload, file=self._file)
        for blob in footer.blobs:
            self._check_place(blob, start)
        return footer

    def read_blob(self, blob: BlobMetadata, *, max_bytes: int = MAX_BLOB_BYTES) -> bytes:
        """The bytes of a blob, decompressed if they are compressed.

        Args:
            blob: Its metadata, of this file's footer or, for a deletion vector, made of its manifest entry.
            max_bytes: The greatest length that a compressed blob may have when it is decompressed.

        Raises:
            CorruptFileError: it does not lie within the file, its codec is not known, or its bytes do not decompress.
        """
        self._check_place(blob, self._size - FOOTER_END.size)
        data = self._read(blob.offset, blob.length)
        if blob.compression_codec is None:
            return data
        return self._decompress(data, blob.compression_codec, max_bytes)

    def _check_place(self, blob: BlobMetadata, end: int) -> None:
        if blob.offset < len(MAGIC) or blob.length < 0 or blob.offset + blob.length > end:
            raise corrupt_puffin(
                self._file, f"a blob of {blob.length} bytes at {blob.offset} does not lie between its magic and footer"
            )

    def _read(self, offset: int, length: int) -> bytes:
        self._stream.seek(offset)
        pieces = []
        missing = length
        while missing:
            piece = self._stream.read(missing)
            if not piece:
                raise corrupt_puffin(self._file, f"it ends {missing} bytes before {offset + length}")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _decompress(self, data: bytes, codec: str, max_bytes: int) -> bytes:
        if codec not in CODECS or not pa.Codec.is_available(codec):
            raise corrupt_puffin(self._file, f"it is compressed with '{codec}'; known are {' and '.join(CODECS)}")
        if not data:
            raise corrupt_puffin(self._file, f"where its {codec} data should be there is nothing")
        plain = bytearray()
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
                while piece := stream.read(READ_BYTES):
                    plain += piece
                    if len(plain) > max_bytes:
                        raise corrupt_puffin(self._file, f"its {codec} data is longer than {max_bytes} bytes")
        except (OSError, pa.ArrowException) as error:
            raise corrupt_puffin(self._file, f"its {codec} data does not decompress ({error})") from error
        return bytes(plain)
