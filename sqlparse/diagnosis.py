"""Explain syntax errors, and locate errors in the text of a statement. Pure; driver.

Input: the tokens of an invalid statement, and the token where parsing stopped. Output: the token to blame, what was
expected there, and a hint. Parsers stop late: in `DELETE FROM t WERE id = 1` the word `WERE` is an alias until `id`
follows, and in `SET a = 1, WHERE b` the word `WHERE` is a column until `b` follows. The text was rejected already, so
the diagnosis may be heuristic: it makes no statement invalid.

Code that raises errors later rarely has the text of the statement. The error names its subject (`column="x"`), the
caller sets the part of the statement (`at`), and the engine finds the `Span` of both in the text.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dml.errors import DmlError
from dml.sqlparse.quoting import string_value, unquoted
from dml.sqlparse.statements import Span
from dml.sqlparse.tokens import Source, Token, TokenKind, read_source, words

__all__ = ["CLAUSES", "Diagnosis", "at", "diagnose", "diagnose_syntax", "near_keyword", "words_at"]

NEAR: Final = 0.74
"""The minimum similarity, by `difflib`, of a word and a keyword for a typo: FORM and FROM have 0.75."""

CLAUSES: Final = words(
    "FROM WHERE GROUP HAVING ORDER LIMIT UNION INTERSECT EXCEPT JOIN ON SET USING VALUES WHEN THEN AND OR SELECT INTO"
)
ENDS: Final = (CLAUSES - {"SELECT", "VALUES"}) | {")", "]", ","}
"""Tokens that neither are nor begin an item, an expression or a name."""

COMMANDS: Final = words("ALTER CREATE DROP DESCRIBE DESC SHOW USE REPLACE TRUNCATE")
KEYWORDS: Final = (
    CLAUSES
    | COMMANDS
    | words(
        "DELETE UPDATE MERGE INSERT MATCHED BETWEEN LIKE DISTINCT OVERWRITE PARTITION TABLE NAMESPACE COLUMN COLUMNS "
        "RENAME TBLPROPERTIES PARTITIONED ADD CASE WITH AS"
    )
)
DUE_AFTER: Final[Mapping[str, str]] = MappingProxyType(
    {
        ",": "another item",
        "(": "something in the parentheses",
        "SELECT": "something to select",
        "FROM": "a table",
        "INTO": "a table",
        "JOIN": "a table",
        "UPDATE": "a table",
        "WHERE": "a condition",
        "HAVING": "a condition",
        "ON": "a condition",
        "AND": "a condition",
        "OR": "a condition",
        "NOT": "a condition",
        "SET": "the name of a column to assign",
        "VALUES": "a row of values in parentheses",
        "BY": "a column",
        "=": "a value",
        "THEN": "a value or an action",
    }
)
"""The operand required after a word or symbol. No clause, closing bracket or end of the statement can follow it."""

COMPLETED: Final[Mapping[str, str]] = MappingProxyType({"GROUP": "BY", "ORDER": "BY", "PARTITIONED": "BY"})
"""Words that only one other word can follow."""

CAPITALS: Final = re.compile(r"\b[A-Z]{2,}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The explanation of a syntax error.

    Attributes:
        index: The token to blame.
        expected: What was expected there; None to keep the parser's own words.
        hint: What was probably meant.
    """

    index: int
    expected: str | None = None
    hint: str | None = None


def diagnose(source: Source, index: int, expected: str | None, keywords: frozenset[str]) -> Diagnosis:
    """Diagnose an error of RowDelta's parser, which names what it expected.

    Args:
        source: The statement.
        index: The token where the parser stopped.
        expected: What the parser expected, with keywords in capitals.
        keywords: Other keywords that are valid there.
    """
    missing = find_missing(source, (index - 2, index - 1))
    if missing is not None:
        return missing
    wanted = frozenset(CAPITALS.findall(expected or "")) | keywords
    return find_typo(source, index, wanted) or Diagnosis(index=index)


def diagnose_syntax(source: Source, index: int) -> Diagnosis:
    """Diagnose an error of Spark's parser, which reports only its position.

    Args:
        source: The statement.
        index: The token where the parser stopped.
    """
    ahead = (index + 1,) if source.tokens[index].key == "," else ()
    # Most words in commands are keywords; most words in queries are names.
    keywords = KEYWORDS if index < 2 or source.tokens[0].key in COMMANDS else CLAUSES
    found = find_missing(source, (index - 2, index - 1, index, *ahead)) or find_typo(source, index, keywords)
    if found is not None:
        return found
    before = source.text(index - 1) if index else ""
    completion = COMPLETED.get(source.tokens[index - 1].key) if index else None
    if completion is not None:
        return Diagnosis(index=index, expected=f"{completion} after '{before}'")
    if not index:
        return Diagnosis(index=index, expected="a statement")
    if not source.clause_at(index):
        return Diagnosis(index=index, expected=f"an expression after '{before}'")
    if is_in_between(source, index):
        return Diagnosis(index=index, expected=f"AND and the upper bound of BETWEEN after '{before}'")
    if index >= source.end:
        return Diagnosis(index=index, expected=f"more after '{before}'")
    return Diagnosis(index=index, expected=f"an operator or ',' after '{before}'")


def is_in_between(source: Source, index: int) -> bool:
    """Return whether a token follows a BETWEEN without its AND."""
    words_before = (source.word(place) for place in range(index - 1, -1, -1))
    return next((word for word in words_before if word in {"AND", "BETWEEN", "WHERE", "ON"}), "") == "BETWEEN"


def find_missing(source: Source, places: Iterable[int]) -> Diagnosis | None:
    """Diagnose the first of some tokens that stands in place of a required operand; None if there is none."""
    for place in places:
        if not 0 < place <= source.end:
            continue
        before, token = source.tokens[place - 1], source.tokens[place]
        due = DUE_AFTER.get(before.key)
        ends = token.kind is TokenKind.END or token.key in ENDS
        if due and ends and (before.key, token.key) != ("(", ")"):
            return Diagnosis(index=place, expected=f"{due} after '{source.text(place - 1)}'")
    return None


def find_typo(source: Source, index: int, keywords: frozenset[str]) -> Diagnosis | None:
    """Diagnose a misspelled keyword: the word at a token, or the one before it, which was read as an alias."""
    for place in (index - 1, index):
        token = source.tokens[max(place, 0)]
        if place < 0 or token.kind is not TokenKind.WORD or source.tokens[place - 1].key == ".":
            continue
        if token.key in keywords or (place < index and not (source.clause_at(place) and place > 1)):
            continue
        meant = near_keyword(token.key, keywords)
        if meant is not None:
            return Diagnosis(index=place, hint=f"Did you mean {meant}?")
    return None


def near_keyword(word: str, keywords: Iterable[str]) -> str | None:
    """Return the keyword that is most similar to a word; None if none is similar enough."""
    return next(iter(difflib.get_close_matches(word.upper(), sorted(keywords), n=1, cutoff=NEAR)), None)


@contextmanager
def at(span: Span | None) -> Iterator[None]:
    """Attach a part of the statement to errors raised in the block; the innermost of nested blocks takes precedence.

    Args:
        span: The part; None if it is unknown.
    """
    try:
        yield
    except DmlError as error:
        if span is not None and error.position is None and error.span is None:
            error.span = (span.start, span.end)
        raise


def words_at(sql: str, words: str, within: Span | None = None) -> Span | None:
    """Find some words in a statement; spaces, quotes and case do not matter.

    Args:
        sql: The statement.
        words: A name, a dotted name, a data type, the value of a string: `db.t`, `decimal(50, 2)`, `format-version`.
        within: The part to search; None for all of it.

    Returns:
        The span of the first occurrence, or None.
    """
    source, wanted = read_source(sql), [value_of(*pair) for pair in tokens_of(read_source(words))]
    whole = words.lower()
    tokens = list(tokens_of(source))
    inside = within or Span(0, len(sql))
    for index, (text, token) in enumerate(tokens):
        if not inside.start <= token.start < inside.end:
            continue
        if value_of(text, token) == whole:
            return Span(token.start, token.end)
        run = tokens[index : index + len(wanted)]
        if wanted and [value_of(*pair) for pair in run] == wanted:
            return Span(token.start, run[-1][1].end)
    return None


def tokens_of(source: Source) -> Iterator[tuple[str, Token]]:
    """Yield the tokens of a statement, each with its text."""
    return ((source.text(index), source.tokens[index]) for index in range(source.end))


def value_of(text: str, token: Token) -> str:
    """Return the text of a token for comparison: without quotes, in lower case."""
    if token.kind is TokenKind.QUOTED:
        return unquoted(text).lower()
    return string_value(text).lower() if token.kind is TokenKind.STRING else text.lower()
