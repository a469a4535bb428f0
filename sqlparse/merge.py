"""Read MERGE. Pure; driver.

Input: a cursor at MERGE. Output: `MergeStatement`, or a `SqlError` that names the clause. Spark requires the clauses
ordered by kind. Any order is accepted here: the kinds exclude each other, and only the order within a kind matters.
"""

from dml.errors import ErrorKind
from dml.sqlparse.cursor import Cursor
from dml.sqlparse.fragments import FragmentReader, read_target
from dml.sqlparse.names import read_alias, read_table
from dml.sqlparse.row_level import (
    check_assignments,
    check_last_without_condition,
    check_some_clause,
    read_assignments,
    read_value,
)
from dml.sqlparse.statements import (
    Assignment,
    DeleteAction,
    Fragment,
    InsertAction,
    MergeStatement,
    TableReference,
    UpdateAction,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
)

__all__ = ["read_merge"]

WHEN = frozenset({"WHEN"})
THEN = frozenset({"THEN", "WHEN"})
MATCHED = "MATCHED"
NOT_MATCHED = "NOT MATCHED"
BY_SOURCE = "NOT MATCHED BY SOURCE"
BARE_QUERY = "Put the query in parentheses: USING (SELECT ...) AS s."


def read_merge(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None) -> MergeStatement:
    """Read `MERGE [WITH SCHEMA EVOLUTION] INTO target USING source ON condition WHEN ...`."""
    cursor.expect("MERGE")
    evolution = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = read_target(cursor, reader, aliased=True)
    cursor.expect("USING")
    bare_query = cursor.key() in {"SELECT", "WITH"}
    source, alias, columns = read_source_relation(cursor, reader)
    cursor.expect("ON", hint=BARE_QUERY if bare_query else join_hint(cursor))
    begin = cursor.index
    condition = reader.expression(begin, cursor.expression("the ON condition", stops=WHEN))
    matched: list[WhenMatched] = []
    not_matched: list[WhenNotMatched] = []
    by_source: list[WhenNotMatchedBySource] = []
    while cursor.at("WHEN"):
        clause = when(cursor, reader, target)
        match clause:
            case WhenMatched():
                matched.append(clause)
            case WhenNotMatched():
                not_matched.append(clause)
            case WhenNotMatchedBySource():
                by_source.append(clause)
    check_some_clause(cursor, len(matched) + len(not_matched) + len(by_source))
    if not cursor.at_end():
        cursor.fail(expected="WHEN or the end of the statement")
    check_last_without_condition(cursor, MATCHED, tuple(matched))
    check_last_without_condition(cursor, NOT_MATCHED, tuple(not_matched))
    check_last_without_condition(cursor, BY_SOURCE, tuple(by_source))
    return MergeStatement(
        target=target,
        source=source,
        source_alias=alias,
        source_column_aliases=columns,
        condition=condition,
        matched=tuple(matched),
        not_matched=tuple(not_matched),
        not_matched_by_source=tuple(by_source),
        with_schema_evolution=evolution,
        ctes=ctes,
    )


def join_hint(cursor: Cursor) -> str | None:
    if cursor.key() in {"JOIN", "LEFT", "RIGHT", "INNER", "FULL", "CROSS", ","}:
        return "Put the join into a query in parentheses: USING (SELECT ... FROM a JOIN b ON ...) AS s."
    return None


def read_source_relation(cursor: Cursor, reader: FragmentReader) -> tuple[Fragment, str | None, tuple[str, ...]]:
    source, begin = cursor.source, cursor.index
    if cursor.at("("):
        end = source.partner[begin] + 1
        if not source.query_start[begin]:
            cursor.index += 1
            cursor.fail(expected="a query in the parentheses after USING")
    elif cursor.at("VALUES") and source.query_start[begin]:
        end = values_end(cursor)
    elif cursor.at_name() and not cursor.at("ON"):
        found = read_table(source, begin, aliased=True)
        end = source.partner[found.index] + 1 if found.is_function else token_at(cursor, found.alias_place)
        if source.tokens[end].key == ".":
            cursor.index = end + 1
            cursor.fail(expected="a name after '.'")
    else:
        cursor.fail(expected="a source: the name of a table, a query in parentheses or VALUES")
    cursor.index, alias, columns = read_alias(source, end)
    fragment = reader.relation(begin, end, 0, reach=cursor.index)
    return fragment, alias, columns


def token_at(cursor: Cursor, place: int) -> int:
    index = cursor.index
    while cursor.source.tokens[index].end <= place and index < cursor.source.end:
        index += 1
    return index


def values_end(cursor: Cursor) -> int:
    # VALUES row, row ... up to the alias or ON.
    source, index = cursor.source, cursor.index + 1
    while index < source.end:
        key = source.word(index)
        if source.clause_at(index) and (key in {"AS", "ON"} or (source.is_name(index) and index > cursor.index + 1)):
            break
        index = source.partner.get(index, index) + 1
    return index


def when(
    cursor: Cursor, reader: FragmentReader, target: TableReference
) -> WhenMatched | WhenNotMatched | WhenNotMatchedBySource:
    begin = cursor.index
    cursor.expect("WHEN")
    kind = read_kind(cursor)
    condition = None
    if cursor.accept("AND"):
        start = cursor.index
        what = "the condition of the WHEN clause"
        condition = reader.expression(start, cursor.expression(what, stops=THEN, after=f"THEN after {what}"))
    cursor.expect("THEN", hint=None if condition else "Write WHEN ... [AND condition] THEN action.")
    if kind == NOT_MATCHED:
        insert = read_insert(cursor, reader, target)
        return WhenNotMatched(condition=condition, action=insert, span=cursor.span_from(begin))
    action = update_or_delete(cursor, reader, target, kind)
    span = cursor.span_from(begin)
    if kind == MATCHED:
        return WhenMatched(condition=condition, action=action, span=span)
    return WhenNotMatchedBySource(condition=condition, action=action, span=span)


def read_kind(cursor: Cursor) -> str:
    if cursor.accept("MATCHED"):
        return MATCHED
    if not cursor.accept("NOT"):
        cursor.fail(expected="MATCHED or NOT MATCHED after WHEN")
    cursor.expect("MATCHED")
    if not cursor.accept("BY"):
        return NOT_MATCHED
    if cursor.accept("TARGET"):
        return NOT_MATCHED
    if not cursor.accept("SOURCE"):
        cursor.fail(expected="TARGET or SOURCE after BY")
    return BY_SOURCE


def update_or_delete(
    cursor: Cursor, reader: FragmentReader, target: TableReference, kind: str
) -> UpdateAction | DeleteAction:
    begin = cursor.index
    if cursor.accept("DELETE"):
        return DeleteAction(span=cursor.span_from(begin))
    if not cursor.accept("UPDATE"):
        if cursor.at("INSERT"):
            cursor.fail(
                f"WHEN {kind} allows only UPDATE and DELETE",
                expected="UPDATE or DELETE",
                hint="Rows are inserted by WHEN NOT MATCHED THEN INSERT.",
            )
        cursor.fail(expected="UPDATE or DELETE after THEN")
    cursor.expect("SET")
    if cursor.at("*"):
        if kind == BY_SOURCE:
            cursor.fail(
                "UPDATE SET * is not allowed in WHEN NOT MATCHED BY SOURCE: there is no source row to take values from",
                expected="the name of a column to assign",
            )
        cursor.index += 1
        return UpdateAction(assignments=None, span=cursor.span_from(begin))
    assignments = read_assignments(cursor, reader, stops=WHEN)
    check_assignments(cursor, target, assignments)
    return UpdateAction(assignments=assignments, span=cursor.span_from(begin))


def read_insert(cursor: Cursor, reader: FragmentReader, target: TableReference) -> InsertAction:
    begin = cursor.index
    if not cursor.accept("INSERT"):
        if cursor.key() in {"UPDATE", "DELETE"}:
            cursor.fail(
                f"WHEN NOT MATCHED allows only INSERT, not {cursor.key()}",
                expected="INSERT",
                hint="Target rows without a source row are found by WHEN NOT MATCHED BY SOURCE.",
            )
        cursor.fail(expected="INSERT after THEN")
    if cursor.accept("*"):
        return InsertAction(assignments=None, span=cursor.span_from(begin))
    if cursor.at("VALUES"):
        cursor.fail(
            expected="the list of columns before VALUES", hint="Write INSERT (a, b) VALUES (x, y), or INSERT *."
        )
    assignments = insert_list(cursor, reader)
    check_assignments(cursor, target, assignments)
    return InsertAction(assignments=assignments, span=cursor.span_from(begin))


def insert_list(cursor: Cursor, reader: FragmentReader) -> tuple[Assignment, ...]:
    close = cursor.open_bracket("the columns of INSERT")
    keys = []
    while True:
        begin = cursor.index
        key = cursor.names("the name of a column")
        keys.append((key, cursor.span_from(begin)))
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    cursor.expect("VALUES")
    open_index = cursor.index
    close = cursor.open_bracket("the values of INSERT")
    values = []
    while True:
        values.append(read_value(cursor, reader, what="a value"))
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    if len(keys) != len(values):
        cursor.fail_at(
            cursor.span_from(open_index),
            f"INSERT names {len(keys)} columns but has {len(values)} values",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            expected=f"{len(keys)} values",
        )
    return tuple(
        Assignment(key=key, key_span=span, value=value, value_span=value_span)
        for (key, span), (value, value_span) in zip(keys, values, strict=True)
    )
