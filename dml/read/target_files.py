"""The data files of a statement, as writers read those that they rewrite or delete from. Worker-safe.

Input: scan tasks, packed on the driver. Output: rows and deleted positions of one data file at a time.
"""

import pickle
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.scan_task import DeleteFileRef, ScanContext, ScanTask
from dml.read.applied_deletes import DeleteLoader
from dml.read.reader import FileBatch, PieceReader, piece_readers, scan_file
from dml.rows.expressions import TRUE

__all__ = ["TargetFiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """The data files that a statement scanned, by ordinal.

    Attributes:
        blocks: Packed scan tasks, `limits.SCAN_TASKS_PER_BLOCK` in each: a worker unpacks only those that it needs.
        context: The scan's context; columns and filters are replaced by what a writer asks for.
    """

    blocks: tuple[bytes, ...]
    context: ScanContext

    @staticmethod
    def of(tasks: Sequence[ScanTask], context: ScanContext) -> "TargetFiles":
        """Pack the tasks of a scan; their ordinals are their places."""
        assert all(task.file_ordinal == place for place, task in enumerate(tasks)), "ordinals are places"
        blocks = tuple(
            zlib.compress(
                pickle.dumps(tuple(tasks[start : start + limits.SCAN_TASKS_PER_BLOCK]), pickle.HIGHEST_PROTOCOL),
                limits.MESSAGE_COMPRESSION_LEVEL,
            )
            for start in range(0, len(tasks), limits.SCAN_TASKS_PER_BLOCK)
        )
        return TargetFiles(
            blocks=blocks, context=replace(context, row_filter=None, key_filter=None, row_predicate=TRUE)
        )

    def task(self, ordinal: int) -> ScanTask:
        """The data file as a whole, with the delete files that apply to it."""
        block: tuple[ScanTask, ...] = pickle.loads(  # noqa: S301 - packed by `of` on the driver of the statement
            zlib.decompress(self.blocks[ordinal // limits.SCAN_TASKS_PER_BLOCK])
        )
        return block[ordinal % limits.SCAN_TASKS_PER_BLOCK]

    def rows(
        self,
        ordinal: int,
        *,
        columns: tuple[int, ...],
        metadata_columns: tuple[str, ...] = (),
        positions: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[FileBatch]:
        """The rows of a data file, in its order.

        Args:
            ordinal: Which file.
            columns: Field ids of the table columns to read, in the order of the batches' columns.
            metadata_columns: Names of metadata columns that follow them.
            positions: Ascending positions; parts of the file without any of them may be left out. None reads all.
        """
        context = replace(self.context, projected_ids=columns, metadata_columns=metadata_columns)
        return scan_file(self.task(ordinal), context, positions=positions)

    def pieces(
        self, ordinal: int, choices: Sequence[tuple[tuple[int, ...], tuple[str, ...]]]
    ) -> AbstractContextManager[tuple[PieceReader, ...]]:
        """Readers of a data file's row groups; see `dml.read.reader.piece_readers`."""
        return piece_readers(self.task(ordinal), self.context, choices)

    def existing_positions(self, ordinal: int, delete_files: tuple[DeleteFileRef, ...]) -> PositionDeleteIndex:
        """The positions of a data file that some of its delete files delete."""
        vectors = [ref for ref in delete_files if ref.is_deletion_vector]
        task = replace(
            self.task(ordinal),
            deletion_vector=vectors[0] if vectors else None,
            position_deletes=tuple(ref for ref in delete_files if not ref.is_deletion_vector),
        )
        loader = DeleteLoader(Schema.model_validate_json(self.context.schema_json), self.context.io_properties)
        return loader.positions(task) or PositionDeleteIndex()
