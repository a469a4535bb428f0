"""MERGE INTO: a statement, its table and its source's columns to a plan. Driver.

    MERGE INTO t USING s ON c WHEN MATCHED AND m THEN UPDATE SET a = x WHEN NOT MATCHED THEN INSERT (a) VALUES (y)

    SELECT t.<file>, t._pos,
           CASE WHEN t._pos IS NOT NULL AND s.<present> THEN CASE WHEN (m) THEN 0 ELSE -1 END
                WHEN s.<present> THEN 1 END AS <clause>,
           CASE WHEN <clause> = 0 THEN (x) END AS <raw 0>, CASE WHEN <clause> = 1 THEN (y) END AS <raw 1>
    FROM <scan of t> AS t RIGHT JOIN (SELECT *, TRUE AS <present> FROM <source>) AS s ON (c)

Clause -1 stands for a matched row that no clause wants: it counts for the cardinality check only. Every expression is
guarded by its clause, so that none is evaluated for a row that it is not meant for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.types import NestedField, StructType

from dml.errors import AnalysisError, ErrorKind
from dml.model.columns import CLAUSE, FILE_ORDINAL, INTERNAL_PREFIX, POS
from dml.options import Command
from dml.plan.assignments import AssignedValue, assigned_fragments
from dml.plan.condition import UNKNOWN
from dml.plan.condition_checks import (
    check_merge_condition,
    check_value,
    condition_sql,
    qualifier_insertions,
    reads_clock,
    target_columns,
)
from dml.plan.merge_clauses import Bound, When, bound_clauses, described, whens
from dml.plan.predicates import target_only_pushdown
from dml.plan.row_delta_plan import (
    ALWAYS,
    DefaultValue,
    DeltaQuery,
    MergeSource,
    PlanContext,
    RawColumns,
    RowDeltaPlan,
    ValueColumn,
    ValueSource,
    old_columns,
)
from dml.plan.sent_source import plan_sent_source
from dml.sqlparse import quoted
from dml.sqlparse.statements import (
    DeleteAction,
    Fragment,
    InsertAction,
    MergeStatement,
    Span,
    UpdateAction,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
)

__all__ = ["SOURCE_PRESENT", "plan_merge"]

SOURCE_PRESENT: Final = f"{INTERNAL_PREFIX}source"
"""The column that is TRUE where the source has a row."""

MATCHED_ONLY: Final = -1


def plan_merge(statement: MergeStatement, context: PlanContext, source: MergeSource) -> RowDeltaPlan:
    """Plan a MERGE.

    Raises:
        AnalysisError: a condition or an assignment that does not fit (docs/semantics.md, M4 to M10).
    """
    check_aliases(statement, context, source)
    clauses = bound_clauses(statement, context, source)
    for clause in clauses:
        for fragment in assigned_fragments(assigned_values(clause)):
            check_value(context, fragment)
    check_conditions(statement, context)
    raws = RawColumns(target=context.target, render=clause_renderer(statement, context, source))
    values = value_columns(clauses, raws, context, source)
    check = needs_cardinality_check(statement)
    by_source = bool(statement.not_matched_by_source)
    pushed: BooleanExpression = (
        ALWAYS if by_source else target_only_pushdown(statement.condition.ast, context.names, source)
    )
    head = "" if statement.ctes is None else context.text(statement.ctes) + " "
    target, alias = quoted(context.target), quoted(source.alias)
    choice = clause_choice(clauses, raws, target, alias, check=check)
    joined = join_type(statement)
    anti = joined == "LEFT ANTI JOIN"
    selected = "".join(f", {raw.sql} AS {raw.name}" for raw in raws.columns)
    source_rows = f"(SELECT *, TRUE AS {SOURCE_PRESENT} FROM {source.view}) AS {alias}"
    target_rows = f"{context.target_view} AS {target}"
    inserts_only = anti and bool(statement.not_matched)
    place = (
        f"CAST(NULL AS INT) AS {FILE_ORDINAL}, CAST(NULL AS BIGINT) AS {POS}"
        if inserts_only
        else f"{target}.{FILE_ORDINAL}, {target}.{POS}"
    )
    condition_text = condition_sql(statement.condition, context.text(statement.condition))
    left, right = (source_rows, target_rows) if inserts_only else (target_rows, source_rows)
    inner = f"{head}SELECT {place}, {choice} AS {CLAUSE}{selected} FROM {left} {joined} {right} ON {condition_text}"
    read = read_columns(statement, context, source, clauses)
    for column in values:
        for _, value in column.cases:
            read.update(old_columns(value))
    return RowDeltaPlan(
        command=Command.MERGE,
        query=DeltaQuery(
            inner=inner, raws=tuple(raws.columns), clauses=tuple(described(clause) for clause in clauses), values=values
        ),
        target_ids=tuple(sorted(read)),
        condition=replace(UNKNOWN, pruning=pushed),
        assigned_ids=assigned_ids(clauses, context),
        inserts=bool(statement.not_matched),
        inserts_only=inserts_only,
        check_cardinality=check,
        tasks=plan_sent_source(
            statement,
            context,
            source,
            clauses,
            [column.field for column in values],
            assigned_ids(clauses, context),
            raws.render,
        ),
        matching=None
        if by_source or reads_clock(statement.ctes, statement.condition)
        else f"{head}SELECT 1 FROM {target_rows} JOIN {source_rows} ON {condition_text}",
    )


def assigned_values(clause: Bound) -> dict[int, AssignedValue]:
    """What a clause assigns by expressions of its own."""
    return {key: value for key, value in clause.values.items() if not isinstance(value, str)}


def check_aliases(statement: MergeStatement, context: PlanContext, source: MergeSource) -> None:
    """Source and target must be distinguishable: else a condition would compare the source with itself."""
    if context.names.folded(source.alias) == context.names.folded(context.target):
        raise AnalysisError(
            f"The source and the target of the MERGE are both called '{source.alias}'",
            sql=context.sql,
            position=statement.source.span.start,
            length=statement.source.span.end - statement.source.span.start,
            kind=ErrorKind.AMBIGUOUS_COLUMN,
            hint="Give each an alias of its own: MERGE INTO ... AS t USING ... AS s",
        )


def needs_cardinality_check(statement: MergeStatement) -> bool:
    """Spark's exemptions: no MATCHED clause, or one that deletes without a condition (docs/semantics.md, M16)."""
    matched = statement.matched
    if not matched:
        return False
    return not (len(matched) == 1 and matched[0].condition is None and isinstance(matched[0].action, DeleteAction))


def join_type(statement: MergeStatement) -> str:
    """The join that yields every row that some clause may want, and no more."""
    matched, inserts, by_source = (
        bool(statement.matched),
        bool(statement.not_matched),
        bool(statement.not_matched_by_source),
    )
    if by_source:
        if inserts:
            return "FULL OUTER JOIN"
        return "LEFT OUTER JOIN" if matched else "LEFT ANTI JOIN"
    if inserts:
        return "RIGHT OUTER JOIN" if matched else "LEFT ANTI JOIN"
    return "INNER JOIN"


def check_conditions(statement: MergeStatement, context: PlanContext) -> None:
    """What ON and the clauses' conditions may not hold."""
    check_merge_condition(context, statement.condition, "SEARCH")
    for when in whens(statement):
        if when.condition is not None:
            name = type(when.action).__name__.removesuffix("Action").upper()
            check_merge_condition(context, when.condition, name)


# ---- the inner query ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseRenderer:
    """Renders fragments so that each sees only the sides that its clause may see (docs/semantics.md, M4)."""

    context: PlanContext
    source: MergeSource
    sides: dict[Span, type[When]]

    def __call__(self, fragment: Fragment) -> str:
        target, source = self.context.names.qualifiers, ((self.source.alias,), *self.source.qualifiers)
        side = self.sides.get(fragment.span)
        if side is WhenNotMatched:
            self.refuse_other_side(fragment, target, source, self.source.alias, "target")
            qualifier = self.source.alias
        elif side is WhenNotMatchedBySource:
            self.refuse_other_side(fragment, source, target, self.context.target, "source")
            qualifier = self.context.target
        else:
            return self.context.text(fragment)
        names = {column.name.lower() for column in self.context.schema.fields}
        both = frozenset(name.lower() for name in self.source.columns) & names
        return self.context.render(fragment, qualifier_insertions(fragment, qualifier, both))

    def refuse_other_side(
        self,
        fragment: Fragment,
        qualifiers: tuple[tuple[str, ...], ...],
        allowed: tuple[tuple[str, ...], ...],
        visible: str,
        side: str,
    ) -> None:
        """An error for a column of the side that the clause does not see.

        Args:
            fragment: The expression.
            qualifiers: How the columns of the side that is not seen may be qualified.
            allowed: The same of the side that is seen.
            visible: What the columns of the side that is seen are qualified with in the query.
            side: The side that is not seen.
        """
        # The last part alone of two tables' names (`a.t`, `b.t`) means the one that is called so in the query.
        seen = {folded(qualifier) for qualifier in allowed if len(qualifier) > 1} | {(visible.lower(),)}
        hidden = {folded(qualifier) for qualifier in qualifiers} - seen
        for column in fragment.columns:
            parts = folded(column.parts)
            heads = {parts[:length] for length in range(1, len(parts))}
            bare = not heads & seen and not fragment.has_subquery
            if heads & hidden or (bare and self.is_hidden(column.parts, side)):
                raise self.context.names.error(
                    f"There is no column '{'.'.join(column.parts)}' here: the clause does not see the {side}",
                    column.span,
                    f"Use columns of '{visible}'",
                )

    def is_hidden(self, parts: tuple[str, ...], side: str) -> bool:
        """Whether a bare name is a column of the side that the clause does not see, and of no other."""
        names = self.context.names
        of_source = names.folded(parts[0]) in {names.folded(name) for name in self.source.columns}
        of_target = names.column(parts[0]) is not None
        if names.folded(parts[0]) in {names.folded(self.source.alias), names.folded(self.context.target)}:
            return False
        return of_target and not of_source if side == "target" else of_source and not of_target


def folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A qualifier as it is compared."""
    return tuple(part.lower() for part in parts)


def clause_renderer(statement: MergeStatement, context: PlanContext, source: MergeSource) -> ClauseRenderer:
    """The renderer of a statement's clauses: fragments are known by their places."""
    sides: dict[Span, type[When]] = {}
    for when in whens(statement):
        if when.condition is not None:
            sides[when.condition.span] = type(when)
        assignments = () if isinstance(when.action, DeleteAction) else when.action.assignments or ()
        for assignment in assignments:
            if assignment.value is not None:
                sides[assignment.value.span] = type(when)
    return ClauseRenderer(context=context, source=source, sides=sides)


def clause_choice(clauses: Sequence[Bound], raws: RawColumns, target: str, alias: str, *, check: bool) -> str:
    """The SQL that numbers the clause of a joined row; the first whose condition is TRUE wins."""
    present, source = f"{target}.{POS} IS NOT NULL", f"{alias}.{SOURCE_PRESENT}"
    kinds = {type(clause.when) for clause in clauses}
    branches: list[str] = []
    if WhenMatched in kinds:
        otherwise = str(MATCHED_ONLY) if check else "NULL"
        inner = first_true(clauses, WhenMatched, raws, otherwise)
        branches.append(f"WHEN {present} AND {source} THEN {inner}")
    if WhenNotMatched in kinds:
        inner = first_true(clauses, WhenNotMatched, raws, "NULL")
        only = kinds == {WhenNotMatched}
        branches.append(f"WHEN {'TRUE' if only else f'{target}.{POS} IS NULL'} THEN {inner}")
    if WhenNotMatchedBySource in kinds:
        inner = first_true(clauses, WhenNotMatchedBySource, raws, "NULL")
        only = kinds == {WhenNotMatchedBySource}
        branches.append(f"WHEN {'TRUE' if only else f'{source} IS NULL'} THEN {inner}")
    return f"CASE {' '.join(branches)} END"


def first_true(clauses: Sequence[Bound], kind: type[When], raws: RawColumns, otherwise: str) -> str:
    """`CASE WHEN c0 THEN 0 WHEN c1 THEN 1 ... END` over the clauses of a kind."""
    branches: list[str] = []
    for clause in clauses:
        if isinstance(clause.when, kind):
            condition = clause.when.condition
            if condition is None:
                if not branches:
                    return str(clause.number)
                return f"CASE {' '.join(branches)} ELSE {clause.number} END"
            branches.append(f"WHEN ({condition_sql(condition, raws.render(condition))}) THEN {clause.number}")
    return f"CASE {' '.join(branches)} ELSE {otherwise} END"


# ---- values ---------------------------------------------------------------------------------------------------


def assigned_ids(clauses: Sequence[Bound], context: PlanContext) -> tuple[int, ...]:
    """Columns that some UPDATE clause assigns, in the table's order."""
    ids = {field_id for clause in clauses if isinstance(clause.when.action, UpdateAction) for field_id in clause.values}
    return tuple(column.field_id for column in context.schema.fields if column.field_id in ids)


def value_columns(
    clauses: Sequence[Bound], raws: RawColumns, context: PlanContext, source: MergeSource
) -> tuple[ValueColumn, ...]:
    """Per column its value in each clause: inserts give all columns, updates the assigned ones.

    A column that only some UPDATE clauses assign keeps the old row's value in the others.
    """
    updated = set(assigned_ids(clauses, context))
    inserts = any(isinstance(clause.when.action, InsertAction) for clause in clauses)
    columns = []
    for column in context.schema.fields:
        if not inserts and column.field_id not in updated:
            continue
        cases: list[tuple[int, ValueSource]] = []
        for clause in clauses:
            value = clause_value(clause, column, updated, raws, source)
            if value is not None:
                cases.append((clause.number, value))
        columns.append(ValueColumn(field=column, cases=tuple(cases)))
    return tuple(columns)


def clause_value(
    clause: Bound, column: NestedField, updated: set[int], raws: RawColumns, source: MergeSource
) -> ValueSource | None:
    """A column's value in a clause; None where the clause gives none."""
    guard = f"{CLAUSE} = {clause.number}"
    value = clause.values.get(column.field_id)
    match clause.when.action, value:
        case DeleteAction(), _:
            return None
        case action, str(name):
            raw = raws.qualified(source.alias, name, guard)
            if name not in source.lacking:
                return raw
            old = raws.old(column) if isinstance(action, UpdateAction) and has_struct(column) else None
            return replace(raw, fills=True, old=old)
        case UpdateAction(), None:
            return raws.old(column) if column.field_id in updated else None
        case InsertAction(), None:
            return DefaultValue()
        case _, assigned:
            assert assigned is not None
            assert not isinstance(assigned, str)
            return raws.source(column, assigned, guard)


def has_struct(column: NestedField) -> bool:
    """Whether a column is a struct: inside an array or a map no field of the old row belongs to one of the new."""
    return isinstance(column.field_type, StructType)


def read_columns(
    statement: MergeStatement, context: PlanContext, source: MergeSource, clauses: Sequence[Bound]
) -> set[int]:
    """Field ids of the target's columns that the query may read."""
    fragments = [statement.condition]
    for clause in clauses:
        if isinstance(clause.when, WhenNotMatched):
            continue
        if clause.when.condition is not None:
            fragments.append(clause.when.condition)
        fragments.extend(assigned_fragments(assigned_values(clause)))
    return target_columns(context.names, fragments, frozenset({source.alias.lower()}))
