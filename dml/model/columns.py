"""Metadata columns and internal columns, and the layout of a row delta. Worker-safe.

Sources: Iceberg specification, "Reserved Field IDs"; Spark's `RowDeltaUtils` for the operation codes.

The delta query returns the row delta to the writers. It has the columns `__row_operation` int32,
`__rowdelta_file_ordinal` int32 and `_pos` int64, then one value column for each of `value_ids`, named by its index:
`v0`, `v1`, ... Updates take the columns of `assigned_ids` from the delta and all others from the old row; inserts take
every column of `insert_ids` from the delta. Ordinal and position are NULL for inserts.
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
    "FITS",
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
"""The columns that a query may name in addition to the table's own."""

ROW_ID_ID: Final = 2147483540
LAST_UPDATED_SEQUENCE_NUMBER_ID: Final = 2147483539

INTERNAL_PREFIX: Final = "__rowdelta_"
"""Prefix of internal column names. No table and no source may have such a column."""

DROPPED_PREFIX: Final = "__dropped_"
"""Prefix of a scan's names for dropped columns that equality deletes still compare."""

FITS: Final = "__rowdelta_fits"
"""boolean: whether a row's variable-width values are within the limit; in other rows, they are NULL."""

CLAUSE: Final = "__rowdelta_clause"
"""int32: the number of the clause that applies to a row of the delta query."""

FILE_ORDINAL: Final = "__rowdelta_file_ordinal"
"""int32: the file ordinal of a row.

It replaces `_file` inside a statement: four bytes a row cross into the JVM instead of a path.
"""

ROW_OPERATION: Final = "__row_operation"
"""int32: a `RowOperation`."""


class RowOperation(IntEnum):
    """The operation of a delta row.

    Codes 1 to 3 are Spark's. RowDelta adds `MATCHED` for a row that changes nothing, but satisfied the ON condition of
    a MERGE, so that it counts for the cardinality check.
    """

    MATCHED = 0
    DELETE = 1
    UPDATE = 2
    INSERT = 3


BY_SOURCE: Final = 4
"""Added to DELETE or UPDATE of a WHEN NOT MATCHED BY SOURCE clause, which is executed alike and counted separately."""


def value_name(index: int) -> str:
    """Return the name of the value column with an index, from 0."""
    return f"v{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLayout:
    """The columns of one statement's delta.

    Attributes:
        value_ids: Field ids of the table's top-level columns, in the order of the value columns.
        assigned_ids: Field ids that updated rows take from the delta.
        insert_ids: Field ids that inserted rows take from the delta: every column of the table, or none.
        check_cardinality: True if two delta rows for one target row are an error; else the first one applies.
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
