"""Scan tasks as a DataFrame."""

import subprocess
import sys

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark_types

from dml.errors import NotSupportedError
from dml.model import columns
from dml.read.reader import TaskReader
from dml.scan.table_scan import dataframe, spark_schema
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput


def optional(field_id, name, kind):
    return NestedField(field_id, name, kind, required=False)


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    optional(2, "s", StringType()),
    optional(3, "st", StructType(optional(4, "a", LongType()), optional(5, "l", ListType(6, StringType())))),
    optional(7, "m", MapType(8, StringType(), 9, DoubleType(), value_required=False)),
    optional(10, "n", DecimalType(12, 3)),
    optional(11, "day", DateType()),
    optional(12, "ts", TimestampType()),
    optional(13, "tz", TimestamptzType()),
    optional(14, "u", UUIDType()),
    optional(15, "f", FixedType(2)),
    optional(16, "bin", BinaryType()),
    optional(17, "t", TimeType()),
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"), spec_id=0)


@pytest.fixture
def native(lake):
    return TaskReader(lake.context(SCHEMA), spark_types=False).output_schema


@pytest.fixture
def path(lake, native):
    rows = [
        {
            "id": i,
            "s": None if i == 3 else f"s{i}",
            "st": None if i == 1 else {"a": i, "l": ["x", "y"]},
            "m": [("k", None if i else 0.5)],
            "u": bytes([i]) * 16,
            "f": b"ab",
            "bin": b"",
        }
        for i in range(10)
    ]
    table = pa.Table.from_pylist([dict.fromkeys(native.names) | row for row in rows], schema=native)
    return lake.parquet(table, row_group_size=4)


def test_every_arrow_type_has_the_spark_type_of_its_name(lake):
    names = columns.METADATA_COLUMNS
    context = lake.context(SCHEMA, (SPEC,), metadata_columns=(*names, columns.FILE_ORDINAL))
    assert spark_schema(context).names == TaskReader(context).output_schema.names
    assert all(field.nullable for field in spark_schema(context))


def test_a_type_that_spark_lacks_is_refused(lake):
    with pytest.raises(NotSupportedError, match="timestamp_ns"):
        spark_schema(lake.context(Schema(optional(1, "c", TimestampNanoType()))))


def test_packed_groups_read_what_they_were_packed_from(lake, path):
    context = lake.context(SCHEMA, projected_ids=(1,))
    task = RowTask(input=TaskInput.of([[lake.task(path)], [lake.task(path), lake.task(path)]], context))
    numbers = pa.RecordBatch.from_pydict({"id": [1]})
    assert sum(batch.num_rows for batch in task(iter([numbers]))) == 20


def test_workers_load_neither_pyspark_nor_sqlglot():
    """The function that Spark sends to its workers comes from this module."""
    code = (
        "import sys, dml.tasks.row_task; "
        "print([name for name in ('pyspark', 'py4j', 'sqlglot', 'dml.sqlparse', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.spark
def test_a_scan_gives_spark_the_rows_that_the_reader_gives(spark, lake, path):
    """All types and all metadata columns, over two tasks, one of them with deletes."""
    names = (*columns.METADATA_COLUMNS, columns.FILE_ORDINAL)
    context = lake.context(SCHEMA, (SPEC,), metadata_columns=names)
    first = lake.task(path, partition=("p",), first_row_id=10, deletion_vector=lake.deletion_vector(path, [2, 5]))
    second = lake.task(path, partition=(None,), file_ordinal=1)
    found = dataframe(spark, [[first], [second]], context)
    assert found.schema == spark_schema(context)
    rows = found.orderBy(columns.FILE_ORDINAL, columns.POS).collect()
    reader = TaskReader(context)
    expected = [row for task in (first, second) for batch in reader.read(task) for row in batch.to_pylist()]
    assert len(rows) == 18
    for row, wanted in zip(rows, expected, strict=True):
        plain = row.asDict(recursive=True)
        assert plain == wanted | {"m": dict(wanted["m"])}


@pytest.mark.spark
def test_no_groups_make_an_empty_dataframe_of_the_right_schema(spark, lake):
    context = lake.context(SCHEMA, projected_ids=(1, 3), metadata_columns=(columns.POS,))
    found = dataframe(spark, [], context)
    assert found.schema == spark_schema(context)
    assert found.collect() == []


@pytest.mark.spark
def test_spark_counts_and_filters_over_a_scan(spark, lake, path):
    context = lake.context(SCHEMA, projected_ids=(1,), metadata_columns=(columns.FILE_ORDINAL, columns.POS))
    found = dataframe(spark, [[lake.task(path)]] * 3, context)
    assert found.count() == 30
    assert found.where("id >= 8").selectExpr("sum(_pos)").collect() == [(3 * 17,)]
    assert isinstance(found.schema["id"].dataType, spark_types.LongType)
