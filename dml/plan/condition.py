"""A condition in two forms: an Iceberg expression that prunes files, and a predicate that tasks evaluate. Driver.

Both forms are True for every row for which the condition is true. A form is exact if it is True for no other row; each
may be exact or not. An exact pruning form decides whole files; an exact row form lets tasks decide rows without Spark.
If the row form is not exact, the condition names the part that only Spark can evaluate, for EXPLAIN.
"""

from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or

from dml.rows.program import FALSE, TRUE, Predicate, all_of, any_of

__all__ = ["EVERY_ROW", "NO_ROW", "UNKNOWN", "Condition", "conjunction", "disjunction", "row_condition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition in both forms.

    Attributes:
        pruning: The Iceberg expression; AlwaysTrue if unknown.
        pruning_is_exact: True if the Iceberg expression is exact.
        rows: The predicate for tasks; TRUE if unknown.
        needs_spark: The part that only Spark can evaluate, as SQL; empty if the predicate is exact.
        skips: True if a part that only Spark can read was left out, because the others decide: `FALSE AND f(x)`. Only
            Spark knows whether the condition is valid.
    """

    pruning: BooleanExpression
    pruning_is_exact: bool
    rows: Predicate
    needs_spark: str
    skips: bool = False

    @property
    def rows_are_exact(self) -> bool:
        """True if the row form is exact."""
        return not self.needs_spark

    @property
    def rows_beyond_pruning(self) -> Predicate:
        """The predicate that rows must satisfy beyond the pruning form; TRUE if pruning is exact."""
        return TRUE if self.pruning_is_exact else self.rows

    @property
    def never(self) -> bool:
        """True if no row satisfies the condition, as in `WHERE false`."""
        return isinstance(self.pruning, AlwaysFalse)

    @property
    def always(self) -> bool:
        """True if every row satisfies the condition, as in `WHERE 21 = 21`."""
        return self.pruning_is_exact and isinstance(self.pruning, AlwaysTrue)


EVERY_ROW: Final = Condition(pruning=AlwaysTrue(), pruning_is_exact=True, rows=TRUE, needs_spark="")
NO_ROW: Final = Condition(pruning=AlwaysFalse(), pruning_is_exact=True, rows=FALSE, needs_spark="")
UNKNOWN: Final = Condition(pruning=AlwaysTrue(), pruning_is_exact=False, rows=TRUE, needs_spark="the condition")


def row_condition(rows: Predicate | None) -> Condition:
    """Return a condition with a row form only; UNKNOWN for None."""
    if rows is None:
        return UNKNOWN
    return Condition(pruning=AlwaysTrue(), pruning_is_exact=False, rows=rows, needs_spark="")


def conjunction(left: Condition, right: Condition) -> Condition:
    """Return `left AND right`."""
    if left.never or right.never:
        return replace(NO_ROW, skips=skips_part(left, right))
    return Condition(
        pruning=And(left.pruning, right.pruning),
        pruning_is_exact=left.pruning_is_exact and right.pruning_is_exact,
        rows=all_of((left.rows, right.rows)),
        needs_spark=left.needs_spark or right.needs_spark,
        skips=left.skips or right.skips,
    )


def skips_part(left: Condition, right: Condition) -> bool:
    return any(part.skips or not part.rows_are_exact for part in (left, right))


def disjunction(left: Condition, right: Condition) -> Condition:
    """Return `left OR right`."""
    if left.always or right.always:
        return replace(EVERY_ROW, skips=skips_part(left, right))
    return Condition(
        pruning=Or(left.pruning, right.pruning),
        pruning_is_exact=left.pruning_is_exact and right.pruning_is_exact,
        rows=any_of((left.rows, right.rows)),
        needs_spark=left.needs_spark or right.needs_spark,
        skips=left.skips or right.skips,
    )
