"""Deleting metadata files that no snapshot uses. Driver.

Input: locations. Output: nothing; a file that cannot be deleted is logged, since the commit is decided by then.
"""

from collections.abc import Iterable

from pyiceberg.io import FileIO

from dml.model.deletion import delete_files

__all__ = ["delete_quietly"]


def delete_quietly(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files, as far as it goes.

    Args:
        io: The table's FileIO.
        locations: The files; one that is missing is fine.
    """
    delete_files(io, locations)
