"""Derive keys for rows and files of the target from the equalities of a MERGE's ON condition. Driver.

Input: a target column and the type of the source column that it equals. Output: SQL that Spark computes for each row of
the source, in the type of the target's column, so that Spark's own casts, time zone and settings apply.

If the SQL is exact, tasks decide the equality row by row. If it is not, and the column's type has bounds, it prunes
files: a target row can match only if its value lies within a margin of the SQL's value. The rules are those by which
Spark converts the two sides of `=` to one type, as far as they are the same in ANSI and legacy mode.
"""

from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
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
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark

from dml import limits
from dml.errors import NotSupportedError
from dml.plan.comparisons import TableColumn
from dml.pruning.key_ranges import KeyRanges, range_between, ranges_of
from dml.spark.types import spark_type, type_text

__all__ = ["PruningKey", "pruning_key"]

MAX_DIGITS: Final = 38
DIGITS: Final[dict[type[spark.DataType], int]] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 20,
}
"""Digits of the decimal to which Spark converts an integer to compare it with a decimal."""

DAY: Final = 86_400_000_000
"""Microseconds. No clock change in history skipped more than a day."""

UUID_TEXT: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
"""The text form of a UUID column in Spark: no other text equals one of its values."""

FLOATING: Final = (FloatType, DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningKey:
    """A key that prunes files.

    Attributes:
        column: The target's column or nested field.
        name: The source's column, quoted.
        sql: The source's value in the type of the column (a UUID as its 16 bytes); NULL if no value equals it.
        is_exact: Whether a value of the column equals the source's value if and only if it equals that of the SQL, NULL
            included if `null_safe`.
        margin: The maximum distance of an equal value of the column from it, in days or microseconds.
        null_safe: Whether a NULL of the source matches NULL.
    """

    column: TableColumn
    name: str
    sql: str
    is_exact: bool
    margin: int = 0
    null_safe: bool = False

    def ranges(self, keys: pa.ChunkedArray) -> KeyRanges:
        """Return the ranges of the source's values."""
        # With a margin, each listed key would become a range.
        return ranges_of(self.column.field_type, keys, most_listed=0 if self.margin else limits.MAX_LISTED_KEYS)

    def ends(self, name: str, place: int) -> tuple[str, ...]:
        """Return the SQL of the aggregates from which `between` makes a range.

        Args:
            name: The column of the source's values.
            place: The index of the key, which is part of the names of the aggregates.
        """
        is_nan = f"isnan({name})" if isinstance(self.column.field_type, FLOATING) else "FALSE"
        value = f"IF({is_nan}, NULL, {name})"
        return (
            f"min({value}) AS least{place}",
            f"max({value}) AS greatest{place}",
            f"bool_or({is_nan}) AS nans{place}",
            f"bool_or({name} IS NULL) AS nulls{place}",
        )

    def between(self, ends: pa.Table, place: int) -> KeyRanges:
        """Return the one range of the source's values.

        Args:
            ends: One row with the aggregates of `ends`.
            place: The index of the key.
        """
        least, greatest, nans, nulls = (
            ends.column(f"{name}{place}") for name in ("least", "greatest", "nans", "nulls")
        )
        return range_between(
            self.column.field_type, least, greatest, nulls=bool(nulls[0].as_py()), nans=bool(nans[0].as_py())
        )

    def row_filter(self, keys: KeyRanges) -> BooleanExpression:
        """Return a filter for the target's rows that may equal a key in the ranges."""
        found = replace(keys, nulls=keys.nulls and self.null_safe)
        return (found.widen(self.margin) if self.margin else found).expression(self.column.name)


def casts_exactly(source: spark.DataType, kind: IcebergType) -> bool:
    """Return whether a target value equals a source value exactly when it equals its `exact_sql`."""
    match kind:
        case IntegerType() | LongType() if isinstance(source, spark.IntegralType):
            return True
        case IntegerType() | LongType() | DecimalType():
            return compares_as_decimal(source, kind)
        case StringType() | DateType() | BooleanType() | BinaryType():
            return bool(source == spark_type(kind))
        case TimestamptzType():
            return isinstance(source, (spark.TimestampType, spark.TimestampNTZType, spark.DateType))
        case TimestampType():
            return isinstance(source, (spark.TimestampNTZType, spark.DateType))
        case FloatType():
            # An integer is compared with a float as a float or, in ANSI mode, as a double.
            return isinstance(source, spark.FractionalType)
        case DoubleType():
            return isinstance(source, spark.NumericType)
    return False


def widens(source: spark.DataType, kind: IcebergType) -> bool:
    """Return whether `exact_sql` is NULL for NULL alone: a value that does not fit must not match NULL."""
    if isinstance(kind, LongType) and isinstance(source, spark.IntegralType):
        return True
    return isinstance(kind, DoubleType) or bool(source == spark_type(kind))


def exact_sql(name: str, source: spark.DataType, kind: IcebergType) -> str:
    """Return SQL for a source column in the type of the target's; NULL for a value that no target value equals."""
    cast = f"try_cast({name} AS {type_text(spark_type(kind))})"
    # A cast to a smaller scale rounds, and so does a cast to a float.
    rounds = isinstance(source, spark.DecimalType) or isinstance(kind, FloatType)
    return f"IF({cast} = {name}, {cast}, NULL)" if rounds else cast


def compares_as_decimal(source: spark.DataType, kind: IcebergType) -> bool:
    """Return whether Spark compares the two types as decimals without rounding either."""
    one, other = decimal_size(source), decimal_size(spark_type(kind))
    if one is None or other is None:
        return False
    return max(one[0], other[0]) + max(one[1], other[1]) <= MAX_DIGITS


def decimal_size(kind: spark.DataType) -> tuple[int, int] | None:
    """Return the digits before and after the point of the decimal that Spark uses for a type; None if it uses none."""
    if isinstance(kind, spark.DecimalType):
        return kind.precision - kind.scale, kind.scale
    digits = DIGITS.get(type(kind))
    return None if digits is None else (digits, 0)


def pruning_key(name: str, source: spark.DataType, column: TableColumn, *, null_safe: bool) -> PruningKey | None:
    """Return the key by which an equality prunes files; None if its types allow no pruning.

    Args:
        name: The source's column, quoted.
        source: The type of the source's column.
        column: The target's column.
        null_safe: Whether the operator is `<=>`.
    """
    if casts_exactly(source, column.field_type):
        sql = exact_sql(name, source, column.field_type)
        is_exact = not null_safe or widens(source, column.field_type)
        return PruningKey(column=column, name=name, sql=sql, is_exact=is_exact, null_safe=null_safe)
    found = enclosing_sql(name, source, column.field_type)
    if found is None:
        return None
    sql, margin = found
    return PruningKey(column=column, name=name, sql=sql, is_exact=False, margin=margin, null_safe=null_safe)


def enclosing_sql(name: str, source: spark.DataType, kind: IcebergType) -> tuple[str, int] | None:
    """Return SQL for the source's value in the target column's type, and the maximum distance of equal values."""
    try:
        cast = f"try_cast({name} AS {type_text(spark_type(kind))})"
    except NotSupportedError:
        return None
    match kind, source:
        case FloatType(), spark.NumericType():
            # An integer can only equal its nearest float.
            return cast, 0
        case UUIDType(), spark.StringType() if source == spark.StringType():
            return f"IF({name} RLIKE '{UUID_TEXT}', unhex(replace({name}, '-')), NULL)", 0
        case FixedType(), spark.BinaryType():
            return f"IF(octet_length({name}) = {len(kind)}, {name}, NULL)", 0
        case TimeType(), _ if source == spark_type(kind):
            return name, 0
        case TimestampType(), spark.TimestampType():
            # Spark compares instants. A local time that a clock change skips belongs to another instant.
            return cast, DAY
        case DateType(), (spark.TimestampType() | spark.TimestampNTZType()):
            return cast, 1
    return None
