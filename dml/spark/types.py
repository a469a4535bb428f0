"""Iceberg types as Spark types, and Spark types as SQL text. Driver.

Source: Iceberg documentation, "Spark writes: type compatibility". A type that Spark lacks is mapped to a type that
holds its values: uuid to string, fixed to binary. Every field is nullable: a scan may be on the optional side of a
join, and NOT NULL columns are checked when rows are written.
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql import types as spark

from dml.errors import NotSupportedError
from dml.model.arrow_types import primitive_name
from dml.pyiceberg_patch import VariantType
from dml.sqlparse.quoting import quote_identifier, quoted

__all__ = ["iceberg_type", "shown_type", "spark_field", "spark_type", "type_text"]

PLAIN: dict[type[IcebergType], type[spark.DataType]] = {
    BooleanType: spark.BooleanType,
    IntegerType: spark.IntegerType,
    LongType: spark.LongType,
    FloatType: spark.FloatType,
    DoubleType: spark.DoubleType,
    StringType: spark.StringType,
    UUIDType: spark.StringType,
    BinaryType: spark.BinaryType,
    FixedType: spark.BinaryType,
    DateType: spark.DateType,
    TimestampType: spark.TimestampNTZType,
    TimestamptzType: spark.TimestampType,
    UnknownType: spark.NullType,
}

ICEBERG_TYPES: Final = {
    kind: iceberg() for iceberg, kind in PLAIN.items() if iceberg not in {FixedType, StringType, UnknownType, UUIDType}
}
"""The Iceberg type of each Spark type that comes from exactly one."""


def spark_type(iceberg_type: IcebergType) -> spark.DataType:
    """Return the Spark type of an Iceberg type.

    Raises:
        NotSupportedError: Spark has no such type.
    """
    plain = PLAIN.get(type(iceberg_type))
    if plain is not None:
        return plain()
    match iceberg_type:
        case DecimalType():
            return spark.DecimalType(iceberg_type.precision, iceberg_type.scale)
        case TimeType() if hasattr(spark, "TimeType"):
            return spark.TimeType(6)
        case VariantType() if hasattr(spark, "VariantType"):
            return spark.VariantType()
        case StructType():
            return spark.StructType([spark_field(child) for child in iceberg_type.fields])
        case ListType():
            return spark.ArrayType(spark_type(iceberg_type.element_type), containsNull=True)
        case MapType():
            key, value = spark_type(iceberg_type.key_type), spark_type(iceberg_type.value_type)
            return spark.MapType(key, value, valueContainsNull=True)
    raise NotSupportedError(
        f"Spark has no type for columns of the type {primitive_name(iceberg_type)}",
        hint="Leave the column out of the statement: columns that a statement does not name are copied unchanged",
    )


def iceberg_type(kind: spark.DataType) -> IcebergType | None:
    """Return the primitive Iceberg type of a Spark type; None if there is none, as for strings with a collation."""
    if isinstance(kind, spark.DecimalType):
        return DecimalType(kind.precision, kind.scale)
    return StringType() if kind == spark.StringType() else ICEBERG_TYPES.get(type(kind))


def spark_field(field: NestedField) -> spark.StructField:
    """Return the Spark field of a column.

    Raises:
        NotSupportedError: Spark has no type for it.
    """
    return spark.StructField(field.name, spark_type(field.field_type), nullable=True)


def type_text(kind: spark.DataType) -> str:
    """Format a type as SQL text that parses to the same type, with quoted field names."""
    if isinstance(kind, spark.StructType):
        return "struct<" + ", ".join(f"{quoted(f.name)}: {type_text(f.dataType)}" for f in kind.fields) + ">"
    if isinstance(kind, spark.ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, spark.MapType):
        return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    return kind.simpleString()


def shown_type(kind: spark.DataType) -> str:
    """Format a type for messages: SQL text with keywords in capitals, and field names quoted only if needed."""
    match kind:
        case spark.StructType():
            fields = (f"{quote_identifier(field.name)}: {shown_type(field.dataType)}" for field in kind.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case spark.ArrayType():
            return f"ARRAY<{shown_type(kind.elementType)}>"
        case spark.MapType():
            return f"MAP<{shown_type(kind.keyType)}, {shown_type(kind.valueType)}>"
    return kind.simpleString().upper()
