"""Translate conditions to Iceberg: filters for pruning, constant conditions, join keys. Driver.

Input: sqlglot's tree of a condition (made only where it certainly reads as Spark does). Output: Iceberg expressions
that are true at least where the condition is true. Parts without a certain translation are dropped, which only makes a
filter wider.

    WHERE k = 7 AND length(v) > 3 AND NOT (d < 1)     ->     k = 7 AND (d >= 1 OR is_nan(d))

Three-valued logic: an expression here is true where SQL's is true, and otherwise false. NOT is pushed down to the
comparisons, where it is exact: NOT over an unknown part stays unknown. `fold` evaluates conditions without columns,
such as `21 = 21` and `1 > NULL`, to TRUE, FALSE or NULL, as Spark's optimizer does.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from pyiceberg.expressions import BooleanExpression, IsNull, Or, Reference
from pyiceberg.types import BooleanType, NestedField, StringType, StructType
from sqlglot import exp

from dml import limits
from dml.plan.comparisons import (
    WIDTH_TRANSFORMS,
    ComparisonOperator,
    TableColumn,
    Transformed,
    compare,
    compare_transformed,
    is_in,
    is_in_transformed,
    is_null,
    is_null_transformed,
    starts_with,
)
from dml.plan.condition import EVERY_ROW, NO_ROW, UNKNOWN, Condition, conjunction, disjunction, row_condition
from dml.plan.names import TargetNames
from dml.plan.row_delta_plan import MergeSource
from dml.plan.row_terms import Scope, compared_terms, member_term, sql_text, uncomputed_part, value_term
from dml.pruning.bound_expressions import bound_to, optional_schema
from dml.read.row_predicates import select_bound_rows
from dml.rows.program import Predicate, Value
from dml.sqlparse.constants import Constant, Kind, TimeZone, boolean, constant
from dml.sqlparse.statements import Fragment

__all__ = [
    "FUNCTIONS",
    "Converter",
    "equi_keys",
    "fold",
    "pushable",
    "row_value",
    "split_conjuncts",
    "target_only_pushdown",
    "uncomputed_text",
]

NUMBERS = {Kind.INTEGER, Kind.DECIMAL}
ORDERED = {Kind.STRING, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.BINARY}

FOLDED_OPERATORS: dict[type[exp.Expression], Callable[[Any, Any], bool]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
}


def fold(node: exp.Expression, zone: TimeZone) -> Constant | None:
    """Evaluate a condition without columns to a boolean or null constant; None if the result is uncertain.

    Args:
        node: The condition. The caller splits AND, OR and NOT.
        zone: The session's time zone.
    """
    match node:
        case exp.Boolean() | exp.Null() | exp.Cast():
            value = constant(node, zone)
            return value if value is not None and value.kind in {Kind.BOOLEAN, Kind.NULL} else None
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return compare_constants(
                FOLDED_OPERATORS[type(node)], constant(node.this, zone), constant(node.expression, zone)
            )
        case exp.Is() if isinstance(node.expression, exp.Null):
            value = constant(node.this, zone)
            return None if value is None else boolean(value.kind is Kind.NULL)
        case exp.NullSafeEQ():
            return null_safe(constant(node.this, zone), constant(node.expression, zone))
    return None


def compare_constants(
    operator: Callable[[Any, Any], bool], left: Constant | None, right: Constant | None
) -> Constant | None:
    """Compare two constants; None if a value is unknown or their kinds are not comparable."""
    if left is None or right is None:
        return None
    if Kind.NULL in {left.kind, right.kind}:
        return Constant(kind=Kind.NULL)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return boolean(operator(Decimal(left.value), Decimal(right.value)))
    if left.kind is right.kind and left.kind in ORDERED:
        return boolean(operator(sort_key(left), sort_key(right)))
    if left.kind is right.kind is Kind.DOUBLE and not math.isnan(left.value) and not math.isnan(right.value):
        return boolean(operator(left.value, right.value))
    return None


def sort_key(value: Constant) -> Any:
    """Return a value that sorts in Spark's order: strings by their bytes."""
    return value.value.encode() if value.kind is Kind.STRING else value.value


def null_safe(left: Constant | None, right: Constant | None) -> Constant | None:
    """Evaluate `left <=> right`."""
    if left is None or right is None:
        return None
    if Kind.NULL in {left.kind, right.kind}:
        return boolean(left.kind is right.kind)
    return compare_constants(eq, left, right)


FUNCTIONS = "system"
"""The namespace of Iceberg's functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EquiKey:
    """A conjunct `target.column = source.column`, or the same with `<=>`.

    Attributes:
        target: The target's column or nested field, with its full name.
        field: The target's column; None for a nested field.
        source_column: The name of the source's column.
        null_safe: True if NULL equals NULL (`<=>`).
    """

    target: TableColumn
    field: NestedField | None
    source_column: str
    null_safe: bool


def pushable(condition: exp.Expression | None, names: TargetNames) -> Condition:
    """Translate a condition on the rows of one table.

    Args:
        condition: The tree; None if there is no trusted one.
        names: The columns of the table.
    """
    return Converter(names, None).condition(condition)


def row_value(value: exp.Expression | None, column: NestedField, names: TargetNames) -> Value | None:
    """Translate the new value of a column, computed from the old row, for tasks; None if only Spark can compute it.

    Args:
        value: The tree of the assigned expression; None if there is no trusted one.
        column: The assigned column.
        names: The columns of the table.
    """
    if value is None or not names.rules.trees.holds(value):
        return None
    return value_term(value, column, Converter(names, None).scope)


def uncomputed_text(fragment: Fragment, names: TargetNames) -> str:
    """Return, as SQL, the part of an expression that tasks cannot compute."""
    if fragment.ast is None or not names.rules.trees.holds(fragment.ast):
        return fragment.text
    return sql_text(uncomputed_part(fragment.ast, Converter(names, None).scope))


def target_only_pushdown(
    condition: exp.Expression | None, names: TargetNames, source: MergeSource
) -> BooleanExpression:
    """Return a filter that every target row matching some source row satisfies, from the ON condition of a MERGE.

    Args:
        condition: The tree; None if there is no trusted one.
        names: The columns of the target.
        source: The source. The values of its columns are unknown here.
    """
    return Converter(names, source).condition(condition).pruning


def equi_keys(condition: exp.Expression | None, names: TargetNames, source: MergeSource) -> tuple[EquiKey, ...]:
    """Return the conjuncts of an ON condition that equate a column of the target with one of the source.

    A target row can match only if, for each of them, its value is among the source's; rows with NULL match only
    null-safe keys. The caller checks how the two types compare.

    Args:
        condition: The tree; None if there is no trusted one.
        names: The columns of the target.
        source: The source.
    """
    converter = Converter(names, source)
    keys = []
    for conjunct in split_conjuncts(
        condition if condition is not None and names.rules.trees.holds(condition) else None
    ):
        if isinstance(conjunct, (exp.EQ, exp.NullSafeEQ)):
            null_safe = isinstance(conjunct, exp.NullSafeEQ)
            for side, other in ((conjunct.this, conjunct.expression), (conjunct.expression, conjunct.this)):
                target, name = converter.column(side), converter.source_column(other)
                if target is not None and name is not None:
                    field = converter.top_level(side)
                    keys.append(EquiKey(target=target, field=field, source_column=name, null_safe=null_safe))
    return tuple(keys)


def split_conjuncts(condition: exp.Expression | None) -> Iterator[exp.Expression]:
    """Yield the operands of the top-level ANDs of a condition, left to right."""
    stack = [] if condition is None else [condition]
    while stack:
        node = stack.pop()
        match node:
            case exp.And():
                stack += [node.expression, node.this]
            case exp.Paren():
                stack.append(node.this)
            case _:
                yield node


class Converter:
    """Translates conditions to Iceberg expressions and row predicates.

    Args:
        names: The columns of the table.
        source: The other side of a join; None for a single table.
    """

    def __init__(self, names: TargetNames, source: MergeSource | None) -> None:
        self.names = names
        self.zone = names.rules.zone
        self.trees = names.rules.trees
        self.optional = optional_schema(names.schema)
        self.catalogs = frozenset(name.lower() for name in names.rules.catalogs)
        self.nesting = 0
        self.source_alias = None if source is None else self.names.folded(source.alias)
        self.source_columns = frozenset() if source is None else frozenset(map(self.names.folded, source.columns))

    @property
    def scope(self) -> Scope:
        """The columns, conditions and time zone that row terms are translated with."""
        return Scope(columns=self.operand, condition=self.nested_predicate, zone=self.zone)

    def nested_predicate(self, node: exp.Expression) -> Predicate | None:
        """Translate a condition nested in a value; None if tasks cannot evaluate it."""
        if self.nesting >= limits.MAX_CONDITION_NESTING:
            return None
        self.nesting += 1
        found = self.condition(node)
        self.nesting -= 1
        return found.rows if found.rows_are_exact and not found.skips else None

    def condition(self, node: exp.Expression | None) -> Condition:
        """Translate a whole condition; conjuncts beyond the limit of depth stay unknown."""
        if node is None or not self.trees.holds(node) or sum(1 for _ in node.walk()) > limits.MAX_CONDITION_NODES:
            return UNKNOWN
        conjuncts = list(split_conjuncts(node))
        parts = [self.convert(conjunct, negated=False, depth=0) for conjunct in conjuncts[: limits.MAX_CONDITION_DEPTH]]
        return reduce(conjunction, parts if len(conjuncts) <= limits.MAX_CONDITION_DEPTH else [*parts, UNKNOWN])

    def convert(self, node: exp.Expression, *, negated: bool, depth: int) -> Condition:
        """Translate a condition or its negation."""
        if depth > limits.MAX_CONDITION_DEPTH:
            return UNKNOWN
        below = depth + 1
        match node:
            case exp.Paren():
                return self.convert(node.this, negated=negated, depth=below)
            case exp.Not():
                return self.convert(node.this, negated=not negated, depth=below)
            case exp.And() | exp.Or():
                left = self.convert(node.this, negated=negated, depth=below)
                right = self.convert(node.expression, negated=negated, depth=below)
                # De Morgan holds in three-valued logic too.
                return (conjunction if isinstance(node, exp.And) != negated else disjunction)(left, right)
            case exp.Between() if not node.args.get("symmetric"):
                low = self.convert_bound(node.this, ComparisonOperator.GREATER_EQUAL, node.args["low"], negated=negated)
                high = self.convert_bound(node.this, ComparisonOperator.LESS_EQUAL, node.args["high"], negated=negated)
                return self.explain((disjunction if negated else conjunction)(low, high), node)
        folded = fold(node, self.zone)
        if folded is not None:
            return EVERY_ROW if folded.value is (not negated) else NO_ROW
        found = self.predicate(node, negated=negated)
        return self.explain(
            self.exact_condition(found) if found is not None else self.convert_for_tasks(node, negated=negated),
            node,
        )

    def explain(self, found: Condition, node: exp.Expression) -> Condition:
        """Add the part of a predicate that only Spark can evaluate to an inexact condition."""
        # `uncomputed_part` itself translates the parts of a value: explaining those would recurse.
        if found.rows_are_exact or self.nesting:
            return found
        # sqlglot prints nothing for a few functions.
        return replace(found, needs_spark=sql_text(uncomputed_part(node, self.scope)) or UNKNOWN.needs_spark)

    def exact_condition(self, expression: BooleanExpression | None) -> Condition:
        """Return the condition that an Iceberg expression decides exactly; UNKNOWN for None."""
        if expression is None:
            return UNKNOWN
        bound = bound_to(self.optional, expression, case_sensitive=self.names.rules.case_sensitive)
        selected = select_bound_rows(bound, self.optional)
        return Condition(
            pruning=expression,
            pruning_is_exact=True,
            rows=selected.predicate,
            needs_spark="" if selected.is_exact else UNKNOWN.needs_spark,
        )

    def convert_for_tasks(self, node: exp.Expression, *, negated: bool) -> Condition:
        """Translate a predicate that Iceberg cannot express to one that tasks evaluate."""
        condition = None
        match node:
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                operator = OPERATORS[type(node)]
                return self.compared_terms(node.this, operator, node.expression, negated=negated)
            case exp.In() if node.expressions and not any(node.args.get(key) for key in ("query", "unnest", "field")):
                condition = member_term(node.this, node.expressions, self.scope, negated=negated)
        return row_condition(condition)

    def compared_terms(
        self, left: exp.Expression, operator: ComparisonOperator, right: exp.Expression, *, negated: bool
    ) -> Condition:
        """Translate a comparison of two values that tasks compute."""
        return row_condition(compared_terms(left, operator.negated if negated else operator, right, self.scope))

    def predicate(self, node: exp.Expression, *, negated: bool) -> BooleanExpression | None:
        """Translate a single predicate to Iceberg; None if no exact translation is certain."""
        match node:
            case exp.Column() | exp.Dot():
                return self.boolean(node, value=not negated)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                found = self.comparison(node.this, OPERATORS[type(node)], node.expression, negated=negated)
                return found.pruning if found.pruning_is_exact else None
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self.null_safe(node, negated=negated is isinstance(node, exp.NullSafeEQ))
            case exp.Is():
                return self.is_test(node, negated=negated)
            case exp.In():
                return self.membership(node, negated=negated)
            case exp.Like():
                return self.like(node, negated=negated is not bool(node.args.get("negate")))
            case exp.StartsWith():
                column, prefix = self.column(node.this), constant(node.expression, self.zone)
                if column is not None and prefix is not None and prefix.kind is Kind.STRING:
                    return starts_with(column, prefix.value, negated=negated)
            case exp.IsNan():
                column = self.column(node.this)
                operator = ComparisonOperator.LESS if negated else ComparisonOperator.EQUAL
                # isnan(NULL) is false, so its negation is true for NULL. No comparison with NaN is.
                return None if column is None or negated else compare(column, operator, NAN, self.zone)
        return None

    def boolean(self, node: exp.Expression, *, value: bool) -> BooleanExpression | None:
        """Translate a bare boolean column, or its negation."""
        column = self.column(node)
        if column is None or not isinstance(column.field_type, BooleanType):
            return None
        return compare(column, ComparisonOperator.EQUAL, Constant(kind=Kind.BOOLEAN, value=value), self.zone)

    def comparison(
        self, left: exp.Expression, operator: ComparisonOperator, right: exp.Expression, *, negated: bool
    ) -> Condition:
        """Translate the comparison of a column with a constant on either side."""
        values = constant(left, self.zone), constant(right, self.zone)
        if any(value is not None and value.kind is Kind.NULL for value in values):
            # A comparison with NULL is NULL, and so is its negation.
            known = all(value is not None or self.term(side) for side, value in zip((left, right), values, strict=True))
            return NO_ROW if known else UNKNOWN
        term, value = self.term(left), values[1]
        if term is None:
            term, value, operator = self.term(right), values[0], operator.flipped
        if term is None or value is None:
            return UNKNOWN
        return self.exact_condition(self.compare_term(term, operator.negated if negated else operator, value))

    def convert_bound(
        self, left: exp.Expression, operator: ComparisonOperator, right: exp.Expression, *, negated: bool
    ) -> Condition:
        """Translate one bound of a BETWEEN: to Iceberg, else for tasks."""
        found = self.comparison(left, operator, right, negated=negated)
        return found if found.pruning_is_exact else self.compared_terms(left, operator, right, negated=negated)

    def compare_term(
        self, term: TableColumn | Transformed, operator: ComparisonOperator, value: Constant
    ) -> BooleanExpression | None:
        """Translate `term operator value`."""
        if isinstance(term, Transformed):
            return compare_transformed(term, operator, value, self.zone)
        return compare(term, operator, value, self.zone)

    def term(self, node: exp.Expression) -> TableColumn | Transformed | None:
        """Return the target's column, or the transform of one, that an expression refers to."""
        return self.column(node) or self.transform_of(node)

    def transform_of(self, node: exp.Expression) -> Transformed | None:
        """Return the transform if an expression calls one of Iceberg's on a column of the target, else None."""
        if not isinstance(node, exp.Dot) or not isinstance(node.expression, exp.Anonymous):
            return None
        qualifier = tuple(part.lower() for part in name_parts(node.this))
        if isinstance(node.this, exp.Identifier):
            qualifier = (node.this.name.lower(),)
        if qualifier[-1:] != (FUNCTIONS,) or qualifier[:-1] not in {(), *((name,) for name in self.catalogs)}:
            return None
        name, arguments = node.expression.name.lower(), node.expression.expressions
        *widths, argument = arguments or [None]
        column = self.column(argument) if argument is not None else None
        # A width must be an INT: sqlglot reads `16L` as a cast.
        has_widths = len(widths) == (name in WIDTH_TRANSFORMS) and all(isinstance(one, exp.Literal) for one in widths)
        if column is None or not has_widths:
            return None
        width = constant(widths[0], self.zone) if widths else None
        if width is not None and width.kind is not Kind.INTEGER:
            return None
        return Transformed(name, None if width is None else width.value, column)

    def null_safe(self, node: exp.Expression, *, negated: bool) -> BooleanExpression | None:
        """Translate `<=>`, or IS DISTINCT FROM if `negated`."""
        term, value = self.term(node.this), constant(node.expression, self.zone)
        if term is None or value is None:
            term, value = self.term(node.expression), constant(node.this, self.zone)
        if term is None or value is None:
            return None
        if value.kind is Kind.NULL:
            return null_test(term, negated=negated)
        found = self.compare_term(term, ComparisonOperator.NOT_EQUAL if negated else ComparisonOperator.EQUAL, value)
        if not negated or found is None:
            return found
        null = null_test(term, negated=False)
        return None if null is None else Or(found, null)

    def is_test(self, node: exp.Is, *, negated: bool) -> BooleanExpression | None:
        """Translate IS NULL, IS TRUE and IS FALSE."""
        match node.expression:
            case exp.Null():
                term = self.term(node.this)
                return None if term is None else null_test(term, negated=negated)
            case exp.Boolean():
                column = self.column(node.this)
                found = self.boolean(node.this, value=bool(node.expression.this) is not negated)
                # NOT (flag IS TRUE) holds for NULL too.
                return (
                    found
                    if found is None or column is None or not negated
                    else Or(found, IsNull(term=Reference(column.name)))
                )
        return None

    def membership(self, node: exp.In, *, negated: bool) -> BooleanExpression | None:
        """Translate `IN (constants)`."""
        term = self.term(node.this)
        if term is None or not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
            return None
        values = [constant(item, self.zone) for item in node.expressions]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        if isinstance(term, Transformed):
            return is_in_transformed(term, known, self.zone, negated=negated)
        return is_in(term, known, self.zone, negated=negated)

    def like(self, node: exp.Like, *, negated: bool) -> BooleanExpression | None:
        """Translate LIKE with a pattern that is a prefix or a plain text; None for other patterns."""
        column, pattern = self.column(node.this), node.expression
        if column is None or not isinstance(pattern, exp.Literal) or not pattern.is_string:
            return None
        text: str = pattern.this
        prefix = text.rstrip("%")
        if any(mark in prefix for mark in "%_\\") or not isinstance(column.field_type, StringType):
            return None
        if prefix != text:
            return starts_with(column, prefix, negated=negated)
        operator = ComparisonOperator.NOT_EQUAL if negated else ComparisonOperator.EQUAL
        return compare(column, operator, Constant(kind=Kind.STRING, value=text), self.zone)

    def top_level(self, node: exp.Expression) -> NestedField | None:
        """Return the target's top-level column that an expression refers to, or None."""
        path = self.path(node)
        return path[0] if len(path) == 1 else None

    def operand(self, node: exp.Expression) -> NestedField | None:
        """Return the column that an expression refers to if tasks can compute with it, else None."""
        return self.top_level(node)

    def source_column(self, node: exp.Expression) -> str | None:
        """Return the name, as written, of the source's column that an expression refers to, or None."""
        parts = name_parts(node)
        folded = tuple(map(self.names.folded, parts))
        if len(parts) == 2 and folded[0] == self.source_alias and folded[1] in self.source_columns:
            namesake = self.names.column(parts[0])  # `s.a` may be a field of the target's column `s`
            return parts[1] if namesake is None or namesake.field_type.is_primitive else None
        bare = len(parts) == 1 and folded[0] in self.source_columns and self.names.column(parts[0]) is None
        return parts[0] if bare else None

    def column(self, node: exp.Expression) -> TableColumn | None:
        """Return the target's column or nested field that an expression refers to; None if that is uncertain."""
        path = self.path(node)
        if not path:
            return None
        leaf = path[-1]
        # PyIceberg treats a required field as never NULL, but it is NULL where an optional struct around it is.
        if leaf.required and not all(field.required for field in path):
            return None
        schema = self.names.schema
        name = schema.find_column_name(leaf.field_id)
        if name is None or schema.find_field(name).field_id != leaf.field_id:
            return None
        return TableColumn(name, leaf.field_type)

    def path(self, node: exp.Expression) -> tuple[NestedField, ...]:
        """Return the target's fields along a name, column first; empty if the name may not be the target's."""
        parts = name_parts(node)
        if not parts or self.may_be_source(parts):
            return ()
        rest = self.names.unqualified(parts)
        column = self.names.column(rest[0])
        if column is None:
            return ()
        path = [column]
        for part in rest[1:]:
            struct = path[-1].field_type
            fields = struct.fields if isinstance(struct, StructType) else ()
            found = [field for field in fields if self.names.folded(field.name) == self.names.folded(part)]
            if len(found) != 1:
                return ()
            path.append(found[0])
        return tuple(path)

    def may_be_source(self, parts: tuple[str, ...]) -> bool:
        """Return whether a name may refer to the source: by its alias, or as a bare name that the source has."""
        head = self.names.folded(parts[0])
        if head == self.source_alias:
            return True
        return self.names.unqualified(parts) == parts and head in self.source_columns


NAN = Constant(kind=Kind.DOUBLE, value=float("nan"))

OPERATORS: dict[type[exp.Expression], ComparisonOperator] = {
    exp.EQ: ComparisonOperator.EQUAL,
    exp.NEQ: ComparisonOperator.NOT_EQUAL,
    exp.LT: ComparisonOperator.LESS,
    exp.LTE: ComparisonOperator.LESS_EQUAL,
    exp.GT: ComparisonOperator.GREATER,
    exp.GTE: ComparisonOperator.GREATER_EQUAL,
}


def null_test(term: TableColumn | Transformed, *, negated: bool) -> BooleanExpression | None:
    """Translate `term IS [NOT] NULL`."""
    if isinstance(term, Transformed):
        return is_null_transformed(term, negated=negated)
    return is_null(term, negated=negated)


def name_parts(node: exp.Expression) -> tuple[str, ...]:
    """Return the parts of a plain name; empty for other expressions."""
    match node:
        case exp.Paren():
            return name_parts(node.this)
        case exp.Column() if isinstance(node.this, exp.Identifier):
            return tuple(part.name for part in node.parts)
        case exp.Dot() if isinstance(node.expression, exp.Identifier):
            head = (node.this.name,) if isinstance(node.this, exp.Identifier) else name_parts(node.this)
            return (*head, node.expression.name) if head else ()
    return ()
