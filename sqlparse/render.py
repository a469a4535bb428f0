"""Edit the texts of statements token by token: replace table names and parameter markers. Pure; driver.

Input: a statement's text, and the replacements. Output: the text, otherwise unchanged.

    SELECT t.x, db.t.y FROM lake.db.t WHERE ...          {span of lake.db.t: "__view_1"}
    SELECT t.x, t.y FROM __view_1 AS t WHERE ...

A table without an alias can qualify its columns with `t`, `db.t` and `lake.db.t`. The view that replaces it has none of
these names, so it gets the last part of the table's name as its alias, and longer qualifiers are shortened to it.

    ("SELECT * FROM t WHERE k = :k AND s = ?", ...)    ->    the same text with literals instead of markers
    SELECT *, _pos FROM t, where `_pos` is a column of the view that replaces t    ->    SELECT * EXCEPT (_pos), _pos
    VALUES (1, DEFAULT)    ->    the span of DEFAULT and the number of its column

Markers are bound before the statement is parsed, so that a value prunes files like a literal does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dml import limits
from dml.errors import ErrorKind, SqlError
from dml.sqlparse.parser import Parsed, read_statement
from dml.sqlparse.quoting import quote_identifier
from dml.sqlparse.relations import Relation
from dml.sqlparse.statements import Span, TableReference
from dml.sqlparse.tokens import Source, TokenKind, read_source

__all__ = [
    "bind_parameters",
    "defaults_in_values",
    "exclude_from_stars",
    "has_parameters",
    "relation_aliases",
    "render",
]


def bind_parameters(sql: str, args: Mapping[str, Any] | Sequence[Any] | None, literal: Callable[[Any], str]) -> str:
    """Replace the parameter markers of a statement.

    Args:
        sql: The statement.
        args: Values by name, for `:name`, or in order, for `?`.
        literal: Converts a value to SQL text.

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
    """Return whether a statement has parameter markers, `:name` or `?`."""
    source = read_source(sql)
    tokens = source.tokens
    return any(
        token.key == "?"
        or (token.key == ":" and tokens[index + 1].kind is TokenKind.WORD and token.end == tokens[index + 1].start)
        for index, token in enumerate(tokens[: source.end])
    )


BEFORE = frozenset({"SELECT", "DISTINCT", "ALL", ",", "."})
AFTER = frozenset({",", "FROM", ")", "WHERE", "", "EXCEPT"})


def exclude_from_stars(query: str, names: Sequence[str]) -> str:
    """Exclude columns from the stars of a query with one SELECT.

    Args:
        query: The query. One with several SELECTs is returned unchanged, as a star may not include the columns there.
        names: The columns as SQL.
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
    """Yield the span of each DEFAULT that is a whole value, and the number of its column, from 0.

    Args:
        query: A query. Queries other than plain VALUES yield nothing.
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
    """Yield the DEFAULTs of one row in parentheses."""
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
    """Return whether a token is the word DEFAULT as a whole value."""
    token = source.tokens[index]
    return (
        token.kind is TokenKind.WORD
        and token.key == "DEFAULT"
        and source.tokens[index - 1].key in before
        and source.tokens[following].key in after
    )


def span_of(source: Source, index: int) -> Span:
    """Return the span of a token."""
    token = source.tokens[index]
    return Span(token.start, token.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    # A dotted name that may begin with a table's name; `indexes` are its tokens without the dots.
    indexes: tuple[int, ...]
    names: tuple[str, ...]


def relation_aliases(
    sql: str, replaced: frozenset[Span] | None = None, full_names: Mapping[Span, tuple[str, ...]] | None = None
) -> dict[Span, str]:
    """Return the qualifiers of the replaced tables' columns after `render`.

    Args:
        sql: The statement.
        replaced: The spans of the table references that are replaced; None for all.
        full_names: As for `render`.

    Returns:
        For each reference that has or may have an alias: its alias, else the last part of its name. The name gets a
        number if two tables of one FROM clause (or the target and the source of MERGE) would share it and the statement
        distinguishes them by longer qualifiers.
    """
    parsed = read(sql)
    spans = frozenset(relation.reference.span for relation in parsed.relations)
    return aliases_of(parsed, spans if replaced is None else replaced, full_names or {})


def render(
    sql: str,
    replacements: Mapping[Span, str],
    within: Span | None = None,
    full_names: Mapping[Span, tuple[str, ...]] | None = None,
    insertions: Mapping[Span, str] | None = None,
) -> str:
    """Replace table references, and shorten the qualifiers of their columns.

    Args:
        sql: The whole statement.
        replacements: The new text by the `span` of a `TableReference`, usually a view's quoted name. An alias is added
            if the statement has none and allows one.
        within: Only this part of the statement is returned; by default all of it. If the part is exactly one table
            reference, it gets no alias: the caller adds one.
        full_names: The full names of tables with shortened names (`t` for `lake.db.t`), to recognize `lake.db.t.x`.
        insertions: Text to insert before parts of the statement, by their spans: a qualifier before a column.

    Raises:
        ValueError: A replacement's span is not that of a table reference.
    """
    parsed = read(sql)
    known = {relation.reference.span for relation in parsed.relations}
    if unknown := set(replacements) - known:
        raise ValueError(f"There is no table reference at {sorted(unknown)}")
    if parsed.source is None:
        return sql if within is None else sql[within.start : within.end]
    names = full_names or {}
    aliases = aliases_of(parsed, frozenset(replacements), names)
    edits: list[tuple[int, int, str]] = []
    for relation in parsed.relations:
        reference = relation.reference
        if reference.span not in replacements:
            continue
        edits.append((reference.span.start, reference.span.end, replacements[reference.span]))
        place = relation.alias_place
        if reference.alias is None and place is not None and within != Span(reference.span.start, place):
            edits.append((place, place, f" AS {quote_identifier(aliases[reference.span])}"))
    edits.extend(qualifier_edits(parsed, parsed.source, frozenset(replacements), aliases, names))
    for span, text in (insertions or {}).items():
        edits.append((span.start, span.end, text + sql[span.start : span.end]))
    return apply_edits(sql, edits, within or Span(0, len(sql)))


@lru_cache(maxsize=limits.CACHED_REFERENCES)
def read(sql: str) -> Parsed:
    return read_statement(sql)


def apply_edits(sql: str, edits: list[tuple[int, int, str]], within: Span) -> str:
    pieces: list[str] = []
    place = within.start
    for start, end, text in sorted(edits, key=lambda edit: (edit[0], edit[1])):
        if start < place or end > within.end or (start == end == within.start):
            continue
        pieces += (sql[place:start], text)
        place = end
    pieces.append(sql[place : within.end])
    return "".join(pieces)


def aliases_of(
    parsed: Parsed, replaced: frozenset[Span], full_names: Mapping[Span, tuple[str, ...]]
) -> dict[Span, str]:
    aliases: dict[Span, str] = {}
    taken: set[str] = set()
    candidates = [relation for relation in parsed.relations if relation.alias_place is not None]
    for relation in candidates:
        reference = relation.reference
        taken.add((reference.alias or reference.parts[-1]).lower())
    qualified = qualified_columns(parsed, full_names)
    for relation in candidates:
        reference = relation.reference
        alias = reference.alias or reference.parts[-1]
        rivals = [other for other in candidates if other is not relation and same_scope(other, relation)]
        shared = any(qualifier_of(other) == alias.lower() for other in rivals)
        if reference.alias is None and reference.span in replaced and shared and reference.span in qualified:
            number = 2
            while f"{alias}__{number}".lower() in taken:
                number += 1
            alias = f"{alias}__{number}"
            taken.add(alias.lower())
        aliases[reference.span] = alias
    return aliases


def same_scope(left: Relation, right: Relation) -> bool:
    return (left.block.start, left.block.end) == (right.block.start, right.block.end)


def qualifier_of(relation: Relation) -> str:
    return (relation.reference.alias or relation.reference.parts[-1]).lower()


def qualified_columns(parsed: Parsed, full_names: Mapping[Span, tuple[str, ...]]) -> set[Span]:
    # The references that qualify some column with two or more parts.
    if parsed.source is None:
        return set()
    found = set()
    for chain in chains_in(parsed, parsed.source):
        match = owner(parsed, parsed.source, chain, full_names)
        if match is not None:
            found.add(match[0].reference.span)
    return found


def qualifier_edits(
    parsed: Parsed,
    source: Source,
    replaced: frozenset[Span],
    aliases: Mapping[Span, str],
    full_names: Mapping[Span, tuple[str, ...]],
) -> list[tuple[int, int, str]]:
    edits = []
    for chain in chains_in(parsed, source):
        match = owner(parsed, source, chain, full_names)
        if match is None or match[0].reference.span not in replaced:
            continue
        relation, length = match
        start, end = source.tokens[chain.indexes[0]].start, source.tokens[chain.indexes[length - 1]].end
        edits.append((start, end, quote_identifier(aliases[relation.reference.span])))
    return edits


def chains_in(parsed: Parsed, source: Source) -> list[Chain]:
    # Dotted names of at least three parts, or of two and a star, that are neither tables nor functions.
    spans = {relation.reference.span.start for relation in parsed.relations}
    chains: list[Chain] = []
    index = 0
    while index < source.end:
        if not source.is_name(index):
            index += 1
            continue
        indexes = [index]
        while source.tokens[indexes[-1] + 1].key == "." and source.is_name(indexes[-1] + 2):
            indexes.append(indexes[-1] + 2)
        after = indexes[-1] + 1
        star = source.tokens[after].key == "." and source.tokens[after + 1].key == "*"
        is_table = source.tokens[index].start in spans
        if not is_table and source.tokens[after].key != "(" and len(indexes) + star >= 3:
            names = tuple(source.name(place).lower() for place in indexes)
            chains.append(Chain(indexes=tuple(indexes), names=(*names, "*") if star else names))
        index = after
    return chains


def owner(
    parsed: Parsed, source: Source, chain: Chain, full_names: Mapping[Span, tuple[str, ...]]
) -> tuple[Relation, int] | None:
    # The table, of the innermost query around the chain, whose name the chain begins with, by two or more parts.
    place = source.tokens[chain.indexes[0]].start
    best: tuple[int, int, Relation] | None = None
    for relation in parsed.relations:
        reference, block = relation.reference, relation.block
        if relation.alias_place is None or reference.alias is not None or not block.start <= place < block.end:
            continue
        named = [
            length
            for parts in possible_names(reference, full_names)
            if (length := shared_length(chain.names, parts)) > 1
        ]
        if named:
            rank = (block.start - block.end, max(named))
            if best is None or rank > best[:2]:
                best = (*rank, relation)
    return None if best is None else (best[2], best[1])


def possible_names(reference: TableReference, full_names: Mapping[Span, tuple[str, ...]]) -> list[tuple[str, ...]]:
    # The full names of a table: if the written name ends in a branch, with and without it.
    full = full_names.get(reference.span, reference.parts)
    return [full] if full[-1] == reference.parts[-1] else [full, (*full, reference.parts[-1])]


def shared_length(names: tuple[str, ...], parts: tuple[str, ...]) -> int:
    # The number of last parts of a table's name that a chain begins with.
    folded = tuple(part.lower() for part in parts)
    lengths = range(min(len(folded), len(names) - 1), 0, -1)
    return next((length for length in lengths if names[:length] == folded[-length:]), 0)
