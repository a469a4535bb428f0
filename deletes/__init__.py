"""Deletion vectors and delete files, and the index that matches them to data files. Pure: no Spark, no storage."""

from dml.deletes.delete_file_index import AppliedDeletes, DeleteEntry, DeleteFileIndex, DeleteKind
from dml.deletes.position_index import PositionDeleteIndex

__all__ = [
    "AppliedDeletes",
    "DeleteEntry",
    "DeleteFileIndex",
    "DeleteKind",
    "PositionDeleteIndex",
]
