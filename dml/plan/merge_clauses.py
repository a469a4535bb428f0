"""The WHEN clauses of a MERGE: numbered, and what each assigns bound to the columns of the table. Driver."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dml.errors import AnalysisError, ErrorKind
from dml.model.columns import RowOperation
from dml.plan.assignments import AssignedDefault, AssignedValue, bind_assignments
from dml.plan.row_delta_plan import DeltaClause, MergeSource, PlanContext
from dml.sqlparse.statements import (
    Assignment,
    DeleteAction,
    InsertAction,
    MergeStatement,
    Span,
    UpdateAction,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
)
from dml.suggestions import did_you_mean

__all__ = ["Bound", "When", "bound_clauses", "described", "whens"]

When = WhenMatched | WhenNotMatched | WhenNotMatchedBySource


def whens(statement: MergeStatement) -> tuple[When, ...]:
    """All WHEN clauses, kind by kind."""
    return (*statement.matched, *statement.not_matched, *statement.not_matched_by_source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A WHEN clause with its number and what it assigns (by field id)."""

    number: int
    when: When
    values: dict[int, AssignedValue | str]
    """A string is the name of a source column (`SET *`, `INSERT *`)."""


def bound_clauses(statement: MergeStatement, context: PlanContext, source: MergeSource) -> tuple[Bound, ...]:
    """All WHEN clauses, numbered in the order in which they stand, kind by kind."""
    return tuple(
        Bound(
            number=number,
            when=when,
            values=bound_values(when, context, source, lenient=statement.with_schema_evolution),
        )
        for number, when in enumerate(whens(statement))
    )


def bound_values(
    when: When, context: PlanContext, source: MergeSource, *, lenient: bool
) -> dict[int, AssignedValue | str]:
    """What a clause assigns, by field id.

    With schema evolution a star passes over columns that the source lacks: updated rows keep them, inserted rows get
    their default.
    """
    match when.action:
        case DeleteAction():
            return {}
        case UpdateAction(assignments=None, span=span):
            return dict(star_values(context, source, span, lenient=lenient))
        case UpdateAction(assignments=assignments):
            assert assignments is not None
            return dict(bind_assignments(assignments, context.names))
        case InsertAction(assignments=None, span=span):
            return dict(star_values(context, source, span, lenient=lenient))
        case InsertAction(assignments=assignments, span=span):
            assert assignments is not None
            return insert_values(assignments, context, span)


def star_values(context: PlanContext, source: MergeSource, span: Span, *, lenient: bool) -> Iterable[tuple[int, str]]:
    """Every column of the target from the source column of its name (docs/semantics.md, M5)."""
    by_name = {context.names.folded(name): name for name in source.columns}
    for column in context.schema.fields:
        found = by_name.get(context.names.folded(column.name))
        if found is None:
            if lenient:
                continue
            raise AnalysisError(
                f"The source has no column '{column.name}', which the star stands for",
                sql=context.sql,
                position=span.start,
                length=span.end - span.start,
                kind=ErrorKind.UNRESOLVED_COLUMN,
                hint=f"{did_you_mean(column.name, source.columns)}; or name the columns in the clause",
            )
        yield column.field_id, found


def insert_values(
    assignments: Sequence[Assignment], context: PlanContext, span: Span
) -> dict[int, AssignedValue | str]:
    """An explicit INSERT list: whole columns, any order; columns left out get their default (docs/semantics.md, M6)."""
    for assignment in assignments:
        if len(context.names.unqualified(assignment.key)) > 1:
            raise context.names.error(
                f"INSERT assignment keys cannot be nested fields: '{'.'.join(assignment.key)}'",
                assignment.key_span,
                "Insert the whole struct, with named_struct(...)",
                ErrorKind.INVALID_ASSIGNMENT,
            )
    values: dict[int, AssignedValue | str] = dict(bind_assignments(assignments, context.names))
    for column in context.schema.fields:
        if column.field_id in values:
            continue
        if column.required and column.write_default is None:
            raise context.names.error(
                f"No assignment for '{column.name}', which is required and has no default",
                span,
                "Add it to the INSERT list",
                ErrorKind.INVALID_ASSIGNMENT,
            )
        values[column.field_id] = AssignedDefault()
    return values


def described(clause: Bound) -> DeltaClause:
    """The clause as the delta query and EXPLAIN know it."""
    match clause.when.action:
        case DeleteAction():
            operation, what = RowOperation.DELETE, "delete"
        case UpdateAction():
            operation, what = RowOperation.UPDATE, "update"
        case InsertAction():
            operation, what = RowOperation.INSERT, "insert"
    kinds = {WhenMatched: "matched", WhenNotMatched: "not matched", WhenNotMatchedBySource: "not matched by source"}
    condition = "" if clause.when.condition is None else f" and {clause.when.condition.text}"
    return DeltaClause(
        number=clause.number,
        operation=operation,
        text=f"when {kinds[type(clause.when)]}{condition} {what}",
        by_source=isinstance(clause.when, WhenNotMatchedBySource),
    )
