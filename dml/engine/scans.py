"""Scans of tables: planned, split into groups of tasks, and as DataFrames. Driver.

Input: a table, a snapshot, columns and filters. Output: a plan, and a DataFrame whose rows Spark Python workers read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from dml.engine.engine import StatementSettings
from dml.engine.write_settings import ChangeDistribution
from dml.model.scan_task import KeyFilter, ScanContext, ScanTask
from dml.options import SPLIT_OPEN_FILE_COST, SPLIT_SIZE, integer
from dml.rows.expressions import TRUE, Predicate
from dml.scan.planner import ScanPlan, plan_scan
from dml.scan.source import dataframe, scan_context
from dml.scan.split import OPEN_FILE_COST, TARGET_SIZE, split, whole_file_groups
from dml.spark.shared_files import check_reads

__all__ = ["Scan", "scan_files", "scan_table", "task_groups"]

ANY_DISTRIBUTION: Final = ChangeDistribution()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A planned scan.

    Attributes:
        plan: Its tasks, one a data file.
        context: What its tasks share.
        make_frame: Makes the DataFrame of its rows; who does not need it saves Spark's planning.
    """

    plan: ScanPlan
    context: ScanContext
    make_frame: Callable[[], DataFrame]

    @property
    def frame(self) -> DataFrame:
        """Its rows."""
        return self.make_frame()


def scan_table(
    spark: SparkSession,
    settings: StatementSettings,
    table: Table,
    schema: Schema,
    snapshot_id: int | None,
    field_ids: Sequence[int],
    *,
    metadata_columns: Sequence[str] = (),
    row_filter: BooleanExpression | None = None,
    key_filter: KeyFilter | None = None,
    row_predicate: Predicate = TRUE,
    whole_files: bool = False,
    distribution: ChangeDistribution = ANY_DISTRIBUTION,
    find_whole_files: bool = False,
    planned_frame: Callable[[ScanPlan], DataFrame | None] | None = None,
) -> Scan:
    """Plan a scan and make its DataFrame.

    Args:
        spark: The session.
        settings: Its settings.
        table: The table.
        schema: The schema that filters and columns belong to.
        snapshot_id: The snapshot; None for an empty table.
        field_ids: Top-level columns to read.
        metadata_columns: Metadata columns to read after them.
        row_filter: Rows for which it is not true may be left out; None reads all.
        key_filter: Join keys that matter; None reads all.
        row_predicate: A predicate in addition to `row_filter`; rows for which it is False may be left out.
        whole_files: Keep each data file in one task of its own, its rows in their order.
        distribution: Which of them come to one task, as the table says.
        find_whole_files: Find out whether the filter is true for every row of the files that it meets.
        planned_frame: Makes the DataFrame of the tasks so that Spark reads them itself, or gives None. Where it is None
            or gives None, tasks read them by our own reader.
    """
    check_reads(spark, table)
    plan = (
        ScanPlan(snapshot_id=None)
        if snapshot_id is None
        else plan_scan(
            table,
            snapshot_id,
            row_filter,
            case_sensitive=settings.case_sensitive,
            schema=schema,
            find_whole_files=find_whole_files,
        )
    )
    context = scan_context(
        table,
        plan.tasks,
        field_ids,
        metadata_columns=metadata_columns,
        row_filter=None if isinstance(row_filter, AlwaysTrue) else row_filter,
        key_filter=key_filter,
        row_predicate=row_predicate,
        case_sensitive=settings.case_sensitive,
        schema=schema,
    )

    def make_frame() -> DataFrame:
        frame = None if planned_frame is None else planned_frame(plan)
        if frame is not None:
            return frame
        groups = task_groups(plan.tasks, table, settings, whole_files=whole_files, distribution=distribution)
        return dataframe(spark, groups, context)

    return Scan(plan=plan, context=context, make_frame=make_frame)


def scan_files(
    spark: SparkSession,
    settings: StatementSettings,
    table: Table,
    schema: Schema,
    tasks: Sequence[ScanTask],
    field_ids: Sequence[int],
    *,
    row_filter: BooleanExpression,
    key_filter: KeyFilter | None = None,
) -> DataFrame:
    """The rows of some planned data files, without the files that the rest of the scan would have.

    Args:
        spark: The session.
        settings: Its settings.
        table: The table.
        schema: The schema that filters and columns belong to.
        tasks: The files, their ordinals being their places.
        field_ids: Top-level columns to read.
        row_filter: Rows for which it is not true may be left out.
        key_filter: Join keys that matter; None reads all.
    """
    context = scan_context(
        table,
        tasks,
        field_ids,
        row_filter=None if isinstance(row_filter, AlwaysTrue) else row_filter,
        key_filter=key_filter,
        case_sensitive=settings.case_sensitive,
        schema=schema,
    )
    return dataframe(spark, task_groups(tasks, table, settings, whole_files=False), context)


def task_groups(
    tasks: Sequence[ScanTask],
    table: Table,
    settings: StatementSettings,
    *,
    whole_files: bool,
    distribution: ChangeDistribution = ANY_DISTRIBUTION,
) -> tuple[tuple[ScanTask, ...], ...]:
    """The tasks of each Spark task."""
    target_size = integer(table.properties, SPLIT_SIZE, TARGET_SIZE, minimum=1)
    open_file_cost = integer(table.properties, SPLIT_OPEN_FILE_COST, OPEN_FILE_COST)
    if not whole_files:
        return split(tasks, target_size, settings.parallelism, open_file_cost=open_file_cost)
    return whole_file_groups(
        tasks,
        target_size,
        settings.parallelism,
        open_file_cost=open_file_cost,
        distribution=distribution.mode,
        advisory_size=distribution.advisory_size,
    )
