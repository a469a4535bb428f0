"""The Avro schemas of manifests and manifest lists. Worker-safe.

Input: a schema as JSON, or Iceberg's. Output: the other. Spec: "Avro" in Iceberg's Appendix A; Avro 1.11, "Names".

Avro defines a type with a name once, and every later use of it is the name alone. So Iceberg's Java library writes
partitions that have two decimals of the same precision, two UUIDs, or two binaries of the same length, and PyIceberg
does not read them. PyIceberg defines the type again, which Avro forbids and other readers refuse. Here the second one
gets a name of its own, which everybody reads.
"""

import json
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType, StructType
from pyiceberg.utils.schema_conversion import PRIMITIVE_FIELD_TYPE_MAPPING, AvroSchemaConversion

__all__ = ["avro_schema", "check_partition", "inner_struct", "record_type"]

PARTITION: Final = (2, 102)
"""The ids of the field of a file in an entry, and of that of its partition in there."""

Named = dict[str, Any]
"""The types that were defined so far, by their names."""


def record_type(schema: bytes) -> StructType:
    """The type of the records of a file. A timestamp in nanoseconds is the number that it is stored as.

    Args:
        schema: What the file's header says.

    Raises:
        Exception: it is none of a metadata file.
    """
    return AvroSchemaConversion().avro_to_iceberg(spelled_out(json.loads(schema), {})).as_struct()


def check_partition(file_type: StructType) -> None:
    """Refuse partition tuples that hold collections: no transform makes any, and what is in them nobody weighs.

    Args:
        file_type: The type of the records of a file; one that is no manifest has none.

    Raises:
        ValueError: there is one.
    """
    for found in inner_struct(file_type, *PARTITION).fields:
        if not isinstance(found.field_type, PrimitiveType):
            raise ValueError(  # noqa: TRY004 - what a file says is no type of ours
                f"the values of its partition field '{found.name}' are of the type {found.field_type}"
            )


def inner_struct(kind: StructType, *field_ids: int) -> StructType:
    """Return the struct to which field ids lead from another one, or one without fields."""
    for field_id in field_ids:
        inner = next((found.field_type for found in kind.fields if found.field_id == field_id), None)
        if not isinstance(inner, StructType):
            return StructType()
        kind = inner
    return kind


def avro_schema(schema: Schema, name: str) -> str:
    """The schema of a file of records, as JSON.

    Args:
        schema: The type of the records.
        name: Theirs.
    """
    return json.dumps(named_apart(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name), {}))


def spelled_out(schema: Any, named: Named) -> Any:
    """A schema with no names for types: only those of so many bytes have one, so it does not grow."""
    match schema:
        case str():
            return schema if schema in PRIMITIVE_FIELD_TYPE_MAPPING else named.get(schema, schema)
        case [_, "null"]:
            # Decoders take the second branch for the value, so they would read values as NULL and NULL as values.
            raise ValueError("it has an optional field whose union does not begin with null")
        case list():
            return [spelled_out(branch, named) for branch in schema]
        case {"type": "fixed", "name": str(name)}:
            named[name] = schema
            return schema
        case {"type": "long", "logicalType": "timestamp-nanos"}:
            return "long"
        case dict():
            return {key: inner(key, value, named, spelled_out) for key, value in schema.items()}
    return schema


def named_apart(schema: Any, named: Named) -> Any:
    """A schema in which every type that is defined has a name of its own."""
    match schema:
        case list():
            return [named_apart(branch, named) for branch in schema]
        case {"type": "fixed", "name": str(name)}:
            own = name if name not in named else f"{name}_{len(named)}"
            named[own] = schema
            return {**schema, "name": own}
        case dict():
            return {key: inner(key, value, named, named_apart) for key, value in schema.items()}
    return schema


def inner(key: str, value: Any, named: Named, change: Any) -> Any:
    """What a schema has under a key, changed where it is a schema or has some."""
    match key:
        case "type" | "items" | "values":
            return change(value, named)
        case "fields":
            return [{**field, "type": change(field["type"], named)} for field in value]
    return value
