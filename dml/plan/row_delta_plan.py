"""What will happen: the plan of a DELETE, UPDATE or MERGE, as text and facts. Driver.

A plan names the temporary views that its queries read; the engine makes them. It never goes to a worker.

A statement's expressions are evaluated once, in an inner query, each as a raw column of whatever type Spark gives it;
an outer projection stores the raw columns into the table's columns (types, struct fields, defaults).
The real names are longer:

    UPDATE t SET s.a = 1, n = 2.5
    inner   SELECT ..., 1 AS __r0, 2.5 AS __r1, t.s AS __old_3 FROM ...
    outer   SELECT ..., named_struct('a', CAST(__r0 AS bigint), 'b', __old_3.b) AS v0, <2.5 checked to fit an int> AS v1
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType

from dml.model.columns import BY_SOURCE, INTERNAL_PREFIX, RowOperation
from dml.options import Command
from dml.plan.assignments import AssignedDefault, AssignedExpression, AssignedStruct, AssignedValue
from dml.plan.condition import UNKNOWN, Condition
from dml.plan.names import TargetNames
from dml.rows.program import Changes
from dml.sqlparse import quoted
from dml.sqlparse.statements import Fragment, Span

__all__ = [
    "ALWAYS",
    "DefaultValue",
    "DeltaClause",
    "DeltaQuery",
    "JoinKey",
    "MergeSource",
    "OldValue",
    "PlanContext",
    "RawColumn",
    "RawColumns",
    "RawValue",
    "RowDeltaPlan",
    "SentSourcePlan",
    "SourceColumn",
    "StructValue",
    "ThroughSpark",
    "ValueColumn",
    "ValueSource",
    "old_columns",
    "only_spark",
    "raw_name",
    "raw_place",
]

RAW_PREFIX: Final = f"{INTERNAL_PREFIX}r"
OLD_PREFIX: Final = f"{INTERNAL_PREFIX}old_"


def raw_name(index: int) -> str:
    """Name of the n-th raw column, or of the n-th column of the query of an INSERT."""
    return f"{RAW_PREFIX}{index}"


def raw_place(name: str) -> int:
    """Which raw column has a name."""
    return int(name.removeprefix(RAW_PREFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawColumn:
    """A column of the inner query.

    Attributes:
        name: Its name there.
        sql: The expression.
        span: The place of the user's expression behind it; None for columns of our own.
    """

    name: str
    sql: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawValue:
    """A raw column, to be stored by the rules of store assignment.

    Attributes:
        raw: The raw column.
        span: The place of its expression.
        fills: Whether its structs may lack fields, which get the old row's value, or their default without one.
        old: The old row's value of the column, for these fields.
    """

    raw: str
    span: Span | None = None
    fills: bool = False
    old: "OldValue | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OldValue:
    """A value of the old row, or a field of it: it has the column's type already.

    Attributes:
        raw: The raw column that holds the old value of the whole column.
        path: Field names below it.
    """

    raw: str
    path: tuple[str, ...] = ()

    @property
    def field_id(self) -> int:
        """The column."""
        return int(self.raw.removeprefix(OLD_PREFIX))

    @property
    def sql(self) -> str:
        """The field of the raw column."""
        return ".".join((self.raw, *(quoted(part) for part in self.path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultValue:
    """The field's write default, or NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StructValue:
    """A struct put together from its fields' values, all of them, in the struct's order."""

    fields: tuple[tuple[NestedField, "ValueSource"], ...]


ValueSource = RawValue | OldValue | DefaultValue | StructValue


def old_columns(source: ValueSource) -> Iterator[int]:
    """Field ids of the columns of which a value keeps a part of the old row."""
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
        render: Gives a fragment's text with its table references replaced.
    """

    target: str
    render: Callable[[Fragment], str]
    columns: list[RawColumn] = field(default_factory=list)

    def expression(self, fragment: Fragment, guard: str | None) -> RawValue:
        """A raw column for an expression; under a guard it is evaluated only for rows where the guard is true."""
        text = self.render(fragment)
        sql = f"({text})" if guard is None else f"CASE WHEN {guard} THEN ({text}) END"
        name = raw_name(len(self.columns))
        self.columns.append(RawColumn(name=name, sql=sql, span=fragment.span))
        return RawValue(raw=name, span=fragment.span)

    def qualified(self, qualifier: str, column: str, guard: str | None) -> RawValue:
        """A raw column for a column of a side of the join."""
        text = f"{quoted(qualifier)}.{quoted(column)}"
        name = raw_name(len(self.columns))
        sql = text if guard is None else f"CASE WHEN {guard} THEN {text} END"
        self.columns.append(RawColumn(name=name, sql=sql))
        return RawValue(raw=name)

    def old(self, column: NestedField) -> OldValue:
        """The raw column with the old value of a column; asked for twice, it is one."""
        name = f"{OLD_PREFIX}{column.field_id}"
        if all(present.name != name for present in self.columns):
            self.columns.append(RawColumn(name=name, sql=f"{quoted(self.target)}.{quoted(column.name)}"))
        return OldValue(raw=name)

    def source(self, column: NestedField, value: AssignedValue, guard: str | None = None) -> ValueSource:
        """Where the new value of a column comes from."""
        return self.part(column, value, guard, column, ())

    def part(
        self, part: NestedField, value: AssignedValue, guard: str | None, column: NestedField, path: tuple[str, ...]
    ) -> ValueSource:
        """As `source`, for a field of a column."""
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
        target: How the target is called in the statement: its alias, or its own name.
        names: The target's columns, as the statement names them.
        render: A fragment's text with its table references replaced by temporary views, and text put before pieces of
            it, by their places.
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
        """A fragment's text with its table references replaced."""
        return self.render(fragment, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinKey:
    """An equality in ON whose source values tasks can look up, in the type of the target's column.

    Attributes:
        field_id: The target's column.
        source_column: The name of the source's column, folded for comparison.
        null_safe: Whether the operator is `<=>`.
    """

    field_id: int
    source_column: str
    null_safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """The source of a MERGE, as a temporary view.

    Attributes:
        view: Name of the view.
        alias: How the statement calls it.
        columns: Names of its columns.
        qualifiers: Further ways to qualify its columns: the name and its tails of a table without an alias.
        lacking: Columns in which structs lack fields of the target's, where the statement allows that.
        types: The types of those of its columns that tasks can compute with, by name as it is compared.
        keys: The keys of the join that tasks can look up.
    """

    view: str
    alias: str
    columns: tuple[str, ...]
    qualifiers: tuple[tuple[str, ...], ...] = ()
    lacking: frozenset[str] = frozenset()
    types: Mapping[str, IcebergType] = field(default_factory=dict)
    keys: tuple[JoinKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaClause:
    """One action of the statement, numbered as the inner query's column `CLAUSE` says.

    Attributes:
        number: Its number.
        operation: What it does to the row.
        text: The clause in words, for EXPLAIN.
        by_source: Whether it is WHEN NOT MATCHED BY SOURCE.
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
    """A value column of the delta: what a table column gets, clause by clause.

    Attributes:
        field: The table's column.
        cases: Clause number and source of the value; a clause that is not named gives NULL.
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
    """A column that Spark computes of the source of a MERGE, for tasks that join it with the target themselves.

    Attributes:
        sql: The expression, over the source; None for the default of the table's column.
        value_of: The table's column that is to get it; None for a condition, or for what tasks compute with.
        span: The place of the user's expression behind it.
        guard: Which column has to be true where it matters.
        is_condition: Whether it is true or not.
    """

    sql: str | None
    value_of: NestedField | None = None
    span: Span | None = None
    guard: int | None = None
    is_condition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughSpark:
    """Spark's query computes the rows, and its shuffle brings them to the tasks that write.

    Attributes:
        reason: Why the tasks that read the rows cannot compute them: a clause for "because", for EXPLAIN.
    """

    reason: str


def only_spark(sql: str) -> ThroughSpark:
    """Return the way of a statement in which tasks cannot compute an expression with Spark's result."""
    return ThroughSpark(reason=f"tasks cannot compute {sql} as Spark does")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSourcePlan:
    """A MERGE in tasks that receive the rows of the source.

    Attributes:
        program: What the tasks run.
        source: SQL for the source's rows, under its alias.
        columns: What Spark computes of them: the columns with `source_id`s, in order.
    """

    program: Changes
    source: str
    columns: tuple[SourceColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDeltaPlan:
    """A row-level statement, planned.

    Attributes:
        command: DELETE, UPDATE or MERGE.
        query: The delta query.
        target_ids: Field ids of the target columns that the query reads.
        condition: Which rows of the target can be affected.
        tasks: How tasks compute the delta from the rows that they read: by a program, or for a MERGE by a program with
            its source.
        assigned_ids: Field ids of the columns that updated rows take from the delta.
        inserts: Whether rows may be inserted.
        inserts_only: Whether nothing else can happen.
        check_cardinality: Whether two delta rows for one target row are an error.
        ordered_by_file: Whether the query keeps the order and place of the scan's rows (no join, no shuffle), so that
            whole files in one scan partition need no shuffle before they are written.
        matching: SQL that has a row where the target's view has a row that the statement matches, to ask other files
            the same question; None where rows that it does not match count as well, or where the answer depends on
            when it is asked.
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
