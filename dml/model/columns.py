"""Columns that are not the table's own, and the layout of a row delta. Worker-safe.

Sources: Iceberg specification, "Reserved Field IDs"; Spark's `RowDeltaUtils` for the operation codes.

A delta is what the delta query gives the writers. It has the columns `__row_operation` int32,
`__rowdelta_file_ordinal` int32 and `_pos` int64, then one value column for each of `value_ids`, named by its place:
`v0`, `v1`, ... Rows that update take the columns of `assigned_ids` from the delta and all others from the row that they
replace; rows that insert take every column of `insert_ids` from the delta. Ordinal and position are NULL for inserts.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

__all__ = [
    "BY_SOURCE",
    "CLAUSE",
    "DROPPED_PREFIX",
    "FILE",
    "FILE_ORDINAL",
    "INTERNAL_PREFIX",
    "LAST_UPDATED_SEQUENCE_NUMBER",
    "LAST_UPDATED_SEQUENCE_NUMBER_ID",
    "METADATA_COLUMNS",
    "PARTITION",
    "POS",
    "ROW_ID",
    "ROW_ID_ID",
    "ROW_OPERATION",
    "SPEC_ID",
    "DeltaLayout",
    "RowOperation",
    "value_name",
]

FILE: Final = "_file"
POS: Final = "_pos"
SPEC_ID: Final = "_spec_id"
PARTITION: Final = "_partition"
ROW_ID: Final = "_row_id"
LAST_UPDATED_SEQUENCE_NUMBER: Final = "_last_updated_sequence_number"

METADATA_COLUMNS: Final = (FILE, POS, SPEC_ID, PARTITION, ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER)
"""What a query may name of a table beside its own columns."""

ROW_ID_ID: Final = 2147483540
LAST_UPDATED_SEQUENCE_NUMBER_ID: Final = 2147483539

INTERNAL_PREFIX: Final = "__rowdelta_"
"""Starts the names of the columns that statements use inside: no table and no source may have such a column."""

DROPPED_PREFIX: Final = "__dropped_"
"""Starts the names under which a scan knows columns that the table has dropped and that deletes still compare."""

CLAUSE: Final = "__rowdelta_clause"
"""int32: which clause of the statement a row of the delta query is for."""

FILE_ORDINAL: Final = "__rowdelta_file_ordinal"
"""int32: the place of a row's data file in the statement's list of scan tasks.

Inside a statement it stands for `_file`: four bytes a row cross into the JVM instead of a path.
"""

ROW_OPERATION: Final = "__row_operation"
"""int32: a `RowOperation`."""


class RowOperation(IntEnum):
    """What a delta row does to the table.

    Codes 1 to 3 are Spark's. `MATCHED` is ours: the row changes nothing, but it satisfied the ON condition of a
    MERGE, so it counts for the cardinality check.
    """

    MATCHED = 0
    DELETE = 1
    UPDATE = 2
    INSERT = 3


BY_SOURCE: Final = 4
"""Added to DELETE or UPDATE where a WHEN NOT MATCHED BY SOURCE clause does it: counted apart, done alike."""


def value_name(index: int) -> str:
    """Name of the n-th value column of a delta."""
    return f"v{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLayout:
    """The columns of one statement's delta.

    Attributes:
        value_ids: Field ids of the table's top-level columns, in the order of the value columns.
        assigned_ids: Those that updated rows take from the delta.
        insert_ids: Those that inserted rows take from the delta: every column of the table, or none.
        check_cardinality: Whether two delta rows for one target row are an error; else the first counts.
    """

    value_ids: tuple[int, ...] = ()
    assigned_ids: tuple[int, ...] = ()
    insert_ids: tuple[int, ...] = ()
    check_cardinality: bool = False

    def __post_init__(self) -> None:
        assert len(set(self.value_ids)) == len(self.value_ids), "a column has one value column"
        assert {*self.assigned_ids, *self.insert_ids} <= set(self.value_ids), "every column has its value column"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of a delta batch, in order."""
        return (ROW_OPERATION, FILE_ORDINAL, POS, *map(value_name, range(len(self.value_ids))))
