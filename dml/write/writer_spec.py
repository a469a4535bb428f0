"""Describe one write job as a picklable value, and check that it is supported. Made on the driver, read by workers.

Input: the table, the columns of the rows. Output: `WriterSpec`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pyiceberg.partitioning import PartitionSpec

from dml import limits
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.model.columns import DeltaLayout
from dml.model.write_task import WriteContext
from dml.options import DEFAULT_FILE_FORMAT, DELETE_DEFAULT_FILE_FORMAT, WriteOptions
from dml.read.reader import TargetFiles
from dml.rows.space_filling_curves import Curve
from dml.write.avro import check_avro_codec
from dml.write.file_layout import file_layout
from dml.write.orc import check_orc_codec
from dml.write.parquet import check_codec
from dml.write.partition_values import PartitionRouter

__all__ = ["DELETE_FILE_VERSION", "DELETION_VECTOR_VERSION", "WriteJob", "WriterSpec", "check_writable", "current_spec"]

DELETION_VECTOR_VERSION: Final = 3
DELETE_FILE_VERSION: Final = 2


class WriteJob(StrEnum):
    """How a job writes its rows."""

    ROWS = "rows"
    CARRIED_ROWS = "carried-rows"
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"
    CHOSEN_BY_FILE = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSpec:
    """One write job, for all its tasks.

    Attributes:
        job: How the rows are written.
        context: The table.
        layout: The columns of the delta. For `ROWS`, the rows have only its `value_ids`.
        files: The data files that a delta changes; None for `ROWS`.
        max_failures: The maximum attempts of a task (`spark.task.maxFailures`).
        sorts_rows: True if rows arrive unsorted and writers sort them by the table's sort order, or along the curve.
        curve: The space-filling curve of a compaction that sorts rows along one.
        tracks_origins: True if tasks report where the rows of replacement files come from.
        splices: True if carried rows keep their order, so that files can be spliced.
        deletes: True if the statement may delete rows.
        tasks: The approximate number of writing tasks.
        joins_tasks: True if tasks leave few rows to the driver, to share one file per partition.
    """

    job: WriteJob
    context: WriteContext
    layout: DeltaLayout
    files: TargetFiles | None = field(default=None, repr=False)
    max_failures: int = 1
    sorts_rows: bool = False
    curve: Curve | None = None
    tracks_origins: bool = False
    splices: bool = False
    deletes: bool = False
    tasks: int = 1
    joins_tasks: bool = False

    @property
    def max_report_bytes(self) -> int:
        """The limit for the row-level part of a task's report, in bytes."""
        return limits.MAX_ALL_REPORT_BYTES // max(1, self.tasks)

    def max_held_bytes(self, partition_id: int) -> int:
        """Return the maximum bytes that a task may leave to the driver.

        The number of tasks may be unknown before they run. The limit therefore falls with the task's own number, which
        bounds the total of a job with very many tasks.

        Args:
            partition_id: The number of the task.
        """
        if not self.joins_tasks:
            return 0
        return min(limits.MAX_TASK_HELD_BYTES, limits.MAX_ALL_HELD_BYTES // max(1, self.tasks, partition_id + 1))

    @property
    def row_lineage(self) -> bool:
        """True if new files hold the row lineage columns. Files of new rows alone do not need them."""
        return self.context.row_lineage and self.job is not WriteJob.ROWS

    @property
    def writes_rows(self) -> bool:
        """True if the job may write data files."""
        return self.job is not WriteJob.MERGE_ON_READ or bool(self.layout.assigned_ids or self.layout.insert_ids)


def check_writable(spec: WriterSpec) -> None:
    """Reject a job that the writers do not support, before anything runs. Driver.

    Raises:
        NotSupportedError: The file format, a column's type or a partition transform cannot be written, or the table's
            format version has no delete files.
        AnalysisError: A table property has an invalid value.
    """
    options = spec.context.options
    if spec.writes_rows:
        check_format(DEFAULT_FILE_FORMAT, options.file_format, options)
        layout = file_layout(spec.context, row_lineage=spec.row_lineage)
        if layout.has_geometries and options.file_format != PARQUET:
            raise NotSupportedError(
                f"Rows with geometries are written into Parquet files only, not into {options.file_format.upper()}",
                hint=f"Set '{DEFAULT_FILE_FORMAT}' = 'parquet': a table may have files of several formats",
            )
        if layout.variant_ids and options.file_format != PARQUET:
            raise NotSupportedError(
                f"Rows with variants are written into Parquet files only, not into {options.file_format.upper()}",
                hint=f"Set '{DEFAULT_FILE_FORMAT}' = 'parquet': a table may have files of several formats",
            )
        PartitionRouter(current_spec(spec.context), layout.columns)
    if spec.job in {WriteJob.MERGE_ON_READ, WriteJob.CHOSEN_BY_FILE}:
        if spec.job is WriteJob.MERGE_ON_READ and spec.context.format_version < DELETE_FILE_VERSION:
            raise NotSupportedError(
                "Merge-on-read needs delete files, which tables of format version 1 do not have",
                hint="Set 'format-version' = '2', or the mode of the command to 'copy-on-write'",
            )
        if DELETE_FILE_VERSION <= spec.context.format_version < DELETION_VECTOR_VERSION:
            check_format(DELETE_DEFAULT_FILE_FORMAT, options.delete_file_format, options)


PARQUET: Final = "parquet"

CODECS: Final[Mapping[str, Callable[[WriteOptions], str]]] = {
    PARQUET: check_codec,
    "orc": check_orc_codec,
    "avro": check_avro_codec,
}


def check_format(key: str, file_format: str, options: WriteOptions) -> None:
    """Reject unknown formats, and invalid values of their properties.

    Raises:
        AnalysisError: The format or its codec does not exist.
    """
    check = CODECS.get(file_format)
    if check is None:
        raise AnalysisError(
            f"The table property '{key}' is '{file_format}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"It must be one of {', '.join(repr(name) for name in CODECS)}",
            property=key,
        )
    check(options)


def current_spec(context: WriteContext) -> PartitionSpec:
    """Return the partition spec of new data files."""
    return PartitionSpec.model_validate_json(dict(context.specs_json)[context.default_spec_id])
