"""Plan MERGE INTO from the statement, its table and the columns of its source. Driver.

    MERGE INTO t USING s ON c WHEN MATCHED AND m THEN UPDATE SET a = x WHEN NOT MATCHED THEN INSERT (a) VALUES (y)

Through Spark, the plan is one query:

    SELECT t.<file>, t._pos,
           CASE WHEN t._pos IS NOT NULL AND s.<present> THEN CASE WHEN (m) THEN 0 ELSE -1 END
                WHEN s.<present> THEN 1 END AS <clause>,
           CASE WHEN <clause> = 0 THEN (x) END AS <raw 0>, CASE WHEN <clause> = 1 THEN (y) END AS <raw 1>
    FROM <scan of t> AS t RIGHT JOIN (SELECT *, TRUE AS <present> FROM <source>) AS s ON (c)

Clause -1 marks a matched row that no clause applies to: it counts for the cardinality check only. A CASE guards each
expression, so that it is evaluated only for rows of its clause.

In tasks (`plan_sent_source`), each task that reads the target receives all rows of the source:

    MERGE INTO t USING s ON t.id = s.id AND t.day >= s.first
    WHEN MATCHED AND s.op = 'd' THEN DELETE
    WHEN MATCHED AND s.at > t.at THEN UPDATE SET n = t.n + s.n, v = upper(s.v)
    WHEN NOT MATCHED THEN INSERT *

Expressions over the source alone (`s.op = 'd'`, `upper(s.v)`, the inserted values) are computed before the join, for
each row of the source: Spark evaluates any of them in one query, or, if RowDelta's scan reads the source, they run as
row expressions. Tasks compute expressions over both sides (`dml.plan.row_terms`), or the statement runs through Spark.
A source value is also computed for rows whose clause is not reached. If that fails, the statement runs through Spark,
which raises the error only if the clause is reached.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from sqlglot import exp

from dml import limits
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.model.columns import CLAUSE, FILE_ORDINAL, INTERNAL_PREFIX, POS, RowOperation
from dml.options import Command
from dml.plan.condition import EVERY_ROW, UNKNOWN, Condition, conjunction, row_condition
from dml.plan.condition_checks import (
    check_merge_condition,
    check_value,
    condition_sql,
    non_deterministic,
    qualifier_insertions,
    reads_clock,
    target_columns,
)
from dml.plan.names import TargetNames
from dml.plan.predicates import Converter, split_conjuncts, target_only_pushdown
from dml.plan.row_delta_plan import (
    ALWAYS,
    AssignedDefault,
    AssignedExpression,
    AssignedValue,
    DefaultValue,
    DeltaClause,
    DeltaQuery,
    JoinKey,
    MergeSource,
    PlanContext,
    RawColumns,
    RowDeltaPlan,
    SentSourcePlan,
    SourceColumn,
    ThroughSpark,
    ValueColumn,
    ValueSource,
    assigned_fragments,
    bind_assignments,
    old_columns,
    only_spark,
)
from dml.plan.row_terms import selected_value, sql_text, uncomputed_part, value_term
from dml.read.projection import arrow_type
from dml.rows.program import (
    TRUE,
    Changes,
    Clause,
    Column,
    Comparison,
    IsNull,
    Join,
    Literal,
    Predicate,
    Value,
    source_id,
)
from dml.sqlparse import quoted
from dml.sqlparse.statements import (
    Assignment,
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

__all__ = ["OnlySparkError", "When", "delta_clause", "plan_merge", "when_clauses"]

When = WhenMatched | WhenNotMatched | WhenNotMatchedBySource


def when_clauses(statement: MergeStatement) -> tuple[When, ...]:
    """Return the WHEN clauses: matched, not matched, not matched by source."""
    return (*statement.matched, *statement.not_matched, *statement.not_matched_by_source)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundClause:
    """A WHEN clause with its number and what it assigns (by field id)."""

    number: int
    when: When
    values: dict[int, AssignedValue | str]
    """A string is the name of a source column (`SET *`, `INSERT *`)."""


def bind_clauses(statement: MergeStatement, context: PlanContext, source: MergeSource) -> tuple[BoundClause, ...]:
    """Number the WHEN clauses in the order of `when_clauses` and bind their assignments."""
    return tuple(
        BoundClause(
            number=number,
            when=when,
            values=bind_values(when, context, source, lenient=statement.with_schema_evolution),
        )
        for number, when in enumerate(when_clauses(statement))
    )


def bind_values(
    when: When, context: PlanContext, source: MergeSource, *, lenient: bool
) -> dict[int, AssignedValue | str]:
    """Return the values that a clause assigns, by field id.

    With schema evolution (`lenient`) a star skips columns that the source lacks: updated rows keep their values,
    inserted rows get the default.
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
    """Assign to each column of the target the source column with its name (docs/semantics.md, M5)."""
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
                column=column.name,
            )
        yield column.field_id, found


def insert_values(
    assignments: Sequence[Assignment], context: PlanContext, span: Span
) -> dict[int, AssignedValue | str]:
    """Bind an INSERT list: whole columns in any order; missing columns get their default (docs/semantics.md, M6)."""
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


def delta_clause(clause: BoundClause) -> DeltaClause:
    """Return the clause for the delta query and EXPLAIN."""
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


CARRIED: Final = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
"""Types whose values tasks receive from the source as Arrow values, top-level or nested."""


COMPUTED: Final = (BooleanType, DateType, DoubleType, IntegerType, LongType, StringType, TimestampType, TimestamptzType)
"""Types of the source's columns with which tasks compute as Spark does; strings are compared by bytes."""


class OnlySparkError(Exception):
    """Only Spark can compute the statement. The message is the reason of a `ThroughSpark`."""


@dataclass(slots=True, kw_only=True)
class SourceColumns:
    """Collects the columns computed from the source, each once.

    Attributes:
        rows: Converts expressions over the source's fields.
    """

    source: MergeSource
    rows: Converter
    columns: list[SourceColumn] = field(default_factory=list)

    def index_of(self, column: SourceColumn) -> int:
        """Return the index of a column, appending it if it is new."""
        if column not in self.columns:
            self.columns.append(column)
        return self.columns.index(column)

    def operand(self, name: str) -> NestedField | None:
        """Return a source column that tasks can compute with, or None."""
        found = self.rows.names.column(name)
        return self.add_field(name) if found is not None and isinstance(found.field_type, COMPUTED) else None

    def add_field(self, name: str) -> NestedField | None:
        """Return a source column that tasks receive, of any type; None if the source has no such field."""
        found = self.rows.names.column(name)
        if found is None:
            return None
        place = self.index_of(SourceColumn(sql=self.sql(name), value=self.column_value(name)))
        return NestedField(source_id(place), name, found.field_type, required=False)

    def sql(self, name: str) -> str:
        """Return the SQL of a column."""
        return f"{quoted(self.source.alias)}.{quoted(name)}"

    def column_value(self, name: str) -> Value | None:
        """Return the value of a column, or None if the source has no such field."""
        found = self.rows.names.column(name)
        return None if found is None else Column(field_id=found.field_id, type=arrow_type(found.field_type, spark=True))

    def value(self, fragment: Fragment) -> Value | None:
        """Translate an expression over the source; None if only Spark can compute it."""
        tree = fragment.ast
        return None if tree is None or not self.rows.trees.holds(tree) else selected_value(tree, self.rows.scope)

    def predicate(self, fragment: Fragment) -> Predicate | None:
        """Translate a condition over the source; None if only Spark can evaluate it."""
        found = self.rows.condition(fragment.ast)
        return found.rows if found.rows_are_exact and not found.skips else None


class JoinedRows(Converter):
    """Translates conditions on joined rows to predicates that tasks evaluate.

    Args:
        context: The statement.
        source: The source; None if only target rows are visible.
        columns: Collects the source columns that the conditions read.
    """

    def __init__(self, context: PlanContext, source: MergeSource | None, columns: SourceColumns) -> None:
        super().__init__(context.names, source)
        self.context = context
        self.columns = columns

    def operand(self, node: exp.Expression) -> NestedField | None:
        """Return the column, of either side, that an expression refers to."""
        found = self.top_level(node)
        name = self.source_column(node) if found is None else None
        return self.columns.operand(name) if name is not None else found

    def convert_for_tasks(self, node: exp.Expression, *, negated: bool) -> Condition:
        """Translate a predicate for tasks: also IS NULL and bare booleans over source columns of any type."""
        asked = node.this if isinstance(node, exp.Is) else node
        name = self.source_column(asked) if isinstance(asked, exp.Column | exp.Dot) else None
        column = None if name is None else self.columns.add_field(name)
        if column is None:
            return super().convert_for_tasks(node, negated=negated)
        value = Column(field_id=column.field_id, type=arrow_type(column.field_type, spark=True))
        match node:
            case exp.Is(expression=exp.Null()):
                return row_condition(IsNull(column=value, negated=negated))
            case exp.Column() | exp.Dot() if isinstance(column.field_type, BooleanType):
                flag = Literal(value=not negated, type=value.type)
                return row_condition(Comparison(operator="=", left=value, right=flag, type=value.type))
        return super().convert_for_tasks(node, negated=negated)

    def row_predicate(self, conjuncts: Sequence[exp.Expression]) -> Predicate:
        """Translate a condition for tasks.

        Raises:
            OnlySparkError: tasks cannot evaluate it.
        """
        if (
            len(conjuncts) > limits.MAX_CONDITION_DEPTH
            or sum(1 for conjunct in conjuncts for _ in conjunct.walk()) > limits.MAX_CONDITION_NODES
        ):
            raise OnlySparkError(only_spark("a condition of that length").reason)
        parts = (self.convert(conjunct, negated=False, depth=0) for conjunct in conjuncts)
        known = reduce(conjunction, parts, EVERY_ROW)
        if known.needs_spark or known.skips:
            raise OnlySparkError(only_spark(known.needs_spark or "a part that does not affect the result").reason)
        return known.rows


def plan_sent_source(
    statement: MergeStatement,
    context: PlanContext,
    source: MergeSource,
    clauses: Sequence[BoundClause],
    columns: Sequence[NestedField],
    updated: Sequence[int],
    render: Callable[[Fragment], str],
) -> SentSourcePlan | ThroughSpark:
    """Plan a MERGE whose tasks receive the source and join it themselves, or give the reason why Spark must run it.

    Args:
        statement: The statement.
        context: The target and its names.
        source: The source.
        clauses: The WHEN clauses.
        columns: The columns of the delta, in order.
        updated: Field ids of the columns that some UPDATE clause assigns.
        render: Renders a fragment with the columns that are visible to its clause.
    """
    if not source.keys:
        return ThroughSpark(reason="ON equates no column of the table with one of the source that tasks can look up")
    for column in columns:
        if not is_carried(column.field_type):
            return ThroughSpark(reason=f"tasks cannot receive values of type {column.field_type} ('{column.name}')")
    qualifiers = ((source.alias,), *source.qualifiers)
    names = TargetNames(schema=Schema(*source.fields), qualifiers=qualifiers, rules=context.names.rules)
    found = SourceColumns(source=source, rows=Converter(names, None))
    planner = Planner(
        rows=JoinedRows(context, source, found),
        target_rows=JoinedRows(context, None, found),
        columns=columns,
        updated=frozenset(updated),
        render=render,
        found=found,
    )
    try:
        program = Changes(
            value_types=tuple(arrow_type(column.field_type, spark=True) for column in columns),
            join=Join(
                key_ids=tuple(key.field_id for key in source.keys),
                null_safe=tuple(place for place, key in enumerate(source.keys) if key.null_safe),
                residual=planner.rows.row_predicate(
                    list(residual_conjuncts(statement.condition, planner.rows, source))
                ),
            ),
            matched=tuple(planner.clause(clause) for clause in clauses if isinstance(clause.when, WhenMatched)),
            not_matched=tuple(planner.clause(clause) for clause in clauses if isinstance(clause.when, WhenNotMatched)),
            not_matched_by_source=tuple(
                planner.clause(clause) for clause in clauses if isinstance(clause.when, WhenNotMatchedBySource)
            ),
        )
    except OnlySparkError as error:
        return ThroughSpark(reason=str(error))
    return SentSourcePlan(
        program=program, source=f"(SELECT * FROM {source.view}) AS {quoted(source.alias)}", columns=tuple(found.columns)
    )


def is_carried(kind: IcebergType) -> bool:
    """Return whether tasks can receive source values of a type."""
    match kind:
        case StructType(fields=fields):
            return all(is_carried(field.field_type) for field in fields)
        case ListType(element_type=element):
            return is_carried(element)
        case MapType(key_type=key, value_type=value):
            return is_carried(key) and is_carried(value)
    return isinstance(kind, CARRIED)


def residual_conjuncts(condition: Fragment, rows: JoinedRows, source: MergeSource) -> Iterator[exp.Expression]:
    """Yield the conjuncts of an ON condition that do not equate keys.

    Raises:
        OnlySparkError: the condition has no trusted tree.
    """
    if condition.ast is None or not rows.trees.holds(condition.ast):
        raise OnlySparkError(only_spark("the ON condition").reason)
    for conjunct in split_conjuncts(condition.ast):
        if not (isinstance(conjunct, exp.EQ | exp.NullSafeEQ) and key_of(conjunct, rows) in source.keys):
            yield conjunct


def key_of(conjunct: exp.EQ | exp.NullSafeEQ, rows: JoinedRows) -> JoinKey | None:
    """Return the columns that an equality compares; None unless it has one of each side."""
    for side, other in ((conjunct.this, conjunct.expression), (conjunct.expression, conjunct.this)):
        target, name = rows.top_level(side), rows.source_column(other)
        if target is not None and name is not None:
            null_safe = isinstance(conjunct, exp.NullSafeEQ)
            return JoinKey(field_id=target.field_id, source_column=rows.names.folded(name), null_safe=null_safe)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans WHEN clauses for tasks.

    Attributes:
        rows: Translates conditions on rows of both sides.
        target_rows: Translates conditions on target rows alone, where source names are not visible.
        columns: The columns of the delta.
        updated: Field ids of the columns that some UPDATE clause assigns.
        render: Renders a fragment as SQL.
        found: Collects the source columns.
    """

    rows: JoinedRows
    target_rows: JoinedRows
    columns: Sequence[NestedField]
    updated: frozenset[int]
    render: Callable[[Fragment], str]
    found: SourceColumns

    @property
    def names(self) -> frozenset[str]:
        """The names of all columns, lower case."""
        names = (*(column.name for column in self.rows.context.schema.fields), *self.found.source.columns)
        return frozenset(name.lower() for name in names)

    def clause(self, clause: BoundClause) -> Clause:
        """Translate a clause.

        Raises:
            OnlySparkError: tasks cannot compute it.
        """
        condition, guard = self.condition(clause)
        values: tuple[Value | None, ...]
        match clause.when.action:
            case DeleteAction():
                values = tuple(None for _ in self.columns)
            case UpdateAction():
                values = tuple(self.updated_value(clause, column, guard) for column in self.columns)
            case InsertAction():
                values = tuple(self.source_value(clause, column, guard) for column in self.columns)
        return Clause(operation=delta_clause(clause).code, condition=condition, values=values)

    def condition(self, clause: BoundClause) -> tuple[Predicate, int | None]:
        """Translate the condition of a clause.

        A condition over the source alone becomes a source column, whose index is returned too.
        """
        fragment = clause.when.condition
        if fragment is None:
            return TRUE, None
        if not self.is_of_source(fragment, clause):
            return self.rows_of(clause).row_predicate(list(split_conjuncts(fragment.ast))), None
        sql = f"({condition_sql(fragment, self.render(fragment))})"
        value = self.found.predicate(fragment)
        place = self.found.index_of(SourceColumn(sql=sql, value=value, is_condition=True))
        flag = Column(field_id=source_id(place), type=pa.bool_())
        true = Literal(value=True, type=pa.bool_())
        return Comparison(operator="=", left=flag, right=true, type=pa.bool_()), place

    def rows_of(self, clause: BoundClause) -> JoinedRows:
        """Return the converter for the rows that a clause sees."""
        return self.target_rows if isinstance(clause.when, WhenNotMatchedBySource) else self.rows

    def is_of_source(self, fragment: Fragment, clause: BoundClause) -> bool:
        """Return whether an expression reads only the source, or nothing.

        Raises:
            OnlySparkError: that is unclear, or the expression is not deterministic.
        """
        tree = fragment.ast
        if tree is None or not self.rows.trees.holds(tree) or fragment.has_subquery or fragment.has_star:
            raise OnlySparkError(f"it is unclear whether {fragment.text} reads only one row of the source")
        if tree.find(exp.Window, exp.Anonymous) is not None or non_deterministic(fragment):
            raise OnlySparkError(f"{fragment.text} may have another value when it is computed again")
        # A function without parentheses (`current_date`) is a column to Spark if a column has that name.
        columns = {part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts}
        if (fragment.names - columns) & self.names:
            raise OnlySparkError(f"a name in {fragment.text} may be a column or a function")
        if isinstance(clause.when, WhenNotMatched):  # only the source is visible
            return True
        if isinstance(clause.when, WhenNotMatchedBySource):  # no row of the source has the value
            return False
        return all(self.rows.source_column(column) is not None for column in tree.find_all(exp.Column))

    def updated_value(self, clause: BoundClause, column: NestedField, guard: int | None) -> Value | None:
        """Translate the value of a column in updated rows."""
        value = clause.values.get(column.field_id)
        if value is None:
            if column.field_id not in self.updated:
                return None
            if not column.field_type.is_primitive:  # element names in files differ from Spark's
                raise OnlySparkError(f"a clause keeps the old value of '{column.name}', a {column.field_type}")
            return Column(field_id=column.field_id, type=arrow_type(column.field_type, spark=True))
        if isinstance(value, AssignedExpression) and not self.is_of_source(value.fragment, clause):
            assert value.fragment.ast is not None
            rows = self.rows_of(clause)
            term = value_term(value.fragment.ast, column, rows.scope)
            if term is None:
                part = uncomputed_part(value.fragment.ast, rows.scope)
                raise OnlySparkError(only_spark(sql_text(part)).reason)
            return term
        if isinstance(clause.when, WhenNotMatchedBySource):
            raise OnlySparkError(f"'{column.name}' is set to its default, or field by field")
        return self.stored(column, value, guard)

    def source_value(self, clause: BoundClause, column: NestedField, guard: int | None) -> Value:
        """Translate the value of a column in inserted rows."""
        value = clause.values.get(column.field_id, AssignedDefault())
        if isinstance(value, AssignedExpression):
            self.is_of_source(value.fragment, clause)
        return self.stored(column, value, guard)

    def stored(self, column: NestedField, value: AssignedValue | str, guard: int | None) -> Value:
        """Add a source value, cast to the column it is stored in, to the source columns."""
        computed: Value | None
        match value:
            case str(name) if name not in self.found.source.lacking:
                sql, computed, span = self.found.sql(name), self.found.column_value(name), None
            case AssignedExpression(fragment=fragment):
                sql, computed, span = f"({self.render(fragment)})", self.found.value(fragment), fragment.span
            case AssignedDefault():
                place = self.found.index_of(SourceColumn(sql=None, value_of=column))
                return Column(field_id=source_id(place), type=arrow_type(column.field_type, spark=True))
            case _:
                raise OnlySparkError(f"fields of '{column.name}' are missing in the source or assigned one by one")
        place = self.found.index_of(SourceColumn(sql=sql, value=computed, value_of=column, span=span, guard=guard))
        return Column(field_id=source_id(place), type=arrow_type(column.field_type, spark=True))


SOURCE_PRESENT: Final = f"{INTERNAL_PREFIX}source"
"""The column that is TRUE where the join has a source row."""

MATCHED_ONLY: Final = -1


def plan_merge(statement: MergeStatement, context: PlanContext, source: MergeSource) -> RowDeltaPlan:
    """Plan a MERGE.

    Raises:
        AnalysisError: a condition or an assignment is invalid (docs/semantics.md, M4 to M10).
    """
    check_aliases(statement, context, source)
    clauses = bind_clauses(statement, context, source)
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
            inner=inner,
            raws=tuple(raws.columns),
            clauses=tuple(delta_clause(clause) for clause in clauses),
            values=values,
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


def assigned_values(clause: BoundClause) -> dict[int, AssignedValue]:
    """Return the values that a clause assigns explicitly, without those of a star."""
    return {key: value for key, value in clause.values.items() if not isinstance(value, str)}


def check_aliases(statement: MergeStatement, context: PlanContext, source: MergeSource) -> None:
    """Reject a source and a target of the same name: a condition would compare the source with itself."""
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
    """Return False if no clause is MATCHED, or the only one is an unconditional DELETE (docs/semantics.md, M16)."""
    matched = statement.matched
    if not matched:
        return False
    return not (len(matched) == 1 and matched[0].condition is None and isinstance(matched[0].action, DeleteAction))


def join_type(statement: MergeStatement) -> str:
    """Return the narrowest join that yields every row that a clause may apply to."""
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
    """Reject expressions that are not allowed in ON and in the clauses' conditions."""
    check_merge_condition(context, statement.condition, "SEARCH")
    for when in when_clauses(statement):
        if when.condition is not None:
            name = type(when.action).__name__.removesuffix("Action").upper()
            check_merge_condition(context, when.condition, name)


# ---- the inner query ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseRenderer:
    """Renders fragments with only the sides that are visible to their clause (docs/semantics.md, M4)."""

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
        """Reject columns of the side that is hidden from the clause.

        Args:
            fragment: The expression.
            qualifiers: The qualifiers of the hidden side.
            allowed: The qualifiers of the visible side.
            visible: The qualifier of the visible side in the query.
            side: The hidden side, "source" or "target".
        """
        # If both tables share their last name part (`a.t`, `b.t`), that part alone means the query's alias.
        seen = {lower_case(qualifier) for qualifier in allowed if len(qualifier) > 1} | {(visible.lower(),)}
        hidden = {lower_case(qualifier) for qualifier in qualifiers} - seen
        for column in fragment.columns:
            parts = lower_case(column.parts)
            heads = {parts[:length] for length in range(1, len(parts))}
            bare = not heads & seen and not fragment.has_subquery
            if heads & hidden or (bare and self.is_hidden(column.parts, side)):
                raise self.context.names.error(
                    f"There is no column '{'.'.join(column.parts)}' here: the clause does not see the {side}",
                    column.span,
                    f"Use columns of '{visible}'",
                )

    def is_hidden(self, parts: tuple[str, ...], side: str) -> bool:
        """Return whether a bare name is a column of the hidden side only."""
        names = self.context.names
        of_source = names.folded(parts[0]) in {names.folded(name) for name in self.source.columns}
        of_target = names.column(parts[0]) is not None
        if names.folded(parts[0]) in {names.folded(self.source.alias), names.folded(self.context.target)}:
            return False
        return of_target and not of_source if side == "target" else of_source and not of_target


def lower_case(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a qualifier in lower case, for comparison."""
    return tuple(part.lower() for part in parts)


def clause_renderer(statement: MergeStatement, context: PlanContext, source: MergeSource) -> ClauseRenderer:
    """Return the renderer of a statement's clauses, which finds the clause of a fragment by its span."""
    sides: dict[Span, type[When]] = {}
    for when in when_clauses(statement):
        if when.condition is not None:
            sides[when.condition.span] = type(when)
        assignments = () if isinstance(when.action, DeleteAction) else when.action.assignments or ()
        for assignment in assignments:
            if assignment.value is not None:
                sides[assignment.value.span] = type(when)
    return ClauseRenderer(context=context, source=source, sides=sides)


def clause_choice(clauses: Sequence[BoundClause], raws: RawColumns, target: str, alias: str, *, check: bool) -> str:
    """Return the SQL for the clause number of a joined row: the first clause whose condition is TRUE."""
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


def first_true(clauses: Sequence[BoundClause], kind: type[When], raws: RawColumns, otherwise: str) -> str:
    """Return `CASE WHEN c0 THEN 0 WHEN c1 THEN 1 ... END` over the clauses of a kind."""
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


def assigned_ids(clauses: Sequence[BoundClause], context: PlanContext) -> tuple[int, ...]:
    """Return the field ids that some UPDATE clause assigns, in the table's order."""
    ids = {field_id for clause in clauses if isinstance(clause.when.action, UpdateAction) for field_id in clause.values}
    return tuple(column.field_id for column in context.schema.fields if column.field_id in ids)


def value_columns(
    clauses: Sequence[BoundClause], raws: RawColumns, context: PlanContext, source: MergeSource
) -> tuple[ValueColumn, ...]:
    """Return each column with its value per clause: inserts set all columns, updates the assigned ones.

    A column that only some UPDATE clauses assign keeps its old value in the others.
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
    clause: BoundClause, column: NestedField, updated: set[int], raws: RawColumns, source: MergeSource
) -> ValueSource | None:
    """Return a column's value in a clause; None if the clause does not set it."""
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
    """Return whether a column is a struct. Elements of arrays and maps have no old counterpart to fill fields from."""
    return isinstance(column.field_type, StructType)


def read_columns(
    statement: MergeStatement, context: PlanContext, source: MergeSource, clauses: Sequence[BoundClause]
) -> set[int]:
    """Return the field ids of the target's columns that the query may read."""
    fragments = [statement.condition]
    for clause in clauses:
        if isinstance(clause.when, WhenNotMatched):
            continue
        if clause.when.condition is not None:
            fragments.append(clause.when.condition)
        fragments.extend(assigned_fragments(assigned_values(clause)))
    return target_columns(context.names, fragments, frozenset({source.alias.lower()}))
