"""The plan of a DELETE, UPDATE or MERGE: its queries and programs. Driver.

A plan names the temporary views that its queries read; the engine creates them. Plans are never sent to workers.

`bind_assignments` resolves the keys of a SET list. For each assigned column it returns a tree with the source of each
part of the new value: an expression of the statement, the column's default, or the old row.

    SET s.a = x, s.c.m = y      ->  s: {a: x, b: old, c: {m: y, n: old}}

An inner query evaluates each expression of the statement once, as a raw column of the type that Spark infers. An outer
projection stores the raw columns into the table's columns (types, struct fields, defaults). With shortened names:

    UPDATE t SET s.a = 1, n = 2.5
    inner   SELECT ..., 1 AS __r0, 2.5 AS __r1, t.s AS __old_3 FROM ...
    outer   SELECT ..., named_struct('a', CAST(__r0 AS bigint), 'b', __old_3.b) AS v0, <2.5 checked to fit an int> AS v1
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from dml.errors import ErrorKind
from dml.model.columns import BY_SOURCE, INTERNAL_PREFIX, RowOperation
from dml.options import Command
from dml.plan.condition import UNKNOWN, Condition
from dml.plan.names import TargetNames
from dml.rows.program import Changes, Predicate, Value
from dml.sqlparse import quoted
from dml.sqlparse.statements import Assignment, Fragment, Span

__all__ = [
    "ALWAYS",
    "AssignedDefault",
    "AssignedExpression",
    "AssignedValue",
    "DefaultValue",
    "DeltaClause",
    "DeltaQuery",
    "JoinKey",
    "MergeSource",
    "OldValue",
    "PlanContext",
    "RawColumns",
    "RawValue",
    "RowDeltaPlan",
    "SentSourcePlan",
    "SourceColumn",
    "StructValue",
    "ThroughSpark",
    "ValueColumn",
    "ValueSource",
    "assigned_fragments",
    "bind_assignments",
    "old_columns",
    "only_spark",
    "raw_index",
    "raw_name",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedExpression:
    """The value of an expression of the statement."""

    fragment: Fragment


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDefault:
    """`DEFAULT`: the field's write default, or NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedStruct:
    """A struct of which some fields are assigned; the others keep the old row's values.

    Attributes:
        fields: The assigned values, by field id.
    """

    fields: Mapping[int, "AssignedValue"]


AssignedValue = AssignedExpression | AssignedDefault | AssignedStruct


def bind_assignments(assignments: Sequence[Assignment], target: TargetNames) -> dict[int, AssignedValue]:
    """Resolve the keys of one SET list.

    Args:
        assignments: The assignments in any order.
        target: The target's names.

    Returns:
        The value of each assigned column, by field id, in the table's column order.

    Raises:
        AnalysisError: an unknown key, a key into an array or map, a column assigned twice, or a field assigned together
            with its parent (docs/semantics.md, U3 to U5).
    """
    root: dict[int, AssignedValue] = {}
    for assignment in assignments:
        path = target.resolve(assignment.key, assignment.key_span)
        value: AssignedValue = (
            AssignedDefault() if assignment.value is None else AssignedExpression(fragment=assignment.value)
        )
        root = assign_at(root, path, value, assignment, target)
    order = [column.field_id for column in target.schema.fields]
    return {field_id: root[field_id] for field_id in order if field_id in root}


def assign_at(
    tree: Mapping[int, AssignedValue],
    path: tuple[NestedField, ...],
    value: AssignedValue,
    assignment: Assignment,
    target: TargetNames,
) -> dict[int, AssignedValue]:
    """Return the tree with one more value at the end of a path.

    Raises:
        AnalysisError: the path, or a parent of it, is assigned already.
    """
    head, rest = path[0], path[1:]
    present = tree.get(head.field_id)
    if present is not None and not (rest and isinstance(present, AssignedStruct)):
        conflicting = bool(rest) or isinstance(present, AssignedStruct)
        name = ".".join(target.unqualified(assignment.key)) if not conflicting else head.name
        raise target.error(
            f"{'Conflicting' if conflicting else 'Multiple'} assignments for '{name}'",
            assignment.key_span,
            "Assign each column once, and either a struct or its fields",
            ErrorKind.INVALID_ASSIGNMENT,
        )
    if not rest:
        return {**tree, head.field_id: value}
    below = present.fields if isinstance(present, AssignedStruct) else {}
    return {**tree, head.field_id: AssignedStruct(fields=assign_at(below, rest, value, assignment, target))}


def assigned_fragments(values: Mapping[int, AssignedValue]) -> Iterator[Fragment]:
    """Yield the expressions in a list of assignments."""
    for value in values.values():
        match value:
            case AssignedExpression(fragment=fragment):
                yield fragment
            case AssignedStruct(fields=fields):
                yield from assigned_fragments(fields)
            case _:
                pass


RAW_PREFIX: Final = f"{INTERNAL_PREFIX}r"
OLD_PREFIX: Final = f"{INTERNAL_PREFIX}old_"


def raw_name(index: int) -> str:
    """Return the name of a raw column, or of a column of an INSERT's query, by its index."""
    return f"{RAW_PREFIX}{index}"


def raw_index(name: str) -> int:
    """Return the index in a raw column's name."""
    return int(name.removeprefix(RAW_PREFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawColumn:
    """A column of the inner query.

    Attributes:
        name: Its name there.
        sql: The expression.
        span: The span of the user's expression; None for columns that planning adds.
    """

    name: str
    sql: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawValue:
    """A raw column, to be stored by the rules of store assignment.

    Attributes:
        raw: The raw column.
        span: The span of its expression.
        fills: True if its structs may lack fields, which then get the old row's value, or their default without one.
        old: The old row's value of the column, for the missing fields.
    """

    raw: str
    span: Span | None = None
    fills: bool = False
    old: "OldValue | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OldValue:
    """A column's value in the old row, or a field of it. It needs no store assignment.

    Attributes:
        raw: The raw column that holds the old value of the whole column.
        path: Field names below it.
    """

    raw: str
    path: tuple[str, ...] = ()

    @property
    def field_id(self) -> int:
        """The column's field id."""
        return int(self.raw.removeprefix(OLD_PREFIX))

    @property
    def sql(self) -> str:
        """The SQL of the raw column or of its field."""
        return ".".join((self.raw, *(quoted(part) for part in self.path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultValue:
    """The field's write default, or NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StructValue:
    """A struct built from the values of all its fields, in the struct's order."""

    fields: tuple[tuple[NestedField, "ValueSource"], ...]


ValueSource = RawValue | OldValue | DefaultValue | StructValue


def old_columns(source: ValueSource) -> Iterator[int]:
    """Yield the field ids of the columns whose old values are a part of a value."""
    match source:
        case OldValue():
            yield source.field_id
        case RawValue(old=OldValue() as old):
            yield old.field_id
        case StructValue(fields=fields):
            for _, nested in fields:
                yield from old_columns(nested)
        case _:
            pass


@dataclass(slots=True, kw_only=True)
class RawColumns:
    """Collects the raw columns of one inner query.

    Attributes:
        target: The SQL qualifier of the target in the inner query.
        render: Renders a fragment with its table references replaced.
    """

    target: str
    render: Callable[[Fragment], str]
    columns: list[RawColumn] = field(default_factory=list)

    def expression(self, fragment: Fragment, guard: str | None) -> RawValue:
        """Add a raw column for an expression. A guard limits evaluation to the rows for which the guard is true."""
        text = self.render(fragment)
        sql = f"({text})" if guard is None else f"CASE WHEN {guard} THEN ({text}) END"
        name = raw_name(len(self.columns))
        self.columns.append(RawColumn(name=name, sql=sql, span=fragment.span))
        return RawValue(raw=name, span=fragment.span)

    def qualified(self, qualifier: str, column: str, guard: str | None) -> RawValue:
        """Add a raw column for a column of one side of the join."""
        text = f"{quoted(qualifier)}.{quoted(column)}"
        name = raw_name(len(self.columns))
        sql = text if guard is None else f"CASE WHEN {guard} THEN {text} END"
        self.columns.append(RawColumn(name=name, sql=sql))
        return RawValue(raw=name)

    def old(self, column: NestedField) -> OldValue:
        """Return the raw column with the old value of a column, adding it on first use."""
        name = f"{OLD_PREFIX}{column.field_id}"
        if all(present.name != name for present in self.columns):
            self.columns.append(RawColumn(name=name, sql=f"{quoted(self.target)}.{quoted(column.name)}"))
        return OldValue(raw=name)

    def source(self, column: NestedField, value: AssignedValue, guard: str | None = None) -> ValueSource:
        """Return the source of a column's new value, adding the raw columns that it needs."""
        return self.part(column, value, guard, column, ())

    def part(
        self, part: NestedField, value: AssignedValue, guard: str | None, column: NestedField, path: tuple[str, ...]
    ) -> ValueSource:
        """Like `source`, for a field of a column."""
        match value:
            case AssignedExpression(fragment=fragment):
                return self.expression(fragment, guard)
            case AssignedDefault():
                return DefaultValue()
            case AssignedStruct(fields=assigned):
                assert isinstance(part.field_type, StructType)
                fields: list[tuple[NestedField, ValueSource]] = []
                for nested in part.field_type.fields:
                    below = (*path, nested.name)
                    if nested.field_id in assigned:
                        fields.append((nested, self.part(nested, assigned[nested.field_id], guard, column, below)))
                    else:
                        fields.append((nested, OldValue(raw=self.old(column).raw, path=below)))
                return StructValue(fields=tuple(fields))


ALWAYS: Final[BooleanExpression] = AlwaysTrue()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """The input for planning a row-level statement.

    Attributes:
        target_view: Name of the temporary view of the target's scan.
        target: The name of the target in the statement: its alias, or its own name.
        names: Resolves the statement's names to the target's columns.
        render: Renders a fragment with its table references replaced by temporary views, and with the given texts
            inserted before the given spans.
    """

    target_view: str
    target: str
    names: TargetNames
    render: Callable[[Fragment, Mapping[Span, str]], str]

    @property
    def sql(self) -> str:
        """The whole statement, for errors."""
        return self.names.sql

    @property
    def schema(self) -> Schema:
        """The table's current schema."""
        return self.names.schema

    def text(self, fragment: Fragment) -> str:
        """Render a fragment with its table references replaced."""
        return self.render(fragment, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinKey:
    """An equality in ON whose source values tasks can look up, in the type of the target's column.

    Attributes:
        field_id: The target's column.
        source_column: The name of the source's column, folded for comparison.
        null_safe: True if the operator is `<=>`.
    """

    field_id: int
    source_column: str
    null_safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """The source of a MERGE, as a temporary view.

    Attributes:
        view: Name of the view.
        alias: Its name in the statement.
        columns: Names of its columns.
        qualifiers: Other qualifiers of its columns: for a table without an alias, its full name and the suffixes of it.
        lacking: Columns whose structs lack fields of the target's, if the statement allows that.
        fields: Its columns of primitive Iceberg types. Field ids are column numbers from 1.
        keys: The keys of the join that tasks can look up.
    """

    view: str
    alias: str
    columns: tuple[str, ...]
    qualifiers: tuple[tuple[str, ...], ...] = ()
    lacking: frozenset[str] = frozenset()
    fields: tuple[NestedField, ...] = ()
    keys: tuple[JoinKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaClause:
    """One action of the statement.

    Attributes:
        number: The value of the inner query's column `CLAUSE` for its rows.
        operation: The operation on a row.
        text: The clause in words, for EXPLAIN.
        by_source: True for WHEN NOT MATCHED BY SOURCE.
    """

    number: int
    operation: RowOperation
    text: str
    by_source: bool = False

    @property
    def code(self) -> int:
        """The value of `__row_operation` for its rows."""
        return int(self.operation) | (BY_SOURCE if self.by_source else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueColumn:
    """A value column of the delta: the new value of a table column, per clause.

    Attributes:
        field: The table's column.
        cases: Clause number and source of the value. The value is NULL for other clauses.
    """

    field: NestedField
    cases: tuple[tuple[int, ValueSource], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaQuery:
    """The query whose rows are the row delta.

    Attributes:
        inner: SQL that evaluates the statement's own expressions: columns `FILE_ORDINAL`, `POS`, `CLAUSE` and the
            raw columns.
        raws: The raw columns.
        clauses: By number.
        values: The value columns, in the order of the layout.
    """

    inner: str
    raws: tuple[RawColumn, ...]
    clauses: tuple[DeltaClause, ...]
    values: tuple[ValueColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumn:
    """A column computed from the source of a MERGE, for tasks that join it with the target themselves.

    Attributes:
        sql: The expression, over the source; None for the default of the table's column.
        value: The same expression over `MergeSource.fields`; None if only Spark can compute it.
        value_of: The table's column that it is assigned to; None for a condition or an operand of tasks.
        span: The span of the user's expression.
        guard: Index of the source column that is true for the rows whose value is used; None for all rows.
        is_condition: True if it is the condition of a clause.
    """

    sql: str | None
    value: Value | Predicate | None = None
    value_of: NestedField | None = None
    span: Span | None = None
    guard: int | None = None
    is_condition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughSpark:
    """The statement runs through Spark: its query computes the rows and shuffles them to the tasks that write.

    Attributes:
        reason: Why the tasks that read the rows cannot compute them: the clause after "because" in EXPLAIN.
    """

    reason: str


def only_spark(sql: str) -> ThroughSpark:
    """Return the `ThroughSpark` of a statement with an expression that tasks cannot compute as Spark does."""
    return ThroughSpark(reason=f"tasks cannot compute {sql} as Spark does")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSourcePlan:
    """A MERGE in tasks that receive the rows of the source.

    Attributes:
        program: The program that the tasks run.
        source: SQL for the source's rows, under its alias.
        columns: The columns computed from the source; their indexes are those of `source_id`.
    """

    program: Changes
    source: str
    columns: tuple[SourceColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDeltaPlan:
    """The plan of a row-level statement.

    Attributes:
        command: DELETE, UPDATE or MERGE.
        query: The delta query.
        target_ids: Field ids of the target columns that the query reads.
        condition: A condition that all affected rows of the target satisfy.
        tasks: The program with which tasks compute the delta, for a MERGE with its source; or why only Spark can.
        assigned_ids: Field ids of the columns that updated rows take from the delta.
        inserts: True if rows may be inserted.
        inserts_only: True if rows can only be inserted.
        check_cardinality: True if two delta rows for one target row are an error.
        ordered_by_file: True if the query keeps the order and partitions of the scan's rows (no join, no shuffle), so
            that whole files in one scan partition need no shuffle before they are written.
        matching: SQL that returns rows if the target's view has a row that the statement matches, to probe other files
            with it; None if rows without a match are affected too, or if the result depends on the time.
    """

    command: Command
    query: DeltaQuery
    target_ids: tuple[int, ...]
    tasks: Changes | SentSourcePlan | ThroughSpark
    condition: Condition = UNKNOWN
    assigned_ids: tuple[int, ...] = ()
    inserts: bool = False
    inserts_only: bool = False
    check_cardinality: bool = False
    ordered_by_file: bool = False
    matching: str | None = None
