"""The type `variant`, which PyIceberg lacks: it reads and writes the name, and nothing else of it has changed."""

import copy
import pickle
import subprocess
import sys

import pyarrow as pa
import pyiceberg.types
import pytest
from pydantic import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import GeometryType, IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from dml.model.variants import VARIANT_ARROW, VARIANT_FOR_SPARK, is_variant
from dml.pyiceberg_patch import VariantType

INSIDE = StructType(NestedField(3, "v", VariantType(), required=True))
SCHEMA = Schema(
    NestedField(1, "v", VariantType(), required=False),
    NestedField(2, "s", INSIDE, required=False),
    NestedField(4, "l", ListType(5, VariantType(), element_required=False), required=False),
    NestedField(6, "m", MapType(7, StringType(), 8, VariantType(), value_required=False), required=False),
    schema_id=3,
)

WITHOUT_US = """
from pyiceberg.types import NestedField
try:
    print(NestedField.model_validate({"id": 1, "name": "v", "required": False, "type": "variant"}))
except ValueError:
    print("unknown")
"""


def test_pyiceberg_does_not_know_it() -> None:
    """Or it knows by now: then our own type goes."""
    assert not hasattr(pyiceberg.types, "VariantType")
    done = subprocess.run([sys.executable, "-P", "-c", WITHOUT_US], capture_output=True, text=True, check=True)
    assert done.stdout == "unknown\n"


def test_a_schema_with_it_is_written_and_read_back_wherever_it_stands() -> None:
    assert Schema.model_validate_json(SCHEMA.model_dump_json()) == SCHEMA
    assert SCHEMA.model_dump_json().count('"variant"') == 4
    assert pickle.loads(pickle.dumps(SCHEMA)) == copy.deepcopy(SCHEMA) == SCHEMA
    assert [str(field.field_type) for field in assign_fresh_schema_ids(SCHEMA).fields[:1]] == ["variant"]
    assert VariantType.model_validate("variant") is VariantType()


@pytest.mark.parametrize("name", ["varian", "variants", "Variant", " variant", 7])
def test_other_names_are_errors_as_before(name: object) -> None:
    with pytest.raises(ValidationError):
        NestedField.model_validate({"id": 1, "name": "n", "required": False, "type": name})


def test_other_types_are_read_as_before() -> None:
    for text in ("long", "decimal(9, 2)", "fixed[3]", "geometry", "unknown", "timestamptz_ns"):
        field = NestedField.model_validate({"id": 1, "name": "n", "required": False, "type": text})
        assert NestedField.model_validate_json(field.model_dump_json()) == field
    assert GeometryType("variant").crs == "variant"
    assert isinstance(IcebergType.model_validate("long"), LongType)


def test_it_is_of_version_3_and_neither_compared_nor_partitioned_by() -> None:
    for version in (1, 2):
        with pytest.raises(ValueError, match="variant is only supported in 3 or higher"):
            SCHEMA.check_format_version_compatibility(version)
    SCHEMA.check_format_version_compatibility(3)
    with pytest.raises(ValueError, match="not a primitive type"):
        Schema(NestedField(1, "v", VariantType(), required=True), identifier_field_ids=[1])
    assert PartitionSpec().is_unpartitioned()


def test_its_arrow_types_are_no_structs_with_such_names() -> None:
    plain = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    assert is_variant(VARIANT_ARROW)
    assert is_variant(VARIANT_FOR_SPARK)
    assert not is_variant(plain)
    assert not is_variant(pa.binary())
