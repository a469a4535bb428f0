"""Run writers as Spark jobs: their settings, the run, the outcome, and cleanup after a failed statement. Driver.

Tasks report the paths of their files. If Spark itself fails, finished tasks do not report any more: their files are
found by the statement's id, which is part of each name.

A setting of a write may be given in several places: a write option overrides the session's setting
`spark.sql.iceberg.` with the same name, which overrides the table's property, as in the reference (`SparkWriteConf`).
`PLACES` lists the places of each setting; the table in docs/configuration.md is generated from it. Compression is that
of the format that is written, of data files and of delete files.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from dml import limits
from dml.catalog.credentials import storage_properties
from dml.catalog.tables import with_live_credentials
from dml.commit import RowCounts
from dml.errors import AnalysisError, CommitStateUnknownError, DmlError, ErrorKind, ExecutionError, SetupError
from dml.files.file_io import delete_files, is_fsspec
from dml.files.schemes import check_location, local_path
from dml.model.columns import FITS
from dml.model.manifest import ContentFile
from dml.model.write_task import (
    ChangedFile,
    JoinedDataFile,
    RowOrigins,
    SplicedDataFile,
    TaskCommit,
    TaskFailure,
    TaskMetrics,
    TaskReport,
    WriteContext,
    report_from_bytes,
)
from dml.options import (
    ADVISORY_PARTITION_SIZE,
    AVRO_COMPRESSION,
    DEFAULT_FILE_FORMAT,
    DELETE_AVRO_COMPRESSION,
    DELETE_DEFAULT_FILE_FORMAT,
    DELETE_ORC_COMPRESSION,
    DELETE_PARQUET_COMPRESSION,
    HOOK_PROPERTIES,
    ORC_COMPRESSION,
    ORC_COMPRESSION_STRATEGY,
    PARQUET_COMPRESSION,
    PARQUET_COMPRESSION_LEVEL,
    PARQUET_SHRED_VARIANTS,
    PARQUET_VARIANT_INFERENCE_ROWS,
    SPARK_FANOUT_ENABLED,
    WRITE_DATA_PATH,
    WRITE_DISTRIBUTION_MODE,
    WRITE_TARGET_FILE_SIZE,
    Command,
    DistributionMode,
    WriteOptions,
    choice,
    distribution_mode_of,
    integer,
)
from dml.scan.split import TARGET_SIZE, ChangeDistribution
from dml.spark.jobs import await_end_on_failure
from dml.spark.row_batches import ROW_LIMIT_PROPERTIES, can_limit_by_rows, has_cheap_lengths, mask_long_rows
from dml.spark.workers import check_writes
from dml.write.held_rows import write_joined_files
from dml.write.sent_rows import LongRowCheck, LongRowError
from dml.write.writer_spec import WriterSpec

if TYPE_CHECKING:
    from pyiceberg.io.fsspec import FsspecFileIO

__all__ = [
    "PLACES",
    "TASK_COMMIT_SCHEMA",
    "WRITE_OPTIONS",
    "MoreReports",
    "Place",
    "UncommittedFiles",
    "WriteOutcome",
    "change_distribution",
    "checked_reports",
    "collect_outcome",
    "delete_on_failure",
    "delete_uncommitted",
    "failures_of",
    "output_spec",
    "run_writer",
    "task_reports",
    "with_live_storage",
    "write_context",
    "write_properties",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A write setting and the places where it can be given.

    Attributes:
        name: The write option, and the end of the session's setting.
        properties: The table's properties, one for each file format.
        option: Whether there is a write option.
        session: Whether there is a setting of the session.
    """

    name: str
    properties: tuple[str, ...]
    option: bool = False
    session: bool = False


CODECS: Final = {"parquet": PARQUET_COMPRESSION, "orc": ORC_COMPRESSION, "avro": AVRO_COMPRESSION}
DELETE_CODECS: Final = {
    "parquet": DELETE_PARQUET_COMPRESSION,
    "orc": DELETE_ORC_COMPRESSION,
    "avro": DELETE_AVRO_COMPRESSION,
}
CODEC: Final = "compression-codec"

PLACES: Final = (
    Place(name="write-format", properties=(DEFAULT_FILE_FORMAT,), option=True),
    Place(name="target-file-size-bytes", properties=(WRITE_TARGET_FILE_SIZE,), option=True),
    Place(name="fanout-enabled", properties=(SPARK_FANOUT_ENABLED,), option=True),
    Place(name="distribution-mode", properties=(WRITE_DISTRIBUTION_MODE,), option=True, session=True),
    Place(name="advisory-partition-size", properties=(ADVISORY_PARTITION_SIZE,), option=True, session=True),
    Place(name=CODEC, properties=(*CODECS.values(), *DELETE_CODECS.values()), option=True, session=True),
    Place(name="compression-level", properties=(PARQUET_COMPRESSION_LEVEL,), option=True, session=True),
    Place(name="compression-strategy", properties=(ORC_COMPRESSION_STRATEGY,), option=True, session=True),
    Place(name="shred-variants", properties=(PARQUET_SHRED_VARIANTS,), option=True, session=True),
    Place(
        name="variant-inference-buffer-size", properties=(PARQUET_VARIANT_INFERENCE_ROWS,), option=True, session=True
    ),
    *(Place(name=name, properties=(name,), session=True) for name in HOOK_PROPERTIES),
)

WRITE_OPTIONS: Final = frozenset(place.name for place in PLACES if place.option)
OF_SESSION: Final = frozenset(place.name for place in PLACES if place.session)
PROPERTIES: Final = {place.name: place.properties[0] for place in PLACES if place.option and place.name != CODEC}


def write_properties(
    options: Mapping[str, str], session: Mapping[str, str], table: Mapping[str, str]
) -> dict[str, str]:
    """Return the table properties that options and the session override for one write.

    Args:
        options: The write's options, by name.
        session: The session's settings, by name.
        table: The table's properties.
    """
    given = {**{name: value for name, value in session.items() if name in OF_SESSION}, **options}
    found = {key: given[name] for name, key in PROPERTIES.items() if name in given}
    if CODEC in given:
        properties = {**table, **found}
        data = properties.get(DEFAULT_FILE_FORMAT, "parquet").lower()
        deletes = properties.get(DELETE_DEFAULT_FILE_FORMAT, data).lower()
        # An unknown format is rejected where files are opened.
        codecs = (CODECS.get(data), DELETE_CODECS.get(deletes))
        found |= {key: given[CODEC] for key in codecs if key is not None}
    return found


def change_distribution(
    properties: Mapping[str, str], session: Mapping[str, str], command: Command
) -> ChangeDistribution:
    """Return the distribution of a command's rows from the session's settings, else the table's properties.

    Args:
        properties: The table's properties.
        session: The session's settings below `spark.sql.iceberg.`, without this prefix.
        command: The command.

    Raises:
        AnalysisError: a value is invalid.
    """
    key = distribution_mode_of(command)
    places = {"distribution-mode": key, "advisory-partition-size": ADVISORY_PARTITION_SIZE}
    given = {**properties, **{key: session[name] for name, key in places.items() if name in session}}
    return ChangeDistribution(
        mode=choice(given, key, DistributionMode, DistributionMode.HASH) if key in given else None,
        advisory_size=integer(given, ADVISORY_PARTITION_SIZE, TARGET_SIZE, minimum=1),
    )


def output_spec(table: Table, spec_id: int | None) -> PartitionSpec:
    """Return the partition spec of new files: the table's, or another one of its history.

    Raises:
        AnalysisError: the table has no such spec, or a column of it was dropped.
    """
    if spec_id is None:
        return table.spec()
    spec = table.specs().get(spec_id)
    if spec is None:
        raise AnalysisError(
            f"The write option 'output-spec-id' is {spec_id}, and the table has no such partition spec",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It has " + ", ".join(str(known) for known in sorted(table.specs())),
            option="output-spec-id",
        )
    ids = table.schema().field_ids
    dropped = [field.name for field in spec.fields if field.source_id not in ids and not is_void(field)]
    if dropped:
        raise AnalysisError(
            f"The partition spec {spec.spec_id} has the field '{dropped[0]}', whose column was dropped from the table",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="Use another partition spec",
            option="output-spec-id",
        )
    return spec


def is_void(field: PartitionField) -> bool:
    return isinstance(field.transform, VoidTransform)


LOG = logging.getLogger(__name__)

# A schema in text form would have to be parsed by the JVM.
TASK_COMMIT_SCHEMA: Final = StructType([StructField("task_commit", BinaryType())])

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """The combined outcome of all tasks of a write.

    Attributes:
        data_files: New data files.
        delete_files: New delete files.
        removed_data_files: Paths of the removed data files.
        rewritten_delete_files: Keys of the delete files that new ones replace.
        referenced_data_files: Paths of the data files that new delete files point to.
        changed_files: The changes to each data file that lost or changed rows.
        spliced_files: The spliced ones of `data_files`.
        joined_files: Those of copied row groups.
        row_origins: The old positions of the rows of rewritten data files, as far as tasks reported them.
        metrics: Sums.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    rewritten_delete_files: frozenset[tuple[str, int | None, int | None]] = frozenset()
    referenced_data_files: frozenset[str] = frozenset()
    changed_files: tuple[ChangedFile, ...] = ()
    spliced_files: tuple[SplicedDataFile, ...] = ()
    joined_files: tuple[JoinedDataFile, ...] = ()
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
                    "Two tasks changed the same data file: its rows were not distributed to one task",
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
            joined_files=tuple(file for message in messages for file in message.joined_files),
            row_origins=tuple(origins for message in messages for origins in message.row_origins),
            metrics=sum((message.metrics for message in messages), TaskMetrics()),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.data_files or self.delete_files or self.removed_data_files)

    @property
    def row_counts(self) -> RowCounts:
        """The row counts, for row conservation."""
        metrics = self.metrics
        return RowCounts(
            deleted=metrics.rows_deleted,
            updated=metrics.rows_updated,
            inserted=metrics.rows_inserted,
            carried=metrics.rows_carried,
        )

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all new files."""
        return frozenset(file.path for file in (*self.data_files, *self.delete_files))


def write_context(
    table: Table,
    query_id: str,
    *,
    sorted_by_table_order: bool = False,
    overriding: Mapping[str, str] = MappingProxyType({}),
    output_spec_id: int | None = None,
) -> WriteContext:
    """Return the context of a write, for its tasks.

    Args:
        table: The table.
        query_id: A UUID.
        sorted_by_table_order: Whether rows arrive in the table's sort order.
        overriding: Table properties for this write alone.
        output_spec_id: The partition spec of new data files; None for the table's.

    Raises:
        AnalysisError: a property of the table has an invalid value.
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
"""Returns more reports, of another job or of rows that the driver writes."""


def run_writer(frame: DataFrame, function: ArrowFunction, table: Table, spec: WriterSpec) -> WriteOutcome:
    """Run the writers over the rows of a DataFrame.

    Args:
        frame: The rows, distributed and ordered for the writers.
        function: The function of each task: rows in, one report out.
        table: The table.
        spec: The job.

    Returns:
        What all tasks wrote, including the held rows that the driver wrote for them.

    Raises:
        SetupError: the workers run a Python without this package.
        DmlError: the first failure that a task reported; the files of all tasks are deleted.
        PySparkException: Spark failed; the files of all tasks are deleted.
    """
    check_writes(frame.sparkSession, table, spec.context)
    if table.location() not in TABLES_WITH_LONG_ROWS and can_limit_by_rows(frame) and has_cheap_lengths(frame):
        try:
            return run_with_row_limit(frame, function, table, spec)
        except LongRowError:
            TABLES_WITH_LONG_ROWS.add(table.location())
    with delete_on_failure(table, spec):
        reports = task_reports(frame.mapInArrow(function, TASK_COMMIT_SCHEMA))
    return collect_outcome(reports, table, spec)


TABLES_WITH_LONG_ROWS: Final[set[str]] = set()
"""Locations of tables to which this process has written a long row. Later writes to them keep Spark's byte limit."""


def run_with_row_limit(frame: DataFrame, function: ArrowFunction, table: Table, spec: WriterSpec) -> WriteOutcome:
    """Run the writers with batches that are limited by row count alone.

    Raises:
        LongRowError: A row exceeds `MAX_WORKER_ROW_BYTES`; the files of all tasks are deleted.
    """
    checked = mask_long_rows(frame, limits.MAX_WORKER_ROW_BYTES)
    write = LongRowCheck(function) if FITS in checked.columns else function
    with delete_on_failure(table, spec):
        reports = task_reports(checked.mapInArrow(write, TASK_COMMIT_SCHEMA), ROW_LIMIT_PROPERTIES)
    return collect_outcome(reports, table, spec)


@contextmanager
def delete_on_failure(table: Table, spec: WriterSpec) -> Iterator[None]:
    """Delete all files of a write if the block fails or is interrupted."""
    try:
        yield
    except BaseException:  # the job's other tasks have been stopped: `await_end_on_failure`
        delete_uncommitted(table, spec.context)
        raise


def task_reports(reports: DataFrame, properties: Mapping[str, str] = MappingProxyType({})) -> list[TaskReport]:
    """Run tasks and return what they report, failures included.

    Args:
        reports: Of `TASK_COMMIT_SCHEMA`; running it writes. Make it after `check_writes`, because the Python of its
            function is chosen when the DataFrame is made.
        properties: Local properties of the job.

    Raises:
        PySparkException: Spark failed; no task runs any more.
    """
    with await_end_on_failure(reports.sparkSession, properties):
        rows = reports.collect()
    return [report_from_bytes(bytes(row[0])) for row in rows]


def commits_of(reports: Iterable[TaskReport]) -> list[TaskCommit]:
    return [report for report in reports if isinstance(report, TaskCommit)]


def checked_reports(reports: Sequence[TaskReport]) -> Sequence[TaskReport]:
    """Return the reports of tasks that write no data files.

    Raises:
        DmlError: The first failure that a task reported.
    """
    for failure in failures_of(reports):
        raise failure.error
    return reports


def failures_of(reports: Iterable[TaskReport]) -> list[TaskFailure]:
    """Return the failures among reports."""
    return [report for report in reports if isinstance(report, TaskFailure)]


def collect_outcome(
    reports: Sequence[TaskReport], table: Table, spec: WriterSpec, more: MoreReports | None = None
) -> WriteOutcome:
    """Return what the tasks of a finished job wrote; the files of other attempts are deleted.

    The driver writes the held rows of all tasks.

    Args:
        reports: The report of each task.
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
    """Check that the driver sees local files with the size that the tasks wrote.

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
    return frozenset(file.path for commit in commits for file in (*commit.data_files, *commit.delete_files))


class UncommittedFiles:
    """Deletes a write's files if the block raises an error which means that nothing was committed.

    Only RowDelta's own errors mean that. After an interrupt or an unforeseen error, the commit may have succeeded:
    unused files cost little, but deleting the files of a snapshot loses rows.

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
        paths: The files, if all tasks reported theirs; None lists them by the statement's id.
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
    """Delete the files of killed attempts, whose tasks other attempts completed.

    Files that such an attempt writes afterwards are orphans.

    Args:
        table: The table.
        context: The write.
        wanted: The files of the successful attempts.
    """
    try:
        # Names are unique, while one location may be spelled in two ways.
        names = {location.rpartition("/")[2] for location in wanted}
        found = files_named(table.io, context.data_location, context.query_id)
        delete_files(table.io, [location for location in found if location.rpartition("/")[2] not in names])
    except Exception as error:  # noqa: BLE001 - the statement goes on: unused files cost little
        LOG.warning(
            "Files of failed attempts of the statement %s may be left in %s: %s",
            context.query_id,
            context.data_location,
            error,
        )


def files_named(io: FileIO, location: str, part: str) -> Iterator[str]:
    """Yield the files below a location whose names contain a part.

    Without a storage that can list, files remain until orphans are removed.

    Raises:
        NotSupportedError: the table may have no files there.
    """
    check_location(io, location)
    match io:
        case PyArrowFileIO():
            return arrow_files_named(io, location, part)
        case _ if is_fsspec(io):
            return fsspec_files_named(io, location, part)
        case _:
            LOG.warning("Files of the failed statement %s may be left in %s: the storage cannot list", part, location)
            return iter(())


def arrow_files_named(io: PyArrowFileIO, location: str, part: str) -> Iterator[str]:
    scheme, netloc, path = io.parse_location(location, io.properties)
    filesystem = io.fs_by_scheme(scheme, netloc)
    selector = arrow_fs.FileSelector(path, recursive=True, allow_not_found=True)
    prefix = location[: len(location) - len(path)] if location.endswith(path) else ""
    for info in filesystem.get_file_info(selector):
        if info.type == arrow_fs.FileType.File and part in info.base_name:
            yield f"{prefix}{info.path}"


def fsspec_files_named(io: "FsspecFileIO", location: str, part: str) -> Iterator[str]:
    uri = urlsplit(location)
    filesystem = io.get_fs(uri.scheme or "file", uri.hostname)
    filesystem.invalidate_cache()  # workers have written since this process last listed
    for path in filesystem.find(location):
        if part in path.rpartition("/")[2]:
            yield filesystem.unstrip_protocol(path)
