"""Find text that sqlglot accepts and Spark rejects, or may reject, or reads differently. Pure; driver.

    id IN (1, 2,)     STRING 'x'     CAST(id AS INT64)     1e400     id NOTNULL     0x1F     NVL(id)
    name = +'10'      name = '${spark.app.name}'

Spark rejects such a statement when it analyzes it. Where nothing is analyzed by Spark, the text must be free of them.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from dml.sqlparse.tokens import Token, TokenKind, tokenize, words

__all__ = ["is_read_otherwise", "is_surely_spark"]

BEFORE_STRING: Final = words(
    "AND BETWEEN BY CASE CATALOG DATE DIV DISTINCT ELSE ESCAPE FROM LIKE NOT ON OR SELECT THEN TIMESTAMP TIMESTAMP_LTZ "
    "TIMESTAMP_NTZ VALUES WHEN WHERE X"
)
"""Words that a string may follow. After other words sqlglot reads a literal of a type, or an alias."""

TYPES: Final = words(
    "BIGINT BINARY BOOLEAN BYTE DATE DEC DECIMAL DOUBLE FLOAT INT INTEGER LONG NUMERIC REAL SHORT SMALLINT STRING "
    "TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT"
)
DECIMALS: Final = words("DEC DECIMAL NUMERIC")
CASTS: Final = words("CAST TRY_CAST")
TWO_ARGUMENTS: Final = words("NVL IFNULL NULLIF")
CALLS: Final = CASTS | TWO_ARGUMENTS
FOREIGN: Final = words("ISNULL NOTNULL SAFE_CAST")
"""`id NOTNULL`; as functions, the first two are Spark's."""

ONLY_SQLGLOT: Final = words("ASYMMETRIC SYMMETRIC !")
"""`id BETWEEN ASYMMETRIC 1 AND 5`, and `!` for NOT, which sqlglot accepts in more places."""

DEFINITIONS: Final = words("ALTER CREATE REPLACE")
"""First words of statements in which NOT NULL belongs to a column."""

FOREIGN_SYMBOLS: Final = re.compile(r"~~|::|/\*\+")
"""`::` is a cast only from Spark 4.0 on."""

VARIABLE: Final = "${"
"""Begins the name of a variable or a setting, whose value Spark puts into the text before it reads it."""

BEFORE_SIGN: Final = words(
    "ALL AND ANY BETWEEN BY CASE DISTINCT DIV ELSE ESCAPE FROM HAVING ILIKE IN INTERVAL IS LIKE NOT ON OR REGEXP RLIKE "
    "SELECT SET THEN USING VALUES WHEN WHERE"
)
"""Words after which a `+` is a sign; `x + 1` and `date + 1` add to a column."""

PRECISION: Final = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
MAX_DIGITS: Final = 38
CLOSERS: Final = frozenset({")", ";", "FROM", ""})


def is_surely_spark(text: str) -> bool:
    """Return whether a statement has none of the spellings that only sqlglot accepts.

    Args:
        text: The statement.
    """
    tokens, problem = tokenize(text)
    if problem is not None or FOREIGN_SYMBOLS.search(text) or is_read_otherwise(text):
        return False
    end = Token(TokenKind.END, "", len(text), len(text))
    if (
        tokens[:1]
        and tokens[0].key not in DEFINITIONS
        and any(
            (one.key, after.key) == ("NOT", "NULL") and before.key != "IS"
            for before, one, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        )
    ):
        return False  # `id NOT NULL`
    return all(
        follows_as_in_spark(text, one, after) and (one.key not in CALLS or is_call(text, tokens, place))
        for place, (one, after) in enumerate(pairwise([*tokens, end]))
    )


def is_read_otherwise(text: str) -> bool:
    """Return whether Spark may give a statement another meaning than sqlglot.

    Spark replaces `${name}` (`spark.sql.variable.substitute`), and casts the string `+'10'` to a double. sqlglot drops
    the sign.

    Args:
        text: The statement.
    """
    if VARIABLE in text:
        return True
    if "+" not in text:
        return False
    tokens, _ = tokenize(text)
    return any(
        one.key == "+"
        and after.kind is not TokenKind.NUMBER
        and (before.key in BEFORE_SIGN or (before.kind is TokenKind.SYMBOL and before.key not in {")", "]"}))
        for before, one, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )


def follows_as_in_spark(text: str, one: Token, after: Token) -> bool:
    """Return whether a token, and the one after it, are known from Spark."""
    if one.kind is TokenKind.NUMBER and not is_number(text[one.start : one.end]):
        return False
    if after.kind is TokenKind.STRING:
        return (one.kind is TokenKind.SYMBOL and one.key != ")") or one.key in BEFORE_STRING
    if one.key in ONLY_SQLGLOT:
        return False
    if one.key == ",":
        return after.key not in CLOSERS or after.kind in {TokenKind.QUOTED, TokenKind.NUMBER}
    if one.key in FOREIGN:
        return one.key != "SAFE_CAST" and after.key == "("
    return not (one.kind is TokenKind.WORD and one.key[0].isdigit())


def is_number(text: str) -> bool:
    """Return whether a number has a value in Spark: a finite double, or a decimal of up to 38 digits."""
    digits = text.rstrip("LlSsYyFfDdBb")
    return float(digits) < float("inf") and sum(map(str.isdigit, digits.lower().partition("e")[0])) <= MAX_DIGITS


def is_call(text: str, tokens: Sequence[Token], place: int) -> bool:
    """Return whether a name is that of a call with the arguments that Spark requires, or of something else."""
    depth = commas = kind = 0
    if place + 1 == len(tokens) or tokens[place + 1].key != "(":
        return True
    for at in range(place + 1, len(tokens)):
        key = tokens[at].key
        depth += (key == "(") - (key == ")")
        if not depth:
            break
        if depth == 1:
            commas += key == ","
            kind = at + 1 if key == "AS" else kind
    if tokens[place].key in TWO_ARGUMENTS:
        return commas == 1
    if is_null(tokens, place + 1):  # sqlglot's tree has no type for it
        return False
    return kind > 0 and is_type(text[tokens[kind].start : tokens[at].start])


def is_null(tokens: Sequence[Token], place: int) -> bool:
    """Return whether the first argument of a call is NULL, given the place of its bracket; the text may end there."""
    first = next((token for token in tokens[place:] if token.key != "("), None)
    return first is not None and first.key == "NULL"


def is_type(text: str) -> bool:
    """Return whether a text is one of Spark's types without fields, as written in a cast."""
    name, bracket, _ = text.strip().partition("(")
    name = name.strip().upper()
    if not bracket:
        return name in TYPES
    sizes = PRECISION.fullmatch(text.strip()[len(name) :].strip())
    if name not in DECIMALS or sizes is None:
        return False
    return int(sizes[2] or 0) <= int(sizes[1]) <= MAX_DIGITS
