"""ORC data files. Worker-safe.

Input: an open file. Output: record batches, a stripe at a time (Arrow reads no less). Spec: "Appendix A", ORC.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import NestedField

from dml.pruning.row_tests import Bounds
from dml.read.data_file import Piece, empty_batches, file_fields

__all__ = ["OrcFile"]

UNKNOWN = Bounds()


class OrcFile:
    """An open ORC file: its one piece is the whole file, as Arrow shows neither offsets nor rows of stripes.

    Args:
        source: The open file.
        name_mapping: Ids for files that have none.
    """

    columnar = True

    def __init__(self, source: Any, name_mapping: NameMapping | None) -> None:
        self.file = orc.ORCFile(source)
        self.schema = self.file.schema
        self.fields = file_fields(self.schema, name_mapping)
        self.rows = self.file.nrows
        self.pieces = (Piece(index=0, start=0, first_position=0, rows=self.file.nrows),) if self.file.nrows else ()

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:  # noqa: ARG002 - the protocol of all formats
        """Nothing: Arrow does not show the statistics of stripes."""
        return UNKNOWN

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """All rows."""
        if not pieces:
            return
        if not columns:  # of no column Arrow reads no rows
            yield from empty_batches(self.file.nrows, batch_rows)
            return
        names = [self.fields[column].name for column in columns]
        for stripe in range(self.file.nstripes):
            batch = self.file.read_stripe(stripe, columns=names)
            batch = batch.select([batch.schema.get_field_index(name) for name in names])
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)
