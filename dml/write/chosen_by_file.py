"""The mode that chooses file by file: few rows of a file are marked as deleted, for many it is written anew. Worker.

Input: a task's delta, file by file. Output: each file's changes to copy-on-write or to merge-on-read, as the share of
its dead rows would be: those that it has and those that the changes would make. So no file keeps more dead rows than
the table's property allows, and none is written anew for a few.

A file whose last row goes leaves the table. Of a file that is written anew the older deletes go with it.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from dml.model.scan_task import ScanTask
from dml.model.write_task import ChangedFile
from dml.read.target_files import TargetFiles
from dml.write.copy_on_write import PatchWriter
from dml.write.delta_rows import Changes, FileDelta
from dml.write.merge_on_read import PositionDeltaWriter

__all__ = ["ChosenByFile", "rows_to_mark"]

MAX_HELD_BYTES: Final = 64 * 2**20
"""Changes of a file that are kept in memory before it is decided; of more the file is written anew."""


class ChosenByFile:
    """Gives the changes of each data file to one of two writers.

    Args:
        files: The data files.
        rewrites: Writes files anew.
        marks: Marks rows as deleted, and writes updated ones into new files; None where the format has no deletes.
        max_deleted_ratio: The greatest share of a file's rows that may be dead afterwards.
        max_held_bytes: What may be in memory before it is decided.
    """

    def __init__(
        self,
        *,
        files: TargetFiles,
        rewrites: PatchWriter,
        marks: PositionDeltaWriter | None,
        max_deleted_ratio: float,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self._files = files
        self._rewrites = rewrites
        self._marks = marks
        self._max_deleted_ratio = max_deleted_ratio
        self._max_held_bytes = max_held_bytes

    @property
    def changed_files(self) -> list[ChangedFile]:
        """What became of the rows of the files that were changed, in either way."""
        return [*self._rewrites.changed_files, *([] if self._marks is None else self._marks.changed_files)]

    def change(self, delta: FileDelta) -> None:
        """Writes the changes of one data file.

        Raises:
            DataError: a new value breaks a rule, or two delta rows are for one row.
            ExecutionError: the delta does not fit the file.
        """
        if self._marks is None:
            self._rewrites.patch(delta)
            return
        first = next(delta.changes, None)
        if first is None:
            return
        task = self._files.task(delta.ordinal)
        room = rows_to_mark(task, self._dead_rows(task), self._max_deleted_ratio)
        held, is_all = held_changes(chain((first,), delta.changes), room, self._max_held_bytes)
        whole = replace(delta, changes=chain(held, delta.changes))
        if is_all:
            self._marks.apply(whole)
        else:
            self._rewrites.patch(whole)

    def _dead_rows(self, task: ScanTask) -> int:
        """Rows of a file that position deletes delete; those of equality deletes nobody knows before they are read."""
        if task.deletion_vector is not None:
            return task.deletion_vector.record_count
        if all(ref.referenced_data_file is not None for ref in task.position_deletes):
            return sum(ref.record_count for ref in task.position_deletes)
        return len(self._files.existing_positions(task.file_ordinal, task.position_deletes))


def rows_to_mark(task: ScanTask, dead: int, max_deleted_ratio: float) -> int:
    """How many more rows of a data file may be marked; a file without any live row is never kept.

    Args:
        task: The file.
        dead: Rows that are deleted already.
        max_deleted_ratio: The greatest share that may be.
    """
    return min(int(task.record_count * max_deleted_ratio), task.record_count - 1) - dead


def held_changes(changes: Iterator[Changes], rows: int, max_bytes: int) -> tuple[list[Changes], bool]:
    """Takes changes until there are more than some.

    Args:
        changes: The changes of a file.
        rows: So many are not too many.
        max_bytes: What they may take in memory.

    Returns:
        What was taken, and whether it is all, and no more than that.
    """
    held: list[Changes] = []
    number = nbytes = 0
    for part in changes:
        held.append(part)
        number += len(part)
        nbytes += part.nbytes
        if number > rows or nbytes > max_bytes:
            return held, False
    return held, True
