"""Find the columns and rows of a table that a query needs. Driver.

Input: a query fragment with sqlglot's tree, and a reference to a table in it. Output: a `TableRead`. A column is pruned
only if no name in the query can refer to it. A row is filtered only if a condition in the query's WHERE or in the ON of
an inner join drops it, whatever it is joined with.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from sqlglot import exp

from dml import limits
from dml.model.columns import METADATA_COLUMNS
from dml.plan.condition import EVERY_ROW, Condition, conjunction
from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import pushable, split_conjuncts
from dml.rows.program import TRUE, Predicate
from dml.sqlparse.statements import Fragment, TableReference

__all__ = [
    "TableRead",
    "is_alone",
    "named_columns",
    "table_names",
    "table_node",
    "table_read",
]

FILTERING_JOINS: Final = frozenset({"", "INNER", "CROSS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """The columns and rows that a query reads from a table.

    Attributes:
        field_ids: Top-level columns, in the schema's order.
        metadata_columns: Metadata columns that the query names.
        row_filter: A filter that all needed rows satisfy.
        row_predicate: A predicate on computed values that all needed rows satisfy. It prunes no files.
        is_row_select: True if the query only selects rows of this table, so that Spark's optimizer could prune nothing
            more.
    """

    field_ids: tuple[int, ...]
    metadata_columns: tuple[str, ...] = ()
    row_filter: BooleanExpression
    row_predicate: Predicate = TRUE
    is_row_select: bool = False


def table_read(
    fragment: Fragment,
    reference: TableReference,
    schema: Schema,
    rules: SqlRules,
    *,
    row_lineage: bool = False,
    every_column: bool = False,
) -> TableRead:
    """Find the columns and rows that a fragment reads from a table.

    Args:
        fragment: The query, or an expression with subqueries.
        reference: The table in it.
        schema: The schema under which the table is read.
        rules: Rules for the names and literals of the statement.
        row_lineage: True if the table's rows have ids.
        every_column: True if the names in the query do not determine the columns that it reads.
    """
    fields = schema.fields if every_column else named_columns(fragment, schema)
    own = {column.name.lower() for column in schema.fields}
    metadata = tuple(
        name
        for name in METADATA_COLUMNS
        if name in fragment.names and name not in own and (row_lineage or name not in METADATA_COLUMNS[4:])
    )
    needed = needed_rows(fragment, reference, table_names(reference, schema, rules))
    return TableRead(
        field_ids=tuple(column.field_id for column in fields),
        metadata_columns=metadata,
        row_filter=needed.pruning,
        row_predicate=needed.rows,
        is_row_select=is_alone(fragment, reference) and not has_aggregates(fragment),
    )


def named_columns(fragment: Fragment, schema: Schema) -> tuple[NestedField, ...]:
    """Return the columns of a table that a fragment may name."""
    return tuple(column for column in schema.fields if fragment.has_star or column.name.lower() in fragment.names)


def table_names(reference: TableReference, schema: Schema, rules: SqlRules) -> TargetNames:
    """Return the name resolution for the columns of a table in a query."""
    return TargetNames(schema=schema, qualifiers=((table_alias(reference),),), rules=rules)


def table_alias(reference: TableReference) -> str:
    """Return the name of a table inside a query: its alias, or the last part of its name."""
    return reference.alias or reference.parts[-1]


def is_alone(fragment: Fragment, reference: TableReference) -> bool:
    """Return whether a query is one SELECT of one table, without joins and subqueries."""
    table, tree = table_node(fragment, reference), fragment.ast
    if table is None or not isinstance(tree, exp.Select):
        return False
    select, single = select_around(table)
    return select is tree and single and all(query is tree for query in tree.find_all(exp.Query))


def has_aggregates(fragment: Fragment) -> bool:
    """Return whether a query has_aggregates rows."""
    return fragment.ast is None or fragment.ast.find(exp.AggFunc, exp.Group, exp.Distinct) is not None


def needed_rows(fragment: Fragment, reference: TableReference, names: TargetNames) -> Condition:
    """Return the conditions of the SELECT around a table that read only this table."""
    table = table_node(fragment, reference)
    select, single = (None, False) if table is None else select_around(table)
    if table is None or select is None:
        return EVERY_ROW
    structs = frozenset(
        column.name.lower() for column in names.schema.fields if isinstance(column.field_type, StructType)
    )
    conjuncts = (
        conjunct
        for condition in conditions(select, table)
        for conjunct in split_conjuncts(condition)
        if reads_only(conjunct, table_alias(reference), structs, single=single)
    )
    parts = (pushable(conjunct, names) for conjunct in islice(conjuncts, limits.MAX_CONDITION_DEPTH))
    return reduce(conjunction, (replace(part, rows=part.rows_beyond_pruning) for part in parts), EVERY_ROW)


def table_node(fragment: Fragment, reference: TableReference) -> exp.Table | None:
    """Return the node of a table reference in the fragment's tree; None if it has none or the query uses pipes."""
    # A filter behind `|>` applies to the output of the pipe before it, which the tree does not show.
    if fragment.ast is None or "|>" in fragment.text:
        return None
    place = reference.span.start - fragment.span.start
    for node in fragment.ast.find_all(exp.Table):
        first = node.parts[0] if node.parts else None
        if first is not None and first.meta.get("start") == place:
            return node
    return None


def select_around(table: exp.Table) -> tuple[exp.Select | None, bool]:
    """Return the SELECT whose FROM or JOIN names a table, and whether the table is its only relation.

    The SELECT is None for a table with a sample: Spark draws the sample before it evaluates conditions.
    """
    parent = table.parent
    if not isinstance(parent, exp.From | exp.Join) or not isinstance(parent.parent, exp.Select):
        return None, False
    select = parent.parent
    if select.args.get("laterals") or select.args.get("pivots") or table.args.get("pivots"):
        return None, False
    if table.args.get("sample"):
        return None, False
    return select, not select.args.get("joins")


def conditions(select: exp.Select, table: exp.Table) -> Iterator[exp.Expression]:
    """Yield the WHERE and ON conditions that every needed row of the table satisfies.

    An outer join adds NULL rows for missing ones, so a condition is used only if the table is on the side that the join
    preserves, or if all joins are inner joins.
    """
    joins = select.args.get("joins") or []
    for join in joins:
        if join.args.get("method") or join.args.get("using"):
            return
        inner = join.side.upper() in FILTERING_JOINS and join.kind.upper() in FILTERING_JOINS
        kept_left = join.side.upper() == "LEFT" and join.kind.upper() in {"", "OUTER"} and join.this is not table
        if not inner and not kept_left:
            return
    where = select.args.get("where")
    if where is not None:
        yield where.this
    for join in joins:
        if join.this is table and join.args.get("on") is not None and join.side.upper() in FILTERING_JOINS:
            yield join.args["on"]


def reads_only(conjunct: exp.Expression, alias: str, structs: frozenset[str], *, single: bool) -> bool:
    """Return whether all columns of a conjunct are certainly those of the table.

    Args:
        conjunct: The condition.
        alias: The table's name in the query.
        structs: Its struct columns: `partition.day` is a field if no other relation can be called `partition`.
        single: True if the table is the only relation.
    """
    if conjunct.find(exp.Query) is not None:
        return False
    columns = list(conjunct.find_all(exp.Column))
    own = {alias.lower(), *structs} if single else {alias.lower()}
    if single:
        return all(len(column.parts) == 1 or column.parts[0].name.lower() in own for column in columns)
    return all(len(column.parts) > 1 and column.parts[0].name.lower() in own for column in columns)
