"""MERGE by the tasks that read the target, each of which gets all rows of the source. Driver.

    MERGE INTO t USING s ON t.id = s.id AND t.day >= s.first
    WHEN MATCHED AND s.op = 'd' THEN DELETE
    WHEN MATCHED AND s.at > t.at THEN UPDATE SET n = t.n + s.n, v = upper(s.v)
    WHEN NOT MATCHED THEN INSERT *

What is about the source alone (`s.op = 'd'`, `upper(s.v)`, the inserted values) Spark computes for each of its rows,
all in one query, whatever it is. What is about both, tasks have to compute (`dml.plan.row_terms`), or the statement
goes Spark's way. A value of the source is computed for rows too whose clause is not reached: where that fails, Spark's
way is taken as well, so that the error is one of the statement.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import pyarrow as pa
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
from dml.plan.assignments import AssignedDefault, AssignedExpression, AssignedValue
from dml.plan.condition import EVERY_ROW, conjunction
from dml.plan.condition_checks import condition_sql, non_deterministic
from dml.plan.merge_clauses import Bound, described
from dml.plan.predicates import Converter, split_conjuncts
from dml.plan.row_delta_plan import (
    JoinKey,
    MergeSource,
    PlanContext,
    SentSourcePlan,
    SourceColumn,
    ThroughSpark,
    only_spark,
)
from dml.plan.row_terms import sql_text, uncomputed_part, value_term
from dml.read.projection import arrow_type
from dml.rows.expressions import TRUE, Column, Comparison, Literal, Predicate, Value
from dml.rows.program import Changes, Clause, Join, source_id
from dml.sqlparse import quoted
from dml.sqlparse.statements import (
    DeleteAction,
    Fragment,
    InsertAction,
    MergeStatement,
    UpdateAction,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
)

__all__ = ["plan_sent_source"]

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
"""Types of values that come from the source as Arrow has them, by themselves or inside of others."""


class OnlySparkError(Exception):
    """Only Spark can compute the statement. The message is the reason of a `ThroughSpark`."""


@dataclass(slots=True, kw_only=True)
class SourceColumns:
    """Collects what Spark computes of the source; what is asked for twice is one column.

    Attributes:
        source: The source.
        folded: How its names are compared.
        columns: The columns.
    """

    source: MergeSource
    folded: Callable[[str], str]
    columns: list[SourceColumn] = field(default_factory=list)

    def place(self, column: SourceColumn) -> int:
        """Where a column is."""
        if column not in self.columns:
            self.columns.append(column)
        return self.columns.index(column)

    def operand(self, name: str) -> NestedField | None:
        """A column of the source that tasks compute with; None where they cannot."""
        kind = self.source.types.get(self.folded(name))
        if kind is None:
            return None
        place = self.place(SourceColumn(sql=f"{quoted(self.source.alias)}.{quoted(name)}"))
        return NestedField(source_id(place), name, kind, required=False)


class JoinedRows(Converter):
    """Turns conditions on rows of both sides into what tasks compute.

    Args:
        context: The statement.
        source: The source; None if only target rows are visible.
        columns: Collects the columns of the source.
    """

    def __init__(self, context: PlanContext, source: MergeSource | None, columns: SourceColumns) -> None:
        super().__init__(context.names, source)
        self.context = context
        self.columns = columns

    def operand(self, node: exp.Expression) -> NestedField | None:
        """The column of either side that an expression is."""
        found = self.top_level(node)
        name = self.source_column(node) if found is None else None
        return self.columns.operand(name) if name is not None else found

    def decided(self, conjuncts: Sequence[exp.Expression]) -> Predicate:
        """Translate a condition for tasks.

        Raises:
            OnlySparkError: they cannot.
        """
        if (
            len(conjuncts) > limits.MAX_CONDITION_DEPTH
            or sum(1 for conjunct in conjuncts for _ in conjunct.walk()) > limits.MAX_CONDITION_NODES
        ):
            raise OnlySparkError(only_spark("a condition of that length").reason)
        parts = (self.converted(conjunct, negated=False, depth=0) for conjunct in conjuncts)
        known = reduce(conjunction, parts, EVERY_ROW)
        if known.needs_spark:
            raise OnlySparkError(only_spark(known.needs_spark).reason)
        return known.rows


def plan_sent_source(
    statement: MergeStatement,
    context: PlanContext,
    source: MergeSource,
    clauses: Sequence[Bound],
    columns: Sequence[NestedField],
    updated: Sequence[int],
    render: Callable[[Fragment], str],
) -> SentSourcePlan | ThroughSpark:
    """How tasks that have the source make the delta of a MERGE.

    Args:
        statement: The statement.
        context: What planning needs.
        source: The source.
        clauses: Its WHEN clauses.
        columns: The columns of the delta, in order.
        updated: Field ids of those that updated rows take from it.
        render: Gives the text of a fragment, as the clause that it stands in sees its columns.
    """
    if not source.keys:
        return ThroughSpark(reason="ON equates no column of the table with one of the source that tasks can look up")
    for column in columns:
        if not is_carried(column.field_type):
            return ThroughSpark(reason=f"tasks cannot receive values of type {column.field_type} ('{column.name}')")
    found = SourceColumns(source=source, folded=context.names.folded)
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
                residual=planner.rows.decided(list(beside_keys(statement.condition, planner.rows, source))),
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
    """Whether values of a type can come from the source."""
    match kind:
        case StructType(fields=fields):
            return all(is_carried(field.field_type) for field in fields)
        case ListType(element_type=element):
            return is_carried(element)
        case MapType(key_type=key, value_type=value):
            return is_carried(key) and is_carried(value)
    return isinstance(kind, CARRIED)


def beside_keys(condition: Fragment, rows: JoinedRows, source: MergeSource) -> Iterator[exp.Expression]:
    """The conjuncts of an ON condition that do not equate keys.

    Raises:
        OnlySparkError: nobody knows.
    """
    if condition.ast is None or not rows.trees.holds(condition.ast):
        raise OnlySparkError(only_spark("the ON condition").reason)
    for conjunct in split_conjuncts(condition.ast):
        if not (isinstance(conjunct, exp.EQ | exp.NullSafeEQ) and key_of(conjunct, rows) in source.keys):
            yield conjunct


def key_of(conjunct: exp.EQ | exp.NullSafeEQ, rows: JoinedRows) -> JoinKey | None:
    """Return the columns that an equality compares; None unless there is one of each side."""
    for side, other in ((conjunct.this, conjunct.expression), (conjunct.expression, conjunct.this)):
        target, name = rows.top_level(side), rows.source_column(other)
        if target is not None and name is not None:
            null_safe = isinstance(conjunct, exp.NullSafeEQ)
            return JoinKey(field_id=target.field_id, source_column=rows.names.folded(name), null_safe=null_safe)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans WHEN clauses.

    Attributes:
        rows: Conditions on rows of both sides.
        target_rows: Rows of the target alone, without the source's names.
        columns: The columns of the delta.
        updated: Those that updated rows take from it.
        render: Gives the text of a fragment.
        found: Collects the columns of the source.
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

    def clause(self, clause: Bound) -> Clause:
        """A clause.

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
        return Clause(operation=described(clause).code, condition=condition, values=values)

    def condition(self, clause: Bound) -> tuple[Predicate, int | None]:
        """The condition of a clause; and the column of the source that it is, if it is one."""
        fragment = clause.when.condition
        if fragment is None:
            return TRUE, None
        if not self.is_of_source(fragment, clause):
            return self.rows_of(clause).decided(list(split_conjuncts(fragment.ast))), None
        sql = f"({condition_sql(fragment, self.render(fragment))})"
        place = self.found.place(SourceColumn(sql=sql, is_condition=True))
        flag = Column(field_id=source_id(place), type=pa.bool_())
        true = Literal(value=True, type=pa.bool_())
        return Comparison(operator="=", left=flag, right=true, type=pa.bool_()), place

    def rows_of(self, clause: Bound) -> JoinedRows:
        """Return the rows to which a clause refers."""
        return self.target_rows if isinstance(clause.when, WhenNotMatchedBySource) else self.rows

    def is_of_source(self, fragment: Fragment, clause: Bound) -> bool:
        """Whether an expression reads nothing but the source, and is the same whenever it is computed.

        Raises:
            OnlySparkError: nobody knows, or only Spark may compute it.
        """
        tree = fragment.ast
        if tree is None or not self.rows.trees.holds(tree) or fragment.has_subquery or fragment.has_star:
            raise OnlySparkError(f"it is unclear whether {fragment.text} reads only one row of the source")
        if tree.find(exp.Window, exp.Anonymous) is not None or non_deterministic(fragment):
            raise OnlySparkError(f"{fragment.text} may have another value when it is computed again")
        # What reads as a function without parentheses (`current_date`) is a column to Spark, where there is one.
        columns = {part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts}
        if (fragment.names - columns) & self.names:
            raise OnlySparkError(f"a name in {fragment.text} may be a column or a function")
        if isinstance(clause.when, WhenNotMatched):  # it sees nothing else
            return True
        if isinstance(clause.when, WhenNotMatchedBySource):  # no row of the source has the value
            return False
        return all(self.rows.source_column(column) is not None for column in tree.find_all(exp.Column))

    def updated_value(self, clause: Bound, column: NestedField, guard: int | None) -> Value | None:
        """The value of a column of updated rows."""
        value = clause.values.get(column.field_id)
        if value is None:
            if column.field_id not in self.updated:
                return None
            if not column.field_type.is_primitive:  # files and Spark call the elements of arrays by other names
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

    def source_value(self, clause: Bound, column: NestedField, guard: int | None) -> Value:
        """The value of a column of inserted rows."""
        value = clause.values.get(column.field_id, AssignedDefault())
        if isinstance(value, AssignedExpression):
            self.is_of_source(value.fragment, clause)
        return self.stored(column, value, guard)

    def stored(self, column: NestedField, value: AssignedValue | str, guard: int | None) -> Value:
        """A value that Spark computes of the source, and stores into a column."""
        match value:
            case str(name) if name not in self.found.source.lacking:
                sql, span = f"{quoted(self.found.source.alias)}.{quoted(name)}", None
            case AssignedExpression(fragment=fragment):
                sql, span = f"({self.render(fragment)})", fragment.span
            case AssignedDefault():
                place = self.found.place(SourceColumn(sql=None, value_of=column))
                return Column(field_id=source_id(place), type=arrow_type(column.field_type, spark=True))
            case _:
                raise OnlySparkError(f"fields of '{column.name}' are missing in the source or assigned one by one")
        place = self.found.place(SourceColumn(sql=sql, value_of=column, span=span, guard=guard))
        return Column(field_id=source_id(place), type=arrow_type(column.field_type, spark=True))
