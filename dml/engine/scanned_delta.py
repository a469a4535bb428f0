"""DELETE and UPDATE whose rows Spark need not see: the tasks that read the files find them and write. Driver.

    UPDATE orders SET amount = amount * 2 WHERE id % 100 = 7

Spark analyses the statement as it does every other; the rows alone do not go through it. Whatever Arrow might do
otherwise than Spark (a function, a cast, a subquery) goes Spark's way, and so does the whole statement again where a
number turns out not to fit its type: whether that is an error, and which, is Spark's to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from dml.engine.scans import Scan
from dml.engine.writes import TASK_COMMIT_SCHEMA, WriteOutcome, run_writing_tasks, written_by
from dml.model.columns import RowOperation
from dml.model.row_conditions import Matches, RowTerm
from dml.model.scan_task import ScanTask
from dml.options import Command
from dml.plan.row_delta_plan import RowDeltaPlan
from dml.read.computed_rows import decides_exactly
from dml.read.packed_groups import PackedGroups
from dml.spark.shared_files import check_writes
from dml.spark.task_frames import task_frame
from dml.write.run import WriteTask
from dml.write.scanned_delta import ScannedDeltaTask
from dml.write.writer_spec import WriterSpec

__all__ = ["ScannedDelta", "scanned_delta", "write_scanned_delta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedDelta:
    """A row delta that tasks make of the rows that they read.

    Attributes:
        read_ids: Field ids of the columns that they read.
        operation: What becomes of the rows.
        values: The new values, in the order of the delta's value columns.
    """

    read_ids: tuple[int, ...]
    operation: RowOperation
    values: tuple[RowTerm, ...]


def scanned_delta(plan: RowDeltaPlan, table: Table, *, case_sensitive: bool) -> ScannedDelta | None:
    """The delta of a statement, if tasks can tell which rows it changes, and to what.

    Args:
        plan: The statement.
        table: The table.
        case_sensitive: How names match.
    """
    if not plan.decides_rows or plan.row_values is None or not plan.ordered_by_file:
        return None
    condition = plan.row_condition or Matches(expression=plan.pushed_filter)
    if not decides_exactly(condition, table.schema(), case_sensitive=case_sensitive):
        return None
    operation = RowOperation.DELETE if plan.command is Command.DELETE else RowOperation.UPDATE
    return ScannedDelta(read_ids=plan.target_ids, operation=operation, values=plan.row_values)


def write_scanned_delta(
    spark: SparkSession,
    delta: ScannedDelta,
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    table: Table,
    spec: WriterSpec,
) -> WriteOutcome:
    """Write the delta.

    Args:
        spark: The session.
        delta: The delta.
        scan: The scan of the table.
        groups: Its tasks, whole files, as Spark's tasks get them.
        table: The table.
        spec: The write.

    Raises:
        SetupError: the workers run a Python without this package.
        DmlError: reading or writing failed; no file is left then. Of kind `OVERFLOW`: a number does not fit its type.
        PySparkException: Spark failed; no file is left then.
    """
    if not groups:
        return written_by([], table, spec)
    check_writes(spark, table, spec.context)
    task = ScannedDeltaTask(
        groups=PackedGroups.pack(groups, replace(scan.context, decides_rows=True)),
        read_ids=delta.read_ids,
        operation=delta.operation,
        values=delta.values,
        write=WriteTask(spec),
    )
    return run_writing_tasks(task_frame(spark, len(groups), task, TASK_COMMIT_SCHEMA, len(groups)), table, spec)
