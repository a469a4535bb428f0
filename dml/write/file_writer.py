"""What writers of all formats have in common. Worker."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dml.write.column_metrics import ColumnMetrics

__all__ = ["DataFileWriter", "FileStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """What a manifest entry says of a finished file.

    Attributes:
        record_count: Rows.
        file_size_in_bytes: Bytes.
        split_offsets: Start of each row group or block of rows; empty where the format does not show it.
        metrics: Metrics of its columns.
    """

    record_count: int
    file_size_in_bytes: int
    split_offsets: tuple[int, ...]
    metrics: ColumnMetrics


class DataFileWriter(Protocol):
    """Writes one data file into a stream that the caller opens and closes."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that are kept in memory."""

    @property
    def estimated_size(self) -> int:
        """Bytes written, and what the buffered rows will take."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""

    def flush(self) -> None:
        """Writes the buffered rows, to free their memory."""

    def close(self) -> FileStatistics:
        """Writes the rest and the footer; the stream stays open."""

    def abort(self) -> None:
        """Gives the file up; its bytes are of no use."""
