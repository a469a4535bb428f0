"""The Arrow schema of new data files. Worker-safe.

Input: the table's Iceberg schema. Output: Arrow fields with field ids and requiredness, as Parquet writers take them.
Spec: "Primitive Types", "Reserved Field IDs", "Appendix A: Parquet".
"""

import pyarrow as pa
from pyiceberg.schema import Schema
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

from dml.errors import NotSupportedError
from dml.model import columns

__all__ = ["LINEAGE_FIELDS", "PARQUET_FIELD_ID", "arrow_field", "arrow_type", "lineage_columns", "stored_columns"]

PARQUET_FIELD_ID = b"PARQUET:field_id"

PLAIN: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
}

LINEAGE_FIELDS = (
    NestedField(columns.ROW_ID_ID, columns.ROW_ID, LongType(), required=False),
    NestedField(
        columns.LAST_UPDATED_SEQUENCE_NUMBER_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER, LongType(), required=False
    ),
)
"""The columns of row lineage in files of updated or carried rows."""


def arrow_type(iceberg_type: IcebergType, column: str) -> pa.DataType:
    """The Arrow type that holds a column without loss.

    Raises:
        NotSupportedError: values of the type cannot be written.
    """
    plain = PLAIN.get(type(iceberg_type))
    if plain is not None:
        return plain
    match iceberg_type:
        case DecimalType():
            return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
        case FixedType():
            return pa.binary(len(iceberg_type))
        case StructType():
            return pa.struct([arrow_field(field, column) for field in iceberg_type.fields])
        case ListType():
            return pa.list_(arrow_field(iceberg_type.element_field, column))
        case MapType():
            return pa.map_(arrow_field(iceberg_type.key_field, column), arrow_field(iceberg_type.value_field, column))
    raise NotSupportedError(
        f"Rows cannot be written into the column '{column}': it holds values of the type {iceberg_type}",
        hint="DELETE in merge-on-read mode works, as it writes no rows",
        column=column,
    )


def arrow_field(field: NestedField, column: str | None = None) -> pa.Field:
    """The Arrow field of a column or of a field inside one.

    Args:
        field: The field.
        column: The column that it is in, for messages; None for a column itself.

    Raises:
        NotSupportedError: values of its type cannot be written.
    """
    metadata = {PARQUET_FIELD_ID: str(field.field_id).encode()}
    target = arrow_type(field.field_type, column or field.name)
    return pa.field(field.name, target, nullable=not field.required, metadata=metadata)


def stored_columns(schema: Schema) -> tuple[NestedField, ...]:
    """The columns that data files hold: columns of the type `unknown` hold nothing but NULL and are left out."""
    return tuple(field for field in schema.fields if not isinstance(field.field_type, UnknownType))


def lineage_columns(*, row_lineage: bool) -> tuple[NestedField, ...]:
    """The columns of row lineage, where a file has them."""
    return LINEAGE_FIELDS if row_lineage else ()
