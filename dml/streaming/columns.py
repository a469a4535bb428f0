"""The columns of a streaming query as those of a table. Driver.

Input: the query's schema and the table's. Output: for each column of the table where its values come from. Spark does
not look whether the rows of a stream fit a table, nor does it cast them, so this is done here, by the reference's
rules: columns are found by name, one that is left out gets the table's default or NULL, and a type may be narrower than
the table's where Iceberg could widen it. Source: Iceberg documentation, "Spark Structured Streaming".
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
        stream: The query's columns.
        schema: The table's.
        table: Its name, for errors.
        case_sensitive: How names match.
        rows: What brings the rows, for errors.

    Raises:
        AnalysisError: the query has a column that the table has not, lacks one that the table requires, has one of a
            type that does not fit, or has two of one name.
    """
    places: dict[str, int] = {}
    for place, column in enumerate(stream.fields):
        name = column.name if case_sensitive else column.name.lower()
        if name in places:
            raise AnalysisError(
                f"The {rows} has two columns '{column.name}'",
                kind=ErrorKind.AMBIGUOUS_COLUMN,
                hint="Give one of them another name, or leave it out",
                column=column.name,
            )
        places[name] = place
    found = tuple(matched(stream, schema, table, places, case_sensitive=case_sensitive, rows=rows))
    for place in places.values():
        unknown = stream.fields[place].name
        raise AnalysisError(
            f"The {rows} has a column '{unknown}' which the table {table} has not",
            kind=ErrorKind.UNRESOLVED_COLUMN,
            hint="Leave it out, give it the name of a column, or add a column with ALTER TABLE ... ADD COLUMNS. "
            + did_you_mean(unknown, [field.name for field in schema.fields]),
            column=unknown,
        )
    return found


def matched(
    stream: spark.StructType, schema: Schema, table: str, places: dict[str, int], *, case_sensitive: bool, rows: str
) -> Iterator[StreamColumn]:
    """For each column of the table where its values come from; the places that are taken leave the dictionary."""
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
    """The value of a column that the stream leaves out.

    Raises:
        AnalysisError: the table requires one, and has no default.
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
    """Whether values of a type can be written into a column of another as they are, or after a widening of Iceberg's.

    Args:
        source: The type of the values.
        target: That of the column.
        case_sensitive: How names of fields match.
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
