"""Which partition a row belongs to, as a number that Spark computes: rows of one partition have the same. Driver.

Input: a partition spec, the table's schema, how the rows' columns are called. Output: a Column of type int. Spark
computes it from expressions of its own, without a Python worker. It says only which rows belong together: the writer
finds the partitions themselves, so a number that two partitions share makes no row wrong.

Source: Iceberg specification, "Partition Transforms" and "Appendix B: 32-bit Hash Requirements".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyiceberg import transforms
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import Transform
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    LongType,
    NestedField,
    StructType,
    TimeType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql.functions import expr

from dml.errors import NotSupportedError
from dml.spark.iceberg_functions import MOST_DIGITS, SparkType, expression, hash_of_bytes, hour_number
from dml.spark.types import spark_type
from dml.sqlparse.quoting import quoted

__all__ = ["partition_number", "partition_number_sql", "transformed_sql"]

TEMPORAL: Final[Mapping[type[object], str]] = {
    transforms.YearTransform: "years",
    transforms.MonthTransform: "months",
    transforms.DayTransform: "days",
}


def partition_number(spec: PartitionSpec, schema: Schema, column_name: Callable[[int], str]) -> Column:
    """A number that is equal for rows of one partition.

    Args:
        spec: The partition spec.
        schema: The table's schema.
        column_name: The name of the rows' column for the column at a place of the schema.

    Raises:
        NotSupportedError: the spec has a transform that is not known.
    """
    return expr(partition_number_sql(spec, schema, column_name))


def partition_number_sql(spec: PartitionSpec, schema: Schema, column_name: Callable[[int], str]) -> str:
    """As `partition_number`, as SQL text."""
    values = [
        text for field in spec.fields for text in field_values(field, tuple(source_of(field, schema, column_name)))
    ]
    return f"hash({', '.join(values)})" if values else "0"


def transformed_sql(field: SortField, schema: Schema, column_name: Callable[[int], str]) -> str | None:
    """What a field of a sort order makes of a row, as SQL text: empty if that is the same for all rows.

    Returns:
        The text; None where its transform is not known, or its column is gone.
    """
    if isinstance(field.transform, transforms.UnknownTransform):
        return None
    if isinstance(field.transform, transforms.VoidTransform):
        return ""
    return next(transformed(field.transform, source_of(field, schema, column_name)), None)


def source_of(
    field: PartitionField | SortField, schema: Schema, column_name: Callable[[int], str]
) -> Iterator[tuple[str, IcebergType]]:
    """The column or nested field that a partition field is made of, as SQL text; none if it is gone."""
    for place, column in enumerate(schema.fields):
        found = nested(field.source_id, column)
        if found is not None:
            names, kind = found
            yield ".".join([column_name(place), *map(quoted, names)]), kind


def nested(field_id: int, field: NestedField) -> tuple[tuple[str, ...], IcebergType] | None:
    """The names from a field down to the one with an id, and its type."""
    if field.field_id == field_id:
        return (), field.field_type
    for child in field.field_type.fields if isinstance(field.field_type, StructType) else ():
        found = nested(field_id, child)
        if found is not None:
            return (child.name, *found[0]), found[1]
    return None


def field_values(field: PartitionField, source: Sequence[tuple[str, IcebergType]]) -> Iterator[str]:
    """A partition field's value as SQL text; none for a field that is the same for all rows.

    Raises:
        NotSupportedError: its transform is not known.
    """
    transform = field.transform
    if isinstance(transform, transforms.UnknownTransform):
        raise NotSupportedError(
            f"Cannot write using unsupported transforms: the partition field '{field.name}' is {transform}",
            hint="Upgrade RowDelta, or replace the partition field",
        )
    if not isinstance(transform, transforms.VoidTransform):
        yield from transformed(transform, source)


def transformed(transform: Transform[Any, Any], source: Iterable[tuple[str, IcebergType]]) -> Iterator[str]:
    """What a known transform makes of values, as SQL text."""
    for text, kind in source:
        match transform:
            case transforms.BucketTransform():
                yield bucket(text, kind, transform.num_buckets)
            case transforms.TruncateTransform():
                yield truncated(text, kind, transform.width)
            case transforms.HourTransform():
                yield hour_number(text, type_of(kind))
            case _ if type(transform) in TEMPORAL:
                yield expression(TEMPORAL[type(transform)], [text], (type_of(kind),))
            case _ if isinstance(kind, TimeType):
                yield micros_of_day(text)  # Spark hashes no times
            case _:
                yield text


def type_of(kind: IcebergType) -> SparkType:
    """The type of a column's values in Spark."""
    if isinstance(kind, DecimalType):
        return SparkType("DECIMAL", kind.precision, kind.scale)
    return SparkType(spark_type(kind).simpleString().upper())


def bucket(text: str, kind: IcebergType, buckets: int) -> str:
    """The bucket of a value."""
    arguments, number = [str(buckets), text], SparkType("INT")
    match kind:
        case UUIDType():
            return expression(
                "bucket", [str(buckets), f"unhex(replace({text}, '-', ''))"], (number, SparkType("BINARY"))
            )
        case TimeType():
            return expression("bucket", [str(buckets), micros_of_day(text)], (number, SparkType("BIGINT")))
        case DecimalType() if kind.precision > MOST_DIGITS:
            hashed = hash_of_bytes(wide_decimal_bytes(text, kind))
            return f"CASE WHEN {text} IS NOT NULL THEN ({hashed} & 2147483647) % {buckets} END"
    return expression("bucket", arguments, (number, type_of(kind)))


def truncated(text: str, kind: IcebergType, width: int) -> str:
    """A value cut to a width."""
    if isinstance(kind, DecimalType) and kind.precision > MOST_DIGITS:
        return f"try_subtract({unscaled(text, kind)}, pmod({unscaled(text, kind)}, CAST({width} AS DECIMAL(10,0))))"
    if isinstance(kind, LongType):  # the least multiple may lie below the least BIGINT
        return f"try_subtract({text}, pmod({text}, CAST({width} AS BIGINT)))"
    return expression("truncate", [str(width), text], (SparkType("INT"), type_of(kind)))


def micros_of_day(text: str) -> str:
    """The microseconds of a time."""
    seconds = f"hour({text}) * 3600 + minute({text}) * 60 + extract(SECOND FROM {text})"
    return f"CAST(({seconds}) * 1000000 AS BIGINT)"


def unscaled(text: str, kind: DecimalType) -> str:
    """The unscaled value of a decimal: a product would need more digits than there are, a cast may give `1E-20`."""
    return f"CAST(translate(format_number({text}, {kind.scale}), ',.', '') AS DECIMAL(38,0))"


def wide_decimal_bytes(text: str, kind: DecimalType) -> str:
    """The unscaled value of a decimal of more than 18 digits as the fewest bytes of two's complement."""
    value = unscaled(text, kind)
    word, half = "CAST('18446744073709551616' AS DECIMAL(20,0))", "CAST('4294967296' AS DECIMAL(10,0))"
    low = f"CAST(pmod({value}, {word}) AS DECIMAL(20,0))"
    rest = f"({value} % {word})"  # of the value's sign, so that the difference has no more digits than the value
    high = f"(CAST(({value} - {rest}) / {word} AS BIGINT) - IF({rest} < 0, 1, 0))"
    digits = (
        f"concat(lpad(hex({high}), 16, '0'), lpad(hex(CAST({low} div {half} AS BIGINT)), 8, '0'), "
        f"lpad(hex(CAST(pmod({low}, {half}) AS BIGINT)), 8, '0'))"
    )
    positive = f"regexp_replace({digits}, '^(?:00)+(?=[0-7].)', '')"
    return f"unhex(regexp_replace({positive}, '^(?:FF)+(?=[89A-F].)', ''))"
