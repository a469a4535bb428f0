"""What the tasks of a scan share."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from dml.model import columns
from dml.read.reader import TaskReader
from dml.scan.planner import plan_scan
from dml.scan.source import scan_context, spark_schema


@pytest.fixture
def table(tmp_path):
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "key", StringType(), required=False)
    )
    table = catalog.create_table("db.t", schema)
    table.append(pa.table({"id": [1, 2, 3], "key": ["a", "b", None]}))
    yield table
    catalog.close()


def test_a_context_reads_the_tables_rows(table):
    plan = plan_scan(table, None)
    context = scan_context(
        table, plan.tasks, (2, 1), metadata_columns=(columns.POS,), row_filter=EqualTo("ID", 2), batch_rows=10
    )
    assert context.batch_rows == 10
    assert [batch.to_pylist() for batch in TaskReader(context).read(plan.tasks[0])] == [
        [{"key": "b", "id": 2, "_pos": 1}]
    ]


def test_equality_deletes_of_a_dropped_column_still_apply(table, lake, field):
    """Even when another column has its name by now."""
    with table.update_schema() as update:
        update.delete_column("key")
    with table.update_schema() as update:
        update.add_column("key", LongType())
    keys = pa.table([pa.array(["b", None])], schema=pa.schema([field(2, "key", pa.string())]))
    ref = lake.delete_ref(lake.parquet(keys, "eq.parquet"), 2, equality_ids=(2,))
    (task,) = (
        lake.task(
            t.path,
            equality_deletes=(ref,),
            file_format="parquet",
            file_size_in_bytes=t.file_size_in_bytes,
            length=t.length,
        )
        for t in plan_scan(table, None).tasks
    )
    context = scan_context(table, [task], [field.field_id for field in table.schema().fields])
    rows = [row for batch in TaskReader(context).read(task) for row in batch.to_pylist()]
    assert rows == [{"id": 1, "key": None}]


def test_partitions_have_one_type_whatever_deletes_compare(table, lake, field):
    """A dropped column that equality deletes still compare does not come back as the source of a partition field."""
    with table.update_spec() as spec:
        spec.add_identity("key")
    with table.update_spec() as spec:
        spec.remove_field("key")
    with table.update_schema() as update:
        update.delete_column("key")
    ref = lake.delete_ref(
        lake.parquet(pa.table([pa.array(["b"])], schema=pa.schema([field(2, "key", pa.string())])), "eq.parquet"),
        2,
        equality_ids=(2,),
    )
    plain, compared = (
        spark_schema(scan_context(table, tasks, (1,), metadata_columns=(columns.PARTITION,)))
        for tasks in ((), (lake.task("f", equality_deletes=(ref,)),))
    )
    assert compared == plain


def test_credentials_are_not_shown(table):
    table.io.properties["s3.secret-access-key"] = "hush"
    assert "hush" not in repr(scan_context(table, (), (1,)))
