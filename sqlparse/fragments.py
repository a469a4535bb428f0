"""Analyse parts of a statement: their text, with the tables, columns and names in it. Pure; driver.

Input: ranges of a statement's tokens, or a cursor at the name of the statement's table. Output: `Fragment`s, the
target's `TableReference`, and the `Relation`s of the whole statement for rendering.
"""

import re
from collections.abc import Iterator

from sqlglot import exp

from dml.sqlparse.cursor import Cursor
from dml.sqlparse.dialect import parse_expression, parse_query
from dml.sqlparse.names import read_table
from dml.sqlparse.quoting import string_value
from dml.sqlparse.relations import Block, Relation, RelationScan, read_ctes, scan_expression, scan_query, scan_relation
from dml.sqlparse.statements import ColumnReference, Fragment, Span, TableReference
from dml.sqlparse.tokens import Source, TokenKind, words

__all__ = ["FragmentReader", "read_target", "table_and_column", "table_name"]

NO_OPERAND = words("SELECT DISTINCT ALL REDUCE MAP BY AGGREGATE EXTEND")
NO_COLUMN = words("SELECT FROM WHERE AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE RLIKE BETWEEN AS BY JOIN DISTINCT")


class FragmentReader:
    """Creates the fragments of one statement and collects the tables that they name.

    Attributes:
        relations: The table references so far.
        ctes: Lower-case names of the CTEs before the statement's verb.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.relations: list[Relation] = []
        self.ctes: frozenset[str] = frozenset()
        self.has_insert = False

    def expression(self, start: int, end: int) -> Fragment:
        """Return the expression in the tokens from `start` up to `end`."""
        text, strings = self._text(start, end)
        scan = scan_expression(self.source, start, end, self.ctes)
        return self._fragment(start, end, scan, parse_expression(text, strings))

    def query(self, start: int, end: int) -> Fragment:
        """Return the query in the tokens from `start` up to `end`."""
        text, strings = self._text(start, end)
        scan = scan_query(self.source, start, end, self.ctes)
        begin = read_ctes(self.source, start, frozenset())[0] if self.source.word(start) == "WITH" else start
        tree = parse_query(text, strings) if self.source.query_start[begin] else None
        return self._fragment(start, end, scan, tree)

    def relation(self, start: int, end: int, scope_start: int, reach: int | None = None) -> Fragment:
        """Return the source of a statement: a table, a query in parentheses or VALUES.

        Args:
            start: First token.
            end: Token after the last one, without the alias.
            scope_start: Offset of the scope in which its columns can be named.
            reach: Token after its alias, which belongs to the table reference.
        """
        source = self.source
        text, strings = self._text(start, end)
        scope = Span(scope_start, source.tokens[source.end].end)
        scan = scan_relation(source, start, reach or end, self.ctes, scope)
        scan.has_subquery = scan.has_subquery or source.query_start[start]
        tree = parse_query(text if source.query_start[start] else f"TABLE {text}", strings)
        if not source.query_start[start]:
            tree = tree.find(exp.Table) if tree else None
        return self._fragment(start, end, scan, tree)

    def with_clause(self, start: int, end: int) -> Fragment:
        """Return `WITH a AS (...), ...` before a verb other than SELECT."""
        text, strings = self._text(start, end)
        scan = scan_query(self.source, start, end, frozenset())
        tree = parse_query(f"{text} SELECT 1", strings)
        return self._fragment(start, end, scan, tree.args.get("with_") if tree else None)

    def _text(self, start: int, end: int) -> tuple[str, tuple[str, ...]]:
        tokens = self.source.tokens
        text = self.source.sql[tokens[start].start : tokens[end - 1].end]
        strings = tuple(
            self.source.text(index) for index in range(start, end) if tokens[index].kind is TokenKind.STRING
        )
        return text, strings

    def _fragment(self, start: int, end: int, scan: RelationScan, tree: exp.Expression | None) -> Fragment:
        tokens = self.source.tokens
        span = Span(tokens[start].start, tokens[end - 1].end)
        self.relations.extend(scan.relations)
        self.has_insert = self.has_insert or scan.has_insert
        names, hidden = names_in(self.source, start, end)
        return Fragment(
            text=self.source.sql[span.start : span.end],
            span=span,
            tables=tuple(relation.reference for relation in scan.relations),
            columns=tuple(columns(self.source, start, end, tree, scan)),
            names=names,
            has_star=scan.has_star or hidden or has_star(self.source, start, end),
            has_subquery=scan.has_subquery,
            ast=tree,
        )


def names_in(source: Source, start: int, end: int) -> tuple[frozenset[str], bool]:
    # Includes text in double quotes, which may be an identifier (spark.sql.ansi.doubleQuotedIdentifiers), and the
    # argument of IDENTIFIER(). An argument whose names are unknown counts as a star.
    names: set[str] = set()
    hidden = False
    for index in range(start, end):
        kind, key, _, _ = source.tokens[index]
        if kind is TokenKind.WORD:
            names.add(key.lower())
            if key == "IDENTIFIER" and source.tokens[index + 1].key == "(":
                argument = source.tokens[index + 2]
                hidden = hidden or argument.kind is not TokenKind.STRING or source.tokens[index + 3].key != ")"
                if argument.kind is TokenKind.STRING:
                    names.update(re.findall(r"\w+", string_value(source.text(index + 2)).lower()))
                    names.update(part.strip("` ") for part in string_value(source.text(index + 2)).lower().split("."))
        elif kind is TokenKind.QUOTED:
            names.add(source.name(index).lower())
        elif kind is TokenKind.STRING and source.text(index)[0] == '"':
            names.add(string_value(source.text(index)).lower())
    return frozenset(names), hidden


def has_star(source: Source, start: int, end: int) -> bool:
    # A star between two operands is a multiplication, and count(*) counts rows; all other stars are columns.
    tokens = source.tokens
    for index in range(start, end):
        if tokens[index].key != "*":
            continue
        before, after = tokens[index - 1] if index > start else tokens[source.end], tokens[index + 1]
        counts = before.key == "(" and after.key == ")" and index > start + 1 and tokens[index - 2].key == "COUNT"
        operand_before = index > start and source.operator_next[index - 1] and before.key not in NO_OPERAND
        starts_operand = after.kind is not TokenKind.SYMBOL or after.key in {"(", "-", "+", "~", ":", "?", "."}
        operand_after = index + 1 < end and starts_operand and after.key not in {"FROM", "EXCEPT", "WHERE"}
        if not counts and not (operand_before and operand_after):
            return True
    return False


def columns(
    source: Source, start: int, end: int, tree: exp.Expression | None, scan: RelationScan
) -> Iterator[ColumnReference]:
    tokens = source.tokens
    tables = [relation.reference.span for relation in scan.relations]
    found = column_starts(tree, tokens[start].start) if tree else None
    index = start
    while index < end:
        if not source.is_name(index) or source.tokens[index - 1 if index > start else source.end].key == ".":
            index += 1
            continue
        begin, parts = index, [source.name(index)]
        while index + 2 < end and tokens[index + 1].key == "." and source.is_name(index + 2):
            index += 2
            parts.append(source.name(index))
        index += 1
        span = Span(tokens[begin].start, tokens[index - 1].end)
        plain = tokens[index].key not in {"(", "=>"} and not (tokens[begin].key in NO_COLUMN and len(parts) == 1)
        inside = any(table.start <= span.start < table.end for table in tables)
        if not inside and (span.start in found if found is not None else plain):
            yield ColumnReference(parts=tuple(parts), span=span)


def column_starts(tree: exp.Expression, offset: int) -> set[int]:
    starts = set()
    for column in tree.find_all(exp.Column):
        place = column.parts[0].meta.get("start")
        if place is not None and not isinstance(column.this, exp.Star):
            starts.add(place + offset)
    return starts


def read_target(cursor: Cursor, reader: FragmentReader, *, aliased: bool) -> TableReference:
    """Read the table that a row-level statement writes to.

    Args:
        cursor: Its position is the name.
        reader: Collects the reference. Its columns can be named in the whole statement.
        aliased: True if an alias may follow.

    Raises:
        SqlError: There is no name, or a time travel clause follows it.
    """
    source = cursor.source
    if not cursor.at_name():
        cursor.fail(expected="the name of a table")
    found = read_table(source, cursor.index, aliased=aliased)
    reference = found.reference
    cursor.index = found.index
    if found.is_function:
        cursor.fail(expected="the name of a table", hint="A function's result cannot be written to.")
    if source.tokens[found.index].key == ".":
        if tuple(part.upper() for part in reference.parts) == ("TABLE",):
            cursor.fail_at(reference.span, "Unexpected 'TABLE'", expected="the name of a table", hint="Leave it out.")
        cursor.index += 1
        cursor.fail(expected="a name after '.'")
    if reference.version is not None or reference.timestamp is not None:
        cursor.fail_at(
            reference.span,
            "Cannot write to a table with time travel",
            hint="Name a branch as the last part of the table's name to write to it: db.t.branch_x.",
        )
    block = Block(0, source.tokens[source.end].end)
    alias_place = found.alias_place if aliased else None
    reader.relations.append(Relation(reference=reference, block=block, alias_place=alias_place))
    return reference


def table_name(cursor: Cursor, reader: FragmentReader) -> TableReference:
    """Read the table of a DDL statement: a plain name."""
    if not cursor.at_name():
        cursor.fail(expected="the name of a table")
    found = read_table(cursor.source, cursor.index, aliased=False)
    cursor.index = found.index
    reference = found.reference
    if reference.version is not None or reference.timestamp is not None:
        cursor.fail_at(reference.span, "Time travel is not allowed here", expected="the plain name of a table")
    add_table(reader, reference)
    return reference


def table_and_column(cursor: Cursor, reader: FragmentReader) -> tuple[TableReference, ColumnReference]:
    """Read the name of a column with its table before it: `db.t.c`. Return the table's name, and the column's."""
    if not cursor.at_name():
        cursor.fail(expected="the name of a table and a column")
    begin = cursor.index
    *parts, column = cursor.names("the name of a table and a column")
    if not parts:
        cursor.fail_at(cursor.span_from(begin), "The column needs the name of its table", expected=f"table.{column}")
    tokens = cursor.source.tokens
    table = TableReference(parts=tuple(parts), span=Span(tokens[begin].start, tokens[cursor.index - 3].end))
    add_table(reader, table)
    return table, ColumnReference(parts=(column,), span=cursor.span_from(cursor.index - 1))


def add_table(reader: FragmentReader, reference: TableReference) -> None:
    block = Block(reference.span.start, reference.span.end)
    reader.relations.append(Relation(reference=reference, block=block, alias_place=None))
