"""DELETE, UPDATE and TRUNCATE. Pure; driver.

Input: a cursor at the verb. Output: the statement, or a `SqlError` that names the place and what was expected.
"""

from dml.sqlparse.assignments import read_assignments
from dml.sqlparse.cursor import Cursor, NotOurs
from dml.sqlparse.fragments import FragmentReader
from dml.sqlparse.rules import check_assignments
from dml.sqlparse.statements import DeleteStatement, Fragment, Truncate, UpdateStatement
from dml.sqlparse.targets import read_target, table_name

__all__ = ["read_delete", "read_truncate", "read_update"]

_NO_JOIN = "Rows of another table are found with a subquery in WHERE, or with MERGE INTO ... USING."
_WHERE = frozenset({"WHERE"})


def read_delete(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None) -> DeleteStatement:
    """`DELETE FROM target [[AS] alias] [WHERE condition]`."""
    cursor.expect("DELETE", "FROM")
    target = read_target(cursor, reader, aliased=True)
    condition = _where(cursor, reader)
    return DeleteStatement(target=target, condition=condition, ctes=ctes)


def read_update(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None) -> UpdateStatement:
    """`UPDATE target [[AS] alias] SET assignments [WHERE condition]`."""
    cursor.expect("UPDATE")
    target = read_target(cursor, reader, aliased=True)
    cursor.expect("SET")
    if cursor.at("*"):
        cursor.fail(expected="the name of a column to assign", hint="SET * stands only in MERGE.")
    assignments = read_assignments(cursor, reader, stops=_WHERE, hint=_NO_JOIN)
    condition = _where(cursor, reader)
    check_assignments(cursor, target, assignments)
    return UpdateStatement(target=target, assignments=assignments, condition=condition, ctes=ctes)


def read_truncate(cursor: Cursor, reader: FragmentReader) -> Truncate:
    """`TRUNCATE TABLE target`."""
    cursor.expect("TRUNCATE", "TABLE")
    target = table_name(cursor, reader)
    if cursor.at("PARTITION"):
        raise NotOurs
    cursor.finish()
    return Truncate(target=target)


def _where(cursor: Cursor, reader: FragmentReader) -> Fragment | None:
    if cursor.at_end():
        return None
    if not cursor.accept("WHERE"):
        hint = _NO_JOIN if cursor.key() in {"USING", "FROM", "JOIN", ","} else None
        cursor.fail(expected="WHERE or the end of the statement", hint=hint)
    begin = cursor.index
    end = cursor.expression("a condition", foreign_hint=_NO_JOIN if cursor.key() == "JOIN" else None)
    cursor.finish()
    return reader.expression(begin, end)
