"""Read the Columns of Spark Connect. Driver.

Input: an expression of PySpark's client (`pyspark.sql.connect.expressions`). Nodes are recognized by class name, so
that Connect need not be installed. Output: a tree of `dml.spark.column_text`, or for `partitionedBy` a partition field.
An unknown node is refused, never guessed.
"""

from collections.abc import Mapping
from decimal import Decimal
from itertools import chain
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import types as spark

from dml.connector.table_changes import NOWHERE
from dml.errors import AnalysisError, ErrorKind
from dml.spark.column_text import (
    Aliased,
    Call,
    Case,
    Cast,
    Extract,
    Lambda,
    LiteralText,
    Name,
    NamedArgument,
    Node,
    Text,
    Variable,
    attribute,
    attribute_node,
    check_type,
    flatten_chain,
    literal_text,
    name_parts,
    read_sql,
    refusal,
    unknown_node,
)
from dml.spark.types import type_text
from dml.sqlparse.statements import TransformTerm

__all__ = ["connect_sql", "make_partition_term", "partition_term"]

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
"""Functions that only Connect's server can call, and SQL cannot; names that begin with `pandas_` are internal too."""


def connect_sql(column: Column, bound: Mapping[int, tuple[str, ...]]) -> str:
    """Convert a Column of Connect to SQL text.

    Args:
        column: The Column.
        bound: The qualifiers of columns that are bound to a plan, by plan id.

    Raises:
        NotSupportedError: a part of it has no SQL text, or this version does not know it.
    """
    return read_sql(ConnectReader(bound).read, attribute(column, "expr"))


class ConnectReader:
    """Reads trees of Spark Connect's client, node by node.

    Args:
        bound: The qualifiers of columns that are bound to a plan, by plan id.
    """

    def __init__(self, bound: Mapping[int, tuple[str, ...]]) -> None:
        self.bound = bound

    def read(self, node: Any) -> Node:
        """Convert an expression to a tree."""
        kind = type(node).__name__
        match kind:
            case "ColumnReference":
                return self.column(node)
            case "LiteralExpression":
                return literal(attribute(node, "value"), attribute(node, "dataType"))
            case "UnresolvedFunction":
                return self.function(node)
            case "CallFunction":
                arguments = tuple(map(self.read, attribute(node, "args")))
                return Call(name=name_parts(attribute(node, "name")), arguments=arguments, by_user=True)
            case "CaseWhen":
                branches = tuple((self.read(when), self.read(then)) for when, then in attribute(node, "branches"))
                last = attribute(node, "else_value")
                return Case(branches=branches, otherwise=None if last is None else self.read(last))
            case "CastExpression":
                return self.cast(node)
            case "ColumnAlias":
                metadata = attribute(node, "metadata")
                names = tuple(attribute(node, "alias"))
                return Aliased(child=self.read(attribute(node, "child")), names=names, has_metadata=bool(metadata))
            case "SQLExpression":
                return Text(sql=attribute(node, "expr"))
            case "LambdaFunction":
                parameters = tuple(
                    chain.from_iterable(attribute(each, "name_parts") for each in attribute(node, "arguments"))
                )
                return Lambda(parameters=parameters, body=self.read(attribute(node, "function")))
            case "UnresolvedNamedLambdaVariable" if len(attribute(node, "name_parts")) == 1:
                return Variable(name=attribute(node, "name_parts")[0])
            case "UnresolvedExtractValue":
                child, key = attribute(node, "child"), attribute(node, "extraction")
                return Extract(child=self.read(child), key=self.read(key))
            case "NamedArgumentExpression":
                return NamedArgument(name=attribute(node, "key"), value=self.read(attribute(node, "value")))
        raise unknown_node(kind)

    def column(self, node: Any) -> Name:
        """Convert a column by name, or a column of a DataFrame in `bound`; raise for other bound columns."""
        plan, parts = attribute(node, "plan_id"), name_parts(attribute(node, "unparsed_identifier"))
        if plan in self.bound and not attribute(node, "is_metadata_column"):
            return attribute_node((*self.bound[plan], *parts), bound=False)
        return attribute_node(parts, bound=plan is not None or attribute(node, "is_metadata_column"))

    def function(self, node: Any) -> Call:
        """Convert a function or an operator."""
        name = attribute(node, "name")
        if name.lower() in INTERNALS or name.lower().startswith("pandas_"):
            raise refusal(f"The function '{name}', which SQL does not have,")
        arguments = flatten_chain(node, name, split_connect) if name in {"and", "or"} else attribute(node, "args")
        return Call(name=(name,), arguments=tuple(map(self.read, arguments)), distinct=attribute(node, "is_distinct"))

    def cast(self, node: Any) -> Cast:
        """Convert a cast by the session's rules, or a `try_cast`; raise for other modes."""
        kind, mode = attribute(node, "data_type"), attribute(node, "eval_mode")
        if mode not in {None, "try"}:
            raise refusal("A cast with rules of its own", "Use cast() or try_cast()")
        text = kind if isinstance(kind, str) else type_text(kind)
        child = self.read(attribute(node, "expr"))
        return Cast(child=child, type_text=check_type(text), may_fail=mode is None)


def literal(value: Any, kind: spark.DataType) -> LiteralText:
    """Convert a literal. Connect stores dates and times in Spark's internal form."""
    if value is None:
        return LiteralText(text="NULL" if isinstance(kind, spark.NullType) else f"CAST(NULL AS {type_text(kind)})")
    if isinstance(kind, spark.ArrayType):
        elements = ", ".join(literal(element, kind.elementType).text for element in value)
        return LiteralText(text=f"CAST(`array`({elements}) AS {type_text(kind)})")
    if isinstance(kind, spark.DecimalType):
        return LiteralText(text=literal_text(value, decimal_type(value, kind)))
    return LiteralText(text=literal_text(value, str(kind.jsonValue())))


def decimal_type(value: Decimal, kind: spark.DecimalType) -> str:
    """Return the type that the server gives a decimal: wide enough for its digits and its declared type."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # NaN and Infinity have a letter there, and PySpark refuses them
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    scale, precision = max(scale, kind.scale), max(precision, kind.precision)
    return f"decimal({max(precision, scale)},{scale})"


def split_connect(node: Any) -> tuple[str, list[Any]] | None:
    """Return the name and arguments of a function; None for other nodes."""
    if type(node).__name__ != "UnresolvedFunction":
        return None
    return attribute(node, "name"), list(attribute(node, "args"))


TRANSFORMS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


def partition_term(column: Column) -> TransformTerm:
    """Convert a Column of `partitionedBy` to a partition field.

    Raises:
        AnalysisError: it is not a column or a supported transform of one.
    """
    node = attribute(column, "expr")
    match type(node).__name__:
        case "ColumnReference":
            return make_partition_term("identity", name_parts(attribute(node, "unparsed_identifier")))
        case "UnresolvedFunction":
            *numbers, source = attribute(node, "args")
            name = attribute(node, "name").lower()
            if type(source).__name__ == "ColumnReference":
                path = name_parts(attribute(source, "unparsed_identifier"))
                if name in TRANSFORMS and not numbers:
                    return make_partition_term(TRANSFORMS[name], path)
                if name == "bucket" and len(numbers) == 1 and type(numbers[0]).__name__ == "LiteralExpression":
                    return make_partition_term(name, path, int(attribute(numbers[0], "value")))
    raise AnalysisError(
        f"A table cannot be partitioned by {node}",
        kind=ErrorKind.INVALID_VALUE,
        hint="Give columns, or partitioning.years, months, days, hours or bucket of one; SQL has truncate as well",
    )


def make_partition_term(transform: str, column: tuple[str, ...], argument: int | None = None) -> TransformTerm:
    """Build a partition field without a position in SQL text."""
    return TransformTerm(transform=transform, column=column, argument=argument, span=NOWHERE)
