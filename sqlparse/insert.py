"""Read INSERT. Pure; driver.

Input: a cursor at INSERT. Output: `InsertStatement`, or a `SqlError`.
"""

from dml.sqlparse.cursor import Cursor, LeftToSpark
from dml.sqlparse.definitions import read_properties
from dml.sqlparse.fragments import FragmentReader, read_target
from dml.sqlparse.row_level import read_partition
from dml.sqlparse.statements import Fragment, InsertMode, InsertStatement, Span

__all__ = ["read_insert"]

QUERY = frozenset({"SELECT", "VALUES", "TABLE", "FROM", "WITH", "MAP", "REDUCE"})


def read_insert(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None) -> InsertStatement:
    """Read `INSERT INTO | OVERWRITE [TABLE] target [PARTITION (...)] [(columns) | BY NAME] query`."""
    cursor.expect("INSERT")
    evolution = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    mode = read_mode(cursor)
    cursor.accept("TABLE")
    target = read_target(cursor, reader, aliased=False)
    options = read_properties(cursor) if cursor.at("WITH", "(") and cursor.accept("WITH") else ()
    partition = read_partition(cursor, reader) if cursor.accept("PARTITION") else ()
    if cursor.at("IF", "NOT", "EXISTS"):
        raise LeftToSpark
    replace_where = None
    columns: tuple[tuple[str, Span], ...] = ()
    by_name = False
    if cursor.at("REPLACE", "WHERE"):
        if mode is InsertMode.OVERWRITE:
            cursor.fail(expected="a query", hint="REPLACE WHERE goes with INSERT INTO.")
        replace_where, mode = read_replace_where(cursor, reader), InsertMode.REPLACE_WHERE
    elif cursor.at("REPLACE") or cursor.at("AS"):
        raise LeftToSpark
    elif cursor.accept("BY"):
        cursor.expect("NAME")
        by_name = True
    elif is_column_list(cursor):
        columns = read_columns(cursor)
    return InsertStatement(
        target=target,
        mode=mode,
        partition=partition,
        columns=tuple(name for name, _ in columns),
        column_spans=tuple(span for _, span in columns),
        by_name=by_name,
        replace_where=replace_where,
        query=read_query(cursor, reader),
        ctes=ctes,
        options=options,
        with_schema_evolution=evolution,
    )


def read_mode(cursor: Cursor) -> InsertMode:
    if cursor.accept("INTO"):
        return InsertMode.APPEND
    if not cursor.accept("OVERWRITE"):
        cursor.fail(expected="INTO or OVERWRITE")
    if cursor.at("DIRECTORY") or cursor.at("LOCAL", "DIRECTORY"):
        raise LeftToSpark
    return InsertMode.OVERWRITE


def read_replace_where(cursor: Cursor, reader: FragmentReader) -> Fragment:
    cursor.expect("REPLACE", "WHERE")
    begin = cursor.index
    source = cursor.source
    while cursor.index < source.end:
        operand_before = cursor.index > begin and source.operator_next[cursor.index - 1]
        subquery = source.word(cursor.index - 1) in {"EXISTS", "ANY", "SOME", "ALL"}
        if operand_before and not subquery and source.query_start[cursor.index]:
            break
        cursor.index = source.partner.get(cursor.index, cursor.index) + 1
    if cursor.index == begin:
        cursor.fail(expected="a condition after REPLACE WHERE")
    return reader.expression(begin, cursor.index)


def is_column_list(cursor: Cursor) -> bool:
    # INSERT INTO t (a, b) SELECT ..., not INSERT INTO t (SELECT ...).
    source = cursor.source
    if not cursor.at("("):
        return False
    if not source.query_start[cursor.index]:
        return True
    place, close = cursor.index + 1, source.partner[cursor.index]
    return source.is_name(place) and source.tokens[place + 1].key in {",", ")"} and close < source.end - 1


def read_columns(cursor: Cursor) -> tuple[tuple[str, Span], ...]:
    close = cursor.open_bracket("the columns")
    columns = []
    while True:
        begin = cursor.index
        name = cursor.name("the name of a column")
        if cursor.at("."):
            cursor.fail(expected="',' or ')'", hint="INSERT names whole columns; give a struct as a whole.")
        columns.append((name, cursor.span_from(begin)))
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    return tuple(columns)


def read_query(cursor: Cursor, reader: FragmentReader) -> Fragment:
    source = cursor.source
    if not (cursor.key() in QUERY or source.query_start[min(cursor.index, source.end)]):
        cursor.fail(expected="a query: SELECT, VALUES, TABLE, FROM or WITH")
    begin = cursor.index
    cursor.index = source.end
    query = reader.query(begin, source.end)
    if reader.has_insert:
        raise LeftToSpark
    return query
