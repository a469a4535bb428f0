"""DELETE and UPDATE: a statement and its table to a plan. Driver.

    DELETE FROM t WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause> FROM <scan of t> AS t WHERE c

    UPDATE t SET a = x WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause>, (x) AS <raw 0> FROM <scan of t> AS t WHERE c

Assignments see the old row, so `SET a = b, b = a` swaps (docs/semantics.md, U1).
"""

from collections.abc import Mapping

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.types import NestedField

from dml.model.columns import CLAUSE, FILE_ORDINAL, POS, RowOperation
from dml.model.row_conditions import RowTerm
from dml.options import Command
from dml.plan.assignments import AssignedExpression, AssignedValue, assigned_fragments, bind_assignments
from dml.plan.conditions import check_condition, check_value, condition_sql, reads_clock, stays_in_place, target_columns
from dml.plan.predicates import pushable, row_value
from dml.plan.pushdown import Pushdown
from dml.plan.row_delta_plan import (
    Clause,
    DeltaQuery,
    PlanContext,
    RawColumns,
    RowDeltaPlan,
    ValueColumn,
    old_columns,
)
from dml.sqlparse import quoted
from dml.sqlparse.statements import DeleteStatement, UpdateStatement

__all__ = ["plan_delete", "plan_update"]


def plan_delete(statement: DeleteStatement, context: PlanContext) -> RowDeltaPlan:
    """Plan a DELETE.

    Raises:
        AnalysisError: the condition holds what it may not hold.
    """
    target = quoted(context.target)
    head = "" if statement.ctes is None else context.text(statement.ctes) + " "
    inner = (
        f"{head}SELECT {target}.{FILE_ORDINAL}, {target}.{POS}, 0 AS {CLAUSE} FROM {context.target_view} AS {target}"
    )
    clause = Clause(number=0, operation=RowOperation.DELETE, text="delete")
    condition = statement.condition
    if condition is None:
        query = DeltaQuery(inner=inner, raws=(), clauses=(clause,), values=())
        return RowDeltaPlan(
            command=Command.DELETE,
            query=query,
            target_ids=(),
            pushed_is_complete=True,
            decides_rows=True,
            row_values=(),
            ordered_by_file=True,
        )
    check_condition(context, condition)
    pushdown = pushable(condition.ast, context)
    where = f" WHERE {condition_sql(condition, context.text(condition))}"
    query = DeltaQuery(inner=inner + where, raws=(), clauses=(clause,), values=())
    return RowDeltaPlan(
        command=Command.DELETE,
        query=query,
        target_ids=tuple(sorted(target_columns(context.names, [condition]))),
        pushed_filter=pushdown.expression,
        pushed_is_complete=pushdown.complete and not condition.has_subquery,
        conflict_detection_filter=pushdown.expression,
        never=pushdown.never,
        row_condition=pushdown.computed,
        decides_rows=pushdown.decides_rows and not condition.has_subquery,
        row_values=(),
        ordered_by_file=stays_in_place(condition),
        matching=None
        if reads_clock(statement.ctes, condition)
        else f"{head}SELECT 1 FROM {context.target_view} AS {target}{where}",
    )


def plan_update(statement: UpdateStatement, context: PlanContext) -> RowDeltaPlan:
    """Plan an UPDATE.

    Raises:
        AnalysisError: a wrong key or a condition that holds what it may not hold.
    """
    bound = bind_assignments(statement.assignments, context.names)
    for fragment in assigned_fragments(bound):
        check_value(context, fragment)
    raws = RawColumns(target=context.target, render=context.text)
    columns = {column.field_id: column for column in context.schema.fields}
    values = tuple(
        ValueColumn(field=columns[field_id], cases=((0, raws.source(columns[field_id], value)),))
        for field_id, value in bound.items()
    )
    target = quoted(context.target)
    head = "" if statement.ctes is None else context.text(statement.ctes) + " "
    selected = "".join(f", {raw.sql} AS {raw.name}" for raw in raws.columns)
    inner = (
        f"{head}SELECT {target}.{FILE_ORDINAL}, {target}.{POS}, 0 AS {CLAUSE}{selected} "
        f"FROM {context.target_view} AS {target}"
    )
    condition = statement.condition
    pushdown = Pushdown(expression=AlwaysTrue(), complete=True)
    matching = None
    if condition is not None:
        check_condition(context, condition)
        pushdown = pushable(condition.ast, context)
        where = f" WHERE {condition_sql(condition, context.text(condition))}"
        inner += where
        if not reads_clock(statement.ctes, condition):
            matching = f"{head}SELECT 1 FROM {context.target_view} AS {target}{where}"
    fragments = [*assigned_fragments(bound), *([] if condition is None else [condition])]
    read = target_columns(context.names, fragments)
    for column in values:
        for _, source in column.cases:
            read.update(old_columns(source))
    clause = Clause(
        number=0,
        operation=RowOperation.UPDATE,
        text="update " + ", ".join(column.field.name for column in values),
    )
    return RowDeltaPlan(
        command=Command.UPDATE,
        query=DeltaQuery(inner=inner, raws=tuple(raws.columns), clauses=(clause,), values=values),
        target_ids=tuple(sorted(read)),
        pushed_filter=pushdown.expression,
        conflict_detection_filter=pushdown.expression,
        never=pushdown.never,
        row_condition=pushdown.computed,
        decides_rows=pushdown.decides_rows and (condition is None or not condition.has_subquery),
        row_values=row_values(bound, columns, context),
        assigned_ids=tuple(bound),
        ordered_by_file=all(stays_in_place(fragment) for fragment in fragments),
        matching=matching,
    )


def row_values(
    bound: Mapping[int, AssignedValue], columns: Mapping[int, NestedField], context: PlanContext
) -> tuple[RowTerm, ...] | None:
    """How tasks compute new values; None where only Spark can.

    Args:
        bound: What is assigned to the columns, by field id.
        columns: The table's columns, by field id.
        context: The statement.
    """
    terms = [
        row_value(value.fragment.ast, columns[field_id], context) if isinstance(value, AssignedExpression) else None
        for field_id, value in bound.items()
    ]
    known = tuple(term for term in terms if term is not None)
    return known if len(known) == len(terms) else None
