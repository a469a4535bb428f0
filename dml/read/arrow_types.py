"""Iceberg types as the Arrow types that the scan reads: as files have them, or as Spark takes them. Worker-safe.

Input: Iceberg types. Output: Arrow types. Every Arrow field is nullable: what a table requires is checked where rows
are written. For the forms that Spark takes, see `pyspark.sql.pandas.types`.
"""

from functools import partial

import pyarrow as pa
from pyiceberg.types import (
    FixedType,
    IcebergType,
    NestedField,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
    UnknownType,
    UUIDType,
)

from dml.errors import ErrorKind, NotSupportedError
from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, primitive_arrow_type

__all__ = ["arrow_field", "arrow_type"]

FOR_SPARK: dict[type[IcebergType], pa.DataType | None] = {
    UUIDType: pa.string(),
    FixedType: pa.binary(),
    TimeType: pa.time64("ns"),
    TimestampNanoType: None,
    TimestamptzNanoType: None,
}
"""Where Spark takes another form than files have, or none."""


def arrow_type(iceberg_type: IcebergType, *, spark: bool) -> pa.DataType:
    """The Arrow type of a column's values.

    Args:
        iceberg_type: The column's type.
        spark: True for the form that Spark takes (a uuid as a string, a fixed as binary, a time in nanoseconds);
            False for the form that loses nothing on the way from file to file.

    Raises:
        NotSupportedError: there is no such form.
    """
    return arrow_type_of(iceberg_type, partial(readable, spark=spark), partial(arrow_field, spark=spark))


def readable(primitive: IcebergType, *, spark: bool) -> pa.DataType:
    """The Arrow type of a primitive type.

    Raises:
        NotSupportedError: there is no such form.
    """
    if isinstance(primitive, UnknownType):
        return pa.null()
    differs = spark and type(primitive) in FOR_SPARK
    found = FOR_SPARK[type(primitive)] if differs else primitive_arrow_type(primitive)
    if found is None:
        raise NotSupportedError(
            f"Columns of the type {primitive} cannot be read",
            kind=ErrorKind.NOT_SUPPORTED,
            hint="Leave the column out of the statement: columns that a statement does not name are copied as they are",
        )
    return found


def arrow_field(field: NestedField, *, spark: bool) -> pa.Field:
    """The Arrow field of a column, with its id as Parquet writers expect it.

    Raises:
        NotSupportedError: its type has no such form.
    """
    metadata = None if spark else {PARQUET_FIELD_ID: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type(field.field_type, spark=spark), metadata=metadata)
