"""Names and codes of the columns that are not the table's own: metadata columns and those of a row delta. Worker-safe.

Sources: Iceberg specification, "Reserved Field IDs"; Spark's `RowDeltaUtils` for the operation codes.
"""

from enum import IntEnum
from typing import Final

__all__ = [
    "BY_SOURCE",
    "CLAUSE",
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
    "RowOperation",
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
