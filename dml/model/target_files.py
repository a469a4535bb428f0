"""How writers read the data files that they rewrite or delete from: the contract with the scan's reader. Worker-safe.

The engine gives writers an implementation that is wired to the scan; stages do not import each other.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.scan_task import DeleteFileRef, ScanTask

__all__ = ["FileRows", "TargetFiles"]


class FileRows(Protocol):
    """Neighbouring rows of a data file, deleted ones included."""

    @property
    def start_position(self) -> int:
        """Position in the file of the first row."""

    @property
    def batch(self) -> pa.RecordBatch:
        """The asked columns in native types, then the asked metadata columns."""

    @property
    def live(self) -> npt.NDArray[np.bool_] | None:
        """Which rows are not deleted; None where all are live."""


class TargetFiles(Protocol):
    """The data files of a statement, by their ordinal. It can be pickled."""

    def task(self, ordinal: int) -> ScanTask:
        """The data file as a whole, with the delete files that apply to it."""

    def rows(
        self,
        ordinal: int,
        *,
        columns: tuple[int, ...],
        metadata_columns: tuple[str, ...] = (),
        positions: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[FileRows]:
        """The rows of a data file, in its order.

        Args:
            ordinal: Which file.
            columns: Field ids of the table columns to read, in the order of the batches' columns.
            metadata_columns: Names of metadata columns that follow them.
            positions: Ascending positions; parts of the file without any of them may be left out. None reads all.
        """

    def existing_positions(self, ordinal: int, delete_files: tuple[DeleteFileRef, ...]) -> PositionDeleteIndex:
        """The positions of a data file that some of its delete files delete.

        Args:
            ordinal: Which file.
            delete_files: Its deletion vector, or position delete files that apply to it.
        """
