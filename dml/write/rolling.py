"""Rows of one partition into files of the target size, and what all writers of data files have in common. Worker.

Input: batches as `FileLayout.batch` makes them, of one partition. Output: data files; none if there was no row.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa

from dml.model.manifest import ContentFile, FileContent
from dml.options import WriteOptions
from dml.write.avro import AvroFileWriter
from dml.write.file_layout import FileLayout
from dml.write.file_writer import DataFileWriter
from dml.write.orc import OrcFileWriter
from dml.write.output_files import OutputFile, OutputFileFactory, write_errors
from dml.write.parquet import ParquetFileWriter
from dml.write.row_log import OriginLog

__all__ = ["WRITERS", "DataWriter", "RollingDataWriter"]


class DataWriter(Protocol):
    """Writes rows into data files; what was written before `abort` is deleted by the task's `OutputFileFactory`."""

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Writes rows.

        Args:
            batch: The rows.
            partition: The partition of all of them, where it is known; None works it out.
        """

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes all files."""

    def abort(self) -> None:
        """Gives up the open files."""


WRITERS: Final[Mapping[str, Callable[[pa.NativeFile, FileLayout, WriteOptions], DataFileWriter]]] = {
    "parquet": ParquetFileWriter,
    "orc": OrcFileWriter,
    "avro": AvroFileWriter,
}
"""By the format of new files."""

CHECK_ROWS = 1000
"""Rows between two checks of a file's size, as in Iceberg's `RollingFileWriter`."""


class RollingDataWriter:
    """Writes one partition; it closes a file and starts the next when the target size is reached.

    Args:
        layout: The files' columns.
        options: Target size and format.
        files: Opens them.
        spec_id: Spec of the partition.
        partition: Its tuple.
        origins: Notes where rows come from; the last column of each batch says it then.
    """

    def __init__(
        self,
        layout: FileLayout,
        options: WriteOptions,
        files: OutputFileFactory,
        spec_id: int,
        partition: tuple[Any, ...],
        origins: OriginLog | None = None,
    ) -> None:
        self._layout = layout
        self._options = options
        self._files = files
        self._spec_id = spec_id
        self._partition = partition
        self._origins = origins
        self._file: OutputFile | None = None
        self._writer: DataFileWriter | None = None
        self._done: list[ContentFile] = []

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that are kept in memory."""
        return 0 if self._writer is None else self._writer.buffered_bytes

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._writer is not None

    def write(self, batch: pa.RecordBatch, partition: tuple[Any, ...] | None = None) -> None:
        """Writes rows of the partition."""
        assert partition is None or partition == self._partition
        target = self._options.target_file_size
        pieces = max(1, -(-batch.nbytes // target))
        step = max(CHECK_ROWS, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, step):
            writer = self._writer or self._open()
            rows = batch if step >= batch.num_rows else batch.slice(start, step)
            if self._origins is not None and self._file is not None:
                rows = self._origins.take(rows, self._file.location)
            with write_errors(self._location):
                writer.write(rows)
            if writer.estimated_size >= target:
                self.finish_file()

    def flush(self) -> None:
        """Writes the buffered rows, to free their memory."""
        if self._writer is not None:
            with write_errors(self._location):
                self._writer.flush()

    def finish_file(self) -> None:
        """Closes the open file; later rows go to a new one."""
        if self._writer is None or self._file is None:
            return
        with write_errors(self._location):
            statistics = self._writer.close()
        self._files.close(self._file)
        metrics = statistics.metrics
        self._done.append(
            ContentFile(
                content=FileContent.DATA,
                path=self._file.location,
                file_format=self._options.file_format,
                spec_id=self._spec_id,
                partition=self._partition,
                record_count=statistics.record_count,
                file_size_in_bytes=statistics.file_size_in_bytes,
                split_offsets=statistics.split_offsets,
                sort_order_id=self._layout.sort_order_id,
                **{name: getattr(metrics, name) for name in metrics.__slots__},
            )
        )
        self._writer = self._file = None

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes the last file."""
        self.finish_file()
        return tuple(self._done)

    def abort(self) -> None:
        """Gives up the open file."""
        if self._writer is not None:
            self._writer.abort()
        self._writer = self._file = None

    @property
    def _location(self) -> str:
        return "" if self._file is None else self._file.location

    def _open(self) -> DataFileWriter:
        self._file = self._files.open(self._options.file_format, self._spec_id, self._partition)
        self._writer = WRITERS[self._options.file_format](self._file.stream, self._layout, self._options)
        return self._writer
