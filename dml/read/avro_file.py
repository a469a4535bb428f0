"""Avro data files and their schemas. Worker-safe.

Input: an open file. Output: its columns with ids, and record batches. One Avro block at a time is in memory.
The JSON schema is compiled into functions that decode values to the Python objects that Arrow accepts.
Spec: Avro 1.11, "Object Container Files", "Schema Declaration"; Iceberg "Appendix A", Avro.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField

from dml import limits
from dml.manifests.avro_container import AvroContainer
from dml.manifests.avro_decoder import CheckedDecoder
from dml.pruning.row_tests import Bounds
from dml.read.data_file import FileField, Piece, empty_rows, walk, with_mapped_ids

__all__ = ["SCHEMA_KEY", "AvroField", "AvroFile", "Decode", "avro_fields"]

Decode = Callable[[CheckedDecoder], Any]

ELEMENT, KEY, VALUE = "element", "key", "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroField:
    """A field of a record, with its type in Iceberg terms and its decoder."""

    field: FileField
    decode: Decode


@dataclass(frozen=True, slots=True)
class Names:
    """The named types met so far, and the nesting depth of the schema."""

    types: dict[str, Any] = field(default_factory=dict)
    depth: int = 0

    def deeper(self) -> "Names":
        """Return the names one level deeper.

        Raises:
            ValueError: The nesting limit is reached: the schema is hostile, or a type contains itself.
        """
        if self.depth == limits.MAX_AVRO_DEPTH:
            raise ValueError(f"its schema is nested more than {limits.MAX_AVRO_DEPTH} deep")
        return replace(self, depth=self.depth + 1)


def avro_fields(schema: Any) -> tuple[AvroField, ...]:
    """Return the fields of a file's root record.

    Raises:
        ValueError: The schema is not a record, or has a type that no Iceberg table has.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its schema is not a record")
    return record_fields(schema, Names())


def record_fields(schema: dict[str, Any], names: Names) -> tuple[AvroField, ...]:
    if "name" in schema:
        names.types[schema["name"]] = schema
    return tuple(
        with_name(convert_type(entry["type"], names.deeper()), entry["name"], entry.get("field-id"))
        for entry in schema["fields"]
    )


def with_name(value: AvroField, name: str, field_id: Any) -> AvroField:
    return replace(value, field=replace(value.field, name=name, field_id=None if field_id is None else int(field_id)))


def unnamed_value(arrow_type: pa.DataType, decode: Decode, *children: FileField) -> AvroField:
    """Return a value that `with_name` names later."""
    return AvroField(field=FileField(name="", field_id=None, type=arrow_type, children=children), decode=decode)


def convert_type(schema: Any, names: Names) -> AvroField:
    """Convert any type of an Avro schema."""
    match schema:
        case str() if schema in names.types:
            return convert_type(names.types[schema], names.deeper())
        case str():
            return primitive({"type": schema})
        case list():
            return union(schema, names)
        case {"type": "record"}:
            return record(schema, names)
        case {"type": "array", "logicalType": "map", "items": dict(items)}:
            return entry_array(items, names)
        case {"type": "array"}:
            return array(schema, names)
        case {"type": "map"}:
            return string_map(schema, names)
        case {"type": "fixed" | "enum", "name": str(name)}:
            names.types[name] = schema
            return primitive(schema)
        case {"type": dict() | list() as inner}:
            return convert_type(inner, names.deeper())
        case {"type": str(name)} if name in names.types:
            return convert_type(names.types[name], names.deeper())
        case {"type": str()}:
            return primitive(schema)
    raise ValueError(f"its schema has an unknown type {schema!r}")


def union(branches: list[Any], names: Names) -> AvroField:
    """Convert a union of one type and `null`, in either order."""
    values = [branch for branch in branches if branch != "null"]
    if len(values) != 1 or len(branches) > 2:
        raise ValueError(f"its schema has a union of {len(values)} types")
    value = convert_type(values[0], names.deeper())
    if len(branches) == 1:
        return value
    place, decode = branches.index(values[0]), value.decode

    def optional(decoder: CheckedDecoder) -> Any:
        branch = decoder.read_int()
        if branch not in {0, 1}:
            raise ValueError(f"branch {branch} of a union of two")
        return decode(decoder) if branch == place else None

    return replace(value, decode=optional)


def record(schema: dict[str, Any], names: Names) -> AvroField:
    fields = record_fields(schema, names)
    steps = [(entry.field.name, entry.decode) for entry in fields]
    arrow = pa.struct([pa.field(entry.field.name, entry.field.type) for entry in fields])
    return unnamed_value(
        arrow,
        lambda decoder: {name: decode(decoder) for name, decode in steps},
        *(entry.field for entry in fields),
    )


def blocks(decoder: CheckedDecoder, decode: Decode) -> list[Any]:
    """Decode the items of an array or map, which come in counted blocks."""
    items: list[Any] = []
    while count := decoder.read_int():
        if count < 0:
            decoder.read_int()
            count = -count
        if count > max(decoder.remaining, limits.MAX_EMPTY_AVRO_ITEMS):
            raise ValueError(f"a list or map claims {count} items")
        items.extend(decode(decoder) for _ in range(count))
    return items


def array(schema: dict[str, Any], names: Names) -> AvroField:
    element = with_name(convert_type(schema["items"], names.deeper()), ELEMENT, schema.get("element-id"))
    decode = element.decode
    arrow = pa.list_(pa.field(ELEMENT, element.field.type))
    return unnamed_value(arrow, lambda decoder: blocks(decoder, decode), element.field)


def entry_array(items: dict[str, Any], names: Names) -> AvroField:
    """Convert a map whose keys are not strings: an array of records with a key and a value."""
    key, value = record_fields(items, names.deeper())
    return map_of(key, value)


def string_map(schema: dict[str, Any], names: Names) -> AvroField:
    key = with_name(primitive({"type": "string"}), KEY, schema.get("key-id"))
    return map_of(key, with_name(convert_type(schema["values"], names.deeper()), VALUE, schema.get("value-id")))


def map_of(key: AvroField, value: AvroField) -> AvroField:
    decode_key, decode_value = key.decode, value.decode

    def entry(decoder: CheckedDecoder) -> tuple[Any, Any]:
        decoded = decode_key(decoder)
        return decoded, decode_value(decoder)

    arrow = pa.map_(pa.field(KEY, key.field.type, nullable=False), pa.field(VALUE, value.field.type))
    return unnamed_value(arrow, lambda decoder: blocks(decoder, entry), key.field, value.field)


LONGS = {
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def primitive(schema: dict[str, Any]) -> AvroField:
    logical = schema.get("logicalType")
    if logical == "decimal" and schema["type"] in {"bytes", "fixed"}:
        return decimal(schema)
    match schema["type"]:
        case "null":
            return unnamed_value(pa.null(), lambda _: None)
        case "boolean":
            return unnamed_value(pa.bool_(), lambda decoder: decoder.read_boolean())
        case "int":
            return unnamed_value(pa.date32() if logical == "date" else pa.int32(), lambda decoder: decoder.read_int())
        case "long":
            return unnamed_value(LONGS.get(str(logical), pa.int64()), lambda decoder: decoder.read_int())
        case "float":
            return unnamed_value(pa.float32(), lambda decoder: decoder.read_float())
        case "double":
            return unnamed_value(pa.float64(), lambda decoder: decoder.read_double())
        case "bytes":
            return unnamed_value(pa.binary(), lambda decoder: decoder.read_bytes())
        case "string":
            return unnamed_value(pa.string(), lambda decoder: decoder.read_utf8())
        case "fixed":
            size = int(schema["size"])
            return unnamed_value(pa.binary(size), lambda decoder: decoder.read(size))
        case "enum":
            symbols = list(schema["symbols"])
            return unnamed_value(pa.string(), lambda decoder: symbol(symbols, decoder.read_int()))
    raise ValueError(f"its schema has an unknown type {schema['type']!r}")


def symbol(symbols: Sequence[str], index: int) -> str:
    """Return a symbol of an enum.

    Raises:
        ValueError: The enum has fewer symbols, or the index is negative, which Python would count from the end.
    """
    if not 0 <= index < len(symbols):
        raise ValueError(f"an enum of {len(symbols)} symbols has no symbol {index}")
    return symbols[index]


def decimal(schema: dict[str, Any]) -> AvroField:
    """Convert a decimal, whose unscaled value is stored as big-endian two's complement."""
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    size = int(schema["size"]) if schema["type"] == "fixed" else None

    def decode(decoder: CheckedDecoder) -> Decimal:
        raw = decoder.read_bytes() if size is None else decoder.read(size)
        return Decimal((0, (0,), 0)) if not raw else exact_decimal(int.from_bytes(raw, "big", signed=True), scale)

    return unnamed_value(pa.decimal128(precision, scale), decode)


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """Return the exact decimal of an unscaled value. Decimal arithmetic would round it to the context's precision."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


UNKNOWN = Bounds()
SCHEMA_KEY = "avro.schema"
MAX_ROWS = 2**63 - 1


class AvroFile:
    """An open Avro file. Its only piece is the whole file: positions are known only by reading from the start.

    Args:
        source: The open file.
        name_mapping: Field ids for a file without any.
    """

    columnar = False
    rows = None

    def __init__(self, source: pa.NativeFile, name_mapping: NameMapping | None) -> None:
        self.container = AvroContainer(pa.BufferedInputStream(source, limits.AVRO_READ_BYTES).read, source.size())
        self.decoders = avro_fields(json.loads(self.container.metadata[SCHEMA_KEY]))
        self.fields = with_ids(self.decoders, name_mapping)
        # The header has no row count, so that any position may be in the file.
        self.pieces = (Piece(index=0, start=0, first_position=0, rows=MAX_ROWS),)

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:  # noqa: ARG002 - the protocol of all formats
        """Return unknown bounds, because Avro has no statistics."""
        return UNKNOWN

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows. The file can be read only once, from start to end."""
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
    """Return the file's columns, with ids from the name mapping if the file has none."""
    fields = tuple(entry.field for entry in decoders)
    if name_mapping is None or any(field.field_id is not None for field in walk(fields)):
        return fields
    return with_mapped_ids(fields, name_mapping.root)
