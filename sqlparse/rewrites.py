"""Texts of statements, seen and changed by their tokens. Pure; driver.

    ("SELECT * FROM t WHERE k = :k AND s = ?", ...)    ->    the same text with literals in the place of the markers
    SELECT *, _pos FROM t, where `_pos` is a column of the view that stands for t    ->    SELECT * EXCEPT (_pos), _pos
    VALUES (1, DEFAULT)    ->    where the word stands, and as which column

Markers are bound before the statement is read, so that a value prunes files like a literal does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dml.errors import ErrorKind, SqlError
from dml.sqlparse.statements import Span
from dml.sqlparse.tokens import Source, TokenKind, read_source

__all__ = ["bind_parameters", "defaults_in_values", "has_parameters", "stars_without"]


def bind_parameters(sql: str, args: Mapping[str, Any] | Sequence[Any] | None, literal: Callable[[Any], str]) -> str:
    """The statement with its markers replaced.

    Args:
        sql: The statement.
        args: Values by name, for `:name`, or in order, for `?`.
        literal: A value as SQL text.

    Raises:
        SqlError: a marker has no value, or there are more values than markers.
    """
    if not args:
        return sql
    source = read_source(sql)
    edits: list[tuple[int, int, str]] = []
    given = list(args) if not isinstance(args, Mapping) else []
    used = 0
    for index in range(source.end):
        token = source.tokens[index]
        if isinstance(args, Mapping):
            following = source.tokens[index + 1]
            if token.key == ":" and following.kind is TokenKind.WORD and token.end == following.start:
                name = source.text(index + 1)
                if name in args:
                    edits.append((token.start, following.end, literal(args[name])))
        elif token.key == "?":
            if used == len(given):
                raise SqlError(
                    f"The statement has more '?' than the {len(given)} values given",
                    sql=sql,
                    position=token.start,
                    kind=ErrorKind.ANALYSIS,
                    hint="Give one value for each '?'",
                )
            edits.append((token.start, token.end, literal(given[used])))
            used += 1
    if given and used < len(given):
        raise SqlError(
            f"{len(given)} values are given for {used} '?'",
            sql=sql,
            kind=ErrorKind.ANALYSIS,
            hint="Give one value for each '?'",
        )
    for start, end, text in reversed(edits):
        sql = sql[:start] + text + sql[end:]
    return sql


def has_parameters(sql: str) -> bool:
    """Whether a statement has markers, `:name` or `?`, in the place of values."""
    source = read_source(sql)
    tokens = source.tokens
    return any(
        token.key == "?"
        or (token.key == ":" and tokens[index + 1].kind is TokenKind.WORD and token.end == tokens[index + 1].start)
        for index, token in enumerate(tokens[: source.end])
    )


BEFORE = frozenset({"SELECT", "DISTINCT", "ALL", ",", "."})
AFTER = frozenset({",", "FROM", ")", "WHERE", "", "EXCEPT"})


def stars_without(query: str, names: Sequence[str]) -> str:
    """A query with one SELECT, its stars not standing for certain columns.

    Args:
        query: The query; one with several SELECTs comes back as it is, for a star may not see the columns there.
        names: The columns, as they may stand in SQL.
    """
    source = read_source(query)
    if not names or sum(source.tokens[index].key == "SELECT" for index in range(source.end)) != 1:
        return query
    listed = ", ".join(names)
    edits: list[tuple[int, str]] = []
    for index in range(1, source.end):
        token, following = source.tokens[index], source.tokens[index + 1]
        if token.key != "*" or source.tokens[index - 1].key not in BEFORE or following.key not in AFTER:
            continue
        if following.key == "EXCEPT" and source.tokens[index + 2].key == "(":
            edits.append((source.tokens[index + 2].end, f"{listed}, "))
        elif following.key != "EXCEPT":
            edits.append((token.end, f" EXCEPT ({listed})"))
    for place, text in reversed(edits):
        query = query[:place] + text + query[place:]
    return query


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
        token.kind is TokenKind.WORD
        and token.key == "DEFAULT"
        and source.tokens[index - 1].key in before
        and source.tokens[following].key in after
    )


def span_of(source: Source, index: int) -> Span:
    """The place of a token."""
    token = source.tokens[index]
    return Span(token.start, token.end)
