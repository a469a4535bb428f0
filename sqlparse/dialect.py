"""A Spark dialect for sqlglot that extends sqlglot's own, and checks that a tree has Spark's meaning. Pure; driver.

Input: the text of an expression or a query. Output: sqlglot's tree, or None unless it is certainly right. Trees serve
analysis only (which columns, which comparisons); Spark always receives the original text.
"""

import re
from enum import Enum
from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from dml.sqlparse.quoting import string_value

__all__ = [
    "BUILT_INS",
    "NO_BUILT_INS",
    "RowDeltaSpark",
    "TreeReading",
    "called_functions",
    "parse_expression",
    "parse_query",
]


class RowDeltaSpark(Spark):
    """Spark 4: doubled quotes inside strings, all spellings of time travel, `TABLE t` and set operations of queries."""

    class Tokenizer(Spark.Tokenizer):
        """Adds Spark 4's doubled quotes; no command consumes the rest of the text as one token."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']
        COMMANDS: ClassVar = set()

    class Parser(SparkParser):
        """Parses whole queries that begin with any keyword."""

        SUPPORTS_TABLE_QUERY: ClassVar = True
        VERSION_PHRASES: ClassVar = {
            **getattr(SparkParser, "VERSION_PHRASES", {}),
            ("FOR", "SYSTEM_VERSION"): "VERSION",
            ("SYSTEM_VERSION", "AS", "OF"): "VERSION",
            ("SYSTEM_TIME", "AS", "OF"): "TIMESTAMP",
        }
        EXPRESSION_PARSERS: ClassVar = {
            **SparkParser.EXPRESSION_PARSERS,
            exp.Query: lambda self: self._parse_whole_query(),
        }

        def _parse_whole_query(self) -> exp.Expr | None:
            if self._curr and self._curr.token_type is TokenType.L_PAREN:
                query = self._parse_set_operations(self._parse_expression())
                return self._parse_query_modifiers(query)
            return self._parse_select()


DIALECT = RowDeltaSpark()
COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
PREDICATES = (*COMPARISONS, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike)
LOCAL_TIMESTAMP = re.compile(r"\bWITHOUT\s+TIME\s+ZONE\b", re.IGNORECASE)
"""A type of Spark 4.3 that sqlglot reads as `TIMESTAMP`."""
BITWISE = (
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.BitwiseLeftShift,
    exp.BitwiseRightShift,
    exp.DPipe,
)


def parse_expression(text: str, strings: tuple[str, ...] = ()) -> exp.Expression | None:
    """Parse an expression.

    Args:
        text: The expression.
        strings: Its string literals, quotes included.

    Returns:
        The tree, or None if sqlglot cannot parse it or may read it differently than Spark.
    """
    return parse(exp.Condition, text, strings)


def parse_query(text: str, strings: tuple[str, ...] = ()) -> exp.Expression | None:
    """Parse a query; arguments and result as of `parse_expression`."""
    return parse(exp.Query, text, strings)


def parse(into: type[exp.Expr], text: str, strings: tuple[str, ...]) -> exp.Expression | None:
    if LOCAL_TIMESTAMP.search(text) or not all(reads_string_alike(literal) for literal in strings):
        return None
    try:
        trees = DIALECT.parse_into(into, text)
    except (SqlglotError, RecursionError, TypeError, ValueError, AttributeError, KeyError, IndexError):
        return None  # unusual texts raise other exceptions than sqlglot's own
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Expression) or tree.find(exp.Command) or not reads_precedence_alike(tree):
        return None
    if any(kind.args.get("collate") for kind in tree.find_all(exp.DataType)):
        return None  # a cast to a collated string, whose comparisons no analysis handles
    return tree


NAMES: Final = """
    abs array boolean char_length character_length coalesce concat date day dayofmonth double float if ifnull int
    isnan lcase len length like lower map mod month nullif nvl startswith string substr substring timestamp to_date
    to_timestamp ucase upper year
"""
BUILT_INS: Final = frozenset(NAMES.split())
"""Spark's functions that have their own sqlglot node which planning uses."""

LOOKALIKES: Final = """
    convert date_to_date_str day_of_month iif is_nan starts_with time_to_time_str timestamp_ltz timestamp_ntz
    try_convert ts_or_ds_to_date ts_or_ds_to_date_str var_map
"""
NO_BUILT_INS: Final = frozenset(LOOKALIKES.split())
"""Names that sqlglot parses as one of these functions; in Spark they can only be user-defined."""

CALL: Final = re.compile(r"\b([a-zA-Z]\w*+)`?(?:\s|--[^\n]*\n)*+\(")
WORD: Final = re.compile(r"\w+")


def called_functions(text: str, functions: frozenset[str]) -> frozenset[str]:
    """Return the functions that a text may call. Names in comments and strings count too."""
    # A bracketed comment, which may be nested, can come before the parenthesis.
    names = WORD.findall(text) if "/*" in text else CALL.findall(text)
    return functions & {name.lower() for name in names}


class TreeReading(Enum):
    """How closely sqlglot's trees match the session's Spark, for string literals and functions."""

    ALIKE = "alike"
    WITHOUT_QUOTES = "strings without quotes in them: before Spark 4.1 `'it''s'` is two strings that are joined"
    OTHERWISE = "otherwise: settings of Spark's parser change what a literal means, or the user replaced a function"

    def holds(self, tree: exp.Expression) -> bool:
        """Return whether a tree matches Spark's reading of the text."""
        if self is TreeReading.WITHOUT_QUOTES:
            strings = (node.name for node in tree.find_all(exp.Literal) if node.is_string)
            return not any("'" in text or '"' in text for text in strings)
        return self is TreeReading.ALIKE


def reads_string_alike(literal: str) -> bool:
    if "\\" not in literal and literal.count(literal[-1]) == 2 and "''" not in literal and '""' not in literal:
        return True
    try:
        tokens = DIALECT.tokenize(literal)
    except SqlglotError:
        return False
    return len(tokens) == 1 and tokens[0].text == string_value(literal)


def reads_precedence_alike(tree: exp.Expression) -> bool:
    # In Spark comparisons bind tighter than IS, IN, LIKE ...; in sqlglot it is the other way round.
    for node in tree.find_all(*COMPARISONS, *BITWISE):
        left, right = node.args.get("this"), node.args.get("expression")
        if isinstance(node, BITWISE):
            sides = [side for side in (left, right) if isinstance(side, exp.Binary) and not isinstance(side, exp.Dot)]
            if any(type(side) is not type(node) for side in sides):
                return False
        elif isinstance(right, PREDICATES) or (isinstance(right, exp.Not) and isinstance(right.this, PREDICATES)):
            return False
    return True
