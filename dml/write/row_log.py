"""Which rows of a data file a task deletes, updates and only looks at, as the delta is read. Worker.

Input: positions, run by run. Output: counts and sets for `ChangedFile`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.changed_file import ChangedFile
from dml.model.columns import RowOperation

__all__ = ["MAX_POSITION_BYTES", "RowLog", "within_limit"]

MAX_POSITION_BYTES: Final = 8 * 2**20
"""What the positions of one task may take on their way to the driver."""

Positions = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class RowLog:
    """The rows of one data file that the delta names, so far."""

    deleted: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    updated: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    observed: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)

    def add_changes(self, positions: Positions, operations: npt.NDArray[np.int32]) -> None:
        """Note rows that change."""
        updates = operations == RowOperation.UPDATE
        self.updated.add_many(positions[updates])
        self.deleted.add_many(positions[~updates])

    @property
    def changed(self) -> PositionDeleteIndex:
        """The rows that are not as they were."""
        return self.deleted.union(self.updated)

    def changed_file(self, path: str) -> ChangedFile:
        """The log as a task reports it."""
        return ChangedFile(
            path=path,
            rows_deleted=len(self.deleted),
            rows_updated=len(self.updated),
            deleted=encode(self.deleted),
            updated=encode(self.updated),
            observed=encode(self.observed.difference(self.changed)),
        )


def within_limit(files: Sequence[ChangedFile], max_bytes: int = MAX_POSITION_BYTES) -> tuple[ChangedFile, ...]:
    """The files with their positions; without, where these are too many to be sent."""
    size = sum(len(part or b"") for file in files for part in (file.deleted, file.updated, file.observed))
    if size <= min(max_bytes, MAX_POSITION_BYTES):
        return tuple(files)
    return tuple(replace(file, deleted=None, updated=None, observed=None) for file in files)
