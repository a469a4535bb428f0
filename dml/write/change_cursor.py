"""The changes of a data file beside its rows. Worker.

Input: changes in the order of the file. Output: the changes up to a position, as the file is read.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dml.errors import ExecutionError
from dml.model.scan_task import ScanTask
from dml.model.target_files import FileRows
from dml.write.delta_rows import Changes

__all__ = ["ChangeCursor", "check_live", "misplaced"]


class ChangeCursor:
    """The changes of a data file, handed out up to a position.

    Args:
        changes: In the order of the file.
    """

    def __init__(self, changes: Iterator[Changes]) -> None:
        self._changes = changes
        self._head: Changes | None = next(changes, None)

    def exhausted(self) -> bool:
        """Whether all changes were handed out."""
        return self._head is None

    @property
    def next_position(self) -> int:
        """The position of the next change."""
        assert self._head is not None
        return int(self._head.positions[0])

    def before(self, position: int) -> Changes | None:
        """The changes before a position that were not handed out yet; None where there are none."""
        parts: list[Changes] = []
        while self._head is not None:
            end = int(np.searchsorted(self._head.positions, position))
            if end:
                parts.append(self._head.slice(0, end))
            if end < len(self._head):
                self._head = self._head.slice(end, len(self._head))
                break
            self._head = next(self._changes, None)
        return Changes.concat(parts) if parts else None


def misplaced(task: ScanTask, position: int) -> ExecutionError:
    """The error for a change of a row that is not there."""
    return ExecutionError(
        f"The row at position {position} of '{task.path}' is to be changed, but the file has no such row",
        hint="The file was replaced while the statement ran; run the statement again",
        file=task.path,
        position=position,
    )


def check_live(rows: FileRows, places: npt.NDArray[np.int64]) -> None:
    """A deleted row cannot be changed: its update would bring it back.

    Raises:
        ExecutionError: a change is for a row that was deleted before, or is not in the file.
    """
    if places[0] < 0 or (rows.live is not None and not rows.live[places].all()):
        raise ExecutionError(f"A row that was deleted before is to be changed, near position {rows.start_position}")
