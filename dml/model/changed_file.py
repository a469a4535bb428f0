"""What a task did to the rows of one data file: counts that have to add up, and which rows they were. Worker-safe."""

from dataclasses import dataclass, field

__all__ = ["ChangedFile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """The changes of one data file.

    Sets of positions are deletion vectors as `dml.deletes.deletion_vector.encode` makes them. They serve commits that
    come at the same time as others; where there were too many positions, they are left out.

    Attributes:
        path: The data file.
        rows_deleted: Rows that were deleted.
        rows_updated: Rows that were updated.
        rows_before: Copy-on-write: rows of the file that were live; None where the file was not read.
        rows_carried: Copy-on-write: rows that were copied as they are.
        deletes_before: Merge-on-read: positions of the old delete files that the new one holds as well.
        deletes_after: Merge-on-read: positions of the new delete file.
        deleted: The positions of the deleted rows.
        updated: The positions of the updated rows.
        observed: The positions of rows that the statement matched and left as they are.
    """

    path: str
    rows_deleted: int
    rows_updated: int
    rows_before: int | None = None
    rows_carried: int | None = None
    deletes_before: int | None = None
    deletes_after: int | None = None
    deleted: bytes | None = field(default=None, repr=False)
    updated: bytes | None = field(default=None, repr=False)
    observed: bytes | None = field(default=None, repr=False)
