"""What is known of a condition without asking Spark: by Iceberg's expressions, and by computing with columns. Driver.

An Iceberg expression prunes files; what only rows can tell (`id % 100 = 7`) goes to the tasks that read them. Both are
true at least where the condition is true, and each says whether that is all.
"""

from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or

from dml.model.row_conditions import AllOf, AnyOf, Matches, RowCondition

__all__ = ["UNKNOWN", "Pushdown", "computed", "conjunction", "disjunction", "exactly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushdown:
    """What of a condition Iceberg can decide.

    Attributes:
        expression: True for every row for which the condition is true; AlwaysTrue where nothing is known.
        complete: Whether it is true for no other row.
        computed: What more can be said of a row by computing with its columns, which no metadata tells: true for every
            row for which the condition is true. None where there is nothing.
        computed_complete: Whether that is true for no other row.
    """

    expression: BooleanExpression
    complete: bool
    computed: RowCondition | None = None
    computed_complete: bool = False

    @property
    def rows(self) -> RowCondition | None:
        """What is known of a row: true for every row for which the condition is true; None where nothing is."""
        return Matches(expression=self.expression) if self.complete else self.computed

    @property
    def decides_rows(self) -> bool:
        """Whether no other row satisfies what is known."""
        return self.complete or self.computed_complete

    @property
    def never(self) -> bool:
        """Whether the condition is true for no row, as `WHERE false` is."""
        return isinstance(self.expression, AlwaysFalse)

    @property
    def always(self) -> bool:
        """Whether the condition is true for every row, as `WHERE 21 = 21` is."""
        return self.complete and isinstance(self.expression, AlwaysTrue)


UNKNOWN: Final = Pushdown(expression=AlwaysTrue(), complete=False)


def computed(condition: RowCondition | None) -> Pushdown:
    """What tasks compute, or nothing known."""
    if condition is None:
        return UNKNOWN
    return Pushdown(expression=AlwaysTrue(), complete=False, computed=condition, computed_complete=True)


def exactly(expression: BooleanExpression | None) -> Pushdown:
    """An exact expression, or nothing known."""
    return UNKNOWN if expression is None else Pushdown(expression=expression, complete=True)


def conjunction(left: Pushdown, right: Pushdown) -> Pushdown:
    """AND."""
    joined = And(left.expression, right.expression)
    complete = (left.complete and right.complete) or isinstance(joined, AlwaysFalse)
    known = tuple(side.rows for side in (left, right) if side.rows is not None)
    return Pushdown(
        expression=joined,
        complete=complete,
        computed=None if complete or left.computed is right.computed is None else AllOf(parts=known),
        computed_complete=not complete and left.decides_rows and right.decides_rows,
    )


def disjunction(left: Pushdown, right: Pushdown) -> Pushdown:
    """OR."""
    complete = (left.complete and right.complete) or left.always or right.always
    known = tuple(side.rows for side in (left, right) if side.rows is not None)
    computed = None if complete or len(known) < 2 else AnyOf(parts=known)
    return Pushdown(
        expression=Or(left.expression, right.expression),
        complete=complete,
        computed=computed,
        computed_complete=computed is not None and left.decides_rows and right.decides_rows,
    )
