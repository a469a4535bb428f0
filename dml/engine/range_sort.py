"""Sort the rows of large groups of data files in several tasks, by ranges of the sort key. Driver.

One task sorts a group whose rows fill one file. The rows of a larger group are divided into ranges of the key, one for
each new file. `dml.write.ranged_rows` has the three stages that tasks run. Decision 055 has the reasons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from dml.engine.writes import TASK_COMMIT_SCHEMA, delete_on_failure, task_reports
from dml.maintenance import FileGroup, RewriteOptions
from dml.model.scan_task import ScanContext
from dml.model.write_task import TaskReport
from dml.scan.table_scan import TableScan
from dml.spark.task_frames import repartition_by_id, task_frame
from dml.tasks.task_input import TaskInput, pack
from dml.write.ranged_rows import RangeTarget, SampleKeys, SplitRows, SplitRun, WriteRanges, range_bounds
from dml.write.writer_spec import WriterSpec

__all__ = ["RangeSort", "sort_by_ranges"]

SAMPLES = StructType([StructField("part", IntegerType()), StructField("sample", BinaryType())])
PIECES = StructType(
    [StructField("part", IntegerType()), StructField("piece", BinaryType()), StructField("report", BinaryType())]
)


@dataclass(frozen=True, kw_only=True)
class RangeSort:
    """The stages that sort some groups.

    Attributes:
        groups: The groups, each of one partition.
        options: The options of the rewrite.
        scan: The scan of the files, which projects the columns to copy.
        spec: The write.
        parallelism: The number of concurrent tasks.
    """

    groups: tuple[FileGroup, ...]
    options: RewriteOptions
    scan: TableScan
    spec: WriterSpec
    parallelism: int

    @property
    def ranges(self) -> tuple[int, ...]:
        """The number of ranges of each group: one for each new file."""
        return tuple(self.options.expected_files(group.size) for group in self.groups)

    def sample(self) -> tuple[SampleKeys, int]:
        """Return the first stage, and its number of tasks."""
        pieces = [
            (number, piece)
            for number, (group, ranges) in enumerate(zip(self.groups, self.ranges, strict=True))
            for piece in group.sampled(ranges)
        ]
        tasks = min(len(pieces), self.parallelism)
        groups = [[*pieces[start::tasks]] for start in range(tasks)]
        return SampleKeys(input=TaskInput.of(groups, self._context()), spec=self.spec), tasks

    def split(self, bounds: dict[int, pa.Table]) -> tuple[SplitRows, int]:
        """Return the second stage, and its number of tasks.

        Args:
            bounds: The bounds of the ranges, by group.
        """
        first = 0
        runs: list[tuple[SplitRun]] = []
        for number, (group, ranges) in enumerate(zip(self.groups, self.ranges, strict=True)):
            packed = pack(bounds[number]) if number in bounds else None
            runs += [
                (SplitRun(tasks=run.tasks, first=first, bounds=packed),)
                for run in group.runs(self.options, self.parallelism)
            ]
            first += ranges
        return SplitRows(input=TaskInput.of(runs, self._context()), spec=self.spec), len(runs)

    def write(self) -> WriteRanges:
        """Return the third stage, with one task for each range."""
        targets: list[RangeTarget] = []
        for group, ranges in zip(self.groups, self.ranges, strict=True):
            assert group.partition is not None, "rows of several partitions are not sorted in ranges"
            target = RangeTarget(
                partition=group.partition,
                target_file_size=self.options.close_at_size,
                sources=pack({task.file_ordinal: task.path for task in group.tasks}),
            )
            targets += [target] * ranges
        return WriteRanges(targets=tuple(targets), spec=self.spec)

    def _context(self) -> ScanContext:
        return self.scan.context(task for group in self.groups for task in group.tasks)


def sort_by_ranges(spark: SparkSession, sort: RangeSort) -> Sequence[TaskReport]:
    """Write the rows of groups, sorted, into new files.

    Args:
        spark: The session.
        sort: The groups.

    Returns:
        The reports of the tasks.

    Raises:
        DmlError: A file cannot be read for the bounds of the ranges. No files are left behind.
        PySparkException: Spark failed. No files are left behind.
    """
    size = sum(group.size for group in sort.groups)
    with delete_on_failure(sort.scan.table, sort.spec):
        sample, tasks = sort.sample()
        samples = task_frame(spark, tasks, sample, SAMPLES, size).collect()
        bounds = range_bounds(((row[0], bytes(row[1])) for row in samples), sort.ranges)
        split, tasks = sort.split(bounds)
        pieces = task_frame(spark, tasks, split, PIECES, size)
        write = sort.write()
        shuffled = repartition_by_id(pieces, len(write.targets), col("part"))
        return task_reports(shuffled.mapInArrow(write, TASK_COMMIT_SCHEMA))
