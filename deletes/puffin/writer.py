"""Writes a Puffin file: blobs, then a footer that says where they lie. Worker-safe.

Input: blobs' bytes. Output: one file on a stream that the caller opened. Source: Iceberg specification, Puffin,
"File structure".
"""

import struct
from types import TracebackType
from typing import Protocol, Self

from dml.deletes.puffin.blob import Blob, BlobMetadata
from dml.deletes.puffin.footer import CREATED_BY, MAGIC, PuffinFooter, footer_payload

__all__ = ["OutputStream", "PuffinWriter"]

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
