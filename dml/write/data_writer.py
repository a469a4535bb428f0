"""What all writers of data files have in common. Worker.

Input: batches as `FileLayout.batch` makes them. Output: data files.
"""

from typing import Any, Protocol

import pyarrow as pa

from dml.model.content_file import ContentFile

__all__ = ["DataWriter"]


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
