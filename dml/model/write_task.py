"""The context that the tasks of a write share, and their reports: files, changed rows, counts. Worker-safe.

A run is a sequence of rows that are neighbours both in an old data file and in the one that replaces it. A rewritten
file is a sequence of runs, most of them long; new rows have their own runs.
"""

import pickle
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml.errors import DmlError
from dml.model.manifest import ContentFile
from dml.options import WriteOptions
from dml.rows.theta_sketch import ThetaSketch

__all__ = [
    "NEW_ROWS",
    "REPORT_SCHEMA",
    "ChangedFile",
    "ColumnSketches",
    "HeldDeletes",
    "JoinedDataFile",
    "Numbers",
    "RowOrigins",
    "SourceMatches",
    "SourcePart",
    "SplicedDataFile",
    "TaskCommit",
    "TaskFailure",
    "TaskMetrics",
    "TaskReport",
    "WriteContext",
    "origins",
    "report_batch",
    "report_from_bytes",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """The target of a write.

    Attributes:
        query_id: A UUID in the name of every file that the statement writes, so that an abort finds them.
        format_version: 1, 2 or 3.
        schema_json: The table's current schema (Iceberg JSON): new files hold all its columns.
        specs_json: All partition specs by id (Iceberg JSON): deletes are written under the spec of their data file.
        default_spec_id: Spec of new data files.
        sort_order_json: The table's default sort order (Iceberg JSON).
        data_location: Folder of data files (`write.data.path`, or `<location>/data`), without a trailing slash.
        table_location: Root of the table.
        properties: The table's properties, for writers of other formats and location providers.
        io_properties: Properties of the FileIO; may hold credentials, so never shown.
        options: The typed properties.
        row_lineage: True if data files of updated or carried rows must hold `_row_id` and
            `_last_updated_sequence_number` (v3).
        sorted_by_table_order: True if files are in the table's sort order and record its id.
    """

    query_id: str
    format_version: int
    schema_json: str
    specs_json: tuple[tuple[int, str], ...]
    default_spec_id: int
    sort_order_json: str
    data_location: str
    table_location: str
    properties: dict[str, str] = field(default_factory=dict)
    io_properties: dict[str, str] = field(default_factory=dict, repr=False)
    options: WriteOptions
    row_lineage: bool = False
    sorted_by_table_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """The changes of one data file.

    Sets of positions are deletion vectors, encoded by `dml.deletes.deletion_vector.encode`. They serve to reconcile
    concurrent commits, and are None if there were too many positions.

    Attributes:
        path: The data file.
        rows_deleted: Rows that were deleted.
        rows_updated: Rows that were updated.
        rows_before: Copy-on-write: live rows of the file; None if the file was not read.
        rows_carried: Copy-on-write: rows that were copied unchanged.
        deletes_before: Merge-on-read: positions of the old delete files that the new one includes.
        deletes_after: Merge-on-read: positions of the new delete file.
        deleted: The positions of the deleted rows.
        updated: The positions of the updated rows.
        observed: The positions of rows that the statement matched without changing them.
    """

    path: str
    rows_deleted: int
    rows_updated: int
    rows_before: int | None = None
    rows_carried: int | None = None
    deletes_before: int | None = None
    deletes_after: int | None = None
    deleted: bytes | None = field(default=None, repr=False)
    updated: bytes | None = field(default=None, repr=False)
    observed: bytes | None = field(default=None, repr=False)


NEW_ROWS: Final = -(2**62)
"""Origin of the first new row of a file; further new rows count up from it."""

POSITION_BITS: Final = 40
CODEC: Final = "zstd"

Numbers = npt.NDArray[np.int64]


def origins(ordinal: int, start: int, rows: int) -> Numbers:
    """Return the origins of neighbouring rows: numbers with the file ordinal in the high bits, the position in the low.

    Args:
        ordinal: The file ordinal.
        start: Position of the first row.
        rows: The number of rows.
    """
    first = (ordinal << POSITION_BITS) + start
    return np.arange(first, first + rows, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrigins:
    """The runs of one new data file.

    Attributes:
        data_file: Its location.
        runs: The number of runs.
        encoded: Compressed: the distance of each run's first origin from the end of the previous run, then all lengths.
    """

    data_file: str
    runs: int
    encoded: bytes = field(repr=False)

    @staticmethod
    def of(data_file: str, firsts: Numbers, lengths: Numbers) -> "RowOrigins":
        """Encode runs.

        Args:
            data_file: The new file.
            firsts: The origin of each run's first row.
            lengths: The number of rows of each run; their sum is that of the file.
        """
        ends = firsts + lengths
        gaps = firsts - np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        data = gaps.tobytes() + lengths.tobytes()
        encoded = pa.Codec(CODEC).compress(data, asbytes=True)
        return RowOrigins(data_file=data_file, runs=len(firsts), encoded=encoded)

    def decode(self) -> tuple[Numbers, Numbers]:
        """Decode the origins of the runs' first rows, and the runs' lengths."""
        size = 2 * 8 * self.runs
        data: Any = pa.Codec(CODEC).decompress(self.encoded, size, asbytes=True)
        gaps, lengths = np.frombuffer(data, np.int64).reshape(2, self.runs)
        return np.cumsum(gaps) + np.cumsum(lengths) - lengths, lengths

    def ordinals(self) -> set[int]:
        """Return the ordinals of the old files."""
        return set((self.decode()[0] >> POSITION_BITS).tolist())

    def find(self, ordinal: int, positions: Numbers) -> tuple[npt.NDArray[np.bool_], Numbers]:
        """Find rows of an old file in the new one.

        Args:
            ordinal: The file ordinal of the old file.
            positions: Positions in the old file.

        Returns:
            A mask of the rows that are in the new file, and their positions in it.
        """
        firsts, lengths = self.decode()
        places = np.cumsum(lengths) - lengths
        mine = np.flatnonzero(firsts >> POSITION_BITS == ordinal)
        mine = mine[np.argsort(firsts[mine])]
        wanted = positions + (ordinal << POSITION_BITS)
        run = np.searchsorted(firsts[mine], wanted, side="right") - 1
        found = run >= 0
        run = mine[run[found]]
        offsets = wanted[found] - firsts[run]
        within = offsets < lengths[run]
        found[found] = within
        return found, (places[run] + offsets)[within]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplicedDataFile:
    """A spliced data file: it has the rows of the file that it replaces, in the same order, partly copied as bytes.

    Attributes:
        path: The new file.
        replaces: The old file.
        copied_ids: Field ids of the physical columns that were copied whole, so the old file's metrics apply to them.
        new_nans: By field id, the NaNs written to partly copied columns.
        old_nans: By field id, the NaNs of the old file in the rewritten parts of these columns; None if unknown because
            rows were removed without reading them.
    """

    path: str
    replaces: str
    copied_ids: frozenset[int]
    new_nans: dict[int, int] = field(default_factory=dict)
    old_nans: dict[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedDataFile:
    """A data file of row groups that were copied from others.

    Attributes:
        path: The new file.
        sources: The paths of the old files, each with True if all its rows are in the new file.
    """

    path: str
    sources: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """Counts of one task; the driver adds them up.

    Attributes:
        rows_matched: Target rows that the statement matched.
        rows_deleted: Rows deleted.
        rows_updated: Rows updated.
        rows_inserted: Rows inserted.
        rows_deleted_by_source: Of the deleted rows, those that WHEN NOT MATCHED BY SOURCE deleted.
        rows_updated_by_source: Of the updated rows, those that WHEN NOT MATCHED BY SOURCE updated.
        rows_carried: Rows copied unchanged into rewritten files.
        rows_marked: Of the carried rows, those that new delete files delete again.
    """

    rows_matched: int = 0
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    rows_deleted_by_source: int = 0
    rows_updated_by_source: int = 0
    rows_carried: int = 0
    rows_marked: int = 0

    def __add__(self, other: "TaskMetrics") -> "TaskMetrics":
        return TaskMetrics(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDeletes:
    """Deleted positions of one data file that the driver writes to a delete file.

    Attributes:
        path: The data file.
        spec_id: Its partition spec.
        partition: Its partition tuple.
        positions: All positions for its new delete file, encoded by `dml.deletes.deletion_vector.encode`.
    """

    path: str
    spec_id: int
    partition: tuple[Any, ...]
    positions: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommit:
    """Files that a task wrote and files that its rows replace.

    Attributes:
        data_files: New data files.
        delete_files: New position delete files and deletion vectors.
        removed_data_files: Paths of data files that `data_files` replace (copy-on-write), or that lost every row.
        rewritten_delete_files: Keys (path, content offset, content size) of delete files that were merged into
            `delete_files`.
        referenced_data_files: Paths of the data files that `delete_files` point to.
        changed_files: The changes of the data files that lost or changed rows.
        spliced_files: The spliced files among `data_files`.
        joined_files: The files of copied row groups among `data_files`.
        row_origins: The origins of the rows of replacing `data_files`; empty if not requested or too large.
        held_rows: New rows that the driver writes because they are few: an Arrow stream.
        held_deletes: Deleted positions that the driver writes; their data files are in `referenced_data_files`.
        metrics: Counts.
        attempt_number: The number of earlier attempts. Files of a killed attempt are not reported.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: tuple[str, ...] = ()
    rewritten_delete_files: tuple[tuple[str, int | None, int | None], ...] = ()
    referenced_data_files: tuple[str, ...] = ()
    changed_files: tuple[ChangedFile, ...] = ()
    spliced_files: tuple[SplicedDataFile, ...] = ()
    joined_files: tuple[JoinedDataFile, ...] = ()
    row_origins: tuple[RowOrigins, ...] = ()
    held_rows: bytes = field(default=b"", repr=False)
    held_deletes: tuple[HeldDeletes, ...] = ()
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
    attempt_number: int = 0


@dataclass(frozen=True, slots=True)
class SourceMatches:
    """The rows of a MERGE's source that matched rows of a task's files.

    Attributes:
        rows: Their row numbers in the source, as a serialized `BitMap`.
    """

    rows: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """The rows of a MERGE's source that a task computed.

    Attributes:
        path: An Arrow file of them; empty if there is none.
        rows: An Arrow stream of them; empty without rows, or with a file.
        fits: False if they exceed the limits; the rows are then missing.
    """

    path: str = ""
    rows: bytes = field(default=b"", repr=False)
    fits: bool = True


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The error of a task that has deleted its files. A retry would fail in the same way.

    Attributes:
        error: The error.
        attempt_number: The number of earlier attempts.
    """

    error: DmlError
    attempt_number: int = 0


@dataclass(frozen=True, slots=True)
class ColumnSketches:
    """The sketches of the rows that a task read.

    Attributes:
        sketches: A sketch for each column.
    """

    sketches: tuple[ThetaSketch, ...] = field(repr=False)


TaskReport = TaskCommit | SourceMatches | SourcePart | ColumnSketches | TaskFailure
"""What a task reports to the driver, one row each."""

REPORT_SCHEMA: Final = pa.schema([pa.field("task_commit", pa.binary(), nullable=False)])
"""Binary, because the JVM would have to decode strings."""


def report_batch(report: TaskReport) -> pa.RecordBatch:
    """Return a report as a row for Spark."""
    data = pickle.dumps(report, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.record_batch([pa.array([data], pa.binary())], schema=REPORT_SCHEMA)


def report_from_bytes(data: bytes) -> TaskReport:
    """Decode the report in a row, which must come from a RowDelta task."""
    report = pickle.loads(data)  # noqa: S301 - made by report_batch in a task of the same statement
    assert isinstance(report, TaskReport)
    return report
