"""What writers of all formats have in common. Worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dml.errors import AnalysisError, ErrorKind
from dml.write.column_metrics import ColumnMetrics

__all__ = ["DataFileWriter", "FileStatistics", "codec_of"]


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


def codec_of(table_property: str, name: str, codecs: Mapping[str, str]) -> str:
    """A library's name of the compression codec that a table asks for.

    Args:
        table_property: The table's property.
        name: Its value.
        codecs: What it may be, and what the library calls that.

    Raises:
        AnalysisError: there is no such codec.
    """
    codec = codecs.get(name)
    if codec is None:
        raise AnalysisError(
            f"The table property '{table_property}' is '{name}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"It must be one of {', '.join(map(repr, codecs))}",
            property=table_property,
        )
    return codec
