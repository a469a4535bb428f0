"""Avro data files. Worker-safe.

Input: an open file. Output: record batches; of the file, one block at a time is in memory.
Spec: Avro 1.11, "Object Container Files"; Iceberg "Appendix A", Avro.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField

from dml.pruning.row_tests import Bounds
from dml.scan.avro_schema import AvroField, avro_fields
from dml.scan.batches import empty_rows
from dml.scan.data_file import Piece
from dml.scan.file_fields import FileField, mapped, walk

__all__ = ["AvroFile"]

UNKNOWN = Bounds()
MAGIC = b"Obj\x01"
SCHEMA_KEY = "avro.schema"
SYNC_BYTES = 16
BUFFER_BYTES = 1 << 20
MAX_ROWS = 2**63 - 1


class AvroFile:
    """An open Avro file: its one piece is the whole file, as positions are known only by reading from its start.

    Args:
        source: The open file.
        name_mapping: Ids for files that have none.
    """

    columnar = False

    def __init__(self, source: pa.NativeFile, name_mapping: NameMapping | None) -> None:
        self.size = source.size()
        self.stream = pa.BufferedInputStream(source, BUFFER_BYTES)
        self.metadata, self.sync = self._header()
        self.decoders = avro_fields(json.loads(self.metadata[SCHEMA_KEY]))
        self.fields = with_ids(self.decoders, name_mapping)
        # Rows are not counted in the file's header, so any position may be in it.
        self.pieces = (Piece(index=0, start=0, first_position=0, rows=MAX_ROWS),)
        codec = self.metadata.get(AVRO_CODEC_KEY, b"null").decode()
        if codec not in KNOWN_CODECS:
            raise ValueError(f"it is compressed with the unknown codec '{codec}'")
        self.codec = KNOWN_CODECS[codec]

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:  # noqa: ARG002 - the protocol of all formats
        """Nothing: Avro has no statistics."""
        return UNKNOWN

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """All rows, once: the file is read from its start to its end."""
        if not pieces:
            return
        rows = self._rows()
        fields = [self.fields[column] for column in columns]
        while chunk := list(islice(rows, batch_rows)):
            arrays = [
                pa.array([row[column] for row in chunk], field.type)
                for column, field in zip(columns, fields, strict=True)
            ]
            schema = pa.schema([pa.field(field.name, field.type) for field in fields])
            yield pa.RecordBatch.from_arrays(arrays, schema=schema) if fields else empty_rows(len(chunk))

    def _rows(self) -> Iterator[list[object]]:
        decoders = [entry.decode for entry in self.decoders]
        for count, data in self._blocks():
            block = new_decoder(data)
            for _ in range(count):
                yield [decode(block) for decode in decoders]

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        while first := self.stream.read(1):
            count = self._long(first)
            data = self._exactly(self._long())
            yield count, data if self.codec is None else self.codec.decompress(data)
            if self._exactly(SYNC_BYTES) != self.sync:
                raise ValueError("a block does not end with the file's sync marker")

    def _header(self) -> tuple[dict[str, bytes], bytes]:
        if self._exactly(len(MAGIC)) != MAGIC:
            raise ValueError("it is no Avro file")
        metadata: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                self._long()
                count = -count
            for _ in range(count):
                key = self._exactly(self._long()).decode()
                metadata[key] = self._exactly(self._long())
        return metadata, self._exactly(SYNC_BYTES)

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
        if not 0 <= length <= self.size:
            raise ValueError(f"a part of it has the length {length}")
        data = bytes(self.stream.read(length))
        if len(data) != length:
            raise EOFError("it ends too early")
        return data


def with_ids(decoders: Sequence[AvroField], name_mapping: NameMapping | None) -> tuple[FileField, ...]:
    """The file's columns; without ids of their own they have those of the name mapping."""
    fields = tuple(entry.field for entry in decoders)
    if name_mapping is None or any(field.field_id is not None for field in walk(fields)):
        return fields
    return mapped(fields, name_mapping.root)
