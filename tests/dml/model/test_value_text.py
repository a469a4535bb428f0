"""Partition values as text, as Iceberg's Java library 1.10.2 writes them into paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from dml.model.transforms import date_text, partition_path, partition_value_text, timestamp_text

LATE = 2_932_897  # +10000-01-01
EARLY = -735_525  # -0044-03-15
DAY = 86_400_000_000
MORNING = 7 * 3_600_000_000 + 59 * 60_000_000 + 59_000_000
IDENTITY: Transform[Any, Any] = IdentityTransform()


@pytest.mark.parametrize(
    ("transform", "kind", "value", "text"),
    [
        (IDENTITY, DateType(), LATE + 152, "10000-06-01"),
        (IDENTITY, DateType(), EARLY, "-044-03-15"),
        (IDENTITY, DateType(), 19_723, "2024-01-01"),
        (IDENTITY, TimestamptzType(), LATE * DAY + MORNING, "+10000-01-01T07:59:59+00:00"),
        (IDENTITY, TimestamptzType(), -719_162 * DAY - 8 * 3_600_000_000, "0000-12-31T16:00:00+00:00"),
        (IDENTITY, TimestamptzType(), 19_723 * DAY, "2024-01-01T00:00:00+00:00"),
        (IDENTITY, TimestampType(), LATE * DAY + MORNING + 500_000, "+10000-01-01T07:59:59.5"),
        (IDENTITY, TimestampType(), EARLY * DAY, "-0044-03-15T00:00:00"),
        (IDENTITY, TimestampType(), 19_723 * DAY + 1_123_456, "2024-01-01T00:00:01.123456"),
        (IDENTITY, TimestampNanoType(), 19_723 * DAY * 1000 + 1, "2024-01-01T00:00:00.000000001"),
        (IDENTITY, TimestamptzNanoType(), -1, "1969-12-31T23:59:59.999999999+00:00"),
        (HourTransform(), IntegerType(), -1_732_919_508, "-195721-06-25-12"),
        (DayTransform(), DateType(), LATE, "10000-01-01"),
        (MonthTransform(), IntegerType(), 96_360, "10000-01"),
        (MonthTransform(), IntegerType(), -24_166, "-044-03"),
        (YearTransform(), IntegerType(), 298_030, "300000"),
        (YearTransform(), IntegerType(), -2014, "-044"),
        (YearTransform(), IntegerType(), None, "null"),
        (IDENTITY, BooleanType(), True, "true"),
        (IDENTITY, BinaryType(), b"\x00\xff", "AP8="),
        (TruncateTransform(10), IntegerType(), -10, "-10"),
        (BucketTransform(4), IntegerType(), 3, "3"),
    ],
    ids=str,
)
def test_partition_values_are_written_as_java_writes_them(
    transform: Transform[Any, Any], kind: IcebergType, value: Any, text: str
) -> None:
    assert partition_value_text(transform, kind, value) == text


@given(st.integers(-719_162, LATE - 1), st.sampled_from([DayTransform(), MonthTransform(), YearTransform()]))
def test_dates_of_python_are_written_as_by_pyiceberg(days: int, transform: Transform[Any, Any]) -> None:
    value = transform.transform(DateType())(days)
    assert partition_value_text(transform, DateType(), value) == transform.to_human_string(DateType(), value)


def test_names_and_values_are_escaped_in_paths() -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IDENTITY, "a b"), PartitionField(2, 1001, IDENTITY, "t"))
    fields = StructType(
        NestedField(1000, "a b", StringType(), required=False),
        NestedField(1001, "t", TimestamptzType(), required=False),
    )
    assert partition_path(spec, fields, ("x/y", LATE * DAY)) == "a+b=x%2Fy/t=%2B10000-01-01T00%3A00%3A00%2B00%3A00"


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (LATE, "+10000-01-01"),
        (EARLY, "-0044-03-15"),
        (-719_163, "0000-12-31"),
        ((1 << 31) - 1, "+5881580-07-11"),
        (-(1 << 31), "-5877641-06-23"),
        (0, "1970-01-01"),
    ],
)
def test_dates_are_written_as_spark_reads_them(days: int, text: str) -> None:
    assert date_text(days) == text


def test_the_first_and_last_timestamps_are_written_as_spark_reads_them() -> None:
    assert timestamp_text((1 << 63) - 1, " ") == "+294247-01-10 04:00:54.775807"
    assert timestamp_text(-(1 << 63), " ") == "-290308-12-21 19:59:05.224192"
