"""Iceberg schemas as Avro's. Worker-safe, pure.

Input: columns. Output: the JSON of a file's schema. Spec: "Appendix A: Avro". A named type (decimals, uuid, fixed) is
defined once and named after that, as Avro wants it. PyIceberg's own conversion is for manifests: it does not know of
optional elements, and defines a name as often as it is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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

__all__ = ["avro_name", "avro_schema"]

FIELD_ID: Final = "field-id"


def instant(unit: str, *, adjusted: bool) -> dict[str, Any]:
    """The type of timestamps."""
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
    """The schema of a file.

    Args:
        columns: Its columns, of types that can be written.
    """
    return Conversion().record("table", columns)


@dataclass(frozen=True, slots=True)
class Conversion:
    """One schema; remembers which names it has defined."""

    defined: set[str] = field(default_factory=set)

    def record(self, name: str, fields: Sequence[NestedField]) -> dict[str, Any]:
        """A struct."""
        return {"type": "record", "name": name, "fields": [self.field(one) for one in fields]}

    def field(self, column: NestedField) -> dict[str, Any]:
        """A field of a struct; a name that Avro does not take is written in letters that it takes."""
        name = avro_name(column.name)
        made: dict[str, Any] = {"name": name, "type": self.value(column), FIELD_ID: column.field_id}
        if name != column.name:
            made["iceberg-field-name"] = column.name
        if not column.required:
            made["default"] = None
        return made

    def value(self, column: NestedField) -> Any:
        """The type of a field, which may be NULL if it is not required."""
        kind = self.type(column.field_type, column.field_id)
        return kind if column.required else ["null", kind]

    def type(self, kind: IcebergType, field_id: int) -> Any:
        """A type; that of a struct is named after the field that has it."""
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
        """A type of so many bytes: its definition, or its name where it has been defined."""
        if name in self.defined:
            return name
        self.defined.add(name)
        return {"type": "fixed", "name": name, "size": size, **attributes}


def avro_name(name: str) -> str:
    """A name as Avro takes it, as Iceberg's Java library writes it: other characters by their code, `_x` before it."""
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
