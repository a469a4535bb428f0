"""Puffin files, which hold deletion vectors: bytes in, bytes out. Worker-safe."""

from dml.deletes.puffin.blob import DELETION_VECTOR_V1, Blob, BlobMetadata, deletion_vector_blob
from dml.deletes.puffin.footer import PuffinFooter
from dml.deletes.puffin.reader import PuffinReader
from dml.deletes.puffin.writer import PuffinWriter

__all__ = [
    "DELETION_VECTOR_V1",
    "Blob",
    "BlobMetadata",
    "PuffinFooter",
    "PuffinReader",
    "PuffinWriter",
    "deletion_vector_blob",
]
