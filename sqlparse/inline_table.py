"""DEFAULT in an inline table. Pure; driver.

Input: the text of a query. Output: where `VALUES (1, DEFAULT)` has the word, and as which column.
"""

from collections.abc import Iterator

from dml.sqlparse.statements import Span
from dml.sqlparse.tokens import Kind, Source, read_source

__all__ = ["defaults_in_values"]


def defaults_in_values(query: str) -> Iterator[tuple[Span, int]]:
    """The places of DEFAULT as a whole value, and the number of its column, from 0.

    Args:
        query: A query; one that is no plain VALUES has none.
    """
    source = read_source(query)
    if source.tokens[0].key != "VALUES":
        return
    index = 1
    while index < source.end:
        if source.tokens[index].key == "(":
            yield from defaults_in_row(source, index + 1, source.partner.get(index, source.end))
            index = source.partner.get(index, source.end)
        elif is_default(source, index, index + 1, {"VALUES", ","}, {",", ""}):
            yield span_of(source, index), 0
        index += 1


def defaults_in_row(source: Source, start: int, end: int) -> Iterator[tuple[Span, int]]:
    """Those of one row in parentheses."""
    column, index = 0, start
    while index < end:
        key = source.tokens[index].key
        if key == ",":
            column += 1
        elif key in {"(", "["}:
            index = source.partner.get(index, end)
        elif is_default(source, index, index + 1, {"(", ","}, {")", ","}):
            yield span_of(source, index), column
        index += 1


def is_default(source: Source, index: int, following: int, before: set[str], after: set[str]) -> bool:
    """Whether a token is the word DEFAULT between the ends of a value."""
    token = source.tokens[index]
    return (
        token.kind is Kind.WORD
        and token.key == "DEFAULT"
        and source.tokens[index - 1].key in before
        and source.tokens[following].key in after
    )


def span_of(source: Source, index: int) -> Span:
    """The place of a token."""
    token = source.tokens[index]
    return Span(token.start, token.end)
