"""PySpark Columns as SQL text that means the same in the same session. Driver.

Input: a Column of classic PySpark or of Spark Connect. Output: SQL text. Spark's own `Column.sql` is of no use here: it
leaves out quotes (`2020-01-01` is a subtraction) and writes operators as functions. So the Column's tree is read:
classic ones in the JVM (`org.apache.spark.sql.internal.ColumnNode`; before Spark 4.0 see `dml.spark.catalyst_columns`),
those of Connect in Python (`pyspark.sql.connect.expressions`), known by the names of their classes, so that nothing of
Connect has to be installed. A node that is not known here is refused, never guessed.
"""

from collections.abc import Mapping
from decimal import Decimal
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.functions import lit

from dml.spark.catalyst_columns import DEEPEST, CatalystReader, literal_constant, sequence
from dml.spark.column_text import checked_type, literal_text, tree_sql
from dml.spark.column_tree import (
    DATAFRAME_HINT,
    UDF_HINT,
    Aliased,
    Call,
    Case,
    Cast,
    Constant,
    Extract,
    Lambda,
    Name,
    NamedArgument,
    Node,
    Text,
    Variable,
    attribute,
    attribute_node,
    flattened,
    name_parts,
    refusal,
    too_deep,
    unknown,
)
from dml.spark.types import type_text
from dml.spark.versions import Feature, has

__all__ = ["column_sql", "output_columns", "parameter_sql", "read_connect"]

SPOKEN_INTERNALS: Final = frozenset(["timestampadd", "timestampdiff"])
NO_COLUMNS: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType({})


def column_sql(column: Column, bound: Mapping[int, tuple[str, ...]] = NO_COLUMNS) -> str:
    """A Column as SQL text that means exactly the same in the same session; an alias on top is left out.

    Args:
        column: A Column of classic PySpark or of Spark Connect.
        bound: What `output_columns` says of the DataFrames to which its columns may be bound.

    Returns:
        An expression that can stand anywhere in an expression.

    Raises:
        NotSupportedError: it holds what SQL text cannot say (a Python function, a window, a column bound to a
            DataFrame, a subquery made of a DataFrame) or what this version does not know.
    """
    try:
        if type(column).__module__.startswith("pyspark.sql.connect."):
            return tree_sql(read_connect(attribute(column, "expr")))
        handle = attribute(column, "jc")
        if has(Feature.CLASSIC_COLUMN_NODES):
            return tree_sql(ClassicReader(bound).read(handle.node()))
        return tree_sql(CatalystReader(bound).read(handle.expr()))
    except RecursionError:
        raise too_deep() from None


def output_columns(frame: DataFrame, default: str) -> tuple[str, Mapping[int, tuple[str, ...]]]:
    """What a DataFrame of classic PySpark is called in SQL text, and its columns, by Spark's ids of them.

    Args:
        frame: The DataFrame.
        default: What it is called where it has no alias, and is not one table or view.
    """
    output = list(sequence(attribute(frame, "jdf").queryExecution().analyzed().output()))
    qualifiers = {tuple(sequence(column.qualifier())) for column in output}
    qualifier = next(iter(qualifiers)) if len(qualifiers) == 1 else ()
    alias = str(qualifier[-1]) if qualifier else default
    return alias, {column.exprId().id(): (alias, str(column.name())) for column in output}


class ClassicReader:
    """Reads trees of Spark's JVM, node by node; each call costs 40 microseconds."""

    def __init__(self, bound: Mapping[int, tuple[str, ...]]) -> None:
        self.bound = bound
        self.depth = 0
        package = attribute(SparkSession.active().sparkContext, "jvm").org.apache.spark.sql.classic
        # Spark's own way from a literal to its value: the days of a java.sql.Date, the microseconds of a Timestamp.
        self.converter = getattr(getattr(package, "ColumnNodeToExpressionConverter$"), "MODULE$")

    def read(self, node: Any) -> Node:
        """The tree of a `ColumnNode`."""
        if self.depth >= DEEPEST:
            raise too_deep()
        self.depth += 1
        tree = self.read_level(node)
        self.depth -= 1
        return tree

    def read_level(self, node: Any) -> Node:
        """The tree of a `ColumnNode` that is not too deep inside others."""
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
                branches = tuple((self.read(pair._1()), self.read(pair._2())) for pair in sequence(node.branches()))  # noqa: SLF001 - Scala's names
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
        raise unknown(kind)

    def literal(self, node: Any) -> Constant:
        """A literal, with the type and the value that Spark gives it."""
        return literal_constant(self.converter.apply(node))

    def function(self, node: Any) -> Call:
        """A function or an operator."""
        name, by_user = node.functionName(), node.isUserDefinedFunction()
        if node.isInternal() and name not in SPOKEN_INTERNALS:
            raise refusal(f"The function '{name}', which SQL does not have,")
        operator = name if name in {"and", "or"} and not by_user else None
        arguments = flattened(node, operator, split_classic) if operator else sequence(node.arguments())
        return Call(
            name=name_parts(name) if by_user else (name,),
            arguments=tuple(self.read(argument) for argument in arguments),
            distinct=node.isDistinct(),
            by_user=by_user,
        )

    def cast(self, node: Any) -> Cast:
        """A cast by the session's rules, or one that gives NULL for what it cannot convert."""
        kind, mode = node.dataType(), node.evalMode()
        if '"udt"' in kind.json():
            raise refusal("A cast to a user-defined type")
        may_fail = not mode.isDefined()
        if not may_fail and mode.get().getClass().getSimpleName() != "Try$":
            raise refusal("A cast with rules of its own", "Use cast() or try_cast()")
        return Cast(child=self.read(node.child()), type_text=checked_type(kind.sql()), may_fail=may_fail)

    def bound_expression(self, node: Any) -> Name:
        """An expression that is resolved already: a column of a DataFrame that is known, or a refusal."""
        expression = self.converter.apply(node)
        kind = expression.getClass().getSimpleName()
        if "UDF" in kind or "UDAF" in kind:
            raise refusal(f"The user-defined function {expression.name()}", UDF_HINT)
        if kind == "AttributeReference" and expression.exprId().id() in self.bound:
            return attribute_node(self.bound[expression.exprId().id()], bound=False)
        if kind in {"AttributeReference", "Alias"}:
            raise refusal(f"The column '{expression.name()}', which belongs to a DataFrame,", DATAFRAME_HINT)
        raise refusal(f"The expression {expression.toString()}, which belongs to a DataFrame,", DATAFRAME_HINT)


def split_classic(node: Any) -> tuple[str, list[Any]] | None:
    """Name and arguments of a function."""
    if node.productPrefix() != "UnresolvedFunction" or node.isUserDefinedFunction():
        return None
    return node.functionName(), list(sequence(node.arguments()))


INTERNALS: Final = frozenset(
    [
        "aggregate_metrics",
        "array_binary_search",
        "array_to_vector",
        "bloom_filter_agg",
        "bucket",
        "collect_top_k",
        "days",
        "distributed_id",
        "distributed_sequence_id",
        "ewm",
        "hours",
        "months",
        "null_index",
        "product",
        "timestamp_ntz_to_long",
        "unwrap_udt",
        "vector_to_array",
        "years",
    ]
)
"""Functions that Spark's server knows for Connect, and SQL does not; those that begin with `pandas_` too."""


def read_connect(node: Any) -> Node:
    """The tree of an expression of Spark Connect."""
    kind = type(node).__name__
    match kind:
        case "ColumnReference":
            bound = attribute(node, "plan_id") is not None or attribute(node, "is_metadata_column")
            return attribute_node(name_parts(attribute(node, "unparsed_identifier")), bound=bound)
        case "LiteralExpression":
            return connect_literal(attribute(node, "value"), attribute(node, "dataType"))
        case "UnresolvedFunction":
            return connect_function(node)
        case "CallFunction":
            arguments = tuple(map(read_connect, attribute(node, "args")))
            return Call(name=name_parts(attribute(node, "name")), arguments=arguments, by_user=True)
        case "CaseWhen":
            branches = tuple((read_connect(when), read_connect(then)) for when, then in attribute(node, "branches"))
            last = attribute(node, "else_value")
            return Case(branches=branches, otherwise=None if last is None else read_connect(last))
        case "CastExpression":
            return connect_cast(node)
        case "ColumnAlias":
            metadata = attribute(node, "metadata")
            names = tuple(attribute(node, "alias"))
            return Aliased(child=read_connect(attribute(node, "child")), names=names, has_metadata=bool(metadata))
        case "SQLExpression":
            return Text(sql=attribute(node, "expr"))
        case "LambdaFunction":
            parameters = tuple(
                chain.from_iterable(attribute(each, "name_parts") for each in attribute(node, "arguments"))
            )
            return Lambda(parameters=parameters, body=read_connect(attribute(node, "function")))
        case "UnresolvedNamedLambdaVariable" if len(attribute(node, "name_parts")) == 1:
            return Variable(name=attribute(node, "name_parts")[0])
        case "UnresolvedExtractValue":
            child, key = attribute(node, "child"), attribute(node, "extraction")
            return Extract(child=read_connect(child), key=read_connect(key))
        case "NamedArgumentExpression":
            return NamedArgument(name=attribute(node, "key"), value=read_connect(attribute(node, "value")))
    raise unknown(kind)


def connect_literal(value: Any, kind: spark.DataType) -> Constant:
    """A literal; Connect keeps dates and times as Spark does."""
    if value is None:
        return Constant(text="NULL" if isinstance(kind, spark.NullType) else f"CAST(NULL AS {type_text(kind)})")
    if isinstance(kind, spark.ArrayType):
        elements = ", ".join(connect_literal(element, kind.elementType).text for element in value)
        return Constant(text=f"CAST(`array`({elements}) AS {type_text(kind)})")
    if isinstance(kind, spark.DecimalType):
        return Constant(text=literal_text(value, decimal_type(value, kind)))
    return Constant(text=literal_text(value, str(kind.jsonValue())))


def decimal_type(value: Decimal, kind: spark.DecimalType) -> str:
    """The type that the server gives a decimal: as wide as its digits and as its declared type."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # NaN and Infinity have a letter there, and PySpark refuses them
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    scale, precision = max(scale, kind.scale), max(precision, kind.precision)
    return f"decimal({max(precision, scale)},{scale})"


def connect_function(node: Any) -> Call:
    """A function or an operator."""
    name = attribute(node, "name")
    if name.lower() in INTERNALS or name.lower().startswith("pandas_"):
        raise refusal(f"The function '{name}', which SQL does not have,")
    arguments = flattened(node, name, split_connect) if name in {"and", "or"} else attribute(node, "args")
    return Call(name=(name,), arguments=tuple(map(read_connect, arguments)), distinct=attribute(node, "is_distinct"))


def split_connect(node: Any) -> tuple[str, list[Any]] | None:
    """Name and arguments of a function."""
    if type(node).__name__ != "UnresolvedFunction":
        return None
    return attribute(node, "name"), list(attribute(node, "args"))


def connect_cast(node: Any) -> Cast:
    """A cast by the session's rules, or one that gives NULL for what it cannot convert."""
    kind, mode = attribute(node, "data_type"), attribute(node, "eval_mode")
    if mode not in {None, "try"}:
        raise refusal("A cast with rules of its own", "Use cast() or try_cast()")
    text = kind if isinstance(kind, str) else type_text(kind)
    return Cast(child=read_connect(attribute(node, "expr")), type_text=checked_type(text), may_fail=mode is None)


def parameter_sql(value: Any) -> str:
    """The value of a parameter as SQL text."""
    return column_sql(value if isinstance(value, Column) else lit(value))
