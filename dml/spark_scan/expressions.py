"""Translate Catalyst conditions that call Iceberg's functions. Driver, classic Spark only.

Input: Catalyst expressions over the columns of one table. Output: trees like those that `dml.spark_scan.conditions`
builds from Spark's predicates, in which the call of a function is `system.bucket(16, id)` again.

By the time of pushdown, a call is an ordinary Spark expression (`dml.connector.catalog`), and predicates do not
reveal its origin. So calls are marked when they are built: the call and its column are each wrapped in a node that
returns its child's value and that no rule removes. A tag, which Spark's rules preserve, names the function. If a rule
replaces the column, for example by the expression of a projection, the replacement ends up in the column's wrapper, and
the call is no longer recognized.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

from sqlglot import exp

from dml import limits
from dml.spark.bridge.gateway import JavaObject, gateway
from dml.spark.bridge.internals import UnknownInternalsError, warn_degraded
from dml.spark.bridge.names import KNOWN_NULLABLE, STRATEGY, TREE_NODE_TAG
from dml.spark.bridge.values import elements, simple_name
from dml.spark.iceberg_functions import NAMESPACE
from dml.spark_scan.conditions import UNKNOWN, column, literal, tree, unknown

__all__ = ["condition_trees", "has_marked_calls", "mark_call", "wrap_column"]

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
WRAPPER: Final = "KnownNullable"
"""The wrapper of a call and of its column. It returns its child's value, and an outer join cannot invalidate it."""


MARKS: Final = "the marks of calls in expressions"

MARKED: Final[set[object]] = set()
"""Gateways in whose JVM a call was marked. Without one, the search for marks is skipped."""


@cache
def call_tag(_: object) -> JavaObject:
    """Return the tag of calls. Its value is the function after its width, if any: `16 bucket`, `days`."""
    return TREE_NODE_TAG.new("rowdelta.transform")


def wrap_column(source: JavaObject) -> JavaObject:
    """Wrap the argument of a function if it is a column; return any other argument unchanged."""
    if simple_name(source) != COLUMN:
        return source
    try:
        return KNOWN_NULLABLE.new(source)
    except UnknownInternalsError as error:
        warn_degraded(MARKS, error, KNOWN_NULLABLE.fallback)
        return source


def mark_call(name: str, arguments: Sequence[JavaObject], call: JavaObject) -> JavaObject:
    """Mark a call of one of Iceberg's functions if its argument is a column.

    Args:
        name: The function.
        arguments: The wrapped column, after a width if the function has one.
        call: The expression of the call.
    """
    *widths, source = arguments
    if simple_name(source) != WRAPPER or not all(map(is_width, widths)):
        return call
    # Without a wrapper, rules would move the other side of a comparison into the branches of the expression.
    try:
        wrapped = KNOWN_NULLABLE.new(call)
        wrapped.setTagValue(call_tag(gateway()), " ".join([*(str(width.eval(None)) for width in widths), name]))
    except UnknownInternalsError as error:
        warn_degraded(MARKS, error, TREE_NODE_TAG.fallback)
        return call
    MARKED.add(gateway())
    return wrapped


def is_width(argument: JavaObject) -> bool:
    """Return whether an argument is a constant integer."""
    return bool(argument.foldable()) and str(argument.dataType().sql()) == "INT" and argument.eval(None) is not None


def has_marked_calls() -> bool:
    """Return whether a condition can have a marked call."""
    return gateway() in MARKED


def condition_trees(filters: JavaObject) -> list[exp.Expression]:
    """Convert conditions that must all be true to sqlglot trees; unsupported parts become placeholders.

    Args:
        filters: A `Seq[Expression]` over the columns of a table, by their names.
    """
    found: list[exp.Expression] = []
    for place in range(min(int(filters.size()), limits.MAX_CONDITION_DEPTH)):
        condition = filters.apply(place)
        translated = translate(condition)
        found.append(translated)
        if any(node.name == UNKNOWN for node in translated.find_all(exp.Anonymous)):
            found.append(condition_tree(condition))
    return found


def translate(condition: JavaObject) -> exp.Expression:
    """Convert a condition by Spark's own translation to predicates; a placeholder if there is none."""
    try:
        predicate = STRATEGY.call_object("translateFilterV2", condition)
    except UnknownInternalsError as error:
        warn_degraded(STRATEGY.name, error, STRATEGY.fallback)
        return unknown()
    return tree(predicate.get()) if predicate.isDefined() else unknown()


def condition_tree(node: JavaObject, depth: int = 0) -> exp.Expression:
    """Convert a condition of comparisons with calls, columns and constants."""
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
            values = [condition_tree(value, below) for value in elements(node.list())]
            return exp.In(this=condition_tree(node.value(), below), expressions=values)
        case "Literal":
            return literal(node.value(), str(node.dataType().json()).strip('"'))
        case "AttributeReference":
            return column([str(node.name())])
    return call_tree(node)


def call_tree(node: JavaObject) -> exp.Expression:
    """Convert a marked expression back to the call of one of Iceberg's functions."""
    tag = node.getTagValue(call_tag(gateway()))
    source = wrapped_column(node.child()) if tag.isDefined() and simple_name(node) == WRAPPER else None
    if source is None:
        return unknown()
    *widths, name = str(tag.get()).split(" ")
    arguments = [*map(exp.Literal.number, widths), column([source])]
    return exp.Dot(this=exp.Identifier(this=NAMESPACE), expression=exp.Anonymous(this=name, expressions=arguments))


def wrapped_column(call: JavaObject) -> str | None:
    """Return the only column of a call; None if it has several, or a rule has replaced it."""
    names, left = set[str](), [call]
    for _ in range(limits.MAX_CALL_NODES):
        if not left:
            return names.pop() if len(names) == 1 else None
        node = left.pop()
        kind = simple_name(node)
        if kind == COLUMN:
            return None
        if kind == WRAPPER:
            if simple_name(node.child()) != COLUMN:
                return None
            names.add(str(node.child().name()))
            continue
        left += elements(node.children())
    return None
