"""What tasks need to know of a MERGE whose source is sent to all of them, as in a broadcast hash join. Worker-safe.

Made by the driver (`dml.plan.broadcast_merge`), carried out by the tasks that read the target
(`dml.write.broadcast_merge`). Columns of the target have their field ids, those of the source negative numbers.
"""

from dataclasses import dataclass

from dml.model.columns import RowOperation
from dml.model.row_conditions import RowCondition, RowTerm

__all__ = ["BroadcastClause", "BroadcastJoin", "source_id"]


def source_id(place: int) -> int:
    """What stands for a field id of the source's column at a place."""
    return -1 - place


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastClause:
    """A WHEN clause.

    Attributes:
        operation: What it does.
        condition: When, beside being matched or not; None for always.
        values: The new values, in the order of the delta's value columns; None for a column that gets none.
    """

    operation: RowOperation
    condition: RowCondition | None
    values: tuple[RowTerm | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastJoin:
    """How rows of the target and of the source meet, and what becomes of them.

    Attributes:
        key_ids: Columns of the target that equal the source's keys, in the order of these.
        condition: What else has to be true for two rows to match; None for nothing.
        matched: The clauses for rows that match; the first whose condition is true counts.
        inserted: The clauses for source rows that match no row of the target.
    """

    key_ids: tuple[int, ...]
    condition: RowCondition | None
    matched: tuple[BroadcastClause, ...]
    inserted: tuple[BroadcastClause, ...]
