"""Read table names with time travel, options, a sample and an alias. Pure; driver.

Input: an index in the tokens. Output: `FoundTable`. Reading never fails: Spark reports errors in queries, and the
readers of other statements check what follows.
"""

from dataclasses import dataclass

from dml.sqlparse.quoting import string_value
from dml.sqlparse.statements import Span, TableReference
from dml.sqlparse.tokens import Source, TokenKind, read_source, words

__all__ = ["FoundTable", "is_alias", "name_parts", "read_alias", "read_table"]

# Never an alias without AS: Spark's strict non-reserved words, and words that begin the next clause.
NOT_ALIAS = words(
    "ANTI CROSS EXCEPT FULL INNER INTERSECT JOIN LATERAL LEFT MINUS NATURAL ON RIGHT SEMI SETMINUS UNION "
    "USING OUTER WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW QUALIFY SELECT SET WHEN "
    "THEN VALUES AS TABLESAMPLE INSERT UPDATE DELETE MERGE FROM REDUCE MAP AND OR WITH ASOF REPLACE"
)
ONLY_BEFORE = {
    "PIVOT": {"("}, "UNPIVOT": {"(", "INCLUDE", "EXCLUDE"}, "MATCH_RECOGNIZE": {"("}, "WATERMARK": {"FOR"},
}  # fmt: skip
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "||", "&", "|", "^", "DIV"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table reference and its end.

    Attributes:
        reference: The table.
        index: The token after it, its time travel, options, sample and alias.
        alias_place: Offset at which an alias can be inserted.
        is_function: True for the name of a table function; `index` is then its bracket.
    """

    reference: TableReference
    index: int
    alias_place: int
    is_function: bool = False


def name_parts(text: str) -> tuple[str, ...]:
    """Split a dotted name and remove its quotes; empty if the text is not exactly a name."""
    source = read_source(text)
    names = range(0, source.end, 2)
    dots = range(1, source.end, 2)
    is_name = source.end % 2 == 1 and all(source.is_name(index) for index in names)
    if not is_name or not all(source.tokens[index].key == "." for index in dots):
        return ()
    return tuple(source.name(index) for index in names)


def is_alias(source: Source, index: int) -> bool:
    """Return whether the token may be an alias without AS."""
    token = source.tokens[index]
    if token.kind is TokenKind.QUOTED:
        return True
    if token.kind is not TokenKind.WORD or token.key in NOT_ALIAS or token.key.isdigit():
        return False
    return source.tokens[min(index + 1, source.end)].key not in ONLY_BEFORE.get(token.key, ())


def read_alias(source: Source, index: int) -> tuple[int, str | None, tuple[str, ...]]:
    """Read `[AS] alias [(column, ...)]`.

    Args:
        source: The statement.
        index: The token where an alias may begin.

    Returns:
        The index after it, the alias or None, and the names of the columns.
    """
    explicit = source.word(index) == "AS" and source.is_name(index + 1)
    if not explicit and not (index < source.end and is_alias(source, index)):
        return index, None, ()
    index += explicit
    alias, index = source.name(index), index + 1
    columns: list[str] = []
    close = source.partner.get(index, index) if source.tokens[index].key == "(" else index
    place = index + 1
    while place < close and source.is_name(place) and source.tokens[place + 1].key in {",", ")"}:
        columns.append(source.name(place))
        place += 2
    if close > index and place >= close and columns:
        return close + 1, alias, tuple(columns)
    return index, alias, ()


def read_table(source: Source, index: int, *, aliased: bool) -> FoundTable:
    """Read a table reference.

    Args:
        source: The statement.
        index: The first name, or the keyword of `IDENTIFIER('a.b')`.
        aliased: True if a sample and an alias may follow.
    """
    start = source.tokens[index].start
    parts, index, is_function = read_parts(source, index)
    name_end = source.tokens[index - 1].end
    if is_function and aliased:
        reference = TableReference(parts=parts, span=Span(start, name_end))
        return FoundTable(reference=reference, index=index, alias_place=name_end, is_function=True)
    index, version, timestamp = read_time_travel(source, index)
    span = Span(start, source.tokens[index - 1].end)
    if aliased:
        index = skip_options(source, index)
        index = skip_sample(source, index)
    alias_place = source.tokens[index - 1].end
    alias: str | None = None
    columns: tuple[str, ...] = ()
    if aliased:
        index, alias, columns = read_alias(source, index)
    reference = TableReference(
        parts=parts, span=span, alias=alias, column_aliases=columns, version=version, timestamp=timestamp
    )
    return FoundTable(reference=reference, index=index, alias_place=alias_place)


def read_parts(source: Source, index: int) -> tuple[tuple[str, ...], int, bool]:
    if source.tokens[index].key == "IDENTIFIER" and source.tokens[index + 1].key == "(":
        close = source.partner.get(index + 1, -1)
        if close == index + 3 and source.tokens[index + 2].kind is TokenKind.STRING:
            inner = read_source(string_value(source.text(index + 2)))
            if inner.end and all(inner.is_name(place) for place in range(0, inner.end, 2)):
                parts = tuple(inner.name(place) for place in range(0, inner.end, 2))
                return parts, close + 1, source.tokens[close + 1].key == "("
    parts_read = [source.name(index)]
    index += 1
    while source.tokens[index].key == "." and source.is_name(index + 1):
        parts_read.append(source.name(index + 1))
        index += 2
    return tuple(parts_read), index, source.tokens[index].key == "("


def read_time_travel(source: Source, index: int) -> tuple[int, str | None, str | None]:
    place = index + (source.word(index) == "FOR")
    kind = source.word(place)
    if (source.word(place + 1), source.word(place + 2)) != ("AS", "OF"):
        return index, None, None
    place += 3
    operand = source.tokens[place]
    if kind in {"VERSION", "SYSTEM_VERSION"} and operand.kind in {TokenKind.NUMBER, TokenKind.STRING}:
        text = source.text(place)
        return place + 1, string_value(text) if operand.kind is TokenKind.STRING else text, None
    if kind in {"TIMESTAMP", "SYSTEM_TIME"} and place < source.end:
        end = value_end(source, place)
        return end, None, source.sql[operand.start : source.tokens[end - 1].end]
    return index, None, None


def value_end(source: Source, index: int) -> int:
    # An arithmetic expression ends at the first word or symbol after an operand that is not an operator.
    while index < source.end:
        while source.tokens[index].key in {"-", "+", "~"}:
            index += 1
        index = operand_end(source, index)
        if index >= source.end or source.tokens[index].key not in ARITHMETIC:
            break
        index += 1
    return min(index, source.end)


def operand_end(source: Source, index: int) -> int:
    token = source.tokens[index]
    if index in source.partner:
        index = source.partner[index] + 1
    elif token.key == "INTERVAL" and source.tokens[index + 1].key not in {"", "."}:
        index += 1
    elif token.key == "INTERVAL":
        index += 2
        while source.tokens[index].kind is TokenKind.WORD and source.tokens[index].key.rstrip("S") in UNITS:
            index += 1 + 2 * (source.tokens[index + 1].key == "TO")
            if source.tokens[index].kind in {TokenKind.NUMBER, TokenKind.STRING}:
                index += 1
    elif token.kind in {TokenKind.STRING, TokenKind.NUMBER}:
        index += 1
    elif source.is_name(index):
        index += 1
        while source.tokens[index].key == "." and source.is_name(index + 1):
            index += 2
        if source.tokens[index].kind is TokenKind.STRING:
            index += 1
    else:
        return index + (token.key == "?")  # not an operand; a parameter marker is
    while source.tokens[index].key in {"(", "["} and index in source.partner:
        index = source.partner[index] + 1
    while source.tokens[index].key == "::" and source.is_name(index + 1):
        index += 2
    return index


UNITS = words("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND")


def skip_options(source: Source, index: int) -> int:
    if source.word(index) == "WITH" and source.tokens[index + 1].key == "(" and not source.query_start[index + 1]:
        return source.partner.get(index + 1, index) + 1
    return index


def skip_sample(source: Source, index: int) -> int:
    if source.word(index) != "TABLESAMPLE":
        return index
    place = index + 1 + (source.word(index + 1) in {"SYSTEM", "BERNOULLI"})
    if source.tokens[place].key != "(":
        return index
    place = source.partner.get(place, index) + 1
    if source.word(place) == "REPEATABLE" and source.tokens[place + 1].key == "(":
        place = source.partner.get(place + 1, place) + 1
    return place
