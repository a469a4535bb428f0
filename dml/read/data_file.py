"""What the reader needs of a data file, whatever its format. Worker-safe.

Input: an open file. Output: its columns, its pieces (row groups, stripes) and record batches of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyiceberg.types import NestedField

from dml.pruning.row_tests import Bounds
from dml.read.file_fields import FileField

__all__ = ["DataFile", "Piece"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row group or stripe: what can be read, or left out, by itself.

    Attributes:
        index: Its place in the file.
        start: Offset of its first byte.
        first_position: Position in the file of its first row.
        rows: How many rows it has; where the format does not say, more than any file has.
    """

    index: int
    start: int
    first_position: int
    rows: int


class DataFile(Protocol):
    """An open data file."""

    columnar: bool
    """Whether some columns can be read without decoding the others."""

    @property
    def rows(self) -> int | None:
        """How many rows it says that it has; None where the format does not say."""

    @property
    def fields(self) -> tuple[FileField, ...]:
        """Its columns."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its pieces, in order."""

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:
        """What its statistics tell of a column in one piece."""

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of consecutive pieces, in order.

        Args:
            pieces: Neighbours in the file.
            columns: Places of the wanted columns in `fields`; the batches have them in this order.
            batch_rows: Greatest number of rows of a batch.
        """
