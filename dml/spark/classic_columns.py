"""Read the Columns of classic PySpark. Driver, classic Spark.

Input: a Column, whose tree is in the JVM (`org.apache.spark.sql.internal.ColumnNode`; before Spark 4.0 see
`dml.spark.catalyst_columns`). Output: a tree of `dml.spark.column_text`, as SQL text. An unknown node is refused, never
guessed.
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from dml import limits
from dml.spark.bridge.internals import internals
from dml.spark.bridge.names import COLUMN, NODE_CONVERTER
from dml.spark.bridge.sessions import analyzed_plan
from dml.spark.catalyst_columns import CatalystReader, literal_constant, sequence
from dml.spark.column_text import (
    DATAFRAME_HINT,
    UDF_HINT,
    Aliased,
    Call,
    Case,
    Cast,
    Extract,
    Lambda,
    LiteralText,
    Name,
    Node,
    Text,
    Variable,
    attribute_node,
    check_type,
    flatten_chain,
    name_parts,
    read_sql,
    refusal,
    too_deep_error,
    unknown_node,
)
from dml.spark.versions import INSTALLED_FEATURES, Feature

__all__ = ["classic_sql", "output_names"]

SPOKEN_INTERNALS: Final = frozenset(["timestampadd", "timestampdiff"])


def classic_sql(column: Column, bound: Mapping[int, tuple[str, ...]]) -> str:
    """Convert a classic Column to SQL text.

    Args:
        column: The Column.
        bound: The columns of the DataFrames to which it may be bound, by expression id.

    Raises:
        NotSupportedError: a part of it has no SQL text, or this version does not know it.
    """
    handle = COLUMN.of(column)
    if Feature.CLASSIC_COLUMN_NODES in INSTALLED_FEATURES:
        return read_sql(ClassicReader(bound).read, handle.node())
    return read_sql(CatalystReader(bound).read, handle.expr())


def output_names(frame: DataFrame, default: str) -> tuple[str, Mapping[int, tuple[str, ...]]]:
    """Return the name of a classic DataFrame in SQL text, and its qualified columns by expression id.

    Args:
        frame: The DataFrame.
        default: The name if it has no alias and is not a single table or view.
    """
    output = list(sequence(analyzed_plan(frame).output()))
    qualifiers = {tuple(sequence(column.qualifier())) for column in output}
    qualifier = next(iter(qualifiers)) if len(qualifiers) == 1 else ()
    alias = str(qualifier[-1]) if qualifier else default
    return alias, {column.exprId().id(): (alias, str(column.name())) for column in output}


class ClassicReader:
    """Reads trees from the JVM, node by node; each call costs 40 microseconds."""

    def __init__(self, bound: Mapping[int, tuple[str, ...]]) -> None:
        self.bound = bound
        self.depth = 0
        # Spark's own conversion of literals: a java.sql.Date to days, a Timestamp to microseconds.
        self.converter = NODE_CONVERTER.companion()

    def expression(self, node: Any) -> Any:
        """Convert a `ColumnNode` to an expression."""
        with internals(NODE_CONVERTER.name):
            return self.converter.apply(node)

    def read(self, node: Any) -> Node:
        """Convert a `ColumnNode` to a tree; raise if it is nested too deeply."""
        if self.depth >= limits.MAX_COLUMN_DEPTH:
            raise too_deep_error()
        self.depth += 1
        tree = self.read_level(node)
        self.depth -= 1
        return tree

    def read_level(self, node: Any) -> Node:
        kind = node.productPrefix()
        match kind:
            case "UnresolvedAttribute":
                bound = node.planId().isDefined() or node.isMetadataColumn()
                return attribute_node(sequence(node.nameParts()), bound=bound)
            case "Literal":
                return self.literal(node)
            case "UnresolvedFunction":
                return self.function(node)
            case "CaseWhenOtherwise":
                branches = tuple(
                    (self.read(pair.productElement(0)), self.read(pair.productElement(1)))
                    for pair in sequence(node.branches())
                )
                last = node.otherwise()
                return Case(branches=branches, otherwise=self.read(last.get()) if last.isDefined() else None)
            case "Cast":
                return self.cast(node)
            case "Alias":
                names = tuple(sequence(node.name()))
                return Aliased(child=self.read(node.child()), names=names, has_metadata=node.metadata().isDefined())
            case "SqlExpression":
                return Text(sql=node.expression())
            case "LambdaFunction":
                parameters = tuple(variable.name() for variable in sequence(node.arguments()))
                return Lambda(parameters=parameters, body=self.read(node.function()))
            case "UnresolvedNamedLambdaVariable":
                return Variable(name=node.name())
            case "UnresolvedExtractValue":
                return Extract(child=self.read(node.child()), key=self.read(node.extraction()))
            case "ExpressionColumnNode":
                return self.bound_expression(node)
        raise unknown_node(kind)

    def literal(self, node: Any) -> LiteralText:
        return literal_constant(self.expression(node))

    def function(self, node: Any) -> Call:
        name, by_user = node.functionName(), node.isUserDefinedFunction()
        if node.isInternal() and name not in SPOKEN_INTERNALS:
            raise refusal(f"The function '{name}', which SQL does not have,")
        operator = name if name in {"and", "or"} and not by_user else None
        arguments = flatten_chain(node, operator, split_classic) if operator else sequence(node.arguments())
        return Call(
            name=name_parts(name) if by_user else (name,),
            arguments=tuple(self.read(argument) for argument in arguments),
            distinct=node.isDistinct(),
            by_user=by_user,
        )

    def cast(self, node: Any) -> Cast:
        """Convert a cast by the session's rules, or a `try_cast`; raise for other modes."""
        kind, mode = node.dataType(), node.evalMode()
        if '"udt"' in kind.json():
            raise refusal("A cast to a user-defined type")
        may_fail = not mode.isDefined()
        if not may_fail and mode.get().getClass().getSimpleName() != "Try$":
            raise refusal("A cast with rules of its own", "Use cast() or try_cast()")
        return Cast(child=self.read(node.child()), type_text=check_type(kind.sql()), may_fail=may_fail)

    def bound_expression(self, node: Any) -> Name:
        """Convert a resolved expression: a column of a DataFrame in `bound`; raise for any other."""
        expression = self.expression(node)
        kind = expression.getClass().getSimpleName()
        if "UDF" in kind or "UDAF" in kind:
            raise refusal(f"The user-defined function {expression.name()}", UDF_HINT)
        if kind == "AttributeReference" and expression.exprId().id() in self.bound:
            return attribute_node(self.bound[expression.exprId().id()], bound=False)
        if kind in {"AttributeReference", "Alias"}:
            raise refusal(f"The column '{expression.name()}', which belongs to a DataFrame,", DATAFRAME_HINT)
        raise refusal(f"The expression {expression.toString()}, which belongs to a DataFrame,", DATAFRAME_HINT)


def split_classic(node: Any) -> tuple[str, list[Any]] | None:
    """Return the name and arguments of a built-in function, or None."""
    if node.productPrefix() != "UnresolvedFunction" or node.isUserDefinedFunction():
        return None
    return node.functionName(), list(sequence(node.arguments()))
