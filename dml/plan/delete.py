"""DELETE: a statement and its table to a plan. Driver.

DELETE FROM t WHERE c   ->   SELECT t.<file>, t._pos, 0 AS <clause> FROM <scan of t> AS t WHERE c
"""

from dml.model.columns import CLAUSE, FILE_ORDINAL, POS, RowOperation
from dml.options import Command
from dml.plan.conditions import check_condition, reads_clock, stays_in_place, target_columns
from dml.plan.predicates import pushable
from dml.plan.row_delta_plan import Clause, DeltaQuery, PlanContext, RowDeltaPlan
from dml.spark.types import quoted
from dml.sqlparse.statements import DeleteStatement

__all__ = ["plan_delete"]


def plan_delete(statement: DeleteStatement, context: PlanContext) -> RowDeltaPlan:
    """Plan a DELETE.

    Raises:
        AnalysisError: the condition holds what it may not hold.
    """
    target = quoted(context.target)
    head = "" if statement.ctes is None else context.render(statement.ctes) + " "
    inner = (
        f"{head}SELECT {target}.{FILE_ORDINAL}, {target}.{POS}, 0 AS {CLAUSE} FROM {context.target_view} AS {target}"
    )
    clause = Clause(number=0, operation=RowOperation.DELETE, text="delete")
    condition = statement.condition
    if condition is None:
        query = DeltaQuery(inner=inner, raws=(), clauses=(clause,), values=())
        return RowDeltaPlan(
            command=Command.DELETE, query=query, target_ids=(), pushed_is_complete=True, ordered_by_file=True
        )
    check_condition(context, condition)
    pushdown = pushable(condition.ast, context)
    query = DeltaQuery(inner=f"{inner} WHERE {context.render(condition)}", raws=(), clauses=(clause,), values=())
    return RowDeltaPlan(
        command=Command.DELETE,
        query=query,
        target_ids=tuple(sorted(target_columns(context.names, [condition]))),
        pushed_filter=pushdown.expression,
        pushed_is_complete=pushdown.complete and not condition.has_subquery,
        conflict_detection_filter=pushdown.expression,
        never=pushdown.never,
        ordered_by_file=stays_in_place(condition),
        matching=None
        if reads_clock(statement.ctes, condition)
        else f"{head}SELECT 1 FROM {context.target_view} AS {target} WHERE {context.render(condition)}",
    )
