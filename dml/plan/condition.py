"""A condition in two forms: an Iceberg expression that prunes files, and a predicate that tasks evaluate. Driver.

Both forms are True for every row for which the condition is true. Each has its own exactness: it is exact if it is True
for no other row. An exact pruning form decides whole files; an exact row form lets tasks decide rows without Spark.
"""

from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or

from dml.rows.expressions import FALSE, TRUE, Predicate, all_of, any_of

__all__ = ["EVERY_ROW", "NO_ROW", "UNKNOWN", "Condition", "computed", "conjunction", "disjunction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition.

    Attributes:
        pruning: The Iceberg expression; AlwaysTrue if nothing is known.
        pruning_is_exact: Whether it is true for no other row.
        rows: The predicate; TRUE if nothing is known.
        rows_are_exact: Whether it is True for no other row.
    """

    pruning: BooleanExpression
    pruning_is_exact: bool
    rows: Predicate = TRUE
    rows_are_exact: bool = False

    @property
    def never(self) -> bool:
        """Whether the condition is true for no row, as `WHERE false` is."""
        return isinstance(self.pruning, AlwaysFalse)

    @property
    def always(self) -> bool:
        """Whether the condition is true for every row, as `WHERE 21 = 21` is."""
        return self.pruning_is_exact and isinstance(self.pruning, AlwaysTrue)


EVERY_ROW: Final = Condition(pruning=AlwaysTrue(), pruning_is_exact=True, rows=TRUE, rows_are_exact=True)
NO_ROW: Final = Condition(pruning=AlwaysFalse(), pruning_is_exact=True, rows=FALSE, rows_are_exact=True)
UNKNOWN: Final = Condition(pruning=AlwaysTrue(), pruning_is_exact=False)


def computed(rows: Predicate | None) -> Condition:
    """Return the condition that only rows tell; None for one of which nothing is known."""
    if rows is None:
        return UNKNOWN
    return Condition(pruning=AlwaysTrue(), pruning_is_exact=False, rows=rows, rows_are_exact=True)


def conjunction(left: Condition, right: Condition) -> Condition:
    """Return `left AND right`."""
    if left.never or right.never:
        return NO_ROW
    return Condition(
        pruning=And(left.pruning, right.pruning),
        pruning_is_exact=left.pruning_is_exact and right.pruning_is_exact,
        rows=all_of((left.rows, right.rows)),
        rows_are_exact=left.rows_are_exact and right.rows_are_exact,
    )


def disjunction(left: Condition, right: Condition) -> Condition:
    """Return `left OR right`."""
    if left.always or right.always:
        return EVERY_ROW
    return Condition(
        pruning=Or(left.pruning, right.pruning),
        pruning_is_exact=left.pruning_is_exact and right.pruning_is_exact,
        rows=any_of((left.rows, right.rows)),
        rows_are_exact=left.rows_are_exact and right.rows_are_exact,
    )
