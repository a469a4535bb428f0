"""Writers as Spark jobs: run, collect what the tasks wrote, and delete what a failed statement leaves behind. Driver.

Files of tasks that reported are known by path. Where Spark itself failed, tasks that had finished do not report any
more: their files are found by the statement's id, which stands in each name.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from dml.catalog.credentials import storage_properties
from dml.catalog.tables import with_live_credentials
from dml.commit import RowCounts
from dml.errors import CommitStateUnknownError, DmlError, ExecutionError, SetupError
from dml.files.deletion import delete_files
from dml.files.schemes import check_location, local_path
from dml.model.manifest import ContentFile
from dml.model.write_task import (
    ChangedFile,
    RowOrigins,
    SplicedDataFile,
    TaskCommit,
    TaskFailure,
    TaskMetrics,
    TaskReport,
    WriteContext,
    report_from_bytes,
)
from dml.options import WRITE_DATA_PATH, WriteOptions
from dml.spark.jobs import ended_on_failure
from dml.spark.shared_files import check_writes
from dml.write.held_rows import write_joined_files
from dml.write.writer_spec import WriterSpec

__all__ = [
    "TASK_COMMIT_SCHEMA",
    "MoreReports",
    "UncommittedFiles",
    "WriteOutcome",
    "failures_of",
    "run_writer",
    "task_reports",
    "with_live_storage",
    "write_context",
    "written_by",
]

LOG = logging.getLogger(__name__)

# No text, which the JVM would have to parse.
TASK_COMMIT_SCHEMA: Final = StructType([StructField("task_commit", BinaryType())])

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """What all tasks of a write did.

    Attributes:
        data_files: New data files.
        delete_files: New delete files.
        removed_data_files: Paths of the data files that left.
        rewritten_delete_files: Keys of the delete files that new ones replace.
        referenced_data_files: Paths of the data files that new delete files point to.
        changed_files: What became of the rows of the data files that lost or changed some.
        spliced_files: Those of `data_files` of which much was copied.
        row_origins: Where the rows of rewritten data files were, as far as tasks reported them.
        metrics: Sums.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    rewritten_delete_files: frozenset[tuple[str, int | None, int | None]] = frozenset()
    referenced_data_files: frozenset[str] = frozenset()
    changed_files: tuple[ChangedFile, ...] = ()
    spliced_files: tuple[SplicedDataFile, ...] = ()
    row_origins: tuple[RowOrigins, ...] = ()
    metrics: TaskMetrics

    @staticmethod
    def of(commits: Iterable[TaskCommit]) -> "WriteOutcome":
        """Add up task commits.

        Raises:
            ExecutionError: two tasks changed one data file, so that rows would be carried twice.
        """
        messages = list(commits)
        for paths in ("removed_data_files", "referenced_data_files"):
            named = [path for message in messages for path in getattr(message, paths)]
            if len(named) != len(set(named)):
                raise ExecutionError(
                    "Two tasks changed one data file: its rows did not come to one task",
                    hint="Nothing was changed. Please report the statement",
                    files=tuple(sorted({path for path in named if named.count(path) > 1})),
                )
        return WriteOutcome(
            data_files=tuple(file for message in messages for file in message.data_files),
            delete_files=tuple(file for message in messages for file in message.delete_files),
            removed_data_files=frozenset(path for message in messages for path in message.removed_data_files),
            rewritten_delete_files=frozenset(key for message in messages for key in message.rewritten_delete_files),
            referenced_data_files=frozenset(path for message in messages for path in message.referenced_data_files),
            changed_files=tuple(file for message in messages for file in message.changed_files),
            spliced_files=tuple(file for message in messages for file in message.spliced_files),
            row_origins=tuple(origins for message in messages for origins in message.row_origins),
            metrics=sum((message.metrics for message in messages), TaskMetrics()),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.data_files or self.delete_files or self.removed_data_files)

    @property
    def row_counts(self) -> RowCounts:
        """The rows, as they have to add up."""
        metrics = self.metrics
        return RowCounts(
            deleted=metrics.rows_deleted,
            updated=metrics.rows_updated,
            inserted=metrics.rows_inserted,
            carried=metrics.rows_carried,
        )

    @property
    def paths(self) -> frozenset[str]:
        """All new files."""
        return frozenset(file.path for file in (*self.data_files, *self.delete_files))


def write_context(
    table: Table,
    query_id: str,
    *,
    sorted_by_table_order: bool = False,
    overriding: Mapping[str, str] = MappingProxyType({}),
    output_spec_id: int | None = None,
) -> WriteContext:
    """The target of a write, for its tasks.

    Args:
        table: The table.
        query_id: A UUID.
        sorted_by_table_order: Whether rows arrive in the table's sort order.
        overriding: Table properties for this write alone.
        output_spec_id: The partition spec of new data files; None for the table's.

    Raises:
        AnalysisError: a property of the table has a value that it cannot have.
    """
    location = table.location().rstrip("/")
    properties = {str(key): str(value) for key, value in table.properties.items()} | dict(overriding)
    return WriteContext(
        query_id=query_id,
        format_version=table.format_version,
        schema_json=table.schema().model_dump_json(),
        specs_json=tuple((spec_id, spec.model_dump_json()) for spec_id, spec in table.specs().items()),
        default_spec_id=table.spec().spec_id if output_spec_id is None else output_spec_id,
        sort_order_json=table.sort_order().model_dump_json(),
        data_location=properties.get(WRITE_DATA_PATH, f"{location}/data").rstrip("/"),
        table_location=location,
        properties=properties,
        io_properties=storage_properties(table.io.properties),
        options=WriteOptions.from_properties(properties),
        row_lineage=table.format_version >= 3,
        sorted_by_table_order=sorted_by_table_order,
    )


MoreReports = Callable[[], Sequence[TaskReport]]
"""Takes the commits of all tasks and returns more: of another job, or of rows that are left to the driver."""


def run_writer(frame: DataFrame, function: ArrowFunction, table: Table, spec: WriterSpec) -> WriteOutcome:
    """Run the writers over the rows of a DataFrame.

    Args:
        frame: The rows, distributed and ordered as the writers want them.
        function: The function of each task: rows in, one report out.
        table: The table.
        spec: The job.

    Returns:
        What all tasks wrote, and the driver of what they left to it.

    Raises:
        SetupError: the workers run a Python without this package.
        DmlError: the first failure that a task reported; the files of all tasks are deleted.
        PySparkException: Spark failed; the files of all tasks are deleted.
    """
    check_writes(frame.sparkSession, table, spec.context)
    reports = task_reports(frame.mapInArrow(function, TASK_COMMIT_SCHEMA), table, spec)
    return written_by(reports, table, spec)


def task_reports(reports: DataFrame, table: Table, spec: WriterSpec) -> list[TaskReport]:
    """Run the tasks of a write and return what they report, failures included.

    Args:
        reports: Of `TASK_COMMIT_SCHEMA`: running it writes, and gives the reports of the tasks. Made after
            `check_writes`, for a function's Python is chosen when its DataFrame is made.
        table: The table.
        spec: The job.

    Raises:
        PySparkException: Spark failed; all files of the statement are deleted.
    """
    try:
        with ended_on_failure(reports.sparkSession):
            rows = reports.collect()
    except BaseException:  # a failure, or an interrupt: the job's other tasks have been asked to stop, and have ended
        delete_uncommitted(table, spec.context)
        raise
    return [report_from_bytes(bytes(row[0])) for row in rows]


def commits_of(reports: Iterable[TaskReport]) -> list[TaskCommit]:
    """Return the commits among reports."""
    return [report for report in reports if isinstance(report, TaskCommit)]


def failures_of(reports: Iterable[TaskReport]) -> list[TaskFailure]:
    """Return the failures among reports."""
    return [report for report in reports if isinstance(report, TaskFailure)]


def written_by(
    reports: Sequence[TaskReport], table: Table, spec: WriterSpec, more: MoreReports | None = None
) -> WriteOutcome:
    """What the tasks of a job that has ended wrote; what else attempts of tasks left is deleted.

    The few rows that tasks left to the driver are written here.

    Args:
        reports: Of each task.
        table: The table.
        spec: The job.
        more: Returns more reports to add. It is called if no task failed.

    Raises:
        DmlError: the first failure that a task reported, or that of the driver; the files of all tasks are deleted.
    """
    try:
        if more is not None and not failures_of(reports):
            reports = [*reports, *more()]
        table, spec = with_live_storage(table, spec)  # a job may have outlived the credentials that it started with
    except BaseException:  # also an interrupt: nothing of this statement has been committed
        delete_uncommitted(table, spec.context, new_paths(commits_of(reports)))
        raise
    context, commits, failures = spec.context, commits_of(reports), failures_of(reports)
    ended: list[TaskCommit | TaskFailure] = [*commits, *failures]
    retried = any(report.attempt_number for report in ended)
    if failures:
        delete_uncommitted(table, context, None if retried else new_paths(commits))
        raise failures[0].error
    if retried:
        delete_others(table, context, new_paths(commits))
    try:
        joined = write_joined_files(spec, commits)
    except BaseException:
        delete_uncommitted(table, context, new_paths(commits))
        raise
    commits = commits if joined is None else [*commits, joined]
    try:
        check_visible_files(file for commit in commits for file in (*commit.data_files, *commit.delete_files))
        return WriteOutcome.of(commits)
    except DmlError:
        delete_uncommitted(table, context, new_paths(commits))
        raise


def with_live_storage(table: Table, spec: WriterSpec) -> tuple[Table, WriterSpec]:
    """Return a table and its write, with new credentials if the old ones have expired.

    Raises:
        DmlError: The catalog does not answer, or the table is no longer there.
    """
    fresh = with_live_credentials(table)
    if fresh is table:
        return table, spec
    properties = storage_properties(fresh.io.properties)
    files = spec.files
    if files is not None:
        files = replace(files, context=replace(files.context, io_properties=properties))
    return fresh, replace(spec, files=files, context=replace(spec.context, io_properties=properties))


def check_visible_files(files: Iterable[ContentFile]) -> None:
    """Refuse to commit local files that the driver does not see with the size that the tasks wrote.

    `check_writes` checked the location earlier, but an executor may have joined since on a host without the mount.

    Raises:
        SetupError: the driver does not see a file.
    """
    for file in files:
        path = local_path(file.path)
        if path is not None and not has_size(path, file.file_size_in_bytes):
            raise SetupError(
                f"A task wrote '{file.path}', but the driver does not see the file; nothing was committed",
                hint="Keep the tables of a cluster in object storage or HDFS, or mount one shared file system at this "
                "path on the driver and on every worker",
                file=file.path,
            )


def has_size(path: str, size: int) -> bool:
    try:
        return Path(path).stat().st_size == size
    except OSError:
        return False


def new_paths(commits: Sequence[TaskCommit]) -> frozenset[str]:
    """All files that tasks wrote."""
    return frozenset(file.path for commit in commits for file in (*commit.data_files, *commit.delete_files))


class UncommittedFiles:
    """Deletes a write's files when the block is left by an error that says that nothing was committed.

    Only errors of ours say that. After an interrupt, or anything unforeseen, the commit may be live: files that nobody
    needs cost little, files that a snapshot needs are lost rows.

    Args:
        table: The table.
        context: The write.
        outcome: What was written.
    """

    def __init__(self, table: Table, context: WriteContext, outcome: WriteOutcome) -> None:
        self.table, self.context, self.outcome = table, context, outcome

    def __enter__(self) -> "UncommittedFiles":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, DmlError) and not isinstance(error, CommitStateUnknownError):
            delete_uncommitted(self.table, self.context, self.outcome.paths)


def delete_uncommitted(table: Table, context: WriteContext, paths: Collection[str] | None = None) -> None:
    """Delete the files of a statement that was not committed; its tasks have ended.

    Args:
        table: The table.
        context: The write.
        paths: The files, where all tasks reported theirs; None looks for them.
    """
    try:
        table = with_live_credentials(table)
        if paths is None:
            paths = list(files_named(table.io, context.data_location, context.query_id))
        delete_files(table.io, paths)
    except Exception as error:  # noqa: BLE001 - the failure that led here is the one to report
        LOG.warning(
            "Files of the failed statement %s may be left in %s: %s", context.query_id, context.data_location, error
        )


def delete_others(table: Table, context: WriteContext, wanted: Collection[str]) -> None:
    """Delete the files of attempts that were killed, where others have done their tasks.

    What such an attempt writes after this is an orphan.

    Args:
        table: The table.
        context: The write.
        wanted: The files of the attempts that count.
    """
    try:
        names = {location.rpartition("/")[2] for location in wanted}  # unique, where locations may be written two ways
        found = files_named(table.io, context.data_location, context.query_id)
        delete_files(table.io, [location for location in found if location.rpartition("/")[2] not in names])
    except Exception as error:  # noqa: BLE001 - the statement goes on: files that nobody needs cost little
        LOG.warning(
            "Files of failed attempts of the statement %s may be left in %s: %s",
            context.query_id,
            context.data_location,
            error,
        )


def files_named(io: FileIO, location: str, part: str) -> Iterator[str]:
    """Files below a location whose names have a part.

    Only storages that can list are asked; others keep the files until orphans are removed.

    Raises:
        NotSupportedError: the table may have no files there.
    """
    check_location(io, location)
    match io:
        case PyArrowFileIO():
            return arrow_files_named(io, location, part)
        case FsspecFileIO():
            return fsspec_files_named(io, location, part)
        case _:
            LOG.warning("Files of the failed statement %s may be left in %s: the storage cannot list", part, location)
            return iter(())


def arrow_files_named(io: PyArrowFileIO, location: str, part: str) -> Iterator[str]:
    """`files_named` where PyArrow lists."""
    scheme, netloc, path = io.parse_location(location, io.properties)
    filesystem = io.fs_by_scheme(scheme, netloc)
    selector = arrow_fs.FileSelector(path, recursive=True, allow_not_found=True)
    prefix = location[: len(location) - len(path)] if location.endswith(path) else ""
    for info in filesystem.get_file_info(selector):
        if info.type == arrow_fs.FileType.File and part in info.base_name:
            yield f"{prefix}{info.path}"


def fsspec_files_named(io: FsspecFileIO, location: str, part: str) -> Iterator[str]:
    """`files_named` where fsspec lists."""
    uri = urlsplit(location)
    filesystem = io.get_fs(uri.scheme or "file", uri.hostname)
    filesystem.invalidate_cache()  # workers have written since this process looked last
    for path in filesystem.find(location):
        if part in path.rpartition("/")[2]:
            yield filesystem.unstrip_protocol(path)
