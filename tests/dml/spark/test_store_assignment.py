"""Store assignment under the policy STRICT."""

from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dml.spark.store_assignment import is_upcast

pytestmark = pytest.mark.spark

TYPES: Final[tuple[DataType, ...]] = (
    *(kind() for kind in (BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)),
    *(DecimalType(*sizes) for sizes in ((2, 0), (3, 0), (5, 2), (10, 0), (11, 1), (19, 0), (20, 0), (38, 10))),
    *(kind() for kind in (StringType, BinaryType, DateType, TimestampType, TimestampNTZType)),
)


@pytest.mark.parametrize("source", TYPES, ids=DataType.simpleString)
def test_upcasts_are_those_of_spark(spark: SparkSession, source: DataType) -> None:
    catalyst = spark._jvm.org.apache.spark.sql
    for target in TYPES:
        one, other = (catalyst.types.DataType.fromDDL(kind.simpleString()) for kind in (source, target))
        allowed = bool(catalyst.catalyst.expressions.Cast.canUpCast(one, other))
        assert (source == target or is_upcast(source, target)) is allowed, target
