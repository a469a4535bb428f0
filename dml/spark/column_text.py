"""The tree of a Column as SQL text, and values as SQL literals. Driver.

Input: nodes, as the readers make them. Output: SQL text in which every operator stands in parentheses, names are
back-quoted, and functions are called by their quoted names, past the special forms of Spark's grammar:

    ((`a` = 1) AND `startswith`(`b`, 'x'))

Spark reads a literal back as the same value of the same type, whatever the session's settings.
"""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, assert_never

from pyspark.sql import SparkSession

from dml.errors import NotSupportedError
from dml.model.value_text import date_text, timestamp_text
from dml.spark.column_tree import (
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
    refusal,
)
from dml.sqlparse.quoting import quote_string, quoted
from dml.sqlparse.tokens import TokenKind, read_source

__all__ = ["checked_type", "literal_text", "string_text", "tree_sql"]

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


def tree_sql(node: Node, scope: Scope = frozenset()) -> str:
    """A tree as SQL text that can stand anywhere in an expression.

    Args:
        node: The tree.
        scope: Lower-case names of the lambda parameters that are in reach.

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
                raise refusal(f"The lambda parameter '{node.name}' outside of its lambda")
            return identifier(node.name)
        case Extract():
            return extract_sql(node, scope)
        case NamedArgument():
            return f"{identifier(node.name)} => {tree_sql(node.value, scope)}"
    assert_never(node)


def identifier(name: str) -> str:
    """A name in backquotes."""
    if "${" in name:  # Spark replaces it before it reads the statement, quoted or not
        raise refusal(f"The name '{name}', which holds '${{',", "Rename it")
    return quoted(name)


def name_sql(node: Name, scope: Scope) -> str:
    """A column's name; in a lambda's body SQL would take a parameter of that name for it."""
    if node.parts[0].lower() in scope:
        raise refusal(f"The column '{node.parts[0]}', which has the name of the parameter of a lambda around it,")
    return ".".join(map(identifier, node.parts))


def extract_sql(node: Extract, scope: Scope) -> str:
    """`child[key]`."""
    child = tree_sql(node.child, scope)
    simple = isinstance(node.child, Name | Variable | Extract)
    return f"{child if simple else f'({child})'}[{tree_sql(node.key, scope)}]"


def call_sql(call: Call, scope: Scope) -> str:
    """A function call, or the operator that the function is."""
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
    # One element could be a query in parentheses, which IN would take for its set.
    if name == "in" and (len(texts) > 2 or (len(texts) == 2 and isinstance(call.arguments[1], LiteralText))):
        return f"({texts[0]} IN ({', '.join(texts[1:])}))"
    return plain_call(call, scope)


def plain_call(call: Call, scope: Scope) -> str:
    """Name and arguments; operators can be called like this too."""
    arguments = ", ".join(tree_sql(argument, scope) for argument in call.arguments)
    return f"{'.'.join(map(identifier, call.name))}({'DISTINCT ' if call.distinct else ''}{arguments})"


def unit_call(call: Call, scope: Scope) -> str:
    """`timestampadd(HOUR, a, b)`: the unit is a word, not a string."""
    unit, *others = (tree_sql(argument, scope) for argument in call.arguments)
    word = unit.strip("'").upper()
    if word not in UNITS:
        raise refusal(f"The unit {unit} of {call.name[0]}", f"The units are {', '.join(sorted(UNITS))}")
    return f"{call.name[0]}({word}, {', '.join(others)})"


def struct_sql(call: Call, scope: Scope) -> str:
    """`struct(a, b AS c)`, the one function that looks at aliases."""
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
    """The user's own text in parentheses, if parentheses cannot make something else of it."""
    source = read_source(node.sql)
    if source.problem is not None or source.end == 0:
        raise refusal(f"The text {node.sql!r}, which is no expression,", "Repair the text")
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
        raise refusal(f"The text {node.sql!r}, which names the parameter of a lambda around it,")
    strings = [source.text(index) for index in range(source.end) if source.tokens[index].kind is TokenKind.STRING]
    if scope and any(name in string.lower() for name in scope for string in strings):
        raise refusal(f"The text {node.sql!r}, which may name the parameter of a lambda around it,")
    return f"({source.sql[: source.tokens[source.end - 1].end]})"


def checked_type(text: str) -> str:
    """The text of a type, if it can be nothing else.

    Raises:
        NotSupportedError: it holds more than names, numbers and the signs of types.
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
    """A value as an SQL literal.

    Args:
        value: None, a bool, int, float, str, `Decimal` or bytes; a date as days and a timestamp as microseconds since
            1970, an interval as microseconds, a time as nanoseconds of the day.
        kind: The type as it is called in Spark's JSON schemas: `long`, `decimal(3,2)`, `timestamp_ntz` ...

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
            hint="Make it with SQL functions from simpler values, or give the expression as SQL text",
        )
    return text


def number_text(value: Any, kind: str) -> str | None:
    """A number as a literal; None if the type is no number."""
    if kind in INTEGER_SUFFIXES:
        return signed(f"{value}{INTEGER_SUFFIXES[kind]}")
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
    return signed(f"{digits}{kind[0].upper()}")


def signed(digits: str) -> str:
    """A number that stands for itself beside any operator: `a - -1` would be a comment without the blank."""
    return f"({digits})" if digits.startswith("-") else digits


def temporal_text(value: Any, kind: str) -> str | None:
    """A date, time, timestamp or interval as a literal; None if the type is none of these."""
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
    """A string as an SQL literal.

    Escapes depend on a setting of the session, and `${...}` is replaced by Spark before it reads a statement; a string
    that could be read otherwise is written as its bytes.
    """
    if "${" in value or (("\\" in value or "'" in value) and keeps_backslashes()):
        return f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    return quote_string(value)


def keeps_backslashes() -> bool:
    """Whether backslashes are no escapes in the active session."""
    return SparkSession.active().conf.get("spark.sql.parser.escapedStringLiterals") != "false"
