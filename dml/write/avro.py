"""Writes one Avro file. Worker.

Input: record batches of the file's schema. Output: the file, and its size and column metrics. Spec: "Appendix A: Avro".
`fastavro` encodes rows, one by one: Avro is for tables that have it, not for speed.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final, cast
from zlib import crc32

import fastavro.write
import pyarrow as pa
from fastavro.schema import parse_schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    NestedField,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.model.arrow_types import arrow_type_of, primitive_arrow_type
from dml.options import AVRO_COMPRESSION, WriteOptions
from dml.write.avro_schema import avro_name, avro_schema
from dml.write.column_metrics import BatchMetrics
from dml.write.conversion import converted
from dml.write.file_layout import FileLayout
from dml.write.file_writer import FileStatistics, codec_of

__all__ = ["AvroFileWriter", "check_avro_codec"]

CODECS: Final = {"gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "uncompressed": "null"}
BLOCK_BYTES: Final = 64_000
"""The default of Avro's Java library."""
COUNTED: Final = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType, TimeType)
"""Types whose values Avro has as long numbers."""


class AvroFileWriter:
    """Writes one data file; the caller opens the stream and closes it.

    Args:
        stream: An empty stream.
        layout: The file's columns.
        options: Sizes and compression.
    """

    buffered_bytes = 0

    def __init__(self, stream: pa.NativeFile, layout: FileLayout, options: WriteOptions) -> None:
        self._stream = stream
        self._metrics = BatchMetrics(layout.leaves, layout.modes)
        self._types = [arrow_type_of(column.field_type, avro_type, avro_field) for column in layout.columns]
        self._names = [avro_name(column.name) for column in layout.columns]
        self._rows = 0
        self._writer = fastavro.write.Writer(
            stream,
            parse_schema(avro_schema(layout.columns)),
            codec=check_avro_codec(options),
            sync_interval=BLOCK_BYTES,
            metadata={"iceberg.schema": layout.schema_json},
        )

    @property
    def estimated_size(self) -> int:
        """Bytes written."""
        return int(self._stream.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        self._metrics.add(batch)
        self._rows += batch.num_rows
        columns = [
            values(converted(array, kind, name))
            for array, kind, name in zip(batch.columns, self._types, self._names, strict=True)
        ]
        for row in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
            self._writer.write(dict(zip(self._names, row, strict=True)))

    def flush(self) -> None:
        """Writes the open block."""
        self._writer.flush()

    def close(self) -> FileStatistics:
        """Writes the rest; the stream stays open."""
        self._writer.flush()
        return FileStatistics(
            record_count=self._rows,
            file_size_in_bytes=int(self._stream.tell()),
            split_offsets=(),
            metrics=self._metrics.metrics(),
        )

    def abort(self) -> None:
        """Gives the file up; its bytes are of no use."""


def write_snappy_block(stream: Any, block: bytes, _level: int | None) -> None:
    """Write a block in the codec `snappy`, which fastavro has only with a further library, and PyArrow by itself."""
    data = pa.Codec("snappy").compress(block, asbytes=True) + crc32(block).to_bytes(4, "big")
    stream.write(variable_length(len(data)) + data)


def variable_length(number: int) -> bytes:
    """A long as Avro writes it, of a number that is not negative: twice the number, seven bits to a byte."""
    left, written = number << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


fastavro.write._write.BLOCK_WRITERS["snappy"] = write_snappy_block  # type: ignore[attr-defined]  # noqa: SLF001


def check_avro_codec(options: WriteOptions) -> str:
    """Avro's name of the table's compression codec.

    Raises:
        AnalysisError: there is no such codec.
    """
    return codec_of(AVRO_COMPRESSION, options.avro_compression, CODECS)


def avro_field(field: NestedField) -> pa.Field:
    """A field inside a nested type."""
    return pa.field(avro_name(field.name), arrow_type_of(field.field_type, avro_type, avro_field))


def avro_type(primitive: IcebergType) -> pa.DataType:
    """The Arrow type whose Python values are those that Avro encodes: days and instants are numbers."""
    match primitive:
        case DateType():
            return pa.int32()
        case UUIDType():
            return pa.binary(16)
    if isinstance(primitive, COUNTED):
        return pa.int64()
    found = primitive_arrow_type(primitive)
    assert found is not None  # the layout of files has been made of them
    return found


def values(array: pa.Array) -> list[Any]:
    """The values of an array as Avro's encoder takes them: structs and maps of strings as dictionaries."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        fields = [values(array.field(place)) for place in range(kind.num_fields)]
        rows: Iterable[tuple[Any, ...]] = zip(*fields, strict=True) if fields else [()] * len(array)
        return with_nulls(array, [dict(zip(names, row, strict=True)) for row in rows])
    if pa.types.is_map(kind):
        first, places = extent(array)
        keys, items = (values(part.slice(first, places[-1])) for part in (array.keys, array.items))
        pairs = list(zip(keys, items, strict=True))
        made: Callable[[list[tuple[Any, Any]]], Any] = dict if pa.types.is_string(kind.key_type) else entries
        return with_nulls(array, [made(pairs[start:end]) for start, end in pairwise(places)])
    if pa.types.is_list(kind):
        first, places = extent(array)
        elements = values(array.values.slice(first, places[-1]))
        return with_nulls(array, [elements[start:end] for start, end in pairwise(places)])
    return cast("list[Any]", array.to_pylist())


def entries(pairs: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """The entries of a map whose keys are no strings."""
    return [{"key": key, "value": value} for key, value in pairs]


def extent(array: pa.ListArray) -> tuple[int, list[int]]:
    """Where the elements of all lists start, and from there those of each, and the end: slices share their elements."""
    offsets = array.offsets.to_pylist()
    return offsets[0], [offset - offsets[0] for offset in offsets]


def with_nulls(array: pa.Array, rows: list[Any]) -> list[Any]:
    """The values of nested arrays where they are not NULL."""
    if not array.null_count:
        return rows
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
