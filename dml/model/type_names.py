"""What primitive types are called in messages and in SQL: by Spark, else by Iceberg. Worker-safe.

Input: an Iceberg type. Output: `bigint`, `decimal(9,2)`, `timestamp_ns`.
"""

from typing import Final

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
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.pyiceberg_patch import VariantType

__all__ = ["NAMES", "primitive_name"]

NAMES: Final[dict[type[IcebergType], str]] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimeType: "time(6)",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    TimestampNanoType: "timestamp_ns",
    TimestamptzNanoType: "timestamptz_ns",
    StringType: "string",
    BinaryType: "binary",
    UUIDType: "uuid",
    VariantType: "variant",
}


def primitive_name(primitive: IcebergType) -> str:
    """The name of a primitive type."""
    match primitive:
        case DecimalType():
            return f"decimal({primitive.precision},{primitive.scale})"
        case FixedType():
            return f"fixed({len(primitive)})"
    return NAMES.get(type(primitive), str(primitive))
