"""Hash the partition of a row in Spark: rows of one partition have the same number. Driver.

Input: a partition spec, the table's schema, the names of the rows' columns. Output: a Column of type int. Spark
computes it from built-in expressions, without a Python worker. It only groups rows: the writer computes the partitions
itself, so hash collisions are harmless.

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

__all__ = ["partition_number", "partition_number_sql", "sort_field_sql"]

TEMPORAL: Final[Mapping[type[object], str]] = {
    transforms.YearTransform: "years",
    transforms.MonthTransform: "months",
    transforms.DayTransform: "days",
}


def partition_number(spec: PartitionSpec, schema: Schema, column_name: Callable[[int], str]) -> Column:
    """Return a number that is equal for rows of one partition.

    Args:
        spec: The partition spec.
        schema: The table's schema.
        column_name: Returns the name of the rows' column for an index in the schema.

    Raises:
        NotSupportedError: the spec has an unknown transform.
    """
    return expr(partition_number_sql(spec, schema, column_name))


def partition_number_sql(spec: PartitionSpec, schema: Schema, column_name: Callable[[int], str]) -> str:
    """Return `partition_number` as SQL text."""
    values = [
        text for field in spec.fields for text in field_values(field, tuple(source_of(field, schema, column_name)))
    ]
    return f"hash({', '.join(values)})" if values else "0"


def sort_field_sql(field: SortField, schema: Schema, column_name: Callable[[int], str]) -> str | None:
    """Return SQL for a field of a sort order.

    Returns:
        The text, empty if the value is the same for all rows; None if the transform is unknown or its column dropped.
    """
    if isinstance(field.transform, transforms.UnknownTransform):
        return None
    if isinstance(field.transform, transforms.VoidTransform):
        return ""
    return next(apply_transform(field.transform, source_of(field, schema, column_name)), None)


def source_of(
    field: PartitionField | SortField, schema: Schema, column_name: Callable[[int], str]
) -> Iterator[tuple[str, IcebergType]]:
    """Yield the source column or nested field, as SQL text, and its type; yield nothing if it has been dropped."""
    for place, column in enumerate(schema.fields):
        found = find_path(field.source_id, column)
        if found is not None:
            names, kind = found
            yield ".".join([column_name(place), *map(quoted, names)]), kind


def find_path(field_id: int, field: NestedField) -> tuple[tuple[str, ...], IcebergType] | None:
    """Return the path from a field to the field with an id, and that field's type; None if there is none."""
    if field.field_id == field_id:
        return (), field.field_type
    for child in field.field_type.fields if isinstance(field.field_type, StructType) else ():
        found = find_path(field_id, child)
        if found is not None:
            return (child.name, *found[0]), found[1]
    return None


def field_values(field: PartitionField, source: Sequence[tuple[str, IcebergType]]) -> Iterator[str]:
    """Yield SQL for a partition field's value; yield nothing if it is the same for all rows.

    Raises:
        NotSupportedError: its transform is unknown.
    """
    transform = field.transform
    if isinstance(transform, transforms.UnknownTransform):
        raise NotSupportedError(
            f"Cannot write using unsupported transforms: the partition field '{field.name}' is {transform}",
            hint="Upgrade RowDelta, or replace the partition field",
        )
    if not isinstance(transform, transforms.VoidTransform):
        yield from apply_transform(transform, source)


def apply_transform(transform: Transform[Any, Any], source: Iterable[tuple[str, IcebergType]]) -> Iterator[str]:
    """Yield SQL that applies a known transform to the values."""
    for text, kind in source:
        match transform:
            case transforms.BucketTransform():
                yield bucket(text, kind, transform.num_buckets)
            case transforms.TruncateTransform():
                yield truncate_sql(text, kind, transform.width)
            case transforms.HourTransform():
                yield hour_number(text, type_of(kind))
            case _ if type(transform) in TEMPORAL:
                yield expression(TEMPORAL[type(transform)], [text], (type_of(kind),))
            case _ if isinstance(kind, TimeType):
                yield micros_of_day(text)  # Spark cannot hash TIME
            case _:
                yield text


def type_of(kind: IcebergType) -> SparkType:
    if isinstance(kind, DecimalType):
        return SparkType("DECIMAL", kind.precision, kind.scale)
    return SparkType(spark_type(kind).simpleString().upper())


def bucket(text: str, kind: IcebergType, buckets: int) -> str:
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


def truncate_sql(text: str, kind: IcebergType, width: int) -> str:
    if isinstance(kind, DecimalType) and kind.precision > MOST_DIGITS:
        return f"try_subtract({unscale(text, kind)}, pmod({unscale(text, kind)}, CAST({width} AS DECIMAL(10,0))))"
    if isinstance(kind, LongType):  # the multiple may be below the smallest BIGINT
        return f"try_subtract({text}, pmod({text}, CAST({width} AS BIGINT)))"
    return expression("truncate", [str(width), text], (SparkType("INT"), type_of(kind)))


def micros_of_day(text: str) -> str:
    """Return SQL for the microseconds of a time since midnight."""
    seconds = f"hour({text}) * 3600 + minute({text}) * 60 + extract(SECOND FROM {text})"
    return f"CAST(({seconds}) * 1000000 AS BIGINT)"


def unscale(text: str, kind: DecimalType) -> str:
    """Return SQL for a decimal's unscaled value: a product could exceed 38 digits, a cast could return `1E-20`."""
    return f"CAST(translate(format_number({text}, {kind.scale}), ',.', '') AS DECIMAL(38,0))"


def wide_decimal_bytes(text: str, kind: DecimalType) -> str:
    """Return SQL for the minimal two's complement of the unscaled value of a decimal of more than 18 digits."""
    value = unscale(text, kind)
    word, half = "CAST('18446744073709551616' AS DECIMAL(20,0))", "CAST('4294967296' AS DECIMAL(10,0))"
    low = f"CAST(pmod({value}, {word}) AS DECIMAL(20,0))"
    rest = f"({value} % {word})"  # has the value's sign, so that the difference has no more digits than the value
    high = f"(CAST(({value} - {rest}) / {word} AS BIGINT) - IF({rest} < 0, 1, 0))"
    digits = (
        f"concat(lpad(hex({high}), 16, '0'), lpad(hex(CAST({low} div {half} AS BIGINT)), 8, '0'), "
        f"lpad(hex(CAST(pmod({low}, {half}) AS BIGINT)), 8, '0'))"
    )
    positive = f"regexp_replace({digits}, '^(?:00)+(?=[0-7].)', '')"
    return f"unhex(regexp_replace({positive}, '^(?:FF)+(?=[89A-F].)', ''))"
