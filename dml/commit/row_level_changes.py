"""What a commit knows of the single rows that it changes, to stand beside commits that changed others. Driver.

Input: made by the engine. Output: read by `concurrent_deletes`. Without it a commit follows the rules for whole files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.table.metadata import TableMetadata

from dml.deletes.deletion_vector import decode
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.changed_file import ChangedFile
from dml.model.content_file import ContentFile
from dml.model.file_deletes import FileDeletes
from dml.model.row_origins import RowOrigins
from dml.model.scan_task import DeleteFileRef, ScanTask

__all__ = ["PositionDeletes", "RowLevelChanges", "RowProbe"]


class PositionDeletes(Protocol):
    """Reads and writes deleted positions; the engine gives one that is wired to scan and writers."""

    def read(self, path: str, files: Sequence[DeleteFileRef]) -> PositionDeleteIndex:
        """The positions of a data file that some delete files delete.

        Raises:
            CorruptFileError: a delete file breaks its format.
        """

    def write(self, deletes: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
        """New delete files: on version 3 a deletion vector for each data file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelChanges:
    """The rows that a statement changed and looked at.

    Attributes:
        changed: The data files with changed rows, by path.
        tasks: The data files that were read, by path, with the delete files that applied.
        deletes: Reads and writes deleted positions.
        row_origins: Copy-on-write: where the rows of the new data files were, as far as that is known.
    """

    changed: Mapping[str, ChangedFile] = field(repr=False)
    tasks: Mapping[str, ScanTask] = field(repr=False)
    deletes: PositionDeletes
    row_origins: tuple[RowOrigins, ...] = field(default=(), repr=False)

    @property
    def is_known(self) -> bool:
        """Whether the positions are known: a statement that changes very many rows does not tell them."""
        return all(file.deleted is not None for file in self.changed.values())

    def changed_rows(self, path: str) -> PositionDeleteIndex:
        """The rows of a data file that the statement deleted or updated."""
        file = self.changed[path]
        return _decoded(file.deleted).union(_decoded(file.updated))

    def observed_rows(self, path: str) -> PositionDeleteIndex:
        """The rows of a data file that it matched and left alone."""
        return _decoded(self.changed[path].observed)

    def rows_deleted_before(self, path: str) -> PositionDeleteIndex:
        """The rows of a data file that were deleted by position when the statement read it."""
        task = self.tasks[path]
        base = task.position_deletes if task.deletion_vector is None else (task.deletion_vector,)
        return self.deletes.read(path, base) if base else PositionDeleteIndex()


def _decoded(vector: bytes | None) -> PositionDeleteIndex:
    assert vector is not None, "positions are asked for only where they are known"
    return decode(vector, file="the task's report", cardinality=None)


class RowProbe(Protocol):
    """Asks data files that others added whether they hold a row that the statement matches."""

    def matches(self, metadata: TableMetadata, snapshot_id: int, files: Sequence[ContentFile]) -> bool:
        """Whether some live row of the files is one that the statement would have matched.

        Args:
            metadata: The table as it is now.
            snapshot_id: The snapshot whose live rows count.
            files: Data files that were added since the statement read the table.

        Returns:
            True also where it cannot tell: too many bytes, or a question that Spark cannot answer.
        """
