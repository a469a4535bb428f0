"""Conditions as Spark's optimizer has them, where they call Iceberg's functions. Driver, classic Spark only.

Input: Catalyst expressions over the columns of one table. Output: the trees that `dml.spark_scan.conditions` makes of
Spark's predicates, in which a call of a function is `system.bucket(16, id)` again.

A call is an expression of Spark's own by now (`dml.connector.functions`), of which no predicate tells what it was. So
it is marked when it is made: the call and its column each stand in a node that gives the value of what is in it and
that no rule takes away, and a tag, which Spark's rules hand on, says which function the call is. What rules put in the
place of the column, the expression of a projection for example, stands in the column's node from then on: then nothing
is known of the call.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

from py4j.java_gateway import JavaObject
from sqlglot import exp

from dml import limits
from dml.spark.iceberg_functions import NAMESPACE
from dml.spark.java import companion, java_class, simple_name
from dml.spark.jvm import gateway
from dml.spark_scan.conditions import UNKNOWN, column, literal, tree, unknown

__all__ = ["EXPRESSIONS", "condition_trees", "has_marked", "held", "marked"]

EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
TAG: Final = "org.apache.spark.sql.catalyst.trees.TreeNodeTag"
STRATEGY: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy"
COLUMN: Final = "AttributeReference"
COMPARISONS: Final[dict[str, type[exp.Expression]]] = {
    "And": exp.And,
    "Or": exp.Or,
    "EqualTo": exp.EQ,
    "EqualNullSafe": exp.NullSafeEQ,
    "LessThan": exp.LT,
    "LessThanOrEqual": exp.LTE,
    "GreaterThan": exp.GT,
    "GreaterThanOrEqual": exp.GTE,
}
HOLDER: Final = "KnownNullable"
"""What a call and its column stand in: it gives what is in it, and says nothing that an outer join could make wrong."""


MARKED: Final[set[object]] = set()
"""The gateways in whose JVM a call was marked: without one, nobody looks for marks."""


@cache
def call_tag(_: object) -> JavaObject:
    """What a call is marked with; its value is the function and, before it, its width: `16 bucket`, `days`."""
    return java_class(TAG)("rowdelta.transform")


def held(source: JavaObject) -> JavaObject:
    """What a function is called with: a column in its node, anything else as it is."""
    if simple_name(source) != COLUMN:
        return source
    return java_class(EXPRESSIONS + HOLDER)(source)


def marked(name: str, arguments: Sequence[JavaObject], call: JavaObject) -> JavaObject:
    """A call of one of Iceberg's functions, marked if it is one on a column.

    Args:
        name: The function.
        arguments: What it is called with: the column in its node, and before it a width.
        call: The expression that it is.
    """
    *widths, source = arguments
    if simple_name(source) != HOLDER or not all(map(is_width, widths)):
        return call
    # In a node too, or rules would move what it is compared with into the branches of the expression.
    made = java_class(EXPRESSIONS + HOLDER)(call)
    made.setTagValue(call_tag(gateway()), " ".join([*(str(width.eval(None)) for width in widths), name]))
    MARKED.add(gateway())
    return made


def is_width(argument: JavaObject) -> bool:
    """Whether an argument is a whole number."""
    return bool(argument.foldable()) and str(argument.dataType().sql()) == "INT" and argument.eval(None) is not None


def has_marked() -> bool:
    """Whether a condition can have a marked call."""
    return gateway() in MARKED


def condition_trees(filters: JavaObject) -> list[exp.Expression]:
    """Conditions that must all be true, as sqlglot has them; what is not known in them means nothing.

    Args:
        filters: A `Seq[Expression]` over the columns of a table, by their names.
    """
    strategy = companion(STRATEGY)
    found: list[exp.Expression] = []
    for place in range(min(int(filters.size()), limits.MAX_CONDITION_DEPTH)):
        condition = filters.apply(place)
        predicate = strategy.translateFilterV2(condition)
        translated = tree(predicate.get()) if predicate.isDefined() else unknown()
        found.append(translated)
        if any(node.name == UNKNOWN for node in translated.find_all(exp.Anonymous)):
            found.append(condition_tree(condition))
    return found


def condition_tree(node: JavaObject, depth: int = 0) -> exp.Expression:
    """A condition of comparisons with calls, columns and constants."""
    kind, below = simple_name(node), depth + 1
    if depth > limits.MAX_CONDITION_DEPTH:
        return unknown()
    if kind in COMPARISONS:
        return COMPARISONS[kind](
            this=condition_tree(node.left(), below), expression=condition_tree(node.right(), below)
        )
    match kind:
        case "Not":
            return exp.Not(this=condition_tree(node.child(), below))
        case "IsNull":
            return exp.Is(this=condition_tree(node.child(), below), expression=exp.Null())
        case "IsNotNull":
            return exp.Not(this=exp.Is(this=condition_tree(node.child(), below), expression=exp.Null()))
        case "In":
            listed = node.list()
            values = [condition_tree(listed.apply(place), below) for place in range(listed.size())]
            return exp.In(this=condition_tree(node.value(), below), expressions=values)
        case "Literal":
            return literal(node.value(), str(node.dataType().json()).strip('"'))
        case "AttributeReference":
            return column([str(node.name())])
    return call_tree(node)


def call_tree(node: JavaObject) -> exp.Expression:
    """The call of one of Iceberg's functions that an expression was made of."""
    said = node.getTagValue(call_tag(gateway()))
    source = held_column(node.child()) if said.isDefined() and simple_name(node) == HOLDER else None
    if source is None:
        return unknown()
    *widths, name = str(said.get()).split(" ")
    arguments = [*map(exp.Literal.number, widths), column([source])]
    return exp.Dot(this=exp.Identifier(this=NAMESPACE), expression=exp.Anonymous(this=name, expressions=arguments))


def held_column(call: JavaObject) -> str | None:
    """The one column that a call has, in its node; None where it has others, or something else is there."""
    names, left = set[str](), [call]
    for _ in range(limits.MAX_CALL_NODES):
        if not left:
            return names.pop() if len(names) == 1 else None
        node = left.pop()
        kind = simple_name(node)
        if kind == COLUMN:
            return None
        if kind == HOLDER:
            if simple_name(node.child()) != COLUMN:
                return None
            names.add(str(node.child().name()))
            continue
        children = node.children()
        left += [children.apply(place) for place in range(children.size())]
    return None
