"""Convert between Avro and Iceberg schemas of manifests and manifest lists. Worker-safe.

Input: an Avro schema as JSON, or an Iceberg schema. Output: the other. Spec: "Avro" in Iceberg's Appendix A; Avro 1.11,
"Names".

Avro defines a named type once, and later uses refer to the name. Iceberg's Java library does so in partitions with two
decimals of the same precision, two UUIDs, or two binaries of the same length, which PyIceberg cannot read. PyIceberg
defines the type again, which Avro forbids and other readers reject. Here the second type gets another name, which all
readers accept.
"""

import json
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType, StructType
from pyiceberg.utils.schema_conversion import PRIMITIVE_FIELD_TYPE_MAPPING, AvroSchemaConversion

__all__ = ["avro_schema", "check_partition", "inner_struct", "record_type"]

PARTITION: Final = (2, 102)
"""The field ids of the file in an entry, and of the partition in the file."""

Named = dict[str, Any]
"""The types defined so far, by name."""


def record_type(schema: bytes) -> StructType:
    """Return the type of the records of a file. A timestamp in nanoseconds has the type long, as it is stored.

    Args:
        schema: The Avro schema in the file's header.

    Raises:
        Exception: it is not the schema of a metadata file.
    """
    return AvroSchemaConversion().avro_to_iceberg(inline_names(json.loads(schema), {})).as_struct()


def check_partition(file_type: StructType) -> None:
    """Reject partition tuples with collections: no transform returns one, and their memory is not estimated.

    Args:
        file_type: The type of a file's records. Files other than manifests have no partition and pass.

    Raises:
        ValueError: a partition field has a type that is not primitive.
    """
    for found in inner_struct(file_type, *PARTITION).fields:
        if not isinstance(found.field_type, PrimitiveType):
            raise ValueError(  # noqa: TRY004 - invalid data, not a caller's wrong type
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
    """Return the Avro schema of a file as JSON.

    Args:
        schema: The type of the records.
        name: The name of the record type.
    """
    return json.dumps(unique_names(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name), {}))


def inline_names(schema: Any, named: Named) -> Any:
    """Replace references to named types with their definitions. Only fixed types are named, so schemas stay small."""
    match schema:
        case str():
            return schema if schema in PRIMITIVE_FIELD_TYPE_MAPPING else named.get(schema, schema)
        case [_, "null"]:
            # Decoders read the second branch as the value, so they would swap values and NULL.
            raise ValueError("it has an optional field whose union does not begin with null")
        case list():
            return [inline_names(branch, named) for branch in schema]
        case {"type": "fixed", "name": str(name)}:
            named[name] = schema
            return schema
        case {"type": "long", "logicalType": "timestamp-nanos"}:
            return "long"
        case dict():
            return {key: change_inner(key, value, named, inline_names) for key, value in schema.items()}
    return schema


def unique_names(schema: Any, named: Named) -> Any:
    """Rename types that are defined twice, so that every definition has a unique name."""
    match schema:
        case list():
            return [unique_names(branch, named) for branch in schema]
        case {"type": "fixed", "name": str(name)}:
            own = name if name not in named else f"{name}_{len(named)}"
            named[own] = schema
            return {**schema, "name": own}
        case dict():
            return {key: change_inner(key, value, named, unique_names) for key, value in schema.items()}
    return schema


def change_inner(key: str, value: Any, named: Named, change: Any) -> Any:
    """Apply a change to the schemas in the value of a schema's key."""
    match key:
        case "type" | "items" | "values":
            return change(value, named)
        case "fields":
            return [{**field, "type": change(field["type"], named)} for field in value]
    return value
