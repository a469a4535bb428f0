"""The schema of a Spark query to an Iceberg schema, for CREATE TABLE AS SELECT. Pure; driver.

Input: the JSON text of a PySpark StructType (`DataFrame.schema.json()`), or DDL text. Output: a PyIceberg schema with
fresh ids.
"""

import json
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dml.ddl.field_ids import assign_field_ids, counting_ids
from dml.ddl.types import parse_fields, parse_type
from dml.errors import AlreadyExistsError
from dml.sqlparse.places import at
from dml.sqlparse.statements import Span

__all__ = ["schema_from_ddl", "schema_from_json", "schema_of"]


def schema_from_json(text: str, *, as_nullable: bool = True) -> Schema:
    """The Iceberg schema for a PySpark schema.

    Args:
        text: What `StructType.json()` gives.
        as_nullable: Whether every field becomes optional, as Spark's CREATE TABLE AS SELECT has it; else Spark's
            nullability becomes required and optional fields.

    Returns:
        The schema.

    Raises:
        NotSupportedError: Iceberg cannot store a type.
        AlreadyExistsError: two columns have one name.
    """
    return schema_of(tuple(_field(field, as_nullable) for field in json.loads(text)["fields"]))


def schema_from_ddl(text: str) -> Schema:
    """The Iceberg schema for a column list, `id BIGINT NOT NULL, name STRING COMMENT 'x'`.

    Args:
        text: The list.

    Returns:
        The schema.

    Raises:
        AnalysisError: the list does not read.
        NotSupportedError: Iceberg cannot store a type.
        AlreadyExistsError: two columns have one name.
    """
    return schema_of(parse_fields(text))


def schema_of(fields: tuple[NestedField, ...], places: tuple[Span, ...] = ()) -> Schema:
    """A schema of fields that have no ids yet.

    Args:
        fields: The columns.
        places: Where they stand in the statement, if they do.

    Returns:
        The schema, with ids from 1.

    Raises:
        AlreadyExistsError: two columns have one name.
    """
    folded: set[str] = set()
    for index, field in enumerate(fields):
        if field.name.lower() in folded:
            with at(places[index] if places else None):
                raise AlreadyExistsError(
                    f"The column '{field.name}' is there twice",
                    hint="Names differ by more than case",
                    column=field.name,
                )
        folded.add(field.name.lower())
    return Schema(*assign_field_ids(fields, counting_ids(1)))


def _field(field: dict[str, Any], as_nullable: bool) -> NestedField:
    comment = field.get("metadata", {}).get("comment")
    required = not (field["nullable"] or as_nullable)
    return NestedField(0, field["name"], _type(field["type"], as_nullable), required=required, doc=comment)


def _type(kind: str | dict[str, Any], as_nullable: bool) -> IcebergType:
    if isinstance(kind, str):
        return parse_type(kind)
    match kind["type"]:
        case "struct":
            return StructType(*(_field(field, as_nullable) for field in kind["fields"]))
        case "array":
            return ListType(
                element_id=0,
                element=_type(kind["elementType"], as_nullable),
                element_required=not (kind["containsNull"] or as_nullable),
            )
        case "map":
            return MapType(
                key_id=0,
                key_type=_type(kind["keyType"], as_nullable),
                value_id=0,
                value_type=_type(kind["valueType"], as_nullable),
                value_required=not (kind["valueContainsNull"] or as_nullable),
            )
        case "udt":
            return _type(kind["sqlType"], as_nullable)
        case other:
            return parse_type(str(other))
