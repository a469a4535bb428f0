"""Read the Columns of classic PySpark before Spark 4.0, which hold Catalyst expressions, not Column nodes. Driver.

Input: a JVM expression. Output: a tree of `dml.spark.column_text`, as `dml.spark.classic_columns` returns it for newer
versions. Spark has resolved most function names to expressions already. A name is right if Spark resolves it, with the
same arguments, to an equal expression. The reader tries that for each expression, and refuses those that differ.

Source: `Column` and `FunctionRegistry` of Spark 3.5.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml import limits
from dml.spark.bridge.names import FUNCTION_IDENTIFIER, FUNCTION_REGISTRY, INHERITING
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
    Variable,
    attribute_node,
    check_type,
    flatten_chain,
    literal_text,
    refusal,
    string_text,
    too_deep_error,
    unknown_node,
)

__all__ = ["CatalystReader", "literal_constant", "sequence"]


# Expressions that are fully described by their operands.
PLAIN: Final = {
    "And": "and",
    "Contains": "contains",
    "EndsWith": "endswith",
    "EqualNullSafe": "<=>",
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "IsNotNull": "isnotnull",
    "IsNull": "isnull",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "Not": "not",
    "Or": "or",
    "StartsWith": "startswith",
}
# Expressions whose SQL operator is not their `prettyName`.
OPERATORS: Final = {
    "Add": "+",
    "BitwiseAnd": "&",
    "BitwiseNot": "~",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
    "Divide": "/",
    "Multiply": "*",
    "Remainder": "%",
    "Subtract": "-",
    "UnaryMinus": "negative",
}
NULL_IN_NOTHING: Final = "spark.sql.legacy.nullInEmptyListBehavior"
UDFS: Final = frozenset(["PythonUDF", "PythonUDAF", "ScalaUDF", "ScalaAggregator", "ScalaUDAF"])


class CatalystReader:
    """Reads JVM expressions; each call costs 40 microseconds.

    Args:
        bound: The qualified columns of known DataFrames, by expression id.
    """

    def __init__(self, bound: Mapping[int, tuple[str, ...]]) -> None:
        self.bound = bound
        self.depth = 0
        session = SparkSession.active()
        self.registry = FUNCTION_REGISTRY.call("builtin")
        is_ansi = session.conf.get("spark.sql.ansi.enabled") == "true"
        self.cast_mode = "ANSI" if is_ansi else "LEGACY"
        self.null_in_nothing = session.conf.get(NULL_IN_NOTHING, str(not is_ansi).lower()) == "true"

    def read(self, node: Any) -> Node:
        """Convert an expression to a tree; raise if it is nested too deeply."""
        if self.depth >= limits.MAX_COLUMN_DEPTH:
            raise too_deep_error()
        self.depth += 1
        tree = self.read_level(node)
        self.depth -= 1
        return tree

    def read_level(self, node: Any) -> Node:
        """Convert an expression whose depth has been checked."""
        kind = node.getClass().getSimpleName()
        match kind:
            case "UnresolvedAttribute":
                return attribute_node(sequence(node.nameParts()), bound=False)
            case "AttributeReference":
                return self.column(node)
            case "Literal":
                return literal_constant(node)
            case "UnresolvedFunction":
                return self.function(node)
            case "AggregateExpression":
                return self.aggregate(node)
            case "CaseWhen":
                branches = tuple(
                    (self.read(pair.productElement(0)), self.read(pair.productElement(1)))
                    for pair in sequence(node.branches())
                )
                last = node.elseValue()
                return Case(branches=branches, otherwise=self.read(last.get()) if last.isDefined() else None)
            case "Cast":
                return self.cast(node)
            case "Alias":
                has_metadata = node.explicitMetadata().isDefined()
                return Aliased(child=self.read(node.child()), names=(node.name(),), has_metadata=has_metadata)
            case "LambdaFunction":
                parameters = tuple(variable.name() for variable in sequence(node.arguments()))
                return Lambda(parameters=parameters, body=self.read(node.function()))
            case "UnresolvedNamedLambdaVariable":
                return Variable(name=node.name())
            case "UnresolvedExtractValue":
                return Extract(child=self.read(node.child()), key=self.read(node.extraction()))
            case "In" if node.list().isEmpty():
                return self.in_nothing(node)
            case "CreateNamedStruct":
                return self.struct(node)
        return self.resolved_call(node, kind)

    def column(self, node: Any) -> Name:
        """Convert a column of a DataFrame in `bound`; raise for others."""
        if node.exprId().id() in self.bound:
            return attribute_node(self.bound[node.exprId().id()], bound=False)
        raise refusal(f"The column '{node.name()}', which belongs to a DataFrame,", DATAFRAME_HINT)

    def resolved_call(self, node: Any, kind: str) -> Call:
        """Convert an expression that Spark resolved from a function name or an operator."""
        if kind in PLAIN:
            name = PLAIN[kind]
            operands = flatten_chain(node, name, split) if name in {"and", "or"} else sequence(node.children())
            return Call(name=(name,), arguments=tuple(map(self.read, operands)))
        if kind in {"TimestampAdd", "TimestampDiff"}:
            arguments = (LiteralText(text=string_text(node.unit())), *map(self.read, sequence(node.children())))
            return Call(name=(kind.lower(),), arguments=arguments)
        if kind in UDFS:
            raise refusal(f"The user-defined function {node.name()}", UDF_HINT)
        name = OPERATORS.get(kind, node.prettyName())
        for arguments in self.argument_lists(node):
            if self.resolves_to(name, arguments, node):
                return Call(name=(name,), arguments=tuple(map(self.read, sequence(arguments))))
        raise unknown_node(kind)

    @staticmethod
    def argument_lists(node: Any) -> Iterator[Any]:
        """Yield the possible arguments: the children, or the parameters that a replaced expression keeps."""
        yield node.children()
        if INHERITING.name in {interface.getName() for interface in node.getClass().getInterfaces()}:
            yield node.parameters()

    def resolves_to(self, name: str, arguments: Any, node: Any) -> bool:
        """Return True if Spark resolves a name and arguments to this expression."""
        try:
            return bool(self.registry.lookupFunction(FUNCTION_IDENTIFIER.new(name), arguments).equals(node))
        except PySparkException:  # no such function, or not with these arguments
            return False

    def in_nothing(self, node: Any) -> Node:
        """Convert `a.isin()`, which SQL cannot express: FALSE, or by a setting NULL where `a` is NULL."""
        if not self.null_in_nothing:
            return LiteralText(text="FALSE")
        is_null = Call(name=("isnull",), arguments=(self.read(node.value()),))
        return Call(name=("and",), arguments=(is_null, LiteralText(text="CAST(NULL AS BOOLEAN)")))

    def function(self, node: Any) -> Call:
        """Convert a function that Spark has not resolved yet."""
        if node.filter().isDefined() or node.ignoreNulls():
            raise refusal(f"The aggregate {node.toString()}")
        return Call(
            name=tuple(sequence(node.nameParts())),
            arguments=tuple(map(self.read, sequence(node.arguments()))),
            distinct=node.isDistinct(),
            by_user=True,
        )

    def aggregate(self, node: Any) -> Call:
        """Convert an aggregate function."""
        function = node.aggregateFunction()
        if node.filter().isDefined():
            raise refusal(f"The aggregate {node.toString()}")
        call = self.resolved_call(function, function.getClass().getSimpleName())
        return Call(name=call.name, arguments=call.arguments, distinct=node.isDistinct())

    def struct(self, node: Any) -> Call:
        """Convert `named_struct('a', 1, 'b', 2)` or F.struct; drop aliases, whose names are arguments already."""
        arguments = [self.read(child) for child in sequence(node.children())]
        for argument in arguments:
            if isinstance(argument, Aliased) and argument.has_metadata:
                raise refusal(f"The metadata of the struct field '{argument.names[0]}'", "Leave the metadata out")
        return Call(
            name=("named_struct",),
            arguments=tuple(each.child if isinstance(each, Aliased) else each for each in arguments),
        )

    def cast(self, node: Any) -> Cast:
        """Convert a cast by the session's rules, or a `try_cast`; raise for other modes."""
        kind, mode = node.dataType(), node.evalMode().toString()
        if '"udt"' in kind.json():
            raise refusal("A cast to a user-defined type")
        if mode not in {self.cast_mode, "TRY"}:
            raise refusal("A cast with rules of its own", "Use cast()")
        return Cast(child=self.read(node.child()), type_text=check_type(kind.sql()), may_fail=mode != "TRY")


def split(node: Any) -> tuple[str, list[Any]] | None:
    """Return the name and operands of AND or OR; None for other expressions."""
    kind = node.getClass().getSimpleName()
    return (PLAIN[kind], list(sequence(node.children()))) if kind in {"And", "Or"} else None


def literal_constant(literal: Any) -> LiteralText:
    """Convert a JVM literal, with its Spark type.

    Raises:
        NotSupportedError: SQL has no literal of that type, or not of that value.
    """
    kind, value = literal.dataType().json().strip('"'), literal.value()
    if value is None and kind != "void":
        return LiteralText(text=f"CAST(NULL AS {literal.dataType().sql()})")
    if kind == "string":
        value = value.toString()
    elif kind.startswith("decimal("):
        value = Decimal(value.toString())
    return LiteralText(text=literal_text(value, kind))


def sequence(values: Any) -> Iterator[Any]:
    """Yield the elements of a Scala collection."""
    iterator = values.iterator()
    while iterator.hasNext():
        yield iterator.next()
