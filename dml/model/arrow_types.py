"""Convert Iceberg types to Arrow types, without loss, and to names for messages and SQL. Worker-safe.

Input: Iceberg types. Output: Arrow types, for the scan and the writers; names such as `bigint`, `decimal(9,2)`,
`timestamp_ns`: Spark's, else Iceberg's. Spec: "Schemas and Data Types", "Semi-structured Types", "Appendix A: Parquet";
Parquet's `VariantEncoding.md`.

The caller converts nested fields and rejects types that it cannot handle, as the scan and the writers differ in both:
only writers check required fields. The Iceberg type of variants is in `dml.pyiceberg_patch`.
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

from dml.pyiceberg_patch import VariantType

__all__ = [
    "METADATA",
    "NAMES",
    "PARQUET_FIELD_ID",
    "TYPED_VALUE",
    "VALUE",
    "VARIANT_ARROW",
    "VARIANT_FOR_SPARK",
    "arrow_type_of",
    "is_variant",
    "primitive_arrow_type",
    "primitive_name",
]

METADATA: Final = "metadata"
VALUE: Final = "value"
TYPED_VALUE: Final = "typed_value"
"""Names of the parts of a variant in any group that holds one. They have no field ids and may be in any order."""

MARK: Final = {b"variant": b"true"}
"""Metadata of the field `metadata`, by which Spark, in Python and in the JVM, tells a variant from a struct."""

METADATA_FIELD: Final = pa.field(METADATA, pa.binary(), nullable=False, metadata=MARK)
VALUE_FIELD: Final = pa.field(VALUE, pa.binary(), nullable=False)

VARIANT_ARROW: Final = pa.struct([METADATA_FIELD, VALUE_FIELD])
"""An unshredded variant as in files."""

VARIANT_FOR_SPARK: Final = pa.struct([VALUE_FIELD, METADATA_FIELD])
"""A variant as in Spark, which reads the parts by position."""


def is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a variant, in either order of parts, not a struct with the same field names."""
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    return any(kind.field(place).name == METADATA and (kind.field(place).metadata or {}) == MARK for place in (0, 1))


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
    """Return the name of a primitive type."""
    match primitive:
        case DecimalType():
            return f"decimal({primitive.precision},{primitive.scale})"
        case FixedType():
            return f"fixed({len(primitive)})"
    return NAMES.get(type(primitive), str(primitive))


PARQUET_FIELD_ID: Final = b"PARQUET:field_id"
"""The key of a Parquet field id in an Arrow field's metadata."""

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
    """Return the Arrow type of a primitive type's values; None if it has none, as `unknown`."""
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
    """Return the Arrow type of a type that may be nested.

    Args:
        iceberg_type: The type.
        primitive: Returns the Arrow type of a primitive type.
        field: Returns the Arrow field of a field inside a nested type.

    Raises:
        Exception: an exception of `primitive` or `field`.
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
