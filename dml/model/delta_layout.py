"""What the columns of a row delta mean: the contract between the delta query and the writers. Worker-safe.

Source: `docs/architecture`; the operation codes are Spark's.

A delta has the columns `__row_operation` int32, `__rowdelta_file_ordinal` int32 and `_pos` int64, then one value column
for each of `value_ids`, named by its place: `v0`, `v1`, ... Rows that update take the columns of `assigned_ids` from
the delta and all others from the row that they replace; rows that insert take every column of `insert_ids` from the
delta. Ordinal and position are NULL for inserts.
"""

from dataclasses import dataclass

from dml.model.columns import FILE_ORDINAL, POS, ROW_OPERATION

__all__ = ["DeltaLayout", "value_name"]


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

    def name_of(self, field_id: int) -> str:
        """The value column of a table column."""
        return value_name(self.value_ids.index(field_id))
