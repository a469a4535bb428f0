"""Run statements whose tasks read, compute and write, without Spark's query. Driver.

    UPDATE orders SET amount = amount * 2 WHERE id % 100 = 7
    MERGE INTO orders USING small ON orders.id = small.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
    INSERT INTO archive SELECT id, amount FROM orders WHERE day < DATE '2026-01-01'

Through Spark, the rows of files move into the JVM, are shuffled and sorted, and pass back to Python to be written.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.table import Table
from pyroaring import BitMap
from pyspark.sql import DataFrame

from dml import limits
from dml.engine.sent_source import SentSource, bytes_read
from dml.engine.writes import (
    TASK_COMMIT_SCHEMA,
    MoreReports,
    WriteOutcome,
    checked_reports,
    collect_outcome,
    delete_on_failure,
    task_reports,
    with_live_storage,
)
from dml.errors import DmlError, ExecutionError
from dml.model.scan_task import ScanContext, ScanTask
from dml.model.write_task import SourceMatches, TaskCommit, TaskFailure, TaskReport, report_from_bytes
from dml.options import DistributionMode
from dml.rows.program import Changes, Program, column_ids
from dml.scan.table_scan import Scan
from dml.spark.lazy_session import LazySession
from dml.spark.task_frames import task_frame
from dml.spark.workers import check_writes
from dml.tasks.row_task import RowTask, discard
from dml.tasks.task_input import TaskInput
from dml.write.carried_rows import CopyRows, RewriteRun
from dml.write.converted_deletes import ConvertDeletes
from dml.write.delta_writer import WriteTask
from dml.write.held_rows import assign_inserts, held_inserts, inserted_rows
from dml.write.writer_spec import WriteJob, WriterSpec

__all__ = [
    "TaskJob",
    "convert_by_tasks",
    "copy_by_tasks",
    "fits_driver",
    "write_batch",
    "write_by_tasks",
    "write_merge_by_tasks",
]

LOG = logging.getLogger(__name__)

TaskFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that tasks run: it takes their numbers, and yields one report per batch."""


def write_by_tasks(
    lazy_session: LazySession,
    program: Program,
    context: ScanContext,
    groups: Sequence[Sequence[ScanTask]],
    table: Table,
    spec: WriterSpec,
) -> WriteOutcome:
    """Run a program over a scan whose filters select exactly the rows of the statement, and write the result.

    Args:
        lazy_session: The Spark session, which starts on first use.
        program: A projection, or changes without a join.
        context: The scan context that all groups share.
        groups: The scan tasks that each task reads; for changes, whole files.
        table: The table to write.
        spec: The write.

    Raises:
        SetupError: The workers run a Python without this package.
        UncomputableValueError: Only Spark can compute a value. No files are left behind.
        DmlError: Reading or writing failed. No files are left behind.
        PySparkException: Spark failed. No files are left behind.
    """
    if not groups:
        return collect_outcome([], table, spec)
    task = RowTask(
        input=TaskInput.of(groups, replace(context, decides_rows=True)), program=program, sink=WriteTask(spec)
    )
    job = TaskJob(lazy_session=lazy_session, task=task, tasks=len(groups), files=flatten(groups))
    return collect_outcome(job.write(table, spec), table, spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskJob:
    """Tasks that run in the driver if they are small, else as a Spark job.

    The driver runs them as one task, because names of new files are unique only within a task.

    Attributes:
        lazy_session: The Spark session, which starts on first use.
        task: The function of the tasks.
        tasks: The number of tasks.
        files: The files that they read.
        inserted_bytes: The size of the rows that they insert, in bytes.
    """

    lazy_session: LazySession
    task: TaskFunction
    tasks: int
    files: Sequence[ScanTask]
    inserted_bytes: float = 0

    def write(self, table: Table, spec: WriterSpec) -> list[TaskReport]:
        """Run the tasks of a write, and return what they report, failures included.

        Raises:
            SetupError: The workers cannot run tasks, or cannot access the files.
            ExecutionError: The storage failed in the driver, and Spark has not started or does not retry tasks.
            PySparkException: Spark failed. All files of the statement are deleted.
        """
        in_driver = self._place(table, spec)
        with delete_on_failure(table, spec):
            return self._run(spec.max_failures, in_driver=in_driver)

    def probe(self, table: Table, spec: WriterSpec) -> Sequence[TaskReport]:
        """Run tasks that write no files, and return what they report.

        Raises:
            SetupError, ExecutionError, PySparkException: As `write`.
            DmlError: The first failure that a task reported.
        """
        return checked_reports(self._run(spec.max_failures, in_driver=self._place(table, spec)))

    def run(self, max_failures: int) -> Sequence[TaskReport]:
        """Run tasks that write no files and whose workers have been checked, and return what they report.

        Raises:
            ExecutionError, PySparkException: As `write`.
            DmlError: The first failure that a task reported.
        """
        return checked_reports(self._run(max_failures, in_driver=self._fits_driver()))

    def _fits_driver(self) -> bool:
        return fits_driver(self.lazy_session, self.files, self.inserted_bytes)

    def _place(self, table: Table, spec: WriterSpec) -> bool:
        """Decide whether the driver runs the tasks. Check the workers unless Spark stays deferred."""
        in_driver = self._fits_driver()
        if not self.lazy_session.is_deferred or not in_driver:
            check_writes(self.lazy_session.spark, table, spec.context)
        return in_driver

    def _run(self, max_failures: int, *, in_driver: bool) -> list[TaskReport]:
        if not in_driver:
            return task_reports(self._frame())
        numbers = pa.record_batch([pa.array(range(self.tasks), pa.int64())], names=["id"])
        try:
            return decode_reports(self.task([numbers]))
        except Exception as error:
            # Tasks report permanent failures. What they raise may be temporary, so Spark's workers retry it.
            if self.lazy_session.is_deferred or max_failures == 1:
                raise
            LOG.warning("The tasks failed in the driver and run again as a Spark job: %s", shown(error))
        return [later_attempt(report) for report in task_reports(self._frame())]

    def _frame(self) -> DataFrame:
        return task_frame(self.lazy_session.spark, self.tasks, self.task, TASK_COMMIT_SCHEMA, self.tasks)


def later_attempt(report: TaskReport) -> TaskReport:
    """Count the driver's attempt, so that files which it may have left are looked for."""
    if isinstance(report, TaskCommit | TaskFailure):
        return replace(report, attempt_number=report.attempt_number + 1)
    return report


def fits_driver(lazy_session: LazySession, files: Sequence[ScanTask], inserted_bytes: float = 0) -> bool:
    """Return whether the driver does the work faster than a Spark job, including the start of Spark if it is needed.

    Args:
        lazy_session: The Spark session, which starts on first use.
        files: The files to read.
        inserted_bytes: The size of the rows to insert, in bytes.
    """
    if not lazy_session.is_deferred:
        most_files, most_bytes = limits.MAX_DRIVER_JOB_FILES, limits.MAX_DRIVER_JOB_BYTES
    else:
        most_files, most_bytes = limits.MAX_DRIVER_FILES, limits.MAX_DRIVER_BYTES
    return len(files) <= most_files and sum(map(bytes_read, files)) + inserted_bytes <= most_bytes


def combine_for_driver(lazy_session: LazySession, groups: Sequence[Sequence[ScanTask]]) -> Sequence[Sequence[ScanTask]]:
    """Return one group instead of several if the driver reads their files, so that it writes fewer files."""
    files = flatten(groups)
    return [files] if len(groups) > 1 and fits_driver(lazy_session, files) else groups


def flatten(groups: Iterable[Sequence[ScanTask]]) -> list[ScanTask]:
    return [task for group in groups for task in group]


def write_batch(lazy_session: LazySession, batch: pa.RecordBatch, table: Table, spec: WriterSpec) -> WriteOutcome:
    """Write rows that the driver holds.

    Raises:
        SetupError: The workers of a session cannot access the files.
        DmlError: Each of `spec.max_failures` attempts failed. No files are left behind.
    """
    if not lazy_session.is_deferred:
        check_writes(lazy_session.spark, table, spec.context)

    def attempt(spec: WriterSpec) -> WriteOutcome:
        with delete_on_failure(table, spec):
            return collect_outcome(decode_reports(WriteTask(spec)(iter([batch]))), table, spec)

    for _ in range(spec.max_failures - 1):
        try:
            return attempt(spec)
        except (ExecutionError, OSError) as error:
            LOG.warning("Writing failed in the driver and is tried again: %s", shown(error))
    return attempt(replace(spec, max_failures=1))


def shown(error: BaseException) -> str:
    """Return an error's text for the log; those of libraries may hold credentials."""
    return str(error) if isinstance(error, DmlError) else type(error).__name__


def decode_reports(reports: Iterable[pa.RecordBatch]) -> list[TaskReport]:
    return [report_from_bytes(report.column(0)[0].as_py()) for report in reports]


def copy_by_tasks(
    lazy_session: LazySession,
    context: ScanContext,
    runs: Sequence[RewriteRun],
    table: Table,
    spec: WriterSpec,
    *,
    reads_ahead: bool,
    more: MoreReports | None = None,
) -> WriteOutcome:
    """Copy the live rows of data files into new files.

    Args:
        lazy_session: The Spark session, which starts on first use.
        context: The scan context of the files, which projects `copied_columns`.
        runs: The files, or parts of files, that each task copies.
        table: The table to write.
        spec: The write.
        reads_ahead: Whether tasks read in a second thread, because other cores would be idle.
        more: Returns the reports of another job of the same write.

    Raises:
        SetupError: The workers run a Python without this package.
        DmlError: Reading or writing failed. No files are left behind.
        PySparkException: Spark failed. No files are left behind.
    """
    task = CopyRows(input=TaskInput.of([(run,) for run in runs], context), spec=spec, reads_ahead=reads_ahead)
    job = TaskJob(lazy_session=lazy_session, task=task, tasks=len(runs), files=flatten(run.tasks for run in runs))
    reports = job.write(table, spec) if runs else []
    return collect_outcome(reports, table, spec, more)


def convert_by_tasks(
    lazy_session: LazySession,
    context: ScanContext,
    groups: Sequence[Sequence[ScanTask]],
    table: Table,
    spec: WriterSpec,
) -> WriteOutcome:
    """Write position deletes of the rows that equality deletes delete.

    Args:
        lazy_session: The Spark session, which starts on first use.
        context: The scan context of the files, without columns.
        groups: The data files of each task, each with the equality deletes to replace.
        table: The table.
        spec: The write.

    Raises:
        SetupError: The workers run a Python without this package.
        DmlError: Reading or writing failed. No files are left behind.
        PySparkException: Spark failed. No files are left behind.
    """
    if not groups:
        return collect_outcome([], table, spec)
    task = ConvertDeletes(input=TaskInput.of(groups, context), spec=spec)
    job = TaskJob(lazy_session=lazy_session, task=task, tasks=len(groups), files=flatten(groups))
    return collect_outcome(job.write(table, spec), table, spec)


def write_merge_by_tasks(
    lazy_session: LazySession,
    source: SentSource,
    scan: Scan,
    groups: Sequence[Sequence[ScanTask]],
    spec: WriterSpec,
    table: Table,
    *,
    distribution: DistributionMode | None,
) -> WriteOutcome:
    """Join the target with a sent source, and write.

    The rows to insert are known once all tasks have probed their rows. A single task knows them by itself. In
    copy-on-write a first job only probes, so that a rewritten file can include a few new rows, and a MERGE adds no file
    to the table. Otherwise the tasks that change rows report which source rows matched; the driver inserts the others,
    or a second job if they are many.

    Args:
        lazy_session: The Spark session, which starts on first use.
        source: The source.
        scan: The scan of the target.
        groups: Its scan tasks by Spark task, whole files.
        spec: The write.
        table: The table.
        distribution: The distribution mode of new rows.

    Raises:
        SetupError: The workers run a Python without this package.
        UncomputableValueError: Only Spark can compute a value. No files are left behind.
        DmlError: Reading or writing failed. No files are left behind.
        PySparkException: Spark failed. No files are left behind.
    """
    merge = MergeJobs(
        lazy_session=lazy_session,
        source=source,
        # Tasks probe the source itself, so the reader needs no key filter.
        context=replace(scan.context, key_filter=None),
        spec=spec,
        table=table,
        distribution=distribution,
    )
    groups = combine_for_driver(lazy_session, groups)
    program = source.program
    if not program.not_matched:
        return collect_outcome(merge.run(groups), table, spec)
    if len(groups) == 1 and source.row_count <= limits.MIN_INSERTS_PER_TASK:
        return collect_outcome(merge.run(groups, inserts_unmatched=True), table, spec)
    if not groups or not (program.matched or program.not_matched_by_source):
        return collect_outcome([], table, spec, lambda: merge.insert(merge.probe(groups)))
    if spec.job is not WriteJob.COPY_ON_WRITE:
        reports = merge.run(groups)
        return collect_outcome(reports, table, spec, lambda: merge.insert(matches_of(reports)))
    matched = merge.probe(groups)
    merge = merge.renew()
    unmatched = source.row_count - len(matched)
    loads = {0: 0} if merge.are_few(unmatched) else merge.inserting_tasks(unmatched, groups)
    return collect_outcome(merge.run(groups, inserts=merge.shares(matched, loads)), table, spec)


def matches_of(reports: Sequence[TaskReport]) -> BitMap:
    """Return the rows of the source that matched in any task."""
    found = [BitMap.deserialize(report.rows) for report in reports if isinstance(report, SourceMatches)]
    return BitMap.union(*found) if found else BitMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJobs:
    """The jobs of one MERGE. The attributes are those of `write_merge_by_tasks`."""

    lazy_session: LazySession
    source: SentSource
    context: ScanContext
    spec: WriterSpec
    table: Table
    distribution: DistributionMode | None

    def run(
        self,
        groups: Sequence[Sequence[ScanTask]],
        *,
        inserts_unmatched: bool = False,
        inserts: Mapping[int, bytes] = MappingProxyType({}),
    ) -> Sequence[TaskReport]:
        """Run a job that writes.

        Args:
            groups: The files that each task reads.
            inserts_unmatched: Whether the only task also inserts the rows of the source without a match.
            inserts: The rows of the source that each task inserts, by the task's number.
        """
        tasks = max(len(groups), *(number + 1 for number in inserts), 0)
        if not tasks:
            return ()
        program = self.source.program
        task = RowTask(
            input=TaskInput.of([*groups, *[()] * (tasks - len(groups))], self.context),
            program=program,
            source=self.source.rows,
            sink=WriteTask(self.spec),
            inserts_unmatched=inserts_unmatched,
            inserts=dict(inserts),
            reports_matches=bool(program.not_matched) and not inserts_unmatched,
        )
        inserts_rows = inserts_unmatched or inserts
        job = TaskJob(
            lazy_session=self.lazy_session,
            task=task,
            tasks=tasks,
            files=flatten(groups),
            inserted_bytes=self.source.row_count * self.source.row_bytes if inserts_rows else 0,
        )
        return job.write(self.table, self.spec)

    def insert(self, matched: BitMap) -> Sequence[TaskReport]:
        """Insert the rows of the source without a match: a few on the driver, many by a job.

        Args:
            matched: The rows of the source that match.
        """
        unmatched, merge = self.source.row_count - len(matched), self.renew()
        if not self.are_few(unmatched):
            loads = self.inserting_tasks(unmatched, ())
            return merge.run((), inserts=self.shares(matched, loads))
        rows = inserted_rows(self.source.program, self.source.rows, matched)
        return [] if rows is None else [held_inserts(rows, merge.spec)]

    def are_few(self, rows: int) -> bool:
        """Return whether the driver can write this many rows of the source itself."""
        return rows * self.source.row_bytes <= limits.MAX_DRIVER_INSERT_BYTES

    def renew(self) -> "MergeJobs":
        """Return the same jobs, with new credentials if the old ones have expired."""
        table, spec = with_live_storage(self.table, self.spec)
        if table is self.table:
            return self
        context = replace(self.context, io_properties=dict(spec.context.io_properties))
        return replace(self, table=table, spec=spec, context=context)

    def inserting_tasks(self, unmatched: int, groups: Sequence[Sequence[ScanTask]]) -> dict[int, int]:
        """Return the numbers of the tasks with the fewest rows, which insert, and how many other rows each writes.

        Args:
            unmatched: The number of rows of the source without a match.
            groups: The files that each task reads.
        """
        is_range = self.distribution is DistributionMode.RANGE
        count = 1 if is_range else min(self.spec.tasks, -(-unmatched // limits.MIN_INSERTS_PER_TASK))
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
        return assign_inserts(
            self.source.program, self.source.rows, self.spec, matched, loads, by_partition=by_partition
        )

    def probe(self, groups: Sequence[Sequence[ScanTask]]) -> BitMap:
        """Find the source rows that match, by a job that reads only the columns of the join.

        Raises:
            UncomputableValueError: Only Spark can compute a value.
            DmlError: A file cannot be read.
        """
        if not groups:
            return BitMap()
        program: Changes = replace(self.source.program, matched=(), not_matched=(), not_matched_by_source=())
        assert program.join is not None
        read = {*program.join.key_ids, *(found for found in column_ids(program.join.residual) if found >= 0)}
        task = RowTask(
            input=TaskInput.of(groups, replace(self.context, projected_ids=tuple(sorted(read)))),
            program=program,
            source=self.source.rows,
            sink=discard,
            reports_matches=True,
        )
        job = TaskJob(lazy_session=self.lazy_session, task=task, tasks=len(groups), files=flatten(groups))
        return matches_of(job.probe(self.table, self.spec))
