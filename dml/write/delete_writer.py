"""What the writers of deleted positions have in common. Worker."""

from dataclasses import dataclass
from typing import Protocol

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.content_file import ContentFile

__all__ = ["DeleteResult", "DeleteWriter", "DeletedPositions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """What a task's deletes became.

    Attributes:
        delete_files: New position delete files or deletion vectors.
        rewritten_delete_files: Keys of older ones whose positions they hold.
        referenced_data_files: Paths of the data files that they are for.
    """

    delete_files: tuple[ContentFile, ...] = ()
    rewritten_delete_files: tuple[tuple[str, int | None, int | None], ...] = ()
    referenced_data_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedPositions:
    """What the new delete file says of one data file.

    Attributes:
        path: The data file.
        before: Positions of older delete files that it takes over.
        after: All its positions.
    """

    path: str
    before: int
    after: int


class DeleteWriter(Protocol):
    """Writes the deleted positions of data files; files are deleted by the task's `OutputFileFactory` in an abort."""

    def delete(self, ordinal: int, positions: PositionDeleteIndex) -> DeletedPositions:
        """Takes the deleted positions of one data file; each data file comes once."""

    def close(self) -> DeleteResult:
        """Finishes all files."""
