"""UPDATE: a statement and its table to a plan. Driver.

    UPDATE t SET a = x WHERE c
    ->   SELECT t.<file>, t._pos, 0 AS <clause>, (x) AS <raw 0> FROM <scan of t> AS t WHERE c

Assignments see the old row, so `SET a = b, b = a` swaps (docs/semantics.md, U1).
"""

from collections.abc import Iterator, Mapping

from pyiceberg.expressions import AlwaysTrue

from dml.model.columns import CLAUSE, FILE_ORDINAL, POS, RowOperation
from dml.options import Command
from dml.plan.assignments import AssignedExpression, AssignedStruct, AssignedValue, bind_assignments
from dml.plan.conditions import check_condition, check_value, reads_clock, stays_in_place, target_columns
from dml.plan.predicates import Pushdown, pushable
from dml.plan.row_delta_plan import Clause, DeltaQuery, PlanContext, RowDeltaPlan, ValueColumn
from dml.plan.values import OldValue, RawColumns, StructValue, ValueSource
from dml.spark.types import quoted
from dml.sqlparse.statements import Fragment, UpdateStatement

__all__ = ["assigned_fragments", "old_columns", "plan_update"]


def assigned_fragments(values: Mapping[int, AssignedValue]) -> Iterator[Fragment]:
    """The expressions in a list of assignments."""
    for value in values.values():
        match value:
            case AssignedExpression(fragment=fragment):
                yield fragment
            case AssignedStruct(fields=fields):
                yield from assigned_fragments(fields)
            case _:
                pass


def old_columns(source: ValueSource) -> Iterator[int]:
    """Field ids of the columns of which a value keeps a part of the old row."""
    match source:
        case OldValue():
            yield source.field_id
        case StructValue(fields=fields):
            for _, nested in fields:
                yield from old_columns(nested)
        case _:
            pass


def plan_update(statement: UpdateStatement, context: PlanContext) -> RowDeltaPlan:
    """Plan an UPDATE.

    Raises:
        AnalysisError: a wrong key or a condition that holds what it may not hold.
    """
    bound = bind_assignments(statement.assignments, context.names)
    for fragment in assigned_fragments(bound):
        check_value(context, fragment)
    raws = RawColumns(target=context.target, render=context.render)
    columns = {column.field_id: column for column in context.schema.fields}
    values = tuple(
        ValueColumn(field=columns[field_id], cases=((0, raws.source(columns[field_id], value)),))
        for field_id, value in bound.items()
    )
    target = quoted(context.target)
    head = "" if statement.ctes is None else context.render(statement.ctes) + " "
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
        where = f" WHERE {context.render(condition)}"
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
        assigned_ids=tuple(bound),
        ordered_by_file=all(stays_in_place(fragment) for fragment in fragments),
        matching=matching,
    )
