"""What will happen: the plan of a DELETE, UPDATE or MERGE, as text and facts. Driver.

A plan names the temporary views that its queries read; the engine makes them. It never goes to a worker.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from dml.model.columns import BY_SOURCE, RowOperation
from dml.options import Command
from dml.plan.assignments import TargetNames
from dml.plan.values import RawColumn, ValueSource
from dml.sqlparse.statements import Fragment

__all__ = ["ALWAYS", "Clause", "DeltaQuery", "PlanContext", "RowDeltaPlan", "ValueColumn"]


ALWAYS: Final[BooleanExpression] = AlwaysTrue()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """What planning a statement needs to know.

    Attributes:
        sql: The whole statement, for errors.
        schema: The table's current schema.
        target_view: Name of the temporary view of the target's scan.
        target: How the target is called in the statement: its alias, or its own name.
        names: How the target's columns may be named.
        render: A fragment's text with its table references replaced by temporary views.
        case_sensitive: `spark.sql.caseSensitive`.
        time_zone: `spark.sql.session.timeZone`.
        trees_hold: Whether sqlglot's trees read the statement as Spark does.
    """

    sql: str
    schema: Schema
    target_view: str
    target: str
    names: TargetNames
    render: Callable[[Fragment], str]
    case_sensitive: bool = False
    time_zone: str = "UTC"
    trees_hold: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
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
    clauses: tuple[Clause, ...]
    values: tuple[ValueColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDeltaPlan:
    """A row-level statement, planned.

    Attributes:
        command: DELETE, UPDATE or MERGE.
        query: The delta query.
        target_ids: Field ids of the target columns that the query reads.
        pushed_filter: Which rows of the target can be affected at all, as an Iceberg expression: it prunes files.
        pushed_is_complete: Whether every row of `pushed_filter` is affected: the expression is the whole condition.
        conflict_detection_filter: Of that, what counts when concurrent commits are validated.
        never: Whether the condition can be true for no row (`WHERE false`).
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
    pushed_filter: BooleanExpression = ALWAYS
    pushed_is_complete: bool = False
    conflict_detection_filter: BooleanExpression = ALWAYS
    never: bool = False
    assigned_ids: tuple[int, ...] = ()
    inserts: bool = False
    inserts_only: bool = False
    check_cardinality: bool = False
    ordered_by_file: bool = False
    matching: str | None = None
