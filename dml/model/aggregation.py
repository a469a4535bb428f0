"""What tasks compute of groups of rows, instead of giving the rows. Worker-safe.

Names and places, as the driver tells them to the tasks: what of it is a column of which type is the driver's business.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["PartialAggregate", "PartialAggregation", "PartialFunction"]


class PartialFunction(StrEnum):
    """What is computed of the rows of a group, by the names of Spark's classes."""

    ROWS = "CountStar"
    FILLED = "Count"
    LEAST = "Min"
    GREATEST = "Max"
    SUM = "Sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialAggregate:
    """A function of a column.

    Attributes:
        function: The function.
        place: The column, among those that are read; None for rows.
    """

    function: PartialFunction
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialAggregation:
    """What a task computes of the rows that it reads.

    Attributes:
        groups: The columns whose values tell groups apart, among those that are read; none for one group, which is
            there also where no row is.
        aggregates: What is computed of each group.
    """

    groups: tuple[int, ...]
    aggregates: tuple[PartialAggregate, ...]
