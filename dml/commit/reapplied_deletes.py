"""Deletes that others made in data files which this commit rewrites, carried over to the new files. Pure; driver.

Input: positions in the old files, and where the rows of the new files were. Output: deleted positions of new files.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.content_file import ContentFile
from dml.model.file_deletes import FileDeletes
from dml.model.row_origins import RowOrigins
from dml.model.scan_task import ScanTask

__all__ = ["reapplied"]


def reapplied(
    deleted: Mapping[str, PositionDeleteIndex],
    tasks: Mapping[str, ScanTask],
    data_files: Iterable[ContentFile],
    row_origins: Iterable[RowOrigins],
) -> tuple[FileDeletes, ...] | None:
    """Find the rows in the new files.

    Args:
        deleted: The rows that others deleted, by old data file; none of them is one that this commit took away.
        tasks: The old data files, by path.
        data_files: The new ones.
        row_origins: Where their rows were.

    Returns:
        The deletes of each new file that has any; None where a row was not found.
    """
    by_path = {origins.data_file: origins for origins in row_origins}
    missing = {path: positions.to_numpy() for path, positions in deleted.items()}
    result = []
    for file in data_files:
        origins = by_path.get(file.path)
        if origins is None:
            continue
        places = PositionDeleteIndex()
        for path, positions in missing.items():
            found, there = origins.find(tasks[path].file_ordinal, positions)
            places.add_many(there)
            missing[path] = positions[~found]
        if places:
            result.append(FileDeletes(path=file.path, spec_id=file.spec_id, partition=file.partition, positions=places))
    return tuple(result) if all(not np.size(left) for left in missing.values()) else None
