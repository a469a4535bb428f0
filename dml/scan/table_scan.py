"""Scan tables: select columns and rows of a snapshot, plan and group the scan tasks, make the DataFrame. Driver.

Input: a table, a snapshot, columns and filters (`TableScan`). Output: a `ScanPlan`; the `ScanContext` that its tasks
share; the tasks in groups, one for each Spark task; a DataFrame. Only the DataFrame API is used, so scans work on Spark
Classic and on Spark Connect.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from dml import limits
from dml.catalog.credentials import storage_properties
from dml.model import columns
from dml.model.scan_task import KeyFilter, ScanContext, ScanTask
from dml.options import DEFAULT_NAME_MAPPING, SPLIT_OPEN_FILE_COST, SPLIT_SIZE, integer
from dml.read.projection import partition_fields
from dml.rows.program import TRUE, Predicate
from dml.scan.planner import ScanPlan, plan_scan
from dml.scan.size import ScanSize, scan_size
from dml.scan.split import (
    MIN_PARALLEL_BYTES,
    OPEN_FILE_COST,
    TARGET_SIZE,
    ChangeDistribution,
    TaskGroups,
    split,
    whole_file_groups,
)
from dml.spark.bridge.sessions import empty_frame
from dml.spark.lazy_session import LazySession
from dml.spark.task_frames import task_frame
from dml.spark.types import spark_field
from dml.spark.workers import check_reads
from dml.tasks.row_task import RowTask
from dml.tasks.task_input import TaskInput

__all__ = ["Scan", "TableScan", "dataframe", "spark_schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScan:
    """The columns and rows that a scan reads from a table.

    Filters are best effort: the scan returns every row for which they are true, and may return others. A caller that
    needs exactly the matching rows evaluates the condition again, unless the filter is exact.

    Attributes:
        table: The table.
        snapshot_id: The snapshot; None for a table without snapshots, which has no rows.
        schema: The schema to read with. Column ids and names in filters refer to it.
        columns: Field ids of the top-level columns to return, in output order.
        metadata_columns: Names of the metadata columns to return after them.
        row_filter: An unbound Iceberg expression. It also prunes files and row groups.
        row_predicate: A predicate that rows must satisfy in addition.
        key_filter: The join keys that matter; None for all.
        case_sensitive: How names in `row_filter` match.
    """

    table: Table
    snapshot_id: int | None
    schema: Schema
    columns: tuple[int, ...]
    metadata_columns: tuple[str, ...] = ()
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    row_predicate: Predicate = TRUE
    key_filter: KeyFilter | None = None
    case_sensitive: bool = False

    def plan(
        self, *, find_whole_files: bool = False, keep_metrics: bool = False, bounded_id: int | None = None
    ) -> ScanPlan:
        """Find the data files that may hold matching rows. Arguments and errors are those of `plan_scan`."""
        if self.snapshot_id is None:
            return ScanPlan(snapshot_id=None)
        return plan_scan(
            self.table,
            self.snapshot_id,
            self.row_filter,
            case_sensitive=self.case_sensitive,
            schema=self.schema,
            find_whole_files=find_whole_files,
            keep_metrics=keep_metrics,
            bounded_id=bounded_id,
        )

    def plan_for(self, lazy_session: LazySession, *, find_whole_files: bool = False) -> "Scan":
        """Plan the scan for tasks of a session.

        Raises:
            SetupError: Tasks cannot open the table's files.
            DmlError: As `plan_scan`.
        """
        if not lazy_session.is_deferred:  # before Spark has started, all workers are local
            check_reads(lazy_session.spark, self.table)
        return Scan(read=self, plan=self.plan(find_whole_files=find_whole_files))

    def context(self, tasks: Iterable[ScanTask], *, all_match: bool = False) -> ScanContext:
        """Return the context that all tasks share.

        Args:
            tasks: The tasks to read: their equality deletes may compare columns that the table has dropped.
            all_match: Whether `row_filter` is true for every row of their files, so that tasks need not evaluate it.
        """
        table = self.table
        compared = {field_id for task in tasks for ref in task.equality_deletes for field_id in ref.equality_ids}
        return ScanContext(
            schema_json=with_dropped(table, self.schema, compared).model_dump_json(),
            projected_ids=self.columns,
            metadata_columns=self.metadata_columns,
            specs_json=tuple((spec_id, spec.model_dump_json()) for spec_id, spec in sorted(table.specs().items())),
            name_mapping_json=table.metadata.properties.get(DEFAULT_NAME_MAPPING),
            io_properties=storage_properties(table.io.properties),
            row_filter=None if all_match or isinstance(self.row_filter, AlwaysTrue) else self.row_filter,
            key_filter=self.key_filter,
            row_predicate=self.row_predicate,
            batch_rows=limits.SPARK_BATCH_ROWS,
            case_sensitive=self.case_sensitive,
        )

    def groups(
        self, tasks: Sequence[ScanTask], parallelism: int, min_parallel_bytes: int = MIN_PARALLEL_BYTES
    ) -> TaskGroups:
        """Group tasks for Spark's tasks to read with `split`, by the table's properties."""
        return split(
            tasks,
            self._target_size,
            parallelism,
            open_file_cost=self._open_file_cost,
            min_parallel_bytes=min_parallel_bytes,
        )

    def whole_file_groups(
        self, tasks: Sequence[ScanTask], parallelism: int, distribution: ChangeDistribution
    ) -> TaskGroups:
        """Group whole files for Spark's tasks to change, by the table's properties."""
        return whole_file_groups(
            tasks, self._target_size, parallelism, open_file_cost=self._open_file_cost, distribution=distribution
        )

    def size(self, tasks: Iterable[ScanTask], row: spark_types.StructType) -> ScanSize:
        """Estimate the number of rows in tasks, and their bytes as rows of a type."""
        return scan_size(
            tasks,
            row,
            columns=len(self.schema.fields),
            columns_read=len(self.columns),
            key_filter=self.key_filter,
        )

    @property
    def _target_size(self) -> int:
        return integer(self.table.properties, SPLIT_SIZE, TARGET_SIZE, minimum=1)

    @property
    def _open_file_cost(self) -> int:
        return integer(self.table.properties, SPLIT_OPEN_FILE_COST, OPEN_FILE_COST)


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A planned scan.

    Attributes:
        read: The columns and rows to read.
        plan: The scan tasks, one for each data file.
    """

    read: TableScan
    plan: ScanPlan

    @cached_property
    def context(self) -> ScanContext:
        """The context that all tasks share."""
        return self.read.context(self.plan.tasks, all_match=self.plan.covers_whole_files)

    def frame(self, spark: SparkSession, groups: TaskGroups) -> DataFrame:
        """Return the rows as a DataFrame, each group read by one Spark task."""
        return dataframe(spark, groups, self.context)


def with_dropped(table: Table, schema: Schema, field_ids: Iterable[int]) -> Schema:
    """Return the schema, extended by dropped columns that equality deletes still compare."""
    missing = set(field_ids) - {field.field_id for field in schema.fields}
    added = [
        NestedField(field.field_id, f"{columns.DROPPED_PREFIX}{field.field_id}", field.field_type, required=False)
        for field_id in sorted(missing)
        for field in latest(table, field_id)
    ]
    return Schema(*schema.fields, *added, schema_id=schema.schema_id) if added else schema


def latest(table: Table, field_id: int) -> list[NestedField]:
    """Return a column from the latest schema that has it; an empty list if none has."""
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
    """Return the schema of the rows of a scan.

    Raises:
        NotSupportedError: Spark has no type for a column.
    """
    return row_type(context, Schema.model_validate_json(context.schema_json))


def row_type(context: ScanContext, schema: Schema) -> spark_types.StructType:
    """Return the schema of the rows of a scan, for a table schema that is already parsed."""
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
    """Return the rows of a scan.

    Args:
        spark: A session, classic or Connect.
        groups: The scan tasks of each Spark task; see `dml.scan.split`.
        context: The context that all of them share.

    Returns:
        The table's columns, then the metadata columns, with a size estimate for Spark's optimizer. Without groups, an
        empty DataFrame, which runs no job.

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
