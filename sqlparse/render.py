"""Other names in the place of tables. Pure; driver.

Input: a statement's text and what to put for which table reference. Output: the text, with nothing else changed.

    SELECT t.x, db.t.y FROM lake.db.t WHERE ...          {place of lake.db.t: "__view_1"}
    SELECT t.x, t.y FROM __view_1 AS t WHERE ...

A table without an alias can be named `t`, `db.t` and `lake.db.t` before its columns. The view that replaces it knows
none of these, so it gets the table's last name as its alias, and longer qualifiers are cut to that alias.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from dml import limits
from dml.sqlparse.parser import Parsed, read_statement
from dml.sqlparse.quoting import quote_identifier
from dml.sqlparse.relations import Relation
from dml.sqlparse.statements import Span, TableReference
from dml.sqlparse.tokens import Source

__all__ = ["relation_aliases", "render"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    # A dotted name that may begin with a table's name: `first` to `last` are its tokens, names only.
    indexes: tuple[int, ...]
    names: tuple[str, ...]


def relation_aliases(
    sql: str, replaced: frozenset[Span] | None = None, full_names: Mapping[Span, tuple[str, ...]] | None = None
) -> dict[Span, str]:
    """The names by which the replaced tables' columns are reached after `render`.

    Args:
        sql: The statement.
        replaced: The places of the table references that are replaced; None for all.
        full_names: As for `render`.

    Returns:
        For each reference that has or may have an alias: the one written, else the last part of its name; another one
        where two tables of one FROM clause (or the target and the source of MERGE) would share it although the
        statement distinguishes them by longer qualifiers.
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
    """Replaces table references, and shortens the qualifiers of their columns.

    Args:
        sql: The whole statement.
        replacements: For the `span` of a `TableReference`: the text to put there, usually a view's quoted name. An
            alias is added where the statement gives none and one may stand there.
        within: Only this part of the statement is returned; by default all of it. A part that is one table
            reference and nothing else gets no alias: the caller gives it one.
        full_names: The full names of tables that are written shorter than they are (`t` for `lake.db.t`), so that
            `lake.db.t.x` is recognised.
        insertions: Text to put before pieces of the statement, by their places: a qualifier before a column.

    Returns:
        The text.

    Raises:
        ValueError: A replacement's place is not that of a table reference.
    """
    parsed = read(sql)
    known = {relation.reference.span for relation in parsed.relations}
    if unknown := set(replacements) - known:
        raise ValueError(f"No table stands at {sorted(unknown)}")
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
    return apply(sql, edits, within or Span(0, len(sql)))


@lru_cache(maxsize=limits.CACHED_REFERENCES)
def read(sql: str) -> Parsed:
    return read_statement(sql)


def apply(sql: str, edits: list[tuple[int, int, str]], within: Span) -> str:
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
        shared = any(known_as(other) == alias.lower() for other in rivals)
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


def known_as(relation: Relation) -> str:
    return (relation.reference.alias or relation.reference.parts[-1]).lower()


def qualified_columns(parsed: Parsed, full_names: Mapping[Span, tuple[str, ...]]) -> set[Span]:
    # The references that are named by two or more parts before a column somewhere.
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
    # Dotted names of three parts or more, or of two and a star, that are neither tables nor functions.
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
    # The table of the innermost query around the name that two or more of its first parts name.
    place = source.tokens[chain.indexes[0]].start
    best: tuple[int, int, Relation] | None = None
    for relation in parsed.relations:
        reference, block = relation.reference, relation.block
        if relation.alias_place is None or reference.alias is not None or not block.start <= place < block.end:
            continue
        named = [length for parts in ways(reference, full_names) if (length := shared_length(chain.names, parts)) > 1]
        if named:
            rank = (block.start - block.end, max(named))
            if best is None or rank > best[:2]:
                best = (*rank, relation)
    return None if best is None else (best[2], best[1])


def ways(reference: TableReference, full_names: Mapping[Span, tuple[str, ...]]) -> list[tuple[str, ...]]:
    # The full names of a table: where the name as written ends in a branch, with and without it.
    full = full_names.get(reference.span, reference.parts)
    return [full] if full[-1] == reference.parts[-1] else [full, (*full, reference.parts[-1])]


def shared_length(names: tuple[str, ...], parts: tuple[str, ...]) -> int:
    # How many of the last parts of a table's name stand before a column in a chain.
    folded = tuple(part.lower() for part in parts)
    lengths = range(min(len(folded), len(names) - 1), 0, -1)
    return next((length for length in lengths if names[:length] == folded[-length:]), 0)
