"""MERGE by the tasks that read the target, each of which has the source. Driver.

Spark's join has rows of the JVM made of what the target's files hold, shuffles and sorts them, and gives them back to
Python to be written. Where all rows of the source, and all that clauses say of them, can be sent to tasks
(`dml.engine.broadcast_source`), these match, choose the clause and write, without a shuffle.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table
from pyroaring import BitMap
from pyspark.sql import SparkSession

from dml.engine.broadcast_source import BroadcastSource
from dml.engine.distribution import FEW_ROWS
from dml.engine.scans import Scan
from dml.engine.writes import TASK_COMMIT_SCHEMA, DriverRows, WriteOutcome, run_writing_tasks, written_by
from dml.model.scan_task import ScanTask
from dml.model.write_task import TaskCommit
from dml.read.packed_groups import PackedGroups
from dml.spark.jobs import ended_on_failure
from dml.spark.shared_files import check_writes
from dml.spark.task_frames import task_frame
from dml.write.broadcast_inserts import held_inserts, inserted_rows, insertions
from dml.write.broadcast_merge import (
    BroadcastMergeTask,
    BroadcastProbe,
    BroadcastRows,
    columns_that_match,
    matched_rows,
)
from dml.write.writer_spec import WriteJob, WriterSpec

__all__ = ["write_broadcast_merge"]

ROWS_OF_A_TASK: Final = 100_000
"""So many new rows are worth another task that inserts them, until all cores have one."""


def write_broadcast_merge(
    spark: SparkSession,
    source: BroadcastSource,
    read_ids: tuple[int, ...],
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    spec: WriterSpec,
    table: Table,
    *,
    by_partition: bool,
) -> WriteOutcome:
    """Write the delta.

    Args:
        spark: The session.
        source: The source.
        read_ids: Field ids of the target's columns that are read.
        scan: The scan of the target.
        groups: Its tasks, whole files, as Spark's tasks get them.
        spec: The write.
        table: The table.
        by_partition: Whether one task inserts all new rows of a partition, where they are many.

    Raises:
        SetupError: the workers run a Python without this package.
        DmlError: reading or writing failed; no file is left then. Of kind `OVERFLOW`: a number does not fit its type.
        PySparkException: Spark failed; no file is left then.
    """

    def left(commits: Sequence[TaskCommit]) -> TaskCommit | None:
        rows = inserted_rows(source.rows, spec, matched_rows(commits))
        return None if rows is None else held_inserts(rows, spec)

    join, is_alone = source.rows.join, len(groups) == 1 and not source.is_large
    if not groups and not (join.inserted and source.is_large):
        return written_by([], table, spec, left if join.inserted else None)
    check_writes(spark, table, spec.context)
    if source.is_large:
        # Tasks look all keys up in the source that they have.
        scan = replace(scan, context=replace(scan.context, key_filter=None))
    rewrites = spec.job is WriteJob.COPY_ON_WRITE and bool(join.matched)
    inserted: dict[int, bytes] = {}
    adds: DriverRows | None = None
    if join.inserted and not is_alone:
        adds = left
        if rewrites or source.is_large:
            matched = probed(spark, source.rows, scan, groups, spec) if groups else BitMap()
            groups = groups if join.matched else ()
            inserted, adds = who_inserts(source, spec, matched, groups, by_partition=by_partition)
    tasks = max(len(groups), *(number + 1 for number in inserted), 0)
    if not tasks:
        return written_by([], table, spec, adds)
    task = BroadcastMergeTask(
        groups=PackedGroups.pack([*groups, *[()] * (tasks - len(groups))], scan.context),
        read_ids=read_ids,
        source=source.rows,
        is_alone=is_alone,
        inserted=inserted,
        spec=spec,
    )
    return run_writing_tasks(task_frame(spark, tasks, task, TASK_COMMIT_SCHEMA, tasks), table, spec, adds)


def who_inserts(
    source: BroadcastSource,
    spec: WriterSpec,
    matched: BitMap,
    groups: Sequence[Sequence[ScanTask]],
    *,
    by_partition: bool,
) -> tuple[dict[int, bytes], DriverRows | None]:
    """Which task inserts which rows of the source; and what the driver inserts instead.

    Few rows go along with files that a task writes anew, so that a table has no more files after each MERGE. Many go to
    the tasks that have least to do besides.

    Args:
        source: The source.
        spec: The write.
        matched: The rows of the source that match.
        groups: The files that each task reads.
        by_partition: Whether one task inserts all of a partition.
    """
    unmatched = source.row_count - len(matched)
    if source.is_large and unmatched > FEW_ROWS:
        inserting = min(spec.tasks, -(-unmatched // ROWS_OF_A_TASK))
        loads = [sum(task.record_count for task in group) for group in groups]
        loads += [0] * (inserting - len(loads))
        least = sorted(range(len(loads)), key=lambda number: loads[number])[:inserting]
        chosen = {number: loads[number] for number in sorted(least)}
        return insertions(source.rows, spec, matched, chosen, by_partition=by_partition), None
    rows = inserted_rows(source.rows, spec, matched)
    if rows is None:
        return {}, None
    if groups and spec.job is WriteJob.COPY_ON_WRITE and rows.num_rows <= FEW_ROWS:
        return insertions(source.rows, spec, matched, {0: 0}, by_partition=False), None
    return {}, lambda _: held_inserts(rows, spec)


def probed(
    spark: SparkSession,
    source: BroadcastRows,
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    spec: WriterSpec,
) -> BitMap:
    """Which rows of the source match.

    Which rows are new is known when all tasks have seen their keys.

    Raises:
        DmlError: a file cannot be read.
    """
    read_ids = columns_that_match(source, spec)
    context = replace(scan.context, projected_ids=read_ids)
    probe = BroadcastProbe(groups=PackedGroups.pack(groups, context), read_ids=read_ids, source=source, spec=spec)
    with ended_on_failure(spark):
        found = task_frame(spark, len(groups), probe, TASK_COMMIT_SCHEMA, len(groups)).collect()
    commits = [TaskCommit.from_bytes(bytes(row[0])) for row in found]
    for commit in commits:
        if commit.failure is not None:
            raise commit.failure
    return matched_rows(commits)
