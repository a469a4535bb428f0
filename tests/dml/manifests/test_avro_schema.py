"""Types with names in the schemas of manifests: each has its own, and is found by it."""

import json
from typing import Any

import fastavro
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FixedType, IcebergType, LongType, NestedField, StructType, UUIDType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from dml.manifests.avro_schema import avro_schema, record_type

TYPES = [DecimalType(9, 2), UUIDType(), FixedType(5)]


def partitions(kind: IcebergType) -> Schema:
    """Two fields of a type, as those of a partition are, and one of another."""
    inner = (NestedField(1000 + place, f"p{place}", kind, required=False) for place in range(2))
    other = NestedField(1002, "other", DecimalType(20, 2), required=True)
    return Schema(NestedField(1, "partition", StructType(*inner, other), required=True))


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_that_are_alike_have_names_of_their_own(kind: IcebergType) -> None:
    """Avro allows no second definition of a name, and PyIceberg does not read a name alone."""
    schema = avro_schema(partitions(kind), "r")
    fastavro.parse_schema(json.loads(schema))
    fields = json.loads(schema)["fields"][0]["type"]["fields"]
    first, second = (field["type"][1] for field in fields[:2])
    assert first["type"] == second["type"] == "fixed"
    assert second["name"] == f"{first['name']}_1"
    assert fields[2]["type"]["name"] == "decimal_20_2"
    assert record_type(schema.encode()) == partitions(kind).as_struct()
    assert AvroSchemaConversion().avro_to_iceberg(json.loads(schema)).as_struct() == partitions(kind).as_struct()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_that_is_defined_twice_is_read(kind: IcebergType) -> None:
    """So did this library write manifests before, and so does PyIceberg."""
    schema = json.loads(avro_schema(partitions(kind), "r"))
    fields = schema["fields"][0]["type"]["fields"]
    fields[1]["type"][1] = fields[0]["type"][1]
    assert record_type(json.dumps(schema).encode()) == partitions(kind).as_struct()


def test_a_name_alone_as_iceberg_java_writes_it() -> None:
    decimal = {"type": "fixed", "name": "decimal_9_2", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
    fields: list[dict[str, Any]] = [
        {"name": "a", "type": ["null", decimal], "default": None, "field-id": 1},
        {"name": "b", "type": ["null", "decimal_9_2"], "default": None, "field-id": 2},
        {"name": "c", "type": "decimal_9_2", "field-id": 3},
        {"name": "d", "type": {"type": "array", "items": "decimal_9_2", "element-id": 5}, "field-id": 4},
    ]
    found = record_type(json.dumps({"type": "record", "name": "r", "fields": fields}).encode())
    kinds = [found.fields[0].field_type, found.fields[1].field_type, found.fields[2].field_type]
    assert kinds == [DecimalType(9, 2)] * 3
    assert [field.required for field in found.fields[:3]] == [False, False, True]
    assert str(found.fields[3].field_type) == "list<decimal(9, 2)>"


def test_nanoseconds_are_numbers() -> None:
    nanos = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}
    fields = [{"name": "a", "type": ["null", nanos], "default": None, "field-id": 1}]
    found = record_type(json.dumps({"type": "record", "name": "r", "fields": fields}).encode())
    assert found == StructType(NestedField(1, "a", LongType(), required=False))


@pytest.mark.parametrize(
    "kind", ["decimal_9_2", {"type": "fixed"}, {"type": ["null", "r"]}, "r", 7, {"type": "r"}], ids=str
)
def test_what_has_no_definition_is_refused(kind: Any) -> None:
    fields = [{"name": "a", "type": kind, "field-id": 1}]
    with pytest.raises(Exception, match=r"Type not recognized|size|unhashable|'r'|int"):
        record_type(json.dumps({"type": "record", "name": "r", "fields": fields}).encode())


def test_a_name_does_not_stand_for_another_type() -> None:
    """A file says of a name what it likes, and numbers stay numbers."""
    fixed = {"type": "fixed", "name": "long", "size": 4}
    fields = [{"name": "a", "type": fixed, "field-id": 1}, {"name": "b", "type": "long", "field-id": 2}]
    found = record_type(json.dumps({"type": "record", "name": "r", "fields": fields}).encode())
    assert found.fields[1].field_type == LongType()


def test_optional_fields_whose_union_ends_with_null_are_refused() -> None:
    fields = [{"name": "snapshot_id", "type": ["long", "null"], "field-id": 1}]
    with pytest.raises(ValueError, match="does not begin with null"):
        record_type(json.dumps({"type": "record", "name": "r", "fields": fields}).encode())
