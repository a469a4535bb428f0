"""Scan tasks as a Spark DataFrame, and what all of them share. Driver.

Input: a table, groups of tasks, what to read. Output: a `ScanContext`; a DataFrame that reads each group in one Spark
task. Only the DataFrame API is used, so that it works on Spark Classic and on Spark Connect.
"""

from collections.abc import Iterable, Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from dml.catalog.credentials import storage_properties
from dml.model import columns
from dml.model.scan_task import KeyFilter, ScanContext, ScanTask
from dml.options import DEFAULT_NAME_MAPPING
from dml.read.metadata_columns import partition_fields
from dml.rows.expressions import TRUE, Predicate
from dml.scan.size import scan_size
from dml.spark.jvm import empty_frame
from dml.spark.task_frames import task_frame
from dml.spark.types import spark_field
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput

__all__ = ["dataframe", "scan_context", "spark_schema"]

BATCH_ROWS = 32_768
"""Half of Spark's usual size, for half the memory; which is faster has not been settled on a quiet machine."""


def scan_context(
    table: Table,
    tasks: Iterable[ScanTask],
    projected_ids: Sequence[int],
    *,
    metadata_columns: Sequence[str] = (),
    row_filter: BooleanExpression | None = None,
    key_filter: KeyFilter | None = None,
    row_predicate: Predicate = TRUE,
    case_sensitive: bool = False,
    schema: Schema | None = None,
    batch_rows: int = BATCH_ROWS,
) -> ScanContext:
    """The context of a scan.

    Args:
        table: The table.
        tasks: The tasks that will be read: their equality deletes may compare columns that the table has dropped.
        projected_ids: Field ids of the top-level columns to return, in output order.
        metadata_columns: Metadata columns to return after them.
        row_filter: An unbound expression; None for all rows.
        key_filter: The join keys that matter; None for all.
        row_predicate: A predicate in addition to `row_filter`.
        case_sensitive: How the filter's names match.
        schema: The schema to read with; None for the table's current one.
        batch_rows: Greatest number of rows of a batch.
    """
    read_schema = schema or table.schema()
    compared = {field_id for task in tasks for ref in task.equality_deletes for field_id in ref.equality_ids}
    return ScanContext(
        schema_json=with_dropped(table, read_schema, compared).model_dump_json(),
        projected_ids=tuple(projected_ids),
        metadata_columns=tuple(metadata_columns),
        specs_json=tuple((spec_id, spec.model_dump_json()) for spec_id, spec in sorted(table.specs().items())),
        name_mapping_json=table.metadata.properties.get(DEFAULT_NAME_MAPPING),
        io_properties=storage_properties(table.io.properties),
        row_filter=row_filter,
        key_filter=key_filter,
        row_predicate=row_predicate,
        batch_rows=batch_rows,
        case_sensitive=case_sensitive,
    )


def with_dropped(table: Table, schema: Schema, field_ids: Iterable[int]) -> Schema:
    """The schema, and after its columns those of older schemas that deletes still compare."""
    missing = set(field_ids) - {field.field_id for field in schema.fields}
    added = [
        NestedField(field.field_id, f"{columns.DROPPED_PREFIX}{field.field_id}", field.field_type, required=False)
        for field_id in sorted(missing)
        for field in latest(table, field_id)
    ]
    return Schema(*schema.fields, *added, schema_id=schema.schema_id) if added else schema


def latest(table: Table, field_id: int) -> list[NestedField]:
    """A column as the latest schema that had it says; empty if none had."""
    schemas = sorted(table.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    return [field for schema in schemas for field in schema.fields if field.field_id == field_id][:1]


PLAIN_TYPES = {
    columns.FILE: spark_types.StringType(),
    columns.POS: spark_types.LongType(),
    columns.SPEC_ID: spark_types.IntegerType(),
    columns.ROW_ID: spark_types.LongType(),
    columns.LAST_UPDATED_SEQUENCE_NUMBER: spark_types.LongType(),
    columns.FILE_ORDINAL: spark_types.IntegerType(),
}


def spark_schema(context: ScanContext) -> spark_types.StructType:
    """The schema of the rows of a scan.

    Raises:
        NotSupportedError: Spark has no type for a column.
    """
    return row_type(context, Schema.model_validate_json(context.schema_json))


def row_type(context: ScanContext, schema: Schema) -> spark_types.StructType:
    """The schema of the rows of a scan with a schema to read with."""
    fields = [spark_field(schema.find_field(field_id)) for field_id in context.projected_ids]
    for name in context.metadata_columns:
        if name == columns.PARTITION:
            specs = {spec_id: PartitionSpec.model_validate_json(text) for spec_id, text in context.specs_json}
            partition = spark_types.StructType([spark_field(field) for field in partition_fields(specs, schema)])
            fields.append(spark_types.StructField(name, partition, nullable=True))
        else:
            fields.append(spark_types.StructField(name, PLAIN_TYPES[name], nullable=True))
    return spark_types.StructType(fields)


def dataframe(spark: SparkSession, groups: Sequence[Sequence[ScanTask]], context: ScanContext) -> DataFrame:
    """The rows of a scan.

    Args:
        spark: A session, classic or Connect.
        groups: What each Spark task reads; see `dml.scan.split`.
        context: What all of them share.

    Returns:
        The table's columns, then the metadata columns. Without groups an empty DataFrame, which runs no job. Spark
        knows about how large it is.

    Raises:
        NotSupportedError: Spark has no type for a column.
    """
    schema = Schema.model_validate_json(context.schema_json)
    row = row_type(context, schema)
    if not groups:
        return empty_frame(spark, row)
    found = scan_size(
        (task for group in groups for task in group),
        row,
        columns=len(schema.fields),
        columns_read=len(context.projected_ids),
        key_filter=context.key_filter,
    )
    return task_frame(spark, len(groups), RowTask(input=TaskInput.of(groups, context)), row, found.size)
