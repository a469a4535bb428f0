"""Complete SQL at a cursor: names of the session's catalogs, and keywords. Driver.

Input: a text, the cursor, the catalogs. Output: candidates. The names are looked up in the catalogs without Spark and
kept for `limits.SHELL_NAMES_SECONDS`. A failed lookup gives no candidates.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from dml import limits
from dml.catalog.registry import METADATA_TABLES, CatalogRegistry
from dml.catalog.tables import load_table
from dml.ddl.namespaces import child_namespaces, list_relations
from dml.errors import DmlError
from dml.sqlparse.quoting import quote_identifier, unquoted
from dml.sqlparse.tokens import Token, TokenKind, tokenize, words

__all__ = ["Candidate", "CatalogNames", "complete"]

KEYWORDS: Final = sorted(
    words(
        """
ADD ALL ALTER ANALYZE AND AS ASC BETWEEN BRANCH BY CALL CASE CAST CATALOG COLUMN COLUMNS COMMENT CREATE CROSS DELETE
DESC DESCRIBE DISTINCT DROP ELSE END EXISTS EXPLAIN FALSE FIELDS FROM FULL GROUP HAVING IDENTIFIER IF ILIKE IN INNER
INSERT INTERVAL INTO IS JOIN LEFT LIKE LIMIT MATCHED MERGE NAMESPACE NAMESPACES NOT NULL OFFSET ON OR ORDER OUTER OVER
OVERWRITE PARTITION PARTITIONED PARTITIONS PROPERTIES REFRESH RENAME REPLACE RIGHT SELECT SET SHOW SOURCE STATISTICS
TABLE TABLES TAG TARGET TBLPROPERTIES THEN TIMESTAMP TO TRUE TRUNCATE UNION UNSET UPDATE USE USING VALUES VERSION VIEW
VIEWS WHEN WHERE WINDOW WITH
"""
    )
)
BEFORE_TABLE: Final = words("FROM JOIN INTO UPDATE USING TABLE DESCRIBE DESC REFRESH EXISTS")
"""Words that a table's name follows."""

BEFORE_NAMESPACE: Final = words("USE NAMESPACE SCHEMA DATABASE")
BEFORE_ALIAS: Final = words("FROM JOIN INTO UPDATE USING TABLE")
NO_ALIAS: Final = words(
    "WHERE SET ON USING WHEN GROUP ORDER JOIN LEFT RIGHT INNER FULL CROSS VALUES SELECT UNION LIMIT HAVING FOR VERSION "
    "TIMESTAMP TABLESAMPLE LATERAL NATURAL PARTITION"
)

Name = tuple[str, ...]


class Candidate(NamedTuple):
    """A completion.

    Attributes:
        text: The text that replaces the part of the name before the cursor.
        kind: What it is, for display.
        typed: The number of characters that it replaces.
    """

    text: str
    kind: str
    typed: int


class CatalogNames:
    """The names in a session's catalogs. Methods may be called from any thread.

    Args:
        registry: The catalogs.
    """

    def __init__(self, registry: CatalogRegistry) -> None:
        self.registry = registry
        self._found: dict[tuple[str, str, Name], tuple[float, list[str]]] = {}

    def forget(self) -> None:
        """Look all names up again, for example after a statement that may have changed them."""
        self._found = {}

    def namespaces(self, catalog: str, parent: Name = ()) -> list[str]:
        """Return the last parts of the namespaces below another one."""
        return self._cached(
            ("namespaces", catalog, parent),
            lambda: [name[-1] for name in child_namespaces(self.registry.catalog(catalog), parent)],
        )

    def relations(self, catalog: str, namespace: Name) -> list[str]:
        """Return the names of the tables and views of a namespace."""
        return self._cached(
            ("relations", catalog, namespace),
            lambda: [name[-1] for name in list_relations(self.registry.catalog(catalog), namespace)],
        )

    def columns(self, name: Name) -> list[str]:
        """Return the top-level columns of a table by its name in a statement; empty if there is no such table."""
        catalog, identifier = self.registry.split(name)
        return self._cached(
            ("columns", catalog, identifier),
            lambda: [field.name for field in load_table(self.registry.catalog(catalog), identifier).schema().fields],
        )

    def _cached(self, key: tuple[str, str, Name], lookup: Callable[[], list[str]]) -> list[str]:
        found = self._found.get(key)
        if found is None or time.monotonic() - found[0] > limits.SHELL_NAMES_SECONDS:
            try:
                names = lookup() if key[2] or key[0] == "namespaces" else []
            except DmlError:
                names = []
            found = self._found[key] = (time.monotonic(), names)
        return found[1]


def complete(text: str, cursor: int, names: CatalogNames) -> Iterator[Candidate]:
    """Yield the completions at a cursor, the most specific first.

    Args:
        text: The text of one or several statements.
        cursor: The offset of the cursor.
        names: The names to choose from.
    """
    tokens, problem = tokenize(text[:cursor])
    if problem is not None or "--" in text[tokens[-1].end if tokens else 0 : cursor]:
        return  # in a string or a comment
    path, qualifier, typed = path_at(text[:cursor], tokens)
    before = next((token.key for token in reversed(tokens[: len(tokens) - path]) if token.key), "")
    tables = partial(relations_in, text, statement_at(text, cursor))
    for kind, found in candidates(before, qualifier, tables, names):
        for name in found:
            if name.lower().startswith(typed.lower()):
                yield Candidate(quote_identifier(name), kind, len(typed))
    if typed and not qualifier and before not in BEFORE_TABLE | BEFORE_NAMESPACE:
        for word in KEYWORDS:
            if word.startswith(typed.upper()):
                yield Candidate(word.lower() if typed.islower() else word, "keyword", len(typed))


def candidates(
    before: str, qualifier: Name, relations: Callable[[], dict[str, Name]], names: CatalogNames
) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the names that fit at a place, with their kind.

    Args:
        before: The word before the name.
        qualifier: The parts of the name before the last dot.
        relations: Returns the tables of the statement by alias.
        names: The names to choose from.
    """
    registry = names.registry
    if before in BEFORE_TABLE | BEFORE_NAMESPACE:
        catalog, _, namespace = registry.namespace(qualifier or None)
        if before in BEFORE_TABLE:
            yield "table", names.relations(catalog, namespace)
            yield "metadata table", sorted(METADATA_TABLES) if qualifier and names.columns(qualifier) else ()
        yield "namespace", names.namespaces(catalog, namespace if qualifier else ())
        yield "catalog", () if qualifier else registry.catalogs
    elif qualifier:
        tables = relations()
        table = tables.get(qualifier[-1].lower()) if len(qualifier) == 1 else qualifier
        yield "column", names.columns(table or qualifier)
    else:
        tables = relations()
        yield "column", dict.fromkeys(column for table in tables.values() for column in names.columns(table))
        yield "alias", (alias for alias, table in tables.items() if alias != table[-1].lower())


def path_at(text: str, tokens: list[Token]) -> tuple[int, Name, str]:
    """Return the number of tokens of the dotted name at the end of a text, its parts before the last dot, and the rest.

    A name that the cursor does not touch is complete, and the next one has no characters yet.
    """
    index, parts, typed = len(tokens), [], ""
    if index and tokens[-1].end == len(text) and tokens[-1].kind is TokenKind.WORD:
        index -= 1
        typed = text[tokens[index].start : tokens[index].end]
    end = tokens[index].start if typed else len(text)
    while index >= 2 and tokens[index - 1].key == "." and tokens[index - 1].end == end:
        owner = tokens[index - 2]
        if owner.kind not in {TokenKind.WORD, TokenKind.QUOTED} or owner.end != tokens[index - 1].start:
            break
        parts.append(unquoted(text[owner.start : owner.end]))
        end, index = owner.start, index - 2
    return len(tokens) - index, tuple(reversed(parts)), typed


def statement_at(text: str, cursor: int) -> list[Token]:
    """Return the tokens of the statement in which the cursor is, without the name that ends there."""
    tokens, _ = tokenize(text)
    ends = [token.start for token in tokens if token.key == ";"]
    first = max((end for end in ends if end < cursor), default=-1)
    last = min((end for end in ends if end >= cursor), default=len(text))
    return [token for token in tokens if first < token.start < last and token.end != cursor]


def relations_in(text: str, tokens: list[Token]) -> dict[str, Name]:
    """Return the tables that a statement names, by their alias or the last part of their name, in lower case."""
    found: dict[str, Name] = {}
    for index, token in enumerate(tokens):
        if token.key in BEFORE_ALIAS:
            place, parts = index + 1, []
            while place < len(tokens) and tokens[place].kind in {TokenKind.WORD, TokenKind.QUOTED}:
                parts.append(unquoted(text[tokens[place].start : tokens[place].end]))
                place += 1
                if place >= len(tokens) or tokens[place].key != ".":
                    break
                place += 1
            if parts:
                place += place < len(tokens) and tokens[place].key == "AS"
                has_alias = place < len(tokens) and tokens[place].kind in {TokenKind.WORD, TokenKind.QUOTED}
                alias = text[tokens[place].start : tokens[place].end] if has_alias else ""
                name = parts[-1] if alias.upper() in NO_ALIAS | {""} else unquoted(alias)
                found.setdefault(name.lower(), tuple(parts))
    return found
