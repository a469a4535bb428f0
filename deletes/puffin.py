"""Puffin files, which hold deletion vectors: blobs, then a footer that says where they lie. Worker-safe.

Input: blobs' bytes. Output: one file on a stream that the caller opened. Source: Iceberg specification, Puffin, "File
structure", "Footer", "BlobMetadata". They are written here and read nowhere: a scan reads a vector at the place that
its manifest entry gives.
"""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

__all__ = ["DELETION_VECTOR_V1", "Blob", "BlobMetadata", "PuffinWriter", "deletion_vector_blob"]


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
        length: Its bytes in the file.
    """

    offset: int
    length: int


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
    if blob.properties:
        result["properties"] = dict(blob.properties)
    return result


FOOTER_END = struct.Struct("<iI4s")
NO_FLAGS = 0


class PuffinWriter:
    """Writes blobs one after the other; the caller opens the stream at its start and closes it afterwards.

    Blobs and footer are not compressed: the specification forbids it for deletion vectors, and the footer is small.

    Args:
        write: Writes all of some bytes to an empty stream.
        created_by: Application and version, for the file's property of that name.
    """

    def __init__(self, write: Callable[[bytes], object], created_by: str) -> None:
        self._write_bytes = write
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
        self._write_bytes(data)
        self._size += len(data)
