"""`a = 1, s.b = DEFAULT, ...`. Pure; driver.

Input: a cursor behind SET. Output: `Assignment`s as written.
"""

from dml.sqlparse.cursor import Cursor
from dml.sqlparse.fragments import FragmentReader
from dml.sqlparse.statements import Assignment, Fragment, Span

__all__ = ["read_assignments", "read_value"]


def read_assignments(
    cursor: Cursor, reader: FragmentReader, *, stops: frozenset[str], hint: str | None = None
) -> tuple[Assignment, ...]:
    """Reads a list of assignments.

    Args:
        cursor: Stands behind SET.
        reader: Makes the fragments.
        stops: The words of the clauses that may follow.
        hint: What to do about a clause that cannot.

    Returns:
        The assignments.

    Raises:
        SqlError: A key, `=` or a value is missing.
    """
    assignments = []
    while True:
        begin = cursor.index
        key = cursor.names("the name of a column to assign")
        key_span = cursor.span_from(begin)
        if not cursor.accept("="):
            cursor.expect("==" if cursor.at("==") else "=")
        value, value_span = read_value(cursor, reader, stops=stops, what=f"a value for {key[-1]!r}", hint=hint)
        assignments.append(Assignment(key=key, key_span=key_span, value=value, value_span=value_span))
        if not cursor.accept(","):
            return tuple(assignments)


def read_value(
    cursor: Cursor, reader: FragmentReader, *, what: str, stops: frozenset[str] = frozenset(), hint: str | None = None
) -> tuple[Fragment | None, Span]:
    """Reads an assigned value up to a comma, a closing bracket or one of `stops`; None stands for DEFAULT."""
    begin = cursor.index
    end = cursor.expression(what, stops=stops | {","}, foreign_hint=hint)
    if end == begin + 1 and cursor.source.tokens[begin].key == "DEFAULT":
        return None, cursor.span_from(begin)
    value = reader.expression(begin, end)
    if value.ast is None:
        _check_comma(cursor, begin, end, stops)
    return value, cursor.span_from(begin)


def _check_comma(cursor: Cursor, begin: int, end: int, stops: frozenset[str]) -> None:
    # SET a = 1 b = 2: a name and `=` right behind an operand.
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
