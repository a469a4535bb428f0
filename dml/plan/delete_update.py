"""DELETE and UPDATE: a statement and its table to a plan. Driver.

    DELETE FROM t WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause> FROM <scan of t> AS t WHERE c

    UPDATE t SET a = x WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause>, (x) AS <raw 0> FROM <scan of t> AS t WHERE c

Assignments see the old row, so `SET a = b, b = a` swaps (docs/semantics.md, U1).
"""

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.types import NestedField

from dml.model.columns import CLAUSE, FILE_ORDINAL, POS, RowOperation
from dml.options import Command
from dml.plan.assignments import AssignedExpression, AssignedValue, assigned_fragments, bind_assignments
from dml.plan.condition import EVERY_ROW, Condition
from dml.plan.conditions import check_condition, check_value, condition_sql, reads_clock, stays_in_place, target_columns
from dml.plan.predicates import pushable, row_value
from dml.plan.row_delta_plan import (
    Clause,
    DeltaQuery,
    PlanContext,
    RawColumns,
    RowDeltaPlan,
    ValueColumn,
    old_columns,
)
from dml.read.projection import arrow_type
from dml.rows.program import Changes
from dml.rows.program import Clause as RowClause
from dml.sqlparse import quoted
from dml.sqlparse.statements import DeleteStatement, Fragment, UpdateStatement

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
            condition=EVERY_ROW,
            program=delete_program(EVERY_ROW),
            ordered_by_file=True,
        )
    check_condition(context, condition)
    affected = affected_rows(condition, context)
    where = f" WHERE {condition_sql(condition, context.text(condition))}"
    query = DeltaQuery(inner=inner + where, raws=(), clauses=(clause,), values=())
    return RowDeltaPlan(
        command=Command.DELETE,
        query=query,
        target_ids=tuple(sorted(target_columns(context.names, [condition]))),
        condition=affected,
        program=delete_program(affected) if stays_in_place(condition) else None,
        ordered_by_file=stays_in_place(condition),
        matching=None
        if reads_clock(statement.ctes, condition)
        else f"{head}SELECT 1 FROM {context.target_view} AS {target}{where}",
    )


def affected_rows(condition: Fragment, context: PlanContext) -> Condition:
    """Translate a WHERE condition. Only Spark can evaluate a subquery, so that neither form is exact with one."""
    found = pushable(condition.ast, context)
    return replace(found, pruning_is_exact=False, rows_are_exact=False) if condition.has_subquery else found


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
    affected = EVERY_ROW
    matching = None
    if condition is not None:
        check_condition(context, condition)
        affected = affected_rows(condition, context)
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
    in_place = all(stays_in_place(fragment) for fragment in fragments)
    return RowDeltaPlan(
        command=Command.UPDATE,
        query=DeltaQuery(inner=inner, raws=tuple(raws.columns), clauses=(clause,), values=values),
        target_ids=tuple(sorted(read)),
        condition=affected,
        program=update_program(affected, bound, columns, context) if in_place else None,
        assigned_ids=tuple(bound),
        ordered_by_file=in_place,
        matching=matching,
    )


def update_program(
    affected: Condition, bound: Mapping[int, AssignedValue], columns: Mapping[int, NestedField], context: PlanContext
) -> Changes | None:
    """Return how tasks compute an UPDATE; None if only Spark can.

    Args:
        affected: The rows that it changes.
        bound: The assignments, by field id.
        columns: The table's columns, by field id.
        context: The statement.
    """
    if not affected.rows_are_exact:
        return None
    values = [
        row_value(value.fragment.ast, columns[field_id], context) if isinstance(value, AssignedExpression) else None
        for field_id, value in bound.items()
    ]
    if None in values:
        return None
    types = tuple(arrow_type(columns[field_id].field_type, spark=True) for field_id in bound)
    return Changes(value_types=types, matched=(RowClause(operation=RowOperation.UPDATE, values=tuple(values)),))


def delete_program(affected: Condition) -> Changes | None:
    """Return how tasks compute a DELETE; None if only Spark can."""
    if not affected.rows_are_exact:
        return None
    return Changes(value_types=(), matched=(RowClause(operation=RowOperation.DELETE, values=()),))
