"""What one Spark task tells the driver of its writing. Worker-safe."""

import pickle
from dataclasses import dataclass, field

from dml.errors import DmlError
from dml.model.changed_file import ChangedFile
from dml.model.content_file import ContentFile
from dml.model.row_origins import RowOrigins

__all__ = ["TaskCommit", "TaskMetrics"]


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
        bytes_read: Bytes of the data files that were read again.
        bytes_written: Bytes of the files written.
        seconds: Seconds spent in the writer.
    """

    rows_matched: int = 0
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    rows_deleted_by_source: int = 0
    rows_updated_by_source: int = 0
    rows_carried: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0

    def __add__(self, other: "TaskMetrics") -> "TaskMetrics":
        return TaskMetrics(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommit:
    """Files that a task wrote and files that its rows replace.

    Attributes:
        data_files: New data files.
        delete_files: New position delete files and deletion vectors.
        removed_data_files: Paths of data files that `data_files` replace (copy-on-write), or that lost every row.
        rewritten_delete_files: Keys (path, content offset, content size) of delete files that `delete_files` hold
            merged.
        referenced_data_files: Paths of the data files that `delete_files` point to.
        changed_files: What became of the rows of the data files that lost or changed some.
        row_origins: Copy-on-write: where the rows of `data_files` were; empty where nobody asked, or there is too much.
        metrics: Counts.
        failure: Why the task gave up after cleaning its own files; then everything above is empty.
        attempt_number: How often the task was tried before: files of an attempt that was killed are not told of.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: tuple[str, ...] = ()
    rewritten_delete_files: tuple[tuple[str, int | None, int | None], ...] = ()
    referenced_data_files: tuple[str, ...] = ()
    changed_files: tuple[ChangedFile, ...] = ()
    row_origins: tuple[RowOrigins, ...] = ()
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
    failure: DmlError | None = None
    attempt_number: int = 0

    def to_bytes(self) -> bytes:
        """Pickled: it travels from our own worker to our own driver, inside one Spark job."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def from_bytes(data: bytes) -> "TaskCommit":
        """The inverse of `to_bytes`."""
        message = pickle.loads(data)  # noqa: S301 - made by to_bytes in a task of the same statement
        assert isinstance(message, TaskCommit)
        return message
