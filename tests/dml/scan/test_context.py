"""What the tasks of a scan share."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from dml import limits
from dml.model import columns
from dml.read.reader import TaskReader
from dml.scan.table_scan import TableScan, spark_schema


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


def scan_of(table):
    """A scan of all rows and columns of a table as it is now."""
    snapshot, schema = table.current_snapshot(), table.schema()
    ids = tuple(field.field_id for field in schema.fields)
    return TableScan(table=table, snapshot_id=snapshot and snapshot.snapshot_id, schema=schema, columns=ids)


def test_a_context_reads_the_tables_rows(table):
    scan = replace(scan_of(table), columns=(2, 1), metadata_columns=(columns.POS,), row_filter=EqualTo("ID", 2))
    plan = scan.plan()
    context = scan.context(plan.tasks)
    assert context.batch_rows == limits.SPARK_BATCH_ROWS
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
        for t in scan_of(table).plan().tasks
    )
    context = scan_of(table).context([task])
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
        spark_schema(replace(scan_of(table), metadata_columns=(columns.PARTITION,)).context(tasks))
        for tasks in ((), (lake.task("f", equality_deletes=(ref,)),))
    )
    assert compared == plain


def test_credentials_are_not_shown(table):
    table.io.properties["s3.secret-access-key"] = "hush"
    assert "hush" not in repr(scan_of(table).context(()))
