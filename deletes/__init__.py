"""Deletion vectors and delete files, and their index by data file. Pure: no Spark, no storage. Worker-safe."""

from dml.deletes.delete_file_index import AppliedDeletes, DeleteEntry, DeleteFileIndex, DeleteKind
from dml.deletes.position_index import PositionDeleteIndex

__all__ = [
    "AppliedDeletes",
    "DeleteEntry",
    "DeleteFileIndex",
    "DeleteKind",
    "PositionDeleteIndex",
]
