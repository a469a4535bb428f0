"""Iceberg types as Arrow types, without loss: what the scan reads and the writers write. Worker-safe.

Input: Iceberg types. Output: Arrow types. Spec: "Schemas and Data Types", "Appendix A: Parquet".

Scan and writers differ in nested fields (what a table requires is checked where rows are written) and in types that
one of them cannot handle; both are theirs to say.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
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

from dml.model.variants import VARIANT_ARROW
from dml.pyiceberg_patch import VariantType

__all__ = ["PARQUET_FIELD_ID", "arrow_type_of", "primitive_arrow_type"]

PARQUET_FIELD_ID: Final = b"PARQUET:field_id"
"""The key of an Arrow field's metadata under which Parquet files keep its field id."""

PLAIN: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    GeometryType: pa.binary(),
    GeographyType: pa.binary(),
    UUIDType: pa.uuid(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    VariantType: VARIANT_ARROW,
}


def primitive_arrow_type(primitive: IcebergType) -> pa.DataType | None:
    """The Arrow type of a primitive type's values; None where there is none, as for `unknown`."""
    match primitive:
        case DecimalType():
            return pa.decimal128(primitive.precision, primitive.scale)
        case FixedType():
            return pa.binary(len(primitive))
    return PLAIN.get(type(primitive))


def arrow_type_of(
    iceberg_type: IcebergType,
    primitive: Callable[[IcebergType], pa.DataType],
    field: Callable[[NestedField], pa.Field],
) -> pa.DataType:
    """The Arrow type of a type that may be nested.

    Args:
        iceberg_type: The type.
        primitive: Gives the Arrow type of a type that is not nested.
        field: Gives the Arrow field of a field inside a nested type.

    Raises:
        Exception: what the two raise.
    """
    match iceberg_type:
        case StructType():
            return pa.struct([field(child) for child in iceberg_type.fields])
        case ListType():
            return pa.list_(field(iceberg_type.element_field))
        case MapType():
            key = field(iceberg_type.key_field).with_nullable(False)
            return pa.map_(key, field(iceberg_type.value_field))
    return primitive(iceberg_type)
