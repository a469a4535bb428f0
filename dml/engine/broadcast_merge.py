"""MERGE by the tasks that read the target, each of which has the source. Driver.

Spark's join has rows of the JVM made of what the target's files hold, shuffles and sorts them, and gives them back to
Python to be written. Where all rows of the source, and all that clauses say of them, can be sent to tasks
(`dml.engine.broadcast_source`), these match, choose the clause and write, without a shuffle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pyiceberg.table import Table
from pyroaring import BitMap
from pyspark.sql import SparkSession

from dml.engine.broadcast_source import BroadcastSource
from dml.engine.scans import Scan
from dml.engine.writes import TASK_COMMIT_SCHEMA, WriteOutcome, task_commits, with_live_storage, written_by
from dml.model.scan_task import ScanTask
from dml.model.write_task import TaskCommit
from dml.options import DistributionMode
from dml.read.packed_groups import PackedGroups
from dml.spark.jobs import ended_on_failure
from dml.spark.shared_files import check_writes
from dml.spark.task_frames import task_frame
from dml.write.broadcast_inserts import held_inserts, inserted_rows, insertions
from dml.write.broadcast_merge import (
    BroadcastMergeTask,
    BroadcastProbe,
    columns_that_match,
    matched_rows,
)
from dml.write.writer_spec import WriteJob, WriterSpec

__all__ = ["RANGE_BYTES", "write_broadcast_merge"]

FEW_BYTES: Final = 4 * 2**20
"""Up to this size the driver writes the new rows itself, which takes no longer than starting another Spark job."""

ROWS_OF_A_TASK: Final = 100_000
"""Minimum rows per inserting task."""


RANGE_BYTES: Final = 16 * 2**20
"""Up to this size of a source, its new rows are one range, which one task writes. Above it, Spark makes ranges."""


def write_broadcast_merge(
    spark: SparkSession,
    source: BroadcastSource,
    read_ids: tuple[int, ...],
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    spec: WriterSpec,
    table: Table,
    *,
    distribution: DistributionMode | None,
) -> WriteOutcome:
    """Write the delta.

    The new rows are known once all tasks have looked up their keys. A single task can tell by itself. In copy-on-write
    a first job only looks up keys, so that a rewritten file can include a few new rows, and a MERGE adds no file to the
    table. Otherwise the tasks that change rows report which rows of the source matched, and the driver inserts the
    others, or, if they are many, a second job.

    Args:
        spark: The session.
        source: The source.
        read_ids: Field ids of the target's columns that are read.
        scan: The scan of the target.
        groups: Its tasks, whole files, as Spark's tasks get them.
        spec: The write.
        table: The table.
        distribution: How the table wants new rows distributed.

    Raises:
        SetupError: The workers run a Python without this package.
        DmlError: Reading or writing failed; no file is left then. Of kind `OVERFLOW`: a number does not fit its type.
        PySparkException: Spark failed; no file is left then.
    """
    check_writes(spark, table, spec.context)
    merge = BroadcastMerge(
        spark=spark,
        source=source,
        read_ids=read_ids,
        # Tasks look up keys in the source itself.
        scan=replace(scan, context=replace(scan.context, key_filter=None)),
        spec=spec,
        table=table,
        distribution=distribution,
    )
    join = source.rows.join
    if not join.inserted:
        return written_by(merge.run(groups), table, spec)
    if len(groups) == 1 and source.row_count <= ROWS_OF_A_TASK:
        return written_by(merge.run(groups, is_alone=True), table, spec)
    if not groups or not join.matched:
        return written_by([], table, spec, lambda _: merge.insert(merge.probe(groups)))
    if spec.job is not WriteJob.COPY_ON_WRITE:
        return written_by(merge.run(groups), table, spec, lambda commits: merge.insert(matched_rows(commits)))
    matched = merge.probe(groups)
    merge = merge.renewed()
    unmatched = source.row_count - len(matched)
    loads = {0: 0} if merge.are_few(unmatched) else merge.inserting_tasks(unmatched, groups)
    return written_by(merge.run(groups, inserted=merge.shares(matched, loads)), table, spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastMerge:
    """The jobs of one statement. The attributes are the arguments of `write_broadcast_merge`."""

    spark: SparkSession
    source: BroadcastSource
    read_ids: tuple[int, ...]
    scan: Scan
    spec: WriterSpec
    table: Table
    distribution: DistributionMode | None

    def run(
        self,
        groups: Sequence[Sequence[ScanTask]],
        *,
        is_alone: bool = False,
        inserted: Mapping[int, bytes] = MappingProxyType({}),
    ) -> list[TaskCommit]:
        """Run a job that writes.

        Args:
            groups: The files that each task reads.
            is_alone: Whether the only task also inserts the rows of the source without a match.
            inserted: The rows of the source that each task inserts, by the task's number.
        """
        tasks = max(len(groups), *(number + 1 for number in inserted), 0)
        if not tasks:
            return []
        task = BroadcastMergeTask(
            groups=PackedGroups.pack([*groups, *[()] * (tasks - len(groups))], self.scan.context),
            read_ids=self.read_ids,
            source=self.source.rows,
            is_alone=is_alone,
            inserted=dict(inserted),
            spec=self.spec,
        )
        frame = task_frame(self.spark, tasks, task, TASK_COMMIT_SCHEMA, tasks)
        return task_commits(frame, self.table, self.spec)

    def insert(self, matched: BitMap) -> list[TaskCommit]:
        """Insert the rows of the source without a match: a few on the driver, many by a job.

        Args:
            matched: The rows of the source that match.
        """
        unmatched, merge = self.source.row_count - len(matched), self.renewed()
        if not self.are_few(unmatched):
            loads = self.inserting_tasks(unmatched, ())
            return merge.run((), inserted=self.shares(matched, loads))
        rows = inserted_rows(self.source.rows, merge.spec, matched)
        return [] if rows is None else [held_inserts(rows, merge.spec)]

    def are_few(self, rows: int) -> bool:
        """Return whether the driver can write this many rows of the source itself."""
        return rows * self.source.row_bytes <= FEW_BYTES

    def renewed(self) -> "BroadcastMerge":
        """Return the same jobs, with new credentials if the old ones have expired."""
        table, spec = with_live_storage(self.table, self.spec)
        if table is self.table:
            return self
        context = replace(self.scan.context, io_properties=dict(spec.context.io_properties))
        return replace(self, table=table, spec=spec, scan=replace(self.scan, context=context))

    def inserting_tasks(self, unmatched: int, groups: Sequence[Sequence[ScanTask]]) -> dict[int, int]:
        """Return the numbers of the tasks with the fewest rows, which insert, and how many other rows each writes.

        Args:
            unmatched: The number of rows of the source without a match.
            groups: The files that each task reads.
        """
        is_range = self.distribution is DistributionMode.RANGE
        count = 1 if is_range else min(self.spec.tasks, -(-unmatched // ROWS_OF_A_TASK))
        loads = [sum(task.record_count for task in group) for group in groups]
        loads += [0] * (count - len(loads))
        least = sorted(range(len(loads)), key=lambda number: loads[number])[:count]
        return {number: loads[number] for number in sorted(least)}

    def shares(self, matched: BitMap, loads: Mapping[int, int]) -> dict[int, bytes]:
        """Return the rows of the source that each task inserts.

        Args:
            matched: The rows of the source that match.
            loads: As `inserting_tasks` returns them.
        """
        if len(matched) == self.source.row_count:
            return {}
        by_partition = len(loads) > 1 and self.distribution is not DistributionMode.NONE
        return insertions(self.source.rows, self.spec, matched, loads, by_partition=by_partition)

    def probe(self, groups: Sequence[Sequence[ScanTask]]) -> BitMap:
        """Find the rows of the source that match, by a job that reads only the columns it needs for that.

        Raises:
            DmlError: A file cannot be read.
        """
        if not groups:
            return BitMap()
        read_ids = columns_that_match(self.source.rows, self.spec)
        context = replace(self.scan.context, projected_ids=read_ids)
        probe = BroadcastProbe(
            groups=PackedGroups.pack(groups, context), read_ids=read_ids, source=self.source.rows, spec=self.spec
        )
        with ended_on_failure(self.spark):
            found = task_frame(self.spark, len(groups), probe, TASK_COMMIT_SCHEMA, len(groups)).collect()
        commits = [TaskCommit.from_bytes(bytes(row[0])) for row in found]
        for commit in commits:
            if commit.failure is not None:
                raise commit.failure
        return matched_rows(commits)
