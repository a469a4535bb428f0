"""Puffin files, which hold deletion vectors: blobs, then a footer that says where they lie. Worker-safe.

Input: blobs' bytes; or a file's bytes, or a stream that the caller opened. Output: one file on a stream that the caller
opened; or `PuffinFooter` and blobs' bytes. Source: Iceberg specification, Puffin, "File structure", "Footer",
"BlobMetadata".

Bytes read here may come from anybody: what is allocated is bounded by the file's size and, for compressed parts, by a
limit that the caller sets.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa

from dml.errors import CorruptFileError

__all__ = ["DELETION_VECTOR_V1", "Blob", "BlobMetadata", "PuffinReader", "PuffinWriter", "deletion_vector_blob"]


DELETION_VECTOR_V1 = "deletion-vector-v1"

ROW_POSITION_FIELD_ID = 2147483645
NOT_INHERITED_YET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob before it is written.

    Attributes:
        type: What the bytes are.
        fields: Ids of the fields that they were computed from.
        snapshot_id: Snapshot that they were computed from.
        sequence_number: Sequence number of that snapshot.
        properties: Facts by name.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobMetadata(Blob):
    """A blob in a file.

    Attributes:
        offset: Place of its first byte in the file.
        length: Its bytes in the file, compressed if it is.
        compression_codec: `zstd`, `lz4`, or None for plain bytes.
    """

    offset: int
    length: int
    compression_codec: str | None = None


def deletion_vector_blob(referenced_data_file: str, cardinality: int) -> Blob:
    """The blob of a data file's deletion vector.

    Snapshot and sequence number are -1: they are inherited from the manifest entry when the commit succeeds.

    Args:
        referenced_data_file: Location of the data file, byte for byte as its manifest has it.
        cardinality: Number of deleted positions.
    """
    return Blob(
        type=DELETION_VECTOR_V1,
        fields=(ROW_POSITION_FIELD_ID,),
        snapshot_id=NOT_INHERITED_YET,
        sequence_number=NOT_INHERITED_YET,
        properties={"referenced-data-file": referenced_data_file, "cardinality": str(cardinality)},
    )


MAGIC = b"PFA1"
CREATED_BY = "created-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinFooter:
    """The blobs of a file in their order, and properties of the file."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


def corrupt_puffin(file: str, what: str) -> CorruptFileError:
    """The error for a Puffin file that breaks its format."""
    return CorruptFileError(
        f"The Puffin file {file} is corrupt: {what}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=file,
    )


def footer_payload(footer: PuffinFooter) -> bytes:
    """The JSON of a footer, UTF-8."""
    payload: dict[str, Any] = {"blobs": [blob_json(blob) for blob in footer.blobs]}
    if footer.properties:
        payload["properties"] = dict(footer.properties)
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def blob_json(blob: BlobMetadata) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        result["compression-codec"] = blob.compression_codec
    if blob.properties:
        result["properties"] = dict(blob.properties)
    return result


def parse_footer_payload(payload: bytes, *, file: str) -> PuffinFooter:
    """The footer that the JSON describes; names that the specification does not have are passed over.

    Raises:
        CorruptFileError: it is not JSON, or lacks a member, or one has the wrong type.
    """
    try:
        content = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise corrupt_puffin(file, f"its footer is not JSON ({error})") from error
    blobs = member(content, "blobs", list, file)
    return PuffinFooter(
        blobs=tuple(blob_from_json(blob, file) for blob in blobs), properties=properties_of(content, file)
    )


def blob_from_json(content: Any, file: str) -> BlobMetadata:
    fields = member(content, "fields", list, file)
    if not all(type(field_id) is int for field_id in fields):
        raise corrupt_puffin(file, "the 'fields' of a blob in its footer are not all integers")
    codec = content.get("compression-codec")
    if codec is not None and not isinstance(codec, str):
        raise corrupt_puffin(file, "the 'compression-codec' of a blob in its footer is not a string")
    return BlobMetadata(
        type=member(content, "type", str, file),
        fields=tuple(fields),
        snapshot_id=member(content, "snapshot-id", int, file),
        sequence_number=member(content, "sequence-number", int, file),
        offset=member(content, "offset", int, file),
        length=member(content, "length", int, file),
        compression_codec=codec,
        properties=properties_of(content, file),
    )


def member(content: Any, name: str, kind: type, file: str) -> Any:
    value = content.get(name) if isinstance(content, dict) else None
    if type(value) is not kind:  # a bool is an int to isinstance
        raise corrupt_puffin(file, f"its footer has no '{name}' of type {kind.__name__} where one must be")
    return value


def properties_of(content: dict[str, Any], file: str) -> dict[str, str]:
    properties = content.get("properties")
    if properties is None:
        return {}
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise corrupt_puffin(file, "'properties' in its footer do not map names to strings")
    return properties


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


FOOTER_END = struct.Struct("<iI4s")
NO_FLAGS = 0


class OutputStream(Protocol):
    """What is asked of a stream: both Python's files and PyIceberg's have it."""

    def write(self, data: bytes, /) -> int:
        """Writes all of the bytes."""


class PuffinWriter:
    """Writes blobs one after the other; the caller opens the stream at its start and closes it afterwards.

    Blobs and footer are not compressed: the specification forbids it for deletion vectors, and the footer is small.

    Args:
        stream: An empty binary stream.
        created_by: Application and version, for the file's property of that name.
    """

    def __init__(self, stream: OutputStream, created_by: str) -> None:
        self._stream = stream
        self._properties = {CREATED_BY: created_by}
        self._blobs: list[BlobMetadata] = []
        self._size = 0
        self._closed = False
        self._write(MAGIC)

    def write_blob(self, blob: Blob, payload: bytes) -> BlobMetadata:
        """Writes a blob.

        Args:
            blob: What it is.
            payload: Its bytes.

        Returns:
            The same with its offset and length.
        """
        metadata = BlobMetadata(
            type=blob.type,
            fields=blob.fields,
            snapshot_id=blob.snapshot_id,
            sequence_number=blob.sequence_number,
            properties=blob.properties,
            offset=self._size,
            length=len(payload),
        )
        self._write(payload)
        self._blobs.append(metadata)
        return metadata

    @property
    def blobs(self) -> tuple[BlobMetadata, ...]:
        """The blobs written so far."""
        return tuple(self._blobs)

    def close(self) -> int:
        """Writes the footer; the stream stays open.

        Returns:
            The size of the file in bytes.
        """
        if not self._closed:
            self._closed = True
            payload = footer_payload(PuffinFooter(blobs=self.blobs, properties=self._properties))
            self._write(b"".join((MAGIC, payload, FOOTER_END.pack(len(payload), NO_FLAGS, MAGIC))))
        return self._size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A file without its footer cannot be mistaken for a whole one.
        if error_class is None:
            self.close()

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._size += len(data)
