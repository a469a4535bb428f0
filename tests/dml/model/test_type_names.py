"""Names of types in errors: Spark's, the same wherever they are shown."""

import pytest
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzType,
    TimeType,
)
from pyspark.sql import types as spark

from dml.ddl import parse_type, type_text
from dml.ddl.types import SPELLINGS
from dml.errors import AnalysisError, NotSupportedError
from dml.model.arrow_types import primitive_name
from dml.read.projection import arrow_type
from dml.spark.store_assignment import Assign
from dml.spark.types import shown_type, spark_type


@pytest.mark.parametrize("kind", [*SPELLINGS, DecimalType(9, 2), FixedType(3), TimeType()], ids=str)
def test_a_primitive_name_reads_back_to_its_type(kind: IcebergType) -> None:
    assert parse_type(primitive_name(kind)) == kind
    assert type_text(kind) == primitive_name(kind)
    assert SPELLINGS.get(kind, (primitive_name(kind),))[0] == primitive_name(kind)  # type: ignore[call-overload]


def test_types_of_messages_have_spark_s_names_and_no_field_ids() -> None:
    nanos = ListType(7, StructType(NestedField(8, "at", TimestampNanoType(), required=False)), element_required=False)
    with pytest.raises(NotSupportedError, match="of the type timestamp_ns cannot be read"):
        arrow_type(nanos, spark=True)
    with pytest.raises(NotSupportedError, match="for columns of the type timestamp_ns"):
        spark_type(nanos)
    field = NestedField(2, "User Id", LongType(), required=True)
    nested = MapType(3, TimestamptzType(), 4, StructType(field, NestedField(5, "x", DecimalType(9, 2))))
    assert shown_type(spark_type(nested)) == "MAP<TIMESTAMP, STRUCT<`User Id`: BIGINT, x: DECIMAL(9,2)>>"


def test_the_hint_of_a_cast_keeps_the_names_of_fields() -> None:
    wanted = spark.StructType([spark.StructField("userId", spark.IntegerType())])
    with pytest.raises(AnalysisError, match="of type STRUCT<userId: INT>") as caught:
        Assign().sql("v", spark.IntegerType(), wanted, ("s",))
    assert caught.value.hint == "Convert it in the statement, with CAST(... AS STRUCT<userId: INT>) for example"
