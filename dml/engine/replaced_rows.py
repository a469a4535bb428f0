"""Find the rows that an INSERT OVERWRITE replaces: all, those of a condition, or those of its rows' partitions. Driver.

Input: the statement and its target. Output: an Iceberg expression that is exact, because whole files are replaced.
Source: Iceberg documentation, "Spark Writes: overwriting data".
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.transforms import IdentityTransform

from dml.engine.engine import StatementSettings
from dml.engine.target import Target
from dml.errors import ErrorKind, NotSupportedError
from dml.plan.predicates import pushable
from dml.sqlparse import parse
from dml.sqlparse.quoting import quoted
from dml.sqlparse.statements import Fragment, InsertMode, InsertStatement, PartitionValue, Query

__all__ = ["Replaced", "partition_filter", "replaced_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The rows that an INSERT OVERWRITE replaces.

    Attributes:
        row_filter: The rows; None for the partitions of the new rows.
        reads_table: Whether the new rows are computed from rows of the same table.
    """

    row_filter: BooleanExpression | None
    reads_table: bool = False


def replaced_rows(
    statement: InsertStatement, target: Target, sql: str, settings: StatementSettings, dynamic: bool | None
) -> Replaced | None:
    """Return the rows that the statement replaces; None for a plain INSERT.

    Args:
        statement: The statement.
        target: Its table.
        sql: Its text.
        settings: The session's settings.
        dynamic: Whether the option `overwrite-mode` is dynamic; None if it is absent.

    Raises:
        NotSupportedError: Iceberg cannot decide the condition for whole files.
        AnalysisError: the condition names an unknown column.
    """
    match statement.mode:
        case InsertMode.APPEND:
            return None
        case InsertMode.REPLACE_WHERE:
            assert statement.replace_where is not None
            return Replaced(row_filter=exact_filter(statement.replace_where, target, sql))
        case InsertMode.OVERWRITE:
            if chooses_partitions(statement, target) and (settings.dynamic_overwrite if dynamic is None else dynamic):
                return Replaced(row_filter=None)
            return Replaced(row_filter=partition_filter(statement.partition, target, sql))


def partition_filter(partition: Iterable[PartitionValue], target: Target, sql: str) -> BooleanExpression:
    """Return the rows that have the constants of a PARTITION clause, as an exact Iceberg expression.

    Raises:
        NotSupportedError: Iceberg cannot decide a value for whole files.
        AnalysisError: A value names an unknown column.
    """
    found: BooleanExpression = AlwaysTrue()
    for entry in partition:
        if entry.value is not None:
            condition = equality(entry.column, entry.value)
            found = And(found, exact_filter(condition, target, sql, entry.value))
    return found


def chooses_partitions(statement: InsertStatement, target: Target) -> bool:
    """Return whether the clause leaves a partition column without a value, so that the rows select partitions."""
    constants = sum(entry.value is not None for entry in statement.partition)
    if constants < len(statement.partition) or not statement.partition:
        return True
    spec = target.table.spec()
    return constants < sum(isinstance(field.transform, IdentityTransform) for field in spec.fields)


def equality(column: str, value: Fragment) -> Fragment:
    """Return the condition `column = value`; it uses `<=>`, which also finds a NULL partition."""
    statement = parse(f"SELECT {quoted(column)} <=> {value.text}")
    assert isinstance(statement, Query)
    return statement.fragment


def exact_filter(condition: Fragment, target: Target, sql: str, place: Fragment | None = None) -> BooleanExpression:
    """Return a condition as an exact Iceberg expression.

    Raises:
        NotSupportedError: Iceberg cannot decide it for whole files.
        AnalysisError: the condition names an unknown column.
    """
    tree = condition.ast
    if place is not None and tree is not None:
        tree = tree.expressions[0]
    pushdown = pushable(tree, target.names)
    if not pushdown.pruning_is_exact:
        for column in () if place is not None or tree is None or condition.has_subquery else condition.columns:
            if target.names.column(target.names.unqualified(column.parts)[0]) is None:
                target.names.resolve(column.parts, column.span)
        span = (place or condition).span
        raise NotSupportedError(
            "The rows to replace or delete must be described by comparisons of columns with constants",
            sql=sql,
            position=span.start,
            length=span.end - span.start,
            kind=ErrorKind.INVALID_CONDITION,
            hint="Use DELETE with this condition, before an INSERT if rows are to replace it",
        )
    return pushdown.pruning
