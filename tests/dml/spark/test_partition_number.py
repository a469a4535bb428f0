"""The number of a partition: equal for rows of one partition, and hardly ever for rows of two."""

import datetime
import uuid
from decimal import Context, Decimal
from typing import Any

import pytest
from pyiceberg import transforms as t
from pyiceberg import types as i
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from dml.errors import NotSupportedError
from dml.spark.partition_number import partition_number, partition_number_sql
from dml.spark.types import spark_type

WIDE = [Decimal(text) for text in ("0", "1", "-1", "127", "128", "-128", "-129", "9" * 28, "-" + "9" * 28, "1E-10")]
WIDE += [Decimal(2**bits + step).scaleb(-10) for bits in (31, 32, 63, 64, 95) for step in (-1, 0, 1)]
WIDE = [(value * sign).quantize(Decimal("1E-10"), context=Context(prec=60)) for value in WIDE for sign in (1, -1)]
EPOCH = datetime.datetime.fromisoformat("1970-01-01")
INSTANTS = [
    datetime.datetime.fromisoformat(text)
    for text in (
        "1969-12-31T23:59:59.999999",
        "1970-01-01",
        "2024-02-29T12:30:01",
        "2024-02-29T23:59:59",
        "2024-03-01",
        "2025-03-01",
    )
]
VALUES: dict[str, tuple[i.PrimitiveType, list[Any]]] = {
    "boolean": (i.BooleanType(), [True, False]),
    "int": (i.IntegerType(), [0, 1, -1, 99, 100, -100, 2**31 - 1, -(2**31)]),
    "long": (i.LongType(), [0, 1, -1, 99, 100, 2**40, -(2**63), 2**63 - 1]),
    "decimal": (i.DecimalType(9, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal("1.99"), Decimal("1234567.89")]),
    "wide decimal": (i.DecimalType(38, 10), WIDE),
    "string": (i.StringType(), ["", "a", "abc", "abcd", "abcde", "ž", "žluťoučký kůň"]),
    "binary": (i.BinaryType(), [b"", b"a", b"abcd", b"abcde", bytes(range(20))]),
    "fixed": (i.FixedType(4), [b"abcd", b"abce", b"\0\0\0\0"]),
    "uuid": (i.UUIDType(), [uuid.UUID(int=number) for number in (0, 1, 2**127, 12345678901234567890)]),
    "date": (i.DateType(), [moment.date() for moment in INSTANTS]),
    "timestamp": (i.TimestampType(), INSTANTS),
    "timestamptz": (i.TimestamptzType(), [moment.replace(tzinfo=datetime.UTC) for moment in INSTANTS]),
}
TRANSFORMS: list[Any] = [
    t.IdentityTransform(),
    t.BucketTransform(5),
    t.BucketTransform(1000),
    t.TruncateTransform(3),
    t.YearTransform(),
    t.MonthTransform(),
    t.DayTransform(),
    t.HourTransform(),
]


def transforms_of(name: str) -> list[t.Transform]:
    """The transforms that take a type."""
    if name == "boolean":
        return [t.IdentityTransform()]
    return [transform for transform in TRANSFORMS if transform.can_transform(VALUES[name][0])]


@pytest.mark.spark
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("name", VALUES)
def test_rows_of_one_partition_have_one_number(spark: SparkSession, name: str, ansi: str) -> None:
    """For each transform that takes a type, as Spark holds it; NULL is a partition of its own."""
    kind, values = VALUES[name]
    schema = Schema(i.NestedField(1, "c", kind, required=False))
    transforms = transforms_of(name)
    specs = [PartitionSpec(PartitionField(1, 1000, transform, "p")) for transform in transforms]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.createDataFrame(
            [(as_spark_holds_it(value),) for value in (*values, None)], f"v0 {type_name(kind)}"
        )
        found = frame.select(*(partition_number(spec, schema, lambda place: f"v{place}") for spec in specs)).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    for place, transform in enumerate(transforms):
        partition = transform.transform(kind)
        partitions = [*(str(partition(internal(value))) for value in values), "NULL"]
        numbers: dict[str, set[int]] = {}
        for key, row in zip(partitions, found, strict=True):
            numbers.setdefault(key, set()).add(row[place])
        assert all(len(each) == 1 for each in numbers.values()), (transform, numbers)
        # What lies below the least value of a type goes with NULL.
        assert len({number for each in numbers.values() for number in each}) >= len(numbers) - 1, (transform, numbers)


def type_name(kind: i.PrimitiveType) -> str:
    return spark_type(kind).simpleString()


def internal(value: Any) -> Any:
    """A value in the form that PyIceberg's transforms take."""
    match value:
        case datetime.datetime():
            return (value.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1)
        case datetime.date():
            return value.toordinal() - EPOCH.toordinal()
    return value


def as_spark_holds_it(value: Any) -> Any:
    return str(value) if isinstance(value, uuid.UUID) else value


def test_nested_columns_and_several_fields_are_named() -> None:
    """A field of a struct is a source as well; a void field is the same for all rows."""
    inner = i.StructType(i.NestedField(3, "a b", i.IntegerType(), required=False))
    schema = Schema(i.NestedField(1, "x", i.LongType(), required=False), i.NestedField(2, "s", inner, required=False))
    spec = PartitionSpec(
        PartitionField(3, 1000, t.IdentityTransform(), "p"),
        PartitionField(1, 1001, t.VoidTransform(), "q"),
        PartitionField(1, 1002, t.IdentityTransform(), "r"),
    )
    assert partition_number_sql(spec, schema, lambda place: f"v{place}") == "hash(v1.`a b`, v0)"


def test_a_spec_of_void_fields_alone_is_one_partition() -> None:
    schema = Schema(i.NestedField(1, "x", i.LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, t.VoidTransform(), "q"))
    assert partition_number_sql(spec, schema, str) == "0"


def test_an_unknown_transform_is_refused() -> None:
    schema = Schema(i.NestedField(1, "x", i.LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, t.UnknownTransform("zorder"), "q"))
    with pytest.raises(NotSupportedError, match="unsupported transforms"):
        partition_number_sql(spec, schema, str)
