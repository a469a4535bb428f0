"""Read DELETE, UPDATE and TRUNCATE, and the assignments that MERGE shares with them. Pure; driver.

Input: a cursor at the verb, or behind SET. Output: the statement with its `Assignment`s, or a `SqlError` with the
position and what was expected. Planning checks what depends on the table's schema.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dml.errors import ErrorKind
from dml.sqlparse.cursor import NO_HINTS, Cursor
from dml.sqlparse.fragments import FragmentReader, read_target, table_name
from dml.sqlparse.statements import (
    Assignment,
    DeleteStatement,
    Fragment,
    PartitionValue,
    Span,
    TableReference,
    Truncate,
    UpdateStatement,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
)

__all__ = [
    "check_assignments",
    "check_last_without_condition",
    "check_some_clause",
    "read_assignments",
    "read_delete",
    "read_partition",
    "read_truncate",
    "read_update",
    "read_value",
]

NO_JOIN = "Rows of another table are found with a subquery in WHERE, or with MERGE INTO ... USING."
NO_LIMIT = "Choose the rows with a subquery in WHERE: WHERE id IN (SELECT id ... ORDER BY ... LIMIT n)."
NO_ELEMENTS = "Elements of arrays and maps cannot be assigned one by one: assign the whole array or map."
FOREIGN_HINTS: Final[Mapping[str, str]] = MappingProxyType(
    {**dict.fromkeys(("USING", "FROM", "JOIN", ","), NO_JOIN), **dict.fromkeys(("LIMIT", "ORDER"), NO_LIMIT)}
)
"""Hints for clauses that DELETE and UPDATE do not have."""
WHERE = frozenset({"WHERE"})


def read_delete(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None) -> DeleteStatement:
    """Read `DELETE FROM target [[AS] alias] [WHERE condition]`."""
    cursor.expect("DELETE", "FROM")
    target = read_target(cursor, reader, aliased=True)
    condition = where(cursor, reader)
    return DeleteStatement(target=target, condition=condition, ctes=ctes)


def read_update(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None) -> UpdateStatement:
    """Read `UPDATE target [[AS] alias] SET assignments [WHERE condition]`."""
    cursor.expect("UPDATE")
    target = read_target(cursor, reader, aliased=True)
    cursor.expect("SET")
    if cursor.at("*"):
        cursor.fail(expected="the name of a column to assign", hint="SET * is only allowed in MERGE.")
    assignments = read_assignments(cursor, reader, stops=WHERE, hints=FOREIGN_HINTS)
    condition = where(cursor, reader)
    check_assignments(cursor, target, assignments)
    return UpdateStatement(target=target, assignments=assignments, condition=condition, ctes=ctes)


def read_truncate(cursor: Cursor, reader: FragmentReader) -> Truncate:
    """Read `TRUNCATE TABLE target [PARTITION (a = 1, ...)]`."""
    cursor.expect("TRUNCATE", "TABLE")
    target = table_name(cursor, reader)
    partition = read_partition(cursor, reader) if cursor.accept("PARTITION") else ()
    for entry in partition:
        if entry.value is None:
            cursor.fail_at(entry.span, f"The partition column '{entry.column}' has no value", expected="'=' after it")
    cursor.finish()
    return Truncate(target=target, partition=partition)


def read_partition(cursor: Cursor, reader: FragmentReader) -> tuple[PartitionValue, ...]:
    """Read `(a = 1, b)` of a PARTITION clause."""
    close = cursor.open_bracket("the partition")
    values = []
    while True:
        begin = cursor.index
        column = cursor.name("the name of a partition column")
        value = None
        if cursor.accept("=") or cursor.accept("=="):
            start = cursor.index
            value = reader.expression(start, cursor.expression(f"a value for {column!r}", stops=frozenset({","})))
        values.append(PartitionValue(column=column, value=value, span=cursor.span_from(begin)))
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    return tuple(values)


def where(cursor: Cursor, reader: FragmentReader) -> Fragment | None:
    if cursor.at_end():
        return None
    if not cursor.accept("WHERE"):
        cursor.fail(expected="WHERE or the end of the statement", hint=FOREIGN_HINTS.get(cursor.key()))
    begin = cursor.index
    end = cursor.expression("a condition", foreign_hints=FOREIGN_HINTS)
    cursor.finish()
    return reader.expression(begin, end)


def read_assignments(
    cursor: Cursor, reader: FragmentReader, *, stops: frozenset[str], hints: Mapping[str, str] = NO_HINTS
) -> tuple[Assignment, ...]:
    """Read a list of assignments.

    Args:
        cursor: Its position is the first key.
        reader: Creates the fragments.
        stops: The first words of the clauses that may follow.
        hints: Hints for clauses that may not follow.

    Raises:
        SqlError: A key, `=` or a value is missing.
    """
    assignments = []
    while True:
        begin = cursor.index
        key = cursor.names("the name of a column to assign")
        key_span = cursor.span_from(begin)
        if not cursor.accept("="):
            cursor.expect("==" if cursor.at("==") else "=", hint=NO_ELEMENTS if cursor.at("[") else None)
        value, value_span = read_value(cursor, reader, stops=stops, what=f"a value for {key[-1]!r}", hints=hints)
        assignments.append(Assignment(key=key, key_span=key_span, value=value, value_span=value_span))
        if not cursor.accept(","):
            return tuple(assignments)


def read_value(
    cursor: Cursor,
    reader: FragmentReader,
    *,
    what: str,
    stops: frozenset[str] = frozenset(),
    hints: Mapping[str, str] = NO_HINTS,
) -> tuple[Fragment | None, Span]:
    """Read an assigned value up to a comma, a closing bracket or one of `stops`; return None for DEFAULT."""
    begin = cursor.index
    end = cursor.expression(what, stops=stops | {","}, foreign_hints=hints)
    if end == begin + 1 and cursor.source.tokens[begin].key == "DEFAULT":
        return None, cursor.span_from(begin)
    value = reader.expression(begin, end)
    if value.ast is None:
        check_comma(cursor, begin, end, stops)
    return value, cursor.span_from(begin)


def check_comma(cursor: Cursor, begin: int, end: int, stops: frozenset[str]) -> None:
    # SET a = 1 b = 2: a name and `=` directly after an operand.
    source = cursor.source
    index = begin + 1
    while index < end:
        place = index
        while source.is_name(place) and source.tokens[place + 1].key == ".":
            place += 2
        assigns = source.is_name(place) and source.tokens[place + 1].key == "="
        if (
            assigns
            and source.clause_at(index)
            and source.tokens[index - 1].key != "."
            and not source.is_operator(index)
        ):
            cursor.index = index
            cursor.fail(expected="',' between two assignments", keywords=stops)
        index = source.partner.get(index, index) + 1


def check_assignments(cursor: Cursor, target: TableReference, assignments: tuple[Assignment, ...]) -> None:
    """Check that no column is assigned twice, and no field together with a struct that contains it.

    Names are compared case-insensitively, unless the cursor is case-sensitive.

    Raises:
        SqlError: At the second of the two keys.
    """
    seen: dict[tuple[str, ...], Assignment] = {}
    for assignment in assignments:
        path = strip_qualifier(target, assignment.key)
        if not cursor.case_sensitive:
            path = tuple(part.lower() for part in path)
        if path in seen:
            fail(cursor, assignment.key_span, f"Multiple assignments for '{column_text(target, assignment.key)}'")
        for other, before in seen.items():
            shared = min(len(other), len(path))
            if other[:shared] == path[:shared]:
                shorter = before.key if len(other) < len(path) else assignment.key
                fail(cursor, assignment.key_span, f"Conflicting assignments for '{column_text(target, shorter)}'")
        seen[path] = assignment


def check_last_without_condition(
    cursor: Cursor, kind: str, clauses: tuple[WhenMatched | WhenNotMatched | WhenNotMatchedBySource, ...]
) -> None:
    """Check that only the last WHEN clause of a kind has no condition: clauses after it would never apply.

    Raises:
        SqlError: At the first clause without a condition that is not the last one.
    """
    for clause in clauses[:-1]:
        if clause.condition is None:
            cursor.fail_at(
                clause.span,
                f"Only the last WHEN {kind} clause may omit its condition",
                hint="Give this clause a condition (AND ...) or put it after the others of its kind.",
            )


def check_some_clause(cursor: Cursor, count: int) -> None:
    """Check that MERGE has at least one WHEN clause.

    Raises:
        SqlError: At the end of the statement.
    """
    if count == 0:
        cursor.fail("There must be at least one WHEN clause in a MERGE statement", expected="WHEN")


def strip_qualifier(target: TableReference, key: tuple[str, ...]) -> tuple[str, ...]:
    lowered = tuple(part.lower() for part in key)
    names = tuple(part.lower() for part in ((target.alias,) if target.alias else target.parts))
    for length in range(min(len(names), len(key) - 1), 0, -1):
        if lowered[:length] == names[-length:]:
            return key[length:]
    return key


def column_text(target: TableReference, key: tuple[str, ...]) -> str:
    return ".".join(strip_qualifier(target, key))


def fail(cursor: Cursor, span: Span, message: str) -> None:
    cursor.fail_at(span, message, kind=ErrorKind.INVALID_ASSIGNMENT, hint="Assign each column once.")
