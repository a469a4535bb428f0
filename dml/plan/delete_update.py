"""Plan DELETE and UPDATE from the statement and its table. Driver.

    DELETE FROM t WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause> FROM <scan of t> AS t WHERE c

    UPDATE t SET a = x WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause>, (x) AS <raw 0> FROM <scan of t> AS t WHERE c

Assignments see the old row, so `SET a = b, b = a` swaps (docs/semantics.md, U1).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyiceberg.types import NestedField

from dml.model.columns import CLAUSE, FILE_ORDINAL, POS, RowOperation
from dml.options import Command
from dml.plan.condition import EVERY_ROW, Condition
from dml.plan.condition_checks import (
    check_condition,
    check_value,
    condition_sql,
    reads_clock,
    stays_in_place,
    target_columns,
)
from dml.plan.predicates import pushable, row_value, uncomputed_text
from dml.plan.row_delta_plan import (
    AssignedExpression,
    AssignedValue,
    DeltaClause,
    DeltaQuery,
    PlanContext,
    RawColumns,
    RowDeltaPlan,
    ThroughSpark,
    ValueColumn,
    assigned_fragments,
    bind_assignments,
    old_columns,
    only_spark,
)
from dml.read.projection import arrow_type
from dml.rows.program import Changes, Value
from dml.rows.program import Clause as RowClause
from dml.sqlparse import quoted
from dml.sqlparse.statements import DeleteStatement, Fragment, UpdateStatement

__all__ = ["plan_delete", "plan_update"]


def plan_delete(statement: DeleteStatement, context: PlanContext) -> RowDeltaPlan:
    """Plan a DELETE.

    Raises:
        AnalysisError: the condition is not allowed.
    """
    target = quoted(context.target)
    head = "" if statement.ctes is None else context.text(statement.ctes) + " "
    inner = (
        f"{head}SELECT {target}.{FILE_ORDINAL}, {target}.{POS}, 0 AS {CLAUSE} FROM {context.target_view} AS {target}"
    )
    clause = DeltaClause(number=0, operation=RowOperation.DELETE, text="delete")
    condition = statement.condition
    if condition is None:
        query = DeltaQuery(inner=inner, raws=(), clauses=(clause,), values=())
        return RowDeltaPlan(
            command=Command.DELETE,
            query=query,
            target_ids=(),
            condition=EVERY_ROW,
            tasks=DELETE_PROGRAM,
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
        tasks=only_spark(affected.needs_spark) if affected.needs_spark else DELETE_PROGRAM,
        ordered_by_file=stays_in_place(condition),
        matching=None
        if reads_clock(statement.ctes, condition)
        else f"{head}SELECT 1 FROM {context.target_view} AS {target}{where}",
    )


def affected_rows(condition: Fragment, context: PlanContext) -> Condition:
    """Translate a WHERE condition. With a subquery neither form is exact, as only Spark can evaluate it."""
    found = pushable(condition.ast, context.names)
    return replace(found, pruning_is_exact=False, needs_spark="a subquery") if condition.has_subquery else found


def plan_update(statement: UpdateStatement, context: PlanContext) -> RowDeltaPlan:
    """Plan an UPDATE.

    Raises:
        AnalysisError: an invalid key, or a value or condition that is not allowed.
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
    clause = DeltaClause(
        number=0,
        operation=RowOperation.UPDATE,
        text="update " + ", ".join(column.field.name for column in values),
    )
    return RowDeltaPlan(
        command=Command.UPDATE,
        query=DeltaQuery(inner=inner, raws=tuple(raws.columns), clauses=(clause,), values=values),
        target_ids=tuple(sorted(read)),
        condition=affected,
        tasks=update_program(affected, bound, columns, context),
        assigned_ids=tuple(bound),
        ordered_by_file=all(stays_in_place(fragment) for fragment in fragments),
        matching=matching,
    )


def update_program(
    affected: Condition, bound: Mapping[int, AssignedValue], columns: Mapping[int, NestedField], context: PlanContext
) -> Changes | ThroughSpark:
    """Return the program that computes an UPDATE in tasks, or the reason why Spark must compute it.

    Args:
        affected: The condition of the rows that it changes.
        bound: The assignments, by field id.
        columns: The table's columns, by field id.
        context: The statement.
    """
    if affected.needs_spark:
        return only_spark(affected.needs_spark)
    values: list[Value] = []
    for field_id, assigned in bound.items():
        column = columns[field_id]
        if not isinstance(assigned, AssignedExpression):
            return ThroughSpark(reason=f"'{column.name}' is set to its default, or field by field")
        value = row_value(assigned.fragment.ast, column, context.names)
        if value is None:
            part = uncomputed_text(assigned.fragment, context.names)
            return ThroughSpark(reason=f"tasks cannot compute {part} for '{column.name}' as Spark does")
        values.append(value)
    types = tuple(arrow_type(columns[field_id].field_type, spark=True) for field_id in bound)
    return Changes(value_types=types, matched=(RowClause(operation=RowOperation.UPDATE, values=tuple(values)),))


DELETE_PROGRAM: Final = Changes(value_types=(), matched=(RowClause(operation=RowOperation.DELETE, values=()),))
