"""A query that is nothing but columns of one table's rows, where Iceberg decides which rows. Driver.

Input: a query fragment and the one table that it names. Output: a `PlainScan`; None for every other query, and wherever
it is not certain what Spark would make of it: then Spark is asked.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from sqlglot import exp

from dml.plan.predicates import pushable
from dml.plan.row_delta_plan import PlanContext
from dml.plan.table_read import is_alone, read_context, table_node
from dml.sqlparse.dialect import TreeReading
from dml.sqlparse.statements import Fragment, TableReference

__all__ = ["PlainScan", "plain_scan"]

SELECT_PARTS: Final = frozenset({"expressions", "from_", "where"})
TABLE_PARTS: Final = frozenset({"this", "db", "catalog", "alias", "version", "when"})
"""What the tree of such a query has; the table's snapshot is known from its reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainScan:
    """Rows of a table as they are.

    Attributes:
        field_ids: For each column of the query, the table's column that it is; one may stand there twice.
        row_filter: True for the rows of the query, and for no others.
    """

    field_ids: tuple[int, ...]
    row_filter: BooleanExpression


def plain_scan(
    fragment: Fragment,
    reference: TableReference,
    schema: Schema,
    *,
    case_sensitive: bool = False,
    time_zone: str = "UTC",
    trees: TreeReading = TreeReading.ALIKE,
    catalogs: Collection[str] = (),
) -> PlainScan | None:
    """The rows that a query consists of, if it is no more than that.

    Args:
        fragment: The query.
        reference: The table in it.
        schema: The schema under which the table is read.
        case_sensitive: `spark.sql.caseSensitive`.
        time_zone: `spark.sql.session.timeZone`.
        trees: How far sqlglot's trees read the statement as Spark does.
        catalogs: The names of our catalogs.
    """
    tree = fragment.ast
    if not isinstance(tree, exp.Select) or not is_alone(fragment, reference) or reference.column_aliases:
        return None
    table = table_node(fragment, reference)
    if table is None or not parts(tree) <= SELECT_PARTS or not parts(table) <= TABLE_PARTS or not trees.holds(tree):
        return None
    alias = reference.alias or reference.parts[-1]
    context = read_context(
        fragment, alias, schema, case_sensitive=case_sensitive, time_zone=time_zone, trees=trees, catalogs=catalogs
    )
    items = [value.unalias() for value in tree.expressions]
    found = [column for item in items for column in columns_of(item, context)]
    if len(context.names.fields_by_name) < len(schema.fields):
        return None  # two columns of one name, as names are compared here: Spark says which, or that it cannot
    where = tree.args.get("where")
    condition = None if where is None else pushable(where.this, context)
    field_ids = tuple(column.field_id for column in found if column is not None)
    # The scan filters by the pruning form alone, so that both forms have to be exact.
    is_exact = condition is None or (condition.pruning_is_exact and condition.rows_are_exact)
    if len(field_ids) < len(found) or not is_exact:
        return None
    return PlainScan(
        field_ids=field_ids,
        row_filter=AlwaysTrue() if condition is None else condition.pruning,
    )


def parts(node: exp.Expression) -> frozenset[str]:
    """The parts that a node has."""
    return frozenset(name for name, value in node.args.items() if value)


def columns_of(item: exp.Expression, context: PlanContext) -> Iterable[NestedField | None]:
    """The columns that an item of a SELECT list stands for; None stands for anything else.

    Args:
        item: The item, without an alias.
        context: The table and what it is called.
    """
    names = context.names
    if isinstance(item, exp.Star) and not parts(item):
        return context.schema.fields
    if not isinstance(item, exp.Column) or not parts(item) <= {"this", "table"}:
        return (None,)
    # What is qualified by a name that is a column's too may be a field of that column.
    if item.table and (names.folded(item.table) != names.folded(context.target) or names.column(item.table)):
        return (None,)
    if isinstance(item.this, exp.Star):
        return (None,) if parts(item.this) else context.schema.fields
    return (names.column(item.name),)
