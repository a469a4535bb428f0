"""Where in a statement an error is. Pure; driver.

Input: the part of the statement that some code works on, or the words that an error complains of. Output: a `Span`.
Code that refuses something rarely holds the text of the statement: it says what it refuses (`column="x"`), the code
around it says which part it was at (`at`), and the engine brings both together with the text.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dml.errors import DmlError
from dml.sqlparse.statements import Span
from dml.sqlparse.tokens import Kind, Source, Token, read_source, string_value

__all__ = ["AT", "at", "words_at"]

AT: Final = "span"
"""The key of an error's context under which `at` leaves the part of the statement."""


@contextmanager
def at(span: Span | None) -> Iterator[None]:
    """Errors of the block are about a part of the statement; of nested blocks the innermost decides.

    Args:
        span: The part; None where it is not known.
    """
    try:
        yield
    except DmlError as error:
        if span is not None and error.position is None:
            error.context.setdefault(AT, span)
        raise


def words_at(sql: str, words: str, within: Span | None = None) -> Span | None:
    """The first place where some words stand in a statement, however they are spaced, quoted or capitalised.

    Args:
        sql: The statement.
        words: A name, a dotted name, a data type, the value of a string: `db.t`, `decimal(50, 2)`, `format-version`.
        within: The part to look in; None for all of it.

    Returns:
        The place, or None.
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
    """The tokens of a text, each with its text."""
    return ((source.text(index), source.tokens[index]) for index in range(source.end))


def value_of(text: str, token: Token) -> str:
    """A token as it is compared: without quotes, in lower case."""
    if token.kind is Kind.QUOTED:
        return text[1:-1].replace("``", "`").lower()
    return string_value(text).lower() if token.kind is Kind.STRING else text.lower()
