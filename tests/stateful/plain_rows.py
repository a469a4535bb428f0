"""Rows without a table: as a DataFrame of literals, as text to compare, and the partition that each is in."""

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType
from pyspark.sql import DataFrame, SparkSession

__all__ = ["PARTITIONS", "PartitionField", "Row", "frame_of", "partition_of", "shown"]

Row = tuple[Any, ...]

BUCKETS = {count: BucketTransform(count).transform(LongType()) for count in (2, 3)}


@dataclass(frozen=True)
class PartitionField:
    """A partition field as this model has it.

    Attributes:
        column: What it is made of.
        value: From a value of the column, that is not NULL, to that of the field.
    """

    column: str
    value: Callable[[Any], Any] = lambda value: value


PARTITIONS: dict[str, tuple[PartitionField, ...]] = {
    "": (),
    "k": (PartitionField("k"),),
    "bucket(3, id)": (PartitionField("id", BUCKETS[3]),),
    "days(ts)": (PartitionField("ts", lambda value: value.date()),),
    "truncate(2, s)": (PartitionField("s", lambda value: value[:2]),),
    "truncate(2, id), k": (PartitionField("id", lambda value: value - value % 2), PartitionField("k")),
    "bucket(2, id), months(dt)": (
        PartitionField("id", BUCKETS[2]),
        PartitionField("dt", lambda value: (value.year, value.month)),
    ),
    "d": (PartitionField("d"),),
    "m, flag": (PartitionField("m"), PartitionField("flag")),
}


def partition_of(row: Row, columns: dict[str, str], partitions: str) -> str:
    """The partition of a row, as text: NaN equals NaN there, and both zeros differ.

    Args:
        row: The row.
        columns: The names of its values, and their types.
        partitions: The key in `PARTITIONS`.
    """
    values = dict(zip(columns, row, strict=True))
    fields = PARTITIONS[partitions]
    return repr([None if values[one.column] is None else one.value(values[one.column]) for one in fields])


def literal(value: Any, kind: str) -> str:
    """A value of a type as SQL."""
    match value:
        case None:
            text = "NULL"
        case bool() | int() | Decimal():
            text = str(value)
        case float():
            text = "'NaN'" if math.isnan(value) else f"'{value!r}'"
        case str():
            text = f"'{value}'"
        case bytes() | bytearray():
            text = f"X'{value.hex()}'"
        case datetime.datetime() if kind == "TIMESTAMP":  # PySpark gives it in the zone of the process
            text = f"'{value.astimezone(datetime.UTC)}'"
        case datetime.date():
            text = f"'{value}'"
        case tuple():
            named = ", ".join(f"'{name}', {literal(part, of)}" for (name, of), part in zip(PARTS, value, strict=True))
            return f"named_struct({named})"
    return f"CAST({text} AS {kind})"


PARTS = (("a", "INT"), ("b", "STRING"))


def frame_of(spark: SparkSession, columns: dict[str, str], rows: list[Row]) -> DataFrame:
    """Rows as a DataFrame that Spark holds in its plan.

    Args:
        spark: The session.
        columns: Names and types.
        rows: The rows.
    """
    if not rows:
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items())
        return spark.sql(f"SELECT {nothing} WHERE FALSE")
    texts = (", ".join(map(literal, row, columns.values())) for row in rows)
    values = ", ".join(f"({text})" for text in texts)
    return spark.sql(f"SELECT * FROM VALUES {values} AS v({', '.join(columns)})")


def shown(frame: DataFrame) -> list[str]:
    """The rows of a DataFrame as text, in the order of that."""
    return sorted(repr(tuple(row)) for row in frame.collect())
