"""A query that selects values of the rows of one table, where tasks compute the values and the condition. Driver.

    SELECT id, amount * 2, 'new' FROM lake.db.orders WHERE id % 10 = 3

Input: a query fragment and the one table that it names. Output: a `PlainScan`; None for every other query, and for one
with an expression of which it is not certain what Spark would make of it: Spark runs these.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from sqlglot import exp

from dml.plan.condition import EVERY_ROW, Condition
from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import pushable
from dml.plan.row_terms import selected_value
from dml.plan.table_read import is_alone, table_names, table_node
from dml.read.projection import arrow_type
from dml.rows.expressions import Column, Value
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


def plain_scan(fragment: Fragment, reference: TableReference, schema: Schema, rules: SqlRules) -> PlainScan | None:
    """Return the values that a query selects, or None if only Spark can compute them.

    Args:
        fragment: The query.
        reference: The table in it.
        schema: The schema under which the table is read.
        rules: How names and literals of the query are read.
    """
    tree = fragment.ast
    if not isinstance(tree, exp.Select) or not is_alone(fragment, reference) or reference.column_aliases:
        return None
    table = table_node(fragment, reference)
    if (
        table is None
        or not parts(tree) <= SELECT_PARTS
        or not parts(table) <= TABLE_PARTS
        or not rules.trees.holds(tree)
    ):
        return None
    names = table_names(reference, schema, rules)
    if len(names.fields_by_name) < len(schema.fields):
        return None  # two columns of one name, as names are compared here: Spark says which, or that it cannot
    where = tree.args.get("where")
    condition = EVERY_ROW if where is None else pushable(where.this, names)
    if not condition.rows_are_exact:
        return None
    found = [value for item in tree.expressions for value in selected(item.unalias(), names)]
    values = tuple(value for value in found if value is not None)
    return PlainScan(values=values, condition=condition) if len(values) == len(found) else None


def parts(node: exp.Expression) -> frozenset[str]:
    """The parts that a node has."""
    return frozenset(name for name, value in node.args.items() if value)


def selected(item: exp.Expression, names: TargetNames) -> list[Value | None]:
    """Return the values of an item of a SELECT list; None stands for one that only Spark can compute.

    Args:
        item: The item, without an alias.
        names: The columns of the table.
    """
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        is_whole = not parts(star) and (star is item or is_of_table(item, names))
        fields = names.schema.fields if is_whole else ()
        return [Column(field_id=field.field_id, type=arrow_type(field.field_type, spark=True)) for field in fields] or [
            None
        ]
    return [selected_value(item, partial(column_of, names), names.rules.zone)]


def column_of(names: TargetNames, node: exp.Expression) -> NestedField | None:
    """Return the column of the table that an expression is."""
    is_name = isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier)
    return names.column(node.name) if is_name and is_of_table(node, names) else None


def is_of_table(node: exp.Expression, names: TargetNames) -> bool:
    """Return whether a name is a column of the table for certain, if it is one at all."""
    if not parts(node) <= {"this", "table"}:
        return False
    # A qualifier that is also the name of a column may mean a field of that column.
    qualifier = node.text("table")
    aliases = {tuple(map(names.folded, alias)) for alias in names.qualifiers}
    return not qualifier or ((names.folded(qualifier),) in aliases and names.column(qualifier) is None)
