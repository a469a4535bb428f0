"""Recognize queries of one table whose values and condition tasks can compute. Driver.

    SELECT id, amount * 2, 'new' FROM lake.db.orders WHERE id % 10 = 3

Input: a query fragment, or a bare table, and the one table that it names. Output: a `PlainScan`; `ThroughSpark` for
other queries and for expressions whose value in Spark is uncertain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from sqlglot import exp

from dml.plan.condition import EVERY_ROW, Condition
from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import Converter, pushable
from dml.plan.row_delta_plan import ThroughSpark, only_spark
from dml.plan.row_terms import selected_value, sql_text, uncomputed_part
from dml.plan.table_read import is_alone, named_columns, table_names, table_node
from dml.read.projection import arrow_type
from dml.rows.program import Column, Value
from dml.sqlparse.statements import Fragment, TableReference

__all__ = ["NOT_PLAIN", "PlainScan", "column_value", "parts", "plain_scan", "query_tree", "selects_all"]

SELECT_PARTS: Final = frozenset({"expressions", "from_", "where"})
TABLE_PARTS: Final = frozenset({"this", "db", "catalog", "alias", "version", "when"})
"""The parts that the tree of a plain scan may have. The table's snapshot comes from its reference."""
NOT_PLAIN: Final = ThroughSpark(reason="the query is not a simple SELECT from one table")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainScan:
    """A projection and a filter of one table.

    Attributes:
        values: The value of each column of the query, in Spark's type for it; NULL has the type null.
        condition: Selects the rows. Its row form is exact.
    """

    values: tuple[Value, ...]
    condition: Condition


def plain_scan(
    fragment: Fragment, reference: TableReference, schema: Schema, rules: SqlRules
) -> PlainScan | ThroughSpark:
    """Return the values that a query selects, or the reason why Spark must compute them.

    Args:
        fragment: The query, or a table of which the named columns are selected.
        reference: The table in it.
        schema: The schema under which the table is read.
        rules: Rules for the names and literals of the query.
    """
    names = table_names(reference, schema, rules)
    if len(names.fields_by_name) < len(schema.fields):
        return ThroughSpark(reason="column names differ only in case")  # Spark reports ambiguous names
    if reference.span == fragment.span:
        return PlainScan(values=tuple(map(column_value, named_columns(fragment, schema))), condition=EVERY_ROW)
    tree, table = query_tree(fragment), table_node(fragment, reference)
    if not isinstance(tree, exp.Select) or table is None or reference.column_aliases:
        return NOT_PLAIN
    if not parts(tree) <= SELECT_PARTS or not parts(table) <= TABLE_PARTS:
        return NOT_PLAIN
    if not is_alone(replace(fragment, ast=tree), reference):
        return NOT_PLAIN
    if not rules.trees.holds(tree):
        return ThroughSpark(reason="a setting or a function of the session changes how Spark reads the query")
    where = tree.args.get("where")
    condition = EVERY_ROW if where is None else pushable(where.this, names)
    if condition.needs_spark:
        return only_spark(condition.needs_spark)
    values: list[Value] = []
    for item in tree.expressions:
        found = select_item(item.unalias(), names)
        if isinstance(found, ThroughSpark):
            return found
        values.extend(found)
    return PlainScan(values=tuple(values), condition=condition)


def selects_all(fragment: Fragment, reference: TableReference) -> bool:
    """Return whether a query is a bare table, or a plain `SELECT *` from one.

    Args:
        fragment: The query.
        reference: The table in it.
    """
    if reference.version is not None or reference.timestamp is not None:
        return False
    if reference.span == fragment.span:
        return True
    tree, table = query_tree(fragment), table_node(fragment, reference)
    if not isinstance(tree, exp.Select) or table is None or reference.column_aliases:
        return False
    if not parts(tree) <= {"expressions", "from_"} or not parts(table) <= {"this", "alias"}:
        return False
    selected = tree.expressions
    return (
        is_alone(replace(fragment, ast=tree), reference)
        and len(selected) == 1
        and isinstance(selected[0], exp.Star)
        and not parts(selected[0])
    )


def query_tree(fragment: Fragment) -> exp.Expression | None:
    """Return the tree of a query, without parentheses around it."""
    tree: exp.Expression | None = fragment.ast
    while isinstance(tree, exp.Subquery) and parts(tree) == {"this"}:
        tree = tree.this
    return tree


def parts(node: exp.Expression) -> frozenset[str]:
    """Return the names of a node's arguments that are not empty."""
    return frozenset(name for name, value in node.args.items() if value)


def select_item(item: exp.Expression, names: TargetNames) -> Sequence[Value] | ThroughSpark:
    """Return the values of an item of a SELECT list, or the reason why Spark must compute them.

    Args:
        item: The item, without an alias.
        names: The columns of the table.
    """
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        if parts(star) or not (star is item or is_of_table(item, names)):
            return only_spark(sql_text(item))
        return list(map(column_value, names.schema.fields))
    scope = replace(Converter(names, None).scope, columns=partial(column_of, names))
    value = selected_value(item, scope)
    return only_spark(sql_text(uncomputed_part(item, scope))) if value is None else [value]


def column_value(field: NestedField) -> Value:
    """Return the value of a column."""
    return Column(field_id=field.field_id, type=arrow_type(field.field_type, spark=True))


def column_of(names: TargetNames, node: exp.Expression) -> NestedField | None:
    """Return the table column that an expression names."""
    is_name = isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier)
    return names.column(node.name) if is_name and is_of_table(node, names) else None


def is_of_table(node: exp.Expression, names: TargetNames) -> bool:
    """Return whether a name can only mean a column of the table, if it is a column at all."""
    if not parts(node) <= {"this", "table"}:
        return False
    # A qualifier that is also the name of a column may mean a field of that column.
    qualifier = node.text("table")
    aliases = {tuple(map(names.folded, alias)) for alias in names.qualifiers}
    return not qualifier or ((names.folded(qualifier),) in aliases and names.column(qualifier) is None)
