"""Avro data files. Worker-safe.

Input: an open file. Output: record batches; of the file, one block at a time is in memory.
Spec: Avro 1.11, "Object Container Files"; Iceberg "Appendix A", Avro.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField

from dml.manifests.avro_container import AvroContainer
from dml.manifests.avro_decoder import CheckedDecoder
from dml.pruning.row_tests import Bounds
from dml.read.avro_schema import AvroField, avro_fields
from dml.read.batches import empty_rows
from dml.read.data_file import Piece
from dml.read.file_fields import FileField, mapped, walk

__all__ = ["AvroFile"]

UNKNOWN = Bounds()
SCHEMA_KEY = "avro.schema"
BUFFER_BYTES = 1 << 20
MAX_ROWS = 2**63 - 1


class AvroFile:
    """An open Avro file: its one piece is the whole file, as positions are known only by reading from its start.

    Args:
        source: The open file.
        name_mapping: Ids for files that have none.
    """

    columnar = False
    rows = None

    def __init__(self, source: pa.NativeFile, name_mapping: NameMapping | None) -> None:
        self.container = AvroContainer(pa.BufferedInputStream(source, BUFFER_BYTES), source.size())
        self.decoders = avro_fields(json.loads(self.container.metadata[SCHEMA_KEY]))
        self.fields = with_ids(self.decoders, name_mapping)
        # Rows are not counted in the file's header, so any position may be in it.
        self.pieces = (Piece(index=0, start=0, first_position=0, rows=MAX_ROWS),)

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
        for count, data in self.container.blocks():
            decoder = CheckedDecoder(data)
            for _ in range(count):
                yield [decode(decoder) for decode in decoders]
            decoder.finish()


def with_ids(decoders: Sequence[AvroField], name_mapping: NameMapping | None) -> tuple[FileField, ...]:
    """The file's columns; without ids of their own they have those of the name mapping."""
    fields = tuple(entry.field for entry in decoders)
    if name_mapping is None or any(field.field_id is not None for field in walk(fields)):
        return fields
    return mapped(fields, name_mapping.root)
