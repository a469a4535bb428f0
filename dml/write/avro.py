"""Write one Avro file. Worker.

Input: record batches of the file's schema. Output: the file, and its size and column metrics. Spec: "Appendix A: Avro".
`fastavro` encodes row by row: Avro support is for existing Avro tables, not for speed.

A named type (decimal, uuid, fixed) is defined once and referenced by name afterwards, as Avro requires. PyIceberg's own
schema conversion is made for manifests: it lacks optional elements, and repeats the definitions of named types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, cast
from zlib import crc32

import fastavro.write
import pyarrow as pa
from fastavro.schema import parse_schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from dml.model.arrow_types import arrow_type_of, primitive_arrow_type
from dml.options import AVRO_COMPRESSION, WriteOptions
from dml.write.column_metrics import BatchMetrics
from dml.write.file_layout import FileLayout, FileStatistics, codec_of, convert_array

__all__ = ["AvroFileWriter", "avro_name", "avro_schema", "check_avro_codec"]

FIELD_ID: Final = "field-id"


def instant(unit: str, *, adjusted: bool) -> dict[str, Any]:
    """Return the Avro type of timestamps."""
    return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": adjusted}


PLAIN: Final[Mapping[type[IcebergType], str | dict[str, Any]]] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimeType: {"type": "long", "logicalType": "time-micros"},
    TimestampType: instant("micros", adjusted=False),
    TimestamptzType: instant("micros", adjusted=True),
    TimestampNanoType: instant("nanos", adjusted=False),
    TimestamptzNanoType: instant("nanos", adjusted=True),
}


def avro_schema(columns: Sequence[NestedField]) -> dict[str, Any]:
    """Return the Avro schema of a file.

    Args:
        columns: The file's columns, of types that can be written.
    """
    return Conversion().record("table", columns)


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one schema, which records the names that it has defined."""

    defined: set[str] = field(default_factory=set)

    def record(self, name: str, fields: Sequence[NestedField]) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [self.field(one) for one in fields]}

    def field(self, column: NestedField) -> dict[str, Any]:
        """Return a field of a record. Characters that Avro does not allow in names are escaped."""
        name = avro_name(column.name)
        made: dict[str, Any] = {"name": name, "type": self.value(column), FIELD_ID: column.field_id}
        if name != column.name:
            made["iceberg-field-name"] = column.name
        if not column.required:
            made["default"] = None
        return made

    def value(self, column: NestedField) -> Any:
        """Return the type of a field, as a union with `null` if the field is optional."""
        kind = self.type(column.field_type, column.field_id)
        return kind if column.required else ["null", kind]

    def type(self, kind: IcebergType, field_id: int) -> Any:
        """Return an Avro type. Structs are named after the field that has them."""
        match kind:
            case StructType():
                return self.record(f"r{field_id}", kind.fields)
            case ListType(element_field=element):
                return {"type": "array", "items": self.value(element), "element-id": element.field_id}
            case MapType(key_field=key, value_field=item) if isinstance(key.field_type, StringType):
                ids = {"key-id": key.field_id, "value-id": item.field_id}
                return {"type": "map", "values": self.value(item), **ids}
            case MapType(key_field=key, value_field=item):
                fields = [
                    {"name": "key", "type": self.type(key.field_type, key.field_id), FIELD_ID: key.field_id},
                    {"name": "value", "type": self.value(item), FIELD_ID: item.field_id},
                ]
                entry = {"type": "record", "name": f"k{key.field_id}_v{item.field_id}", "fields": fields}
                return {"type": "array", "logicalType": "map", "items": entry}
            case DecimalType(precision=precision, scale=scale):
                digits = {"logicalType": "decimal", "precision": precision, "scale": scale}
                return self.fixed(f"decimal_{precision}_{scale}", decimal_required_bytes(precision), **digits)
            case UUIDType():
                return self.fixed("uuid_fixed", 16, logicalType="uuid")
            case FixedType():
                return self.fixed(f"fixed_{len(kind)}", len(kind))
        return PLAIN[type(kind)]

    def fixed(self, name: str, size: int, **attributes: Any) -> str | dict[str, Any]:
        """Return the definition of a type of `size` bytes, or only its name if it is already defined."""
        if name in self.defined:
            return name
        self.defined.add(name)
        return {"type": "fixed", "name": name, "size": size, **attributes}


def avro_name(name: str) -> str:
    """Escape a name as Iceberg's Java library does: `_x` and the code of each character that Avro does not allow."""
    if not name:
        return name
    first, rest = name[0], name[1:]
    head = first if is_letter(first) else f"_{first}" if is_digit(first) else escaped(first)
    return head + "".join(part if is_letter(part) or is_digit(part) else escaped(part) for part in rest)


def is_letter(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalpha())


def is_digit(character: str) -> bool:
    return character.isascii() and character.isdigit()


def escaped(character: str) -> str:
    return f"_x{ord(character):X}"


CODECS: Final = {"gzip": "deflate", "zstd": "zstandard", "snappy": "snappy", "uncompressed": "null"}
BLOCK_BYTES: Final = 64_000
"""The default of Avro's Java library."""
COUNTED: Final = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType, TimeType)
"""Types whose values Avro stores as longs."""


class AvroFileWriter:
    """Write one data file. The caller opens and closes the stream.

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
        """The number of bytes written."""
        return int(self._stream.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._metrics.add(batch)
        self._rows += batch.num_rows
        columns = [
            values(convert_array(array, kind, name))
            for array, kind, name in zip(batch.columns, self._types, self._names, strict=True)
        ]
        for row in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
            self._writer.write(dict(zip(self._names, row, strict=True)))

    def flush(self) -> None:
        """Write the open block."""
        self._writer.flush()

    def close(self, row_map: str | None = None) -> FileStatistics:  # noqa: ARG002 - metadata stand before the rows
        """Write the buffered rows. The stream stays open."""
        self._writer.flush()
        return FileStatistics(
            record_count=self._rows,
            file_size_in_bytes=int(self._stream.tell()),
            split_offsets=(),
            metrics=self._metrics.metrics(),
        )

    def abort(self) -> None:
        """Stop writing. The bytes written so far are no valid file."""


def write_snappy_block(stream: Any, block: bytes, _level: int | None) -> None:
    """Compress a block with PyArrow: for the codec `snappy`, fastavro needs another library."""
    data = pa.Codec("snappy").compress(block, asbytes=True) + crc32(block).to_bytes(4, "big")
    stream.write(variable_length(len(data)) + data)


def variable_length(number: int) -> bytes:
    """Encode a non-negative long as Avro does: zigzag, then seven bits per byte."""
    left, written = number << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


fastavro.write._write.BLOCK_WRITERS["snappy"] = write_snappy_block  # type: ignore[attr-defined]  # noqa: SLF001


def check_avro_codec(options: WriteOptions) -> str:
    """Return Avro's name of the table's compression codec.

    Raises:
        AnalysisError: The codec does not exist.
    """
    return codec_of(AVRO_COMPRESSION, options.avro_compression, CODECS)


def avro_field(field: NestedField) -> pa.Field:
    return pa.field(avro_name(field.name), arrow_type_of(field.field_type, avro_type, avro_field))


def avro_type(primitive: IcebergType) -> pa.DataType:
    """Return the Arrow type whose Python values Avro encodes: days and timestamps are numbers."""
    match primitive:
        case DateType():
            return pa.int32()
        case UUIDType():
            return pa.binary(16)
    if isinstance(primitive, COUNTED):
        return pa.int64()
    found = primitive_arrow_type(primitive)
    assert found is not None  # `file_layout` rejects types without an Arrow type
    return found


def values(array: pa.Array) -> list[Any]:
    """Return an array's values as objects for Avro's encoder. Structs and maps of strings are dictionaries."""
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
    """Return the entries of a map whose keys are not strings."""
    return [{"key": key, "value": value} for key, value in pairs]


def extent(array: pa.ListArray) -> tuple[int, list[int]]:
    """Return the start of the first list's elements, and the offsets of all lists relative to it.

    A sliced array shares its elements with other slices, so that the first offset may be above 0.
    """
    offsets = array.offsets.to_pylist()
    return offsets[0], [offset - offsets[0] for offset in offsets]


def with_nulls(array: pa.Array, rows: list[Any]) -> list[Any]:
    """Replace the values of NULL rows with None."""
    if not array.null_count:
        return rows
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
