"""A query that selects values of the rows of one table, where tasks compute the values and the condition. Driver.

    SELECT id, amount * 2, 'new' FROM lake.db.orders WHERE id % 10 = 3

Input: a query fragment and the one table that it names. Output: a `PlainScan`; None for every other query, and for one
with an expression of which it is not certain what Spark would make of it: Spark runs these.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from sqlglot import exp

from dml.plan.condition import EVERY_ROW, Condition
from dml.plan.predicates import pushable
from dml.plan.row_delta_plan import PlanContext
from dml.plan.row_terms import selected_value
from dml.plan.table_read import is_alone, read_context, table_node
from dml.read.projection import arrow_type
from dml.rows.expressions import Column, Value
from dml.sqlparse.constants import TimeZone
from dml.sqlparse.dialect import TreeReading
from dml.sqlparse.statements import Fragment, TableReference

__all__ = ["PlainScan", "plain_scan"]

SELECT_PARTS: Final = frozenset({"expressions", "from_", "where"})
TABLE_PARTS: Final = frozenset({"this", "db", "catalog", "alias", "version", "when"})
"""What the tree of such a query has; the table's snapshot is known from its reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainScan:
    """Values of the rows of a table.

    Attributes:
        values: The value of each column of the query, in the type that Spark gives it; NULL has the type null.
        condition: Selects the rows. Its row form is exact.
    """

    values: tuple[Value, ...]
    condition: Condition


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
    """Return the values that a query selects, or None if only Spark can compute them.

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
    if len(context.names.fields_by_name) < len(schema.fields):
        return None  # two columns of one name, as names are compared here: Spark says which, or that it cannot
    where = tree.args.get("where")
    condition = EVERY_ROW if where is None else pushable(where.this, context)
    if not condition.rows_are_exact:
        return None
    found = [value for item in tree.expressions for value in selected(item.unalias(), context)]
    values = tuple(value for value in found if value is not None)
    return PlainScan(values=values, condition=condition) if len(values) == len(found) else None


def parts(node: exp.Expression) -> frozenset[str]:
    """The parts that a node has."""
    return frozenset(name for name, value in node.args.items() if value)


def selected(item: exp.Expression, context: PlanContext) -> list[Value | None]:
    """Return the values of an item of a SELECT list; None stands for one that only Spark can compute.

    Args:
        item: The item, without an alias.
        context: The table and its name in the query.
    """
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        is_whole = not parts(star) and (star is item or is_of_table(item, context))
        fields = context.schema.fields if is_whole else ()
        return [Column(field_id=field.field_id, type=arrow_type(field.field_type, spark=True)) for field in fields] or [
            None
        ]
    return [selected_value(item, partial(column_of, context), TimeZone.of(context.time_zone))]


def column_of(context: PlanContext, node: exp.Expression) -> NestedField | None:
    """Return the column of the table that an expression is."""
    is_name = isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier)
    return context.names.column(node.name) if is_name and is_of_table(node, context) else None


def is_of_table(node: exp.Expression, context: PlanContext) -> bool:
    """Return whether a name is a column of the table for certain, if it is one at all."""
    if not parts(node) <= {"this", "table"}:
        return False
    # A qualifier that is also the name of a column may mean a field of that column.
    qualifier = node.text("table")
    names = context.names
    return not qualifier or (
        names.folded(qualifier) == names.folded(context.target) and names.column(qualifier) is None
    )
