"""Row programs: what a task computes from the rows that it reads. The driver makes them; tasks run them.

| program      | statement                                         | output rows                                     |
| ---          | ---                                               | ---                                             |
| `Projection` | INSERT ... SELECT                                 | computed values                                 |
| `Changes`    | DELETE, UPDATE, MERGE                             | a row delta: operation, place, new values       |
| `Groups`     | SELECT with aggregates                            | partial aggregates, which Spark combines        |
"""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from dml.rows.expressions import TRUE, Predicate, Value

__all__ = [
    "Aggregate",
    "AggregateFunction",
    "Changes",
    "Clause",
    "Groups",
    "Join",
    "Program",
    "Projection",
    "source_id",
]


def source_id(place: int) -> int:
    """Return the id that stands for a field id of the source's column at a place."""
    return -1 - place


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Compute values from each row.

    Attributes:
        values: The values.
    """

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """What to do with the rows that satisfy a condition: a WHEN clause, or all of a DELETE or UPDATE.

    Attributes:
        operation: The code of the operation (`dml.model.columns.RowOperation`), with `BY_SOURCE` if it has that.
        condition: Selects rows among those that no earlier clause took.
        values: The new values, in the order of the delta's value columns; None for a column without one.
    """

    operation: int
    condition: Predicate = TRUE
    values: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A broadcast hash join of a table's rows with a source whose keys are unique.

    Attributes:
        key_ids: Columns of the table that equal the first columns of the source, in that order.
        null_safe: Indices of keys in which NULL equals NULL.
        residual: What else has to be True for two rows to match.
    """

    key_ids: tuple[int, ...]
    null_safe: tuple[int, ...] = ()
    residual: Predicate = TRUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Choose a clause for each row, and compute the new values.

    Attributes:
        value_types: The Arrow types of the delta's value columns.
        matched: Clauses for the rows that are read; with a join, for those that match.
        not_matched: Clauses for rows of the source that match no row.
        not_matched_by_source: Clauses for target rows without a match in the source.
        join: The join with the source; None without a source.
    """

    value_types: tuple[pa.DataType, ...]
    matched: tuple[Clause, ...]
    not_matched: tuple[Clause, ...] = ()
    not_matched_by_source: tuple[Clause, ...] = ()
    join: Join | None = None


class AggregateFunction(StrEnum):
    """Aggregate functions, by the names of Spark's classes."""

    COUNT_ROWS = "CountStar"
    COUNT = "Count"
    MIN = "Min"
    MAX = "Max"
    SUM = "Sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A function of a column.

    Attributes:
        function: The function.
        place: The column's place among those that are read; None for `COUNT_ROWS`.
    """

    function: AggregateFunction
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Aggregate the rows of a task, as the partial step of a hash aggregate.

    Attributes:
        by: The places of the grouping columns among those that are read. Without any there is one group, also if
            there is no row.
        aggregates: What to compute of each group.
    """

    by: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]


Program = Projection | Changes | Groups
