"""The mode that chooses file by file: each data file that a statement changes goes the way that is cheapest. Worker.

Input: a task's delta, file by file. Output: each file's changes to the writer of its way. The way is that of
`dml.write.fate`, by the rows that are dead and those that the changes would make dead: so no file keeps more dead rows
than the table's property allows, and none is written anew for a few.

A file whose last row goes leaves the table without being read. Of a file that is written anew the older deletes go
with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.scan_task import ScanTask
from dml.model.write_task import ChangedFile
from dml.read.target_files import TargetFiles
from dml.write.copy_on_write import PatchWriter
from dml.write.delta_rows import Changes, FileDelta
from dml.write.fate import Fate, FileCounts, fate_of, may_be_spliced, rows_to_mark
from dml.write.merge_on_read import PositionDeltaWriter
from dml.write.splicing import Splicer

__all__ = ["ChosenByFile"]

MAX_HELD_BYTES: Final = 64 * 2**20
"""Changes of a file that are kept in memory before it is decided; of more the file is written anew."""


class ChosenByFile:
    """Gives the changes of each data file to one of two writers.

    Args:
        files: The data files.
        rewrites: Writes files anew, and takes files away.
        marks: Marks rows as deleted, and writes updated ones into new files; None where the format has no deletes.
        splicer: What `rewrites` splices files with; None where no file can be.
        max_deleted_ratio: The greatest share of a file's rows that may be dead afterwards.
        max_held_bytes: What may be in memory before it is decided.
    """

    def __init__(
        self,
        *,
        files: TargetFiles,
        rewrites: PatchWriter,
        marks: PositionDeltaWriter | None,
        splicer: Splicer | None = None,
        max_deleted_ratio: float,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self._files = files
        self._rewrites = rewrites
        self._marks = marks
        self._splicer = splicer
        self._max_deleted_ratio = max_deleted_ratio if marks is not None else 0.0
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
        first = next(delta.changes, None)
        if first is None:
            return
        task = self._files.task(delta.ordinal)
        dead = self._dead_rows(task)
        room = rows_to_mark(task.record_count, dead, self._max_deleted_ratio)
        held = held_changes(chain((first,), delta.changes), room, self._max_held_bytes)
        whole = replace(delta, changes=chain(held.parts, delta.changes))
        match self._fate(task, dead, held):
            case Fate.REMOVED if self._is_every_row(task, delta):
                self._rewrites.remove(whole)
            case Fate.MARKED if self._marks is not None:
                self._marks.apply(whole)
            case _:  # copies what it can of any file
                self._rewrites.patch(whole)

    def _fate(self, task: ScanTask, dead: int, held: "Held") -> Fate:
        counts = FileCounts(
            rows=task.record_count,
            dead=dead,
            is_dead_exact=not task.equality_deletes,
            deleted=held.rows - held.updated,
            updated=held.updated,
            is_all=held.is_all,
        )
        if self._splicer is not None and may_be_spliced(counts):
            counts = replace(counts, new_bytes_ratio=self._splicer.new_bytes_ratio(task))
        return fate_of(counts, self._max_deleted_ratio)

    def _dead_rows(self, task: ScanTask) -> int:
        """Rows of a file that position deletes delete; those of equality deletes nobody knows before they are read."""
        if task.deletion_vector is not None:
            return task.deletion_vector.record_count
        if all(ref.referenced_data_file is not None for ref in task.position_deletes):
            return sum(ref.record_count for ref in task.position_deletes)
        return len(self._existing(task))

    def _is_every_row(self, task: ScanTask, delta: FileDelta) -> bool:
        """Whether the changes, which are all known, are for each row that is not dead, and for no other.

        The count says so already; a delta that does not fit the file is left to the reader of the file, which says why.
        """
        changed = delta.log.changed
        dead = self._existing(task) if task.has_deletes else PositionDeleteIndex()
        union, rows = changed.union(dead), task.record_count
        return len(changed) + len(dead) == len(union) == rows and int(union.to_numpy()[-1]) < rows

    def _existing(self, task: ScanTask) -> PositionDeleteIndex:
        deletes = task.position_deletes if task.deletion_vector is None else (task.deletion_vector,)
        return self._files.existing_positions(task.file_ordinal, deletes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Changes of a data file that are in memory.

    Attributes:
        parts: The changes.
        rows: How many.
        updated: How many of them are updates.
        is_all: Whether there are no more.
    """

    parts: list[Changes]
    rows: int
    updated: int
    is_all: bool


def held_changes(changes: Iterator[Changes], rows: int, max_bytes: int) -> Held:
    """Takes changes until there are more than some; of nothing but deletes all, for they may be of every row.

    Args:
        changes: The changes of a file.
        rows: So many are not too many.
        max_bytes: What they may take in memory.
    """
    parts: list[Changes] = []
    number = updated = nbytes = 0
    for part in changes:
        parts.append(part)
        number += len(part)
        updated += int(part.updates.sum())
        nbytes += part.nbytes
        if nbytes > max_bytes or (updated and number > rows):
            return Held(parts=parts, rows=number, updated=updated, is_all=False)
    return Held(parts=parts, rows=number, updated=updated, is_all=True)
