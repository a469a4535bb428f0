"""Match the columns of a streaming query with those of a table. Driver.

Input: the query's schema and the table's. Output: the source of each table column's values. Spark neither checks
whether the rows of a stream fit a table nor casts them, so this module applies the reference's rules: columns match by
name, a missing column gets the table's default or NULL, and a type may be narrower than the table's if Iceberg can
promote it. Source: Iceberg documentation, "Spark Structured Streaming".
"""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import types as spark

from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.read.projection import constant_array
from dml.spark.types import shown_type, spark_type
from dml.write.delta_writer import StreamColumn

__all__ = ["stream_columns", "widens_to"]

INTEGRALS = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)


def stream_columns(
    stream: spark.StructType, schema: Schema, table: str, *, case_sensitive: bool, rows: str = "stream"
) -> tuple[StreamColumn, ...]:
    """Find the columns of a table in a streaming query.

    Args:
        stream: The query's schema.
        schema: The table's schema.
        table: The table's name, for errors.
        case_sensitive: True if names match case-sensitively.
        rows: What the rows come from, for errors: "stream" or "DataFrame".

    Raises:
        AnalysisError: The query has a column that the table lacks, lacks one that the table requires, has one of a
            type that does not fit, or has two of one name.
    """
    places: dict[str, int] = {}
    for place, column in enumerate(stream.fields):
        name = column.name if case_sensitive else column.name.lower()
        if name in places:
            raise AnalysisError(
                f"The {rows} has two columns '{column.name}'",
                kind=ErrorKind.AMBIGUOUS_COLUMN,
                hint="Rename or drop one of them",
                column=column.name,
            )
        places[name] = place
    found = tuple(match_columns(stream, schema, table, places, case_sensitive=case_sensitive, rows=rows))
    for place in places.values():
        unknown = stream.fields[place].name
        raise AnalysisError(
            f"The {rows} has a column '{unknown}', which the table {table} does not have",
            kind=ErrorKind.UNRESOLVED_COLUMN,
            hint="Drop it, rename it, or add a column with ALTER TABLE ... ADD COLUMNS. "
            + did_you_mean(unknown, [field.name for field in schema.fields]),
            column=unknown,
        )
    return found


def match_columns(
    stream: spark.StructType, schema: Schema, table: str, places: dict[str, int], *, case_sensitive: bool, rows: str
) -> Iterator[StreamColumn]:
    """Yield the source of each table column and remove the places that were used from `places`."""
    for field in schema.fields:
        place = places.pop(field.name if case_sensitive else field.name.lower(), None)
        if place is None:
            yield StreamColumn(default=default_of(field, table, rows))
            continue
        source, target = stream.fields[place].dataType, spark_type(field.field_type)
        if not widens_to(source, target, case_sensitive=case_sensitive):
            raise AnalysisError(
                f"The {rows}'s column '{stream.fields[place].name}' is {shown_type(source)}, and that of the table "
                f"{table} is {shown_type(target)}",
                kind=ErrorKind.TYPE_MISMATCH,
                hint=f"Cast it before: col('{field.name}').cast('{target.simpleString()}')",
                column=field.name,
            )
        yield StreamColumn(place=place)


def default_of(field: NestedField, table: str, rows: str) -> pa.Array:
    """Return the value of a column that the stream lacks, as an array of length 1.

    Raises:
        AnalysisError: The column is required and has no default.
    """
    if field.required and field.write_default is None:
        raise AnalysisError(
            f"The {rows} has no column '{field.name}', and the table {table} requires one",
            kind=ErrorKind.UNRESOLVED_COLUMN,
            hint=f"Add it, or run ALTER TABLE ... ALTER COLUMN {field.name} DROP NOT NULL",
            column=field.name,
        )
    if field.write_default is None:
        return pa.nulls(1)
    return constant_array(field.write_default, field.field_type, 1, spark=True)


def widens_to(source: spark.DataType, target: spark.DataType, *, case_sensitive: bool) -> bool:
    """Return True if values can be written to a column of another type unchanged or after an Iceberg type promotion.

    Args:
        source: The type of the values.
        target: The type of the column.
        case_sensitive: True if names of fields match case-sensitively.
    """
    match source, target:
        case spark.NullType(), _:
            return True
        case spark.StructType(fields=given), spark.StructType(fields=wanted):
            return len(given) == len(wanted) and all(
                (one.name == other.name or (not case_sensitive and one.name.lower() == other.name.lower()))
                and widens_to(one.dataType, other.dataType, case_sensitive=case_sensitive)
                for one, other in zip(given, wanted, strict=True)
            )
        case spark.ArrayType(elementType=given), spark.ArrayType(elementType=wanted):
            return widens_to(given, wanted, case_sensitive=case_sensitive)
        case spark.MapType(), spark.MapType():
            return widens_to(source.keyType, target.keyType, case_sensitive=case_sensitive) and widens_to(
                source.valueType, target.valueType, case_sensitive=case_sensitive
            )
        case ((spark.VarcharType() | spark.CharType()), spark.StringType()):
            return True
        case spark.DecimalType(), spark.DecimalType():
            return source.scale == target.scale and source.precision <= target.precision
        case spark.FloatType(), spark.DoubleType():
            return True
        case spark.IntegralType(), spark.IntegralType():
            return INTEGRALS.index(type(source)) <= INTEGRALS.index(type(target))
        case _:
            return source.simpleString() == target.simpleString()
