"""The tree of a Column, for every kind of PySpark, and its SQL text; values as SQL literals. Driver.

Input: nodes from the readers of classic and Connect Columns (`dml.spark.classic_columns`, `dml.spark_connect.columns`).
Output: SQL text in which every operator is in parentheses, names are back-quoted, and functions are called by their
quoted names, which bypasses the special forms of Spark's grammar; the errors that all readers share:

    ((`a` = 1) AND `startswith`(`b`, 'x'))

Spark reads a literal back as the same value of the same type, whatever the session's settings.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, assert_never

from pyspark.sql import SparkSession

from dml.errors import NotSupportedError
from dml.model.transforms import date_text, timestamp_text
from dml.sqlparse.quoting import quote_string, quoted
from dml.sqlparse.tokens import TokenKind, read_source

__all__ = [
    "DATAFRAME_HINT",
    "UDF_HINT",
    "Aliased",
    "Call",
    "Case",
    "Cast",
    "Extract",
    "Lambda",
    "LiteralText",
    "Name",
    "NamedArgument",
    "Node",
    "Text",
    "Variable",
    "attribute",
    "attribute_node",
    "check_type",
    "flatten_chain",
    "literal_text",
    "name_parts",
    "read_sql",
    "refusal",
    "string_text",
    "too_deep_error",
    "tree_sql",
    "unknown_node",
]

UDF_HINT: Final = "Register it with spark.udf.register(name, function) and call it by that name in SQL text"
DATAFRAME_HINT: Final = "Name the column instead: F.col('name'), or F.col('alias.name') with the alias of its table"
SUBQUERY_HINT: Final = "Give the whole condition or value as SQL text"
REFUSED: Final = {
    "InvokeInlineUserDefinedFunction": ("A user-defined function", UDF_HINT),
    "CommonInlineUserDefinedFunction": ("A user-defined function", UDF_HINT),
    "Window": ("A window (over)", "Compute it in a DataFrame first and use that as the source"),
    "WindowExpression": ("A window (over)", "Compute it in a DataFrame first and use that as the source"),
    "UpdateFields": ("withField or dropFields", "Assign to the field itself, or build the struct with F.struct"),
    "WithField": ("withField", "Assign to the field itself, or build the struct with F.struct"),
    "DropField": ("dropFields", "Build the struct with F.struct"),
    "Exists": ("A subquery in F.expr", SUBQUERY_HINT),
    "InSubquery": ("A subquery in F.expr", SUBQUERY_HINT),
    "ListQuery": ("A subquery in F.expr", SUBQUERY_HINT),
    "ScalarSubquery": ("A subquery in F.expr", SUBQUERY_HINT),
    "SubqueryExpression": ("A DataFrame as a subquery", "Create a view of it, and name the view in SQL text"),
    "LazyExpression": ("outer()", "Write the subquery as SQL text"),
    "SortOrder": ("A sort order", "Leave asc() or desc() out"),
    "UnresolvedStar": ("A star", "Name the columns"),
    "UnresolvedRegex": ("A regular expression for columns", "Name the columns"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A column, optionally with qualifiers before it and fields after it."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralText:
    """A literal, as SQL text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function or an operator.

    Attributes:
        name: The function's name, with its catalog and schema if it has them.
        arguments: Its arguments; `and` and `or` may have more than two.
        distinct: Whether an aggregate uses each value once.
        by_user: Whether the user wrote the name. Then it is not one of PySpark's operators.
    """

    name: tuple[str, ...]
    arguments: tuple["Node", ...]
    distinct: bool = False
    by_user: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`CASE WHEN ... THEN ... ELSE ... END`."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """`CAST(child AS type)`, or `TRY_CAST`."""

    child: "Node"
    type_text: str
    may_fail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliased:
    """An expression with an alias, which only an enclosing struct uses."""

    child: "Node"
    names: tuple[str, ...]
    has_metadata: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """SQL text written by the user."""

    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lambda:
    """`(x, y) -> body`."""

    parameters: tuple[str, ...]
    body: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A parameter of an enclosing lambda."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """A field of a struct, an element of an array, a value of a map."""

    child: "Node"
    key: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedArgument:
    """`name => value`."""

    name: str
    value: "Node"


Node = Name | LiteralText | Call | Case | Cast | Aliased | Text | Lambda | Variable | Extract | NamedArgument


def refusal(what: str, hint: str = "Give the expression as SQL text") -> NotSupportedError:
    """Return the error for a part of a Column that has no SQL text."""
    return NotSupportedError(f"{what} cannot be part of a Column that becomes SQL text", hint=hint)


def attribute(node: Any, name: str) -> Any:
    """Read a private attribute of a PySpark object: Columns have no public access to their trees."""
    return getattr(node, f"_{name}")


def too_deep_error() -> NotSupportedError:
    """Return the error for a tree that exceeds the recursion limit."""
    return NotSupportedError(
        "The Column is nested too deeply to become SQL text",
        hint="Use isin() for a list of values, or give the expression as SQL text",
    )


def unknown_node(kind: str) -> NotSupportedError:
    """Return the error for a kind of node that is not translated."""
    what, hint = REFUSED.get(kind, (f"The Column node {kind}", "Give the expression as SQL text"))
    return refusal(what, hint)


def name_parts(text: str) -> tuple[str, ...]:
    """Split `a.b` or `` `a.b`.c `` into its parts.

    Raises:
        NotSupportedError: the text is not a name.
    """
    parts: list[str] = []
    rest = text
    while True:
        if rest.startswith("`"):
            end = 1
            while (end := rest.find("`", end)) >= 0 and rest.startswith("``", end):
                end += 2
            part, rest = rest[1:end].replace("``", "`"), rest[end + 1 :] if end > 0 else "?"
        else:
            end = rest.find(".") if "." in rest else len(rest)
            part, rest = rest[:end], rest[end:]
            if "`" in part:
                part = ""
        parts.append(part)
        if not part or (rest and (not rest.startswith(".") or rest == ".")):
            raise refusal(f"The name {text!r}, which is not a column name,", "Put special characters in backquotes")
        if not rest:
            return tuple(parts)
        rest = rest[1:]


def attribute_node(parts: Iterable[str], *, bound: bool) -> Name:
    """Return a column by name; raise if it is bound to a DataFrame, because SQL text cannot express that."""
    name = Name(parts=tuple(parts))
    if bound:
        raise refusal(f"The column '{'.'.join(name.parts)}', which belongs to a DataFrame,", DATAFRAME_HINT)
    return name


def flatten_chain(
    node: Any, operator: str | None, operands: Callable[[Any], tuple[str, list[Any]] | None]
) -> list[Any]:
    """Return the operands of a chain of ANDs or ORs, left to right, without recursion: chains can be long."""
    found: list[Any] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        split = operands(current)
        if split is not None and split[0] == operator and len(split[1]) == 2:
            waiting.extend(reversed(split[1]))
        else:
            found.append(current)
    return found


INFIX: Final = {
    **{symbol: symbol for symbol in ["=", "<=>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&", "|", "^"]},
    "==": "=",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
}
PREFIX: Final = {"!": "NOT", "not": "NOT", "~": "~", "negative": "-"}
POSTFIX: Final = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
JOINED: Final = {"and": " AND ", "or": " OR "}
UNIT_FUNCTIONS: Final = frozenset(["timestampadd", "timestampdiff"])
UNITS: Final = frozenset(
    ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"]
)
QUERY_WORDS: Final = frozenset(["SELECT", "FROM", "VALUES", "TABLE", "WITH", "MAP", "REDUCE"])
Scope = frozenset[str]


def read_sql(read: Callable[[Any], Node], root: Any) -> str:
    """Read the tree of a Column and convert it to SQL text.

    Args:
        read: Reads the tree below a node.
        root: The node at the root.

    Raises:
        NotSupportedError: a part of it has no SQL text, or it is nested too deeply.
    """
    try:
        return tree_sql(read(root))
    except RecursionError:
        raise too_deep_error() from None


def tree_sql(node: Node, scope: Scope = frozenset()) -> str:
    """Convert a tree to SQL text that is valid anywhere in an expression.

    Args:
        node: The tree.
        scope: Lower-case names of the lambda parameters in scope.

    Raises:
        NotSupportedError: a part of it has no SQL text.
    """
    match node:
        case Name():
            return name_sql(node, scope)
        case LiteralText():
            return node.text
        case Call():
            return call_sql(node, scope)
        case Case():
            branches = (f"WHEN {tree_sql(when, scope)} THEN {tree_sql(then, scope)}" for when, then in node.branches)
            last = "" if node.otherwise is None else f" ELSE {tree_sql(node.otherwise, scope)}"
            return f"CASE {' '.join(branches)}{last} END"
        case Cast():
            return f"{'CAST' if node.may_fail else 'TRY_CAST'}({tree_sql(node.child, scope)} AS {node.type_text})"
        case Aliased():
            if len(node.names) != 1:
                raise refusal(f"The alias of several names {node.names}")
            return tree_sql(node.child, scope)
        case Text():
            return text_sql(node, scope)
        case Lambda():
            inner = scope | {parameter.lower() for parameter in node.parameters}
            names = ", ".join(map(identifier, node.parameters))
            # Spark's grammar has no parentheses around a single parameter.
            return f"{names if len(node.parameters) == 1 else f'({names})'} -> {tree_sql(node.body, inner)}"
        case Variable():
            if node.name.lower() not in scope:
                raise refusal(f"The lambda parameter '{node.name}' outside its lambda")
            return identifier(node.name)
        case Extract():
            return extract_sql(node, scope)
        case NamedArgument():
            return f"{identifier(node.name)} => {tree_sql(node.value, scope)}"
    assert_never(node)


def identifier(name: str) -> str:
    if "${" in name:  # Spark substitutes variables before it parses the statement, quoted or not
        raise refusal(f"The name '{name}', which holds '${{',", "Rename it")
    return quoted(name)


def name_sql(node: Name, scope: Scope) -> str:
    """Return a column's name; raise if a lambda parameter in scope would capture it."""
    if node.parts[0].lower() in scope:
        raise refusal(f"The column '{node.parts[0]}', which has the name of an enclosing lambda's parameter,")
    return ".".join(map(identifier, node.parts))


def extract_sql(node: Extract, scope: Scope) -> str:
    """`child[key]`."""
    child = tree_sql(node.child, scope)
    simple = isinstance(node.child, Name | Variable | Extract)
    return f"{child if simple else f'({child})'}[{tree_sql(node.key, scope)}]"


def call_sql(call: Call, scope: Scope) -> str:
    """Return SQL for a function call, or for the operator that the function implements."""
    name = call.name[0].lower()
    if call.by_user or len(call.name) > 1 or call.distinct:
        return plain_call(call, scope)
    if name == "struct" and any(isinstance(argument, Aliased) for argument in call.arguments):
        return struct_sql(call, scope)
    if name in UNIT_FUNCTIONS and len(call.arguments) == 3:
        return unit_call(call, scope)
    texts = [tree_sql(argument, scope) for argument in call.arguments]
    if name in JOINED and len(texts) > 1:
        return f"({JOINED[name].join(texts)})"
    if name in INFIX and len(texts) == 2:
        return f"({texts[0]} {INFIX[name]} {texts[1]})"
    if name in PREFIX and len(texts) == 1:
        return f"({PREFIX[name]} {texts[0]})"
    if name in POSTFIX and len(texts) == 1:
        return f"({texts[0]} {POSTFIX[name]})"
    # A single element could be a parenthesized query, which IN would read as its subquery.
    if name == "in" and (len(texts) > 2 or (len(texts) == 2 and isinstance(call.arguments[1], LiteralText))):
        return f"({texts[0]} IN ({', '.join(texts[1:])}))"
    return plain_call(call, scope)


def plain_call(call: Call, scope: Scope) -> str:
    """Return SQL for a call by name. Operators can be called this way too."""
    arguments = ", ".join(tree_sql(argument, scope) for argument in call.arguments)
    return f"{'.'.join(map(identifier, call.name))}({'DISTINCT ' if call.distinct else ''}{arguments})"


def unit_call(call: Call, scope: Scope) -> str:
    """Return SQL such as `timestampadd(HOUR, a, b)`: the unit is a keyword, not a string."""
    unit, *others = (tree_sql(argument, scope) for argument in call.arguments)
    word = unit.strip("'").upper()
    if word not in UNITS:
        raise refusal(f"The unit {unit} of {call.name[0]}", f"The units are {', '.join(sorted(UNITS))}")
    return f"{call.name[0]}({word}, {', '.join(others)})"


def struct_sql(call: Call, scope: Scope) -> str:
    """Return SQL such as `struct(a, b AS c)`, the only function that uses aliases."""
    arguments = []
    for argument in call.arguments:
        text = tree_sql(argument, scope)
        if isinstance(argument, Aliased):
            if argument.has_metadata:
                raise refusal(f"The metadata of the struct field '{argument.names[0]}'", "Leave the metadata out")
            text += f" AS {identifier(argument.names[0])}"
        elif isinstance(argument, Extract | Variable | Text):
            # Spark names such a field one way in a Column and another way in SQL text.
            raise refusal(f"The struct field without a name {text}", "Give each field a name with alias()")
        arguments.append(text)
    return f"struct({', '.join(arguments)})"


def text_sql(node: Text, scope: Scope) -> str:
    """Return the user's SQL text in parentheses, if these cannot change its meaning."""
    source = read_source(node.sql)
    if source.problem is not None or source.end == 0:
        raise refusal(f"The text {node.sql!r}, which is not an expression,", "Correct the text")
    first, second = source.tokens[0], source.tokens[1]
    is_call = second.key == "(" and first.key in {"MAP", "REDUCE"}
    if first.key in QUERY_WORDS and source.end > 1 and second.key != "." and not is_call:
        raise refusal(
            f"The text {node.sql!r}, which begins like a query,",
            "Put a query into parentheses, and a column of that name into backquotes",
        )
    index = 0
    while index < source.end:
        if source.tokens[index].key in {",", "AS"}:
            raise refusal(f"The text {node.sql!r}, which is not one expression without an alias,", "Split it")
        index = source.partner.get(index, index) + 1
    names = {source.name(index).lower() for index in range(source.end) if source.is_name(index)}
    if names & scope:
        raise refusal(f"The text {node.sql!r}, which names an enclosing lambda's parameter,")
    strings = [source.text(index) for index in range(source.end) if source.tokens[index].kind is TokenKind.STRING]
    if scope and any(name in string.lower() for name in scope for string in strings):
        raise refusal(f"The text {node.sql!r}, which may name an enclosing lambda's parameter,")
    return f"({source.sql[: source.tokens[source.end - 1].end]})"


def check_type(text: str) -> str:
    """Return the text of a type, unless it could be anything else.

    Raises:
        NotSupportedError: it has more than names, numbers and the symbols `<>(),:`.
    """
    source = read_source(text)
    tokens = source.tokens[: source.end]
    signs = {token.key for token in tokens if token.kind is TokenKind.SYMBOL}
    if source.problem is not None or not tokens or "${" in text or signs - set("<>(),:"):
        raise refusal(f"The type {text!r}")
    return text


INTEGER_SUFFIXES: Final = {"byte": "Y", "short": "S", "integer": "", "long": "L"}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def literal_text(value: Any, kind: str) -> str:
    """Convert a value to an SQL literal.

    Args:
        value: None, a bool, int, float, str, `Decimal` or bytes; a date as days and a timestamp as microseconds since
            1970, an interval as microseconds, a time as nanoseconds of the day.
        kind: The type's name in Spark's JSON schemas: `long`, `decimal(3,2)`, `timestamp_ntz` ...

    Raises:
        NotSupportedError: SQL has no literal of that type, or not of that value.
    """
    if value is None and kind == "void":
        return "NULL"
    text = number_text(value, kind) or temporal_text(value, kind)
    if kind == "string":
        text = string_text(value)
    elif kind == "binary":
        text = f"X'{bytes(value).hex().upper()}'"
    elif kind == "boolean":
        text = "TRUE" if value else "FALSE"
    if text is None:
        raise NotSupportedError(
            f"The literal {value!r} of type {kind} cannot be written in SQL text",
            hint="Build it with SQL functions from simpler values, or give the expression as SQL text",
        )
    return text


def number_text(value: Any, kind: str) -> str | None:
    """Convert a number to an SQL literal; return None if the type is not numeric."""
    if kind in INTEGER_SUFFIXES:
        return parenthesize_negative(f"{value}{INTEGER_SUFFIXES[kind]}")
    if kind.startswith("decimal("):
        return f"CAST('{Decimal(value):f}' AS {kind.upper()})"
    if kind not in {"float", "double"}:
        return None
    if math.isnan(value) or math.isinf(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS {kind.upper()})"
    digits = repr(float(value))
    if "e" in digits or digits == "-0.0":
        return f"CAST('{digits}' AS {kind.upper()})"
    return parenthesize_negative(f"{digits}{kind[0].upper()}")


def parenthesize_negative(digits: str) -> str:
    """Put a negative number in parentheses: `a--1` would start a comment."""
    return f"({digits})" if digits.startswith("-") else digits


def temporal_text(value: Any, kind: str) -> str | None:
    """Convert a date, time, timestamp or interval to an SQL literal; return None for other types."""
    if kind == "date":
        return f"DATE '{date_text(value)}'"
    if kind == "timestamp":
        return f"TIMESTAMP_LTZ '{timestamp_text(value, ' ')}+00:00'"
    if kind == "timestamp_ntz":
        return f"TIMESTAMP_NTZ '{timestamp_text(value, ' ')}'"
    if kind == "time(6)" and value % 1000 == 0:
        return f"TIME '{(EPOCH + timedelta(microseconds=value // 1000)).time().isoformat()}'"
    if kind == "interval day to second":
        seconds, micros = divmod(abs(value), 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
        return f"INTERVAL '{'-' if value < 0 else ''}{days} {clock}' DAY TO SECOND"
    return None


def string_text(value: str) -> str:
    """Convert a string to an SQL literal.

    Escapes depend on a session setting, and Spark substitutes `${...}` before it parses a statement. A string that
    could be read differently is written as its bytes.
    """
    if "${" in value or (("\\" in value or "'" in value) and keeps_backslashes()):
        return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    return quote_string(value)


def keeps_backslashes() -> bool:
    """Return True if the active session reads backslashes literally, not as escapes."""
    return SparkSession.active().conf.get("spark.sql.parser.escapedStringLiterals") != "false"
