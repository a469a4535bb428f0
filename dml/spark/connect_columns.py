"""Columns of Spark Connect as trees. Driver.

Input: expressions of `pyspark.sql.connect.expressions`, known by the names of their classes, so that nothing of Connect
has to be installed. Output: nodes.
"""

from decimal import Decimal
from itertools import chain
from typing import Any, Final

from pyspark.sql import types as spark

from dml.spark.column_literals import literal_text
from dml.spark.column_text import checked_type
from dml.spark.column_tree import (
    Aliased,
    Call,
    Case,
    Cast,
    Constant,
    Extract,
    Lambda,
    NamedArgument,
    Node,
    Text,
    Variable,
    attribute,
    attribute_node,
    flattened,
    name_parts,
    refusal,
    unknown,
)
from dml.spark.types import type_text

__all__ = ["read_connect"]

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
