"""Read constant rows of a statement: `VALUES (1, 'a'), (2, 'b')`, or SELECT without FROM. Driver.

Input: a query. Output: its values in Spark's types, or None if only Spark can evaluate them.

Source: Spark's `ResolveInlineTables`, which widens the values of a column to one type.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from dml import limits
from dml.plan.names import SqlRules
from dml.plan.plain_scan import parts, query_tree
from dml.plan.row_functions import LONG
from dml.plan.row_terms import INTEGER_DIGITS, MAX_PRECISION, literal, number, strip_parentheses
from dml.rows.program import Literal
from dml.sqlparse.constants import Kind, TimeZone, constant
from dml.sqlparse.statements import Fragment

__all__ = ["is_of_constants", "literal_columns"]


def literal_columns(query: Fragment, rules: SqlRules) -> list[list[Literal]] | None:
    """Return the values of each column of a query; None if it is not made of constants alone.

    The values of a column have one type, or are integers and decimals that fit one type, or NULL.

    Args:
        query: The query.
        rules: Rules for its literals.
    """
    tree = query_tree(query)
    rows = rows_of(tree)
    if tree is None or not rows or not rows[0] or not rules.trees.holds(tree):
        return None
    if len({len(row) for row in rows}) > 1 or len(rows) * len(rows[0]) > limits.MAX_LITERAL_VALUES:
        return None
    zone = TimeZone.of(rules.time_zone)
    found = [[literal_value(cell, zone) for cell in row] for row in rows]
    columns = [in_one_type([row[place] for row in found]) for place in range(len(rows[0]))]
    known = [column for column in columns if column is not None]
    return known if len(known) == len(columns) else None


def is_of_constants(query: Fragment) -> bool:
    """Return whether a query may be a list of constant rows, without reading its values."""
    return bool(rows_of(query_tree(query)))


def rows_of(tree: exp.Expression | None) -> list[Sequence[exp.Expression]]:
    """Return the expressions of each row; nothing if the query is more than a list of rows."""
    if isinstance(tree, exp.Values) and parts(tree) == {"expressions"}:
        return [row.expressions if isinstance(row, exp.Tuple) else [row] for row in tree.expressions]
    if isinstance(tree, exp.Select) and parts(tree) == {"expressions"}:
        return [[item.unalias() for item in tree.expressions]]
    return []


def literal_value(cell: exp.Expression, zone: TimeZone) -> Literal | None:
    """Return a constant in Spark's type for it. A NULL in a cast has a type of its own, which only Spark reports."""
    node = strip_parentheses(cell)
    found = constant(node, zone)
    if found is None or (found.kind is Kind.NULL and not isinstance(node, exp.Null)):
        return None
    return literal(found, number(node))


def in_one_type(values: Sequence[Literal | None]) -> list[Literal] | None:
    """Return the values of a column; None if one is unknown, or Spark's common type may change one."""
    known = [value for value in values if value is not None]
    kinds = {value.type for value in known if value.type != pa.null()}
    if len(known) < len(values):
        return None
    if len(kinds) < 2:
        return known
    if all(map(pa.types.is_integer, kinds)):
        return [value if value.type == pa.null() else replace(value, type=LONG) for value in known]
    if not all(kind in INTEGER_DIGITS or pa.types.is_decimal(kind) for kind in kinds):
        return None
    whole = max(INTEGER_DIGITS[kind] if kind in INTEGER_DIGITS else kind.precision - kind.scale for kind in kinds)
    scale = max(0 if kind in INTEGER_DIGITS else kind.scale for kind in kinds)
    return known if whole + scale <= MAX_PRECISION else None  # a wider type would round
