"""Iceberg types as Arrow types: as they are in files, and as Spark takes them. Worker-safe.

Input: Iceberg types. Output: Arrow types. Every Arrow field is nullable: what a table requires is checked where rows
are written. Spec: "Schemas and Data Types"; for the forms that Spark takes, `pyspark.sql.pandas.types`.
"""

import pyarrow as pa
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
    UnknownType,
    UUIDType,
)

from dml.errors import ErrorKind, NotSupportedError

__all__ = ["arrow_field", "arrow_type"]

PLAIN: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    UnknownType: pa.null(),
}


def arrow_type(iceberg_type: IcebergType, *, spark: bool) -> pa.DataType:
    """The Arrow type of a column's values.

    Args:
        iceberg_type: The column's type.
        spark: True for the form that Spark takes (a uuid as a string, a fixed as binary, a time in nanoseconds);
            False for the form that loses nothing on the way from file to file.

    Raises:
        NotSupportedError: there is no such form.
    """
    plain = PLAIN.get(type(iceberg_type))
    if plain is not None:
        return plain
    match iceberg_type:
        case DecimalType():
            return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
        case UUIDType():
            return pa.string() if spark else pa.uuid()
        case FixedType():
            return pa.binary() if spark else pa.binary(len(iceberg_type))
        case TimeType():
            return pa.time64("ns" if spark else "us")
        case TimestampNanoType() | TimestamptzNanoType() if not spark:
            return pa.timestamp("ns", tz="UTC" if isinstance(iceberg_type, TimestamptzNanoType) else None)
        case StructType():
            return pa.struct([arrow_field(child, spark=spark) for child in iceberg_type.fields])
        case ListType():
            return pa.list_(arrow_field(iceberg_type.element_field, spark=spark))
        case MapType():
            key = arrow_field(iceberg_type.key_field, spark=spark).with_nullable(False)
            return pa.map_(key, arrow_field(iceberg_type.value_field, spark=spark))
    raise NotSupportedError(
        f"Columns of the type {iceberg_type} cannot be read",
        kind=ErrorKind.NOT_SUPPORTED,
        hint="Leave the column out of the statement: columns that a statement does not name are copied as they are",
    )


def arrow_field(field: NestedField, *, spark: bool) -> pa.Field:
    """The Arrow field of a column, with its id as Parquet writers expect it.

    Raises:
        NotSupportedError: its type has no such form.
    """
    metadata = None if spark else {b"PARQUET:field_id": str(field.field_id).encode()}
    return pa.field(field.name, arrow_type(field.field_type, spark=spark), metadata=metadata)
