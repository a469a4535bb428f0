"""Column definitions and data types. Pure; driver.

Input: a cursor at a column of CREATE TABLE, ADD COLUMNS or ALTER COLUMN. Output: `ColumnDefinition`s; types and
defaults stay the text that was written.
"""

from dml.sqlparse.cursor import Cursor, NotOurs
from dml.sqlparse.keywords import words
from dml.sqlparse.statements import ColumnDefinition, ColumnPosition
from dml.sqlparse.tokens import Kind

__all__ = ["read_column", "read_data_type", "read_default", "read_position"]

_AFTER_TYPE = words(
    "NOT NULL DEFAULT COMMENT GENERATED FIRST AFTER CONSTRAINT PRIMARY UNIQUE REFERENCES CHECK FOREIGN SET DROP"
)
_CONSTRAINTS = frozenset(["CONSTRAINT", "PRIMARY", "UNIQUE", "REFERENCES", "CHECK", "FOREIGN"])
_AFTER_DEFAULT = _AFTER_TYPE | {","}


def read_column(cursor: Cursor, *, nested: bool, positioned: bool) -> ColumnDefinition:
    """Reads one column.

    Args:
        cursor: Stands at its name.
        nested: Whether the name may be a path into a struct.
        positioned: Whether FIRST and AFTER may stand there.

    Returns:
        The column.

    Raises:
        SqlError: A name or a type is missing, or an option is given twice.
        NotOurs: Generated columns and constraints, which Iceberg has not.
    """
    begin = cursor.index
    path = cursor.names("the name of a column") if nested else (cursor.name("the name of a column"),)
    if cursor.at("."):
        cursor.fail(expected="a data type")
    data_type = read_data_type(cursor)
    required, default, comment, position = False, None, None, None
    while True:
        before = cursor.index
        if cursor.accept("NOT"):
            again = required
            cursor.expect("NULL")
            required = True
        elif cursor.accept("DEFAULT"):
            again = default is not None
            default = read_default(cursor)
        elif cursor.accept("COMMENT"):
            again = comment is not None
            comment = cursor.string("a comment")
        elif positioned and cursor.key() in {"FIRST", "AFTER"}:
            again = position is not None
            position = read_position(cursor)
        elif cursor.key() in _CONSTRAINTS or cursor.at("GENERATED"):
            raise NotOurs
        else:
            break
        if again:
            cursor.fail_at(cursor.span_from(before), f"An option of column '{'.'.join(path)}' is given twice")
    return ColumnDefinition(
        path=path,
        data_type=data_type,
        span=cursor.span_from(begin),
        required=required,
        default=default,
        comment=comment,
        position=position,
    )


def read_data_type(cursor: Cursor) -> str:
    """Reads the text of a data type: `decimal(10, 2)`, `struct<a: int NOT NULL, b: array<string>>`."""
    source, begin, depth = cursor.source, cursor.index, 0
    while cursor.index < source.end:
        token = source.tokens[cursor.index]
        if depth == 0:
            if token.kind is Kind.WORD and token.key in _AFTER_TYPE and cursor.index > begin:
                break
            opens = token.key in {"<", "<>", "("} and cursor.index > begin
            if token.kind is not Kind.WORD and not opens:
                break
        if token.key in {"<", ">"}:
            depth += 1 if token.key == "<" else -1
        cursor.index = source.partner.get(cursor.index, cursor.index) + 1
    if depth > 0:
        cursor.fail(expected="'>' to close the data type")
    if cursor.index == begin:
        cursor.fail(expected="a data type")
    return source.sql[source.tokens[begin].start : source.tokens[cursor.index - 1].end]


def read_default(cursor: Cursor) -> str:
    """Reads the text of a DEFAULT expression up to the next option of the column."""
    begin = cursor.index
    end = cursor.expression("a default value", stops=_AFTER_DEFAULT)
    tokens = cursor.source.tokens
    return cursor.source.sql[tokens[begin].start : tokens[end - 1].end]


def read_position(cursor: Cursor) -> ColumnPosition:
    """Reads `FIRST` or `AFTER column`."""
    if cursor.accept("FIRST"):
        return ColumnPosition()
    cursor.expect("AFTER")
    return ColumnPosition(after=cursor.name("the name of a column"))
