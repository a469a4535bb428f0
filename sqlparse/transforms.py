"""Partition transforms and sort terms. Pure; driver. Iceberg spec: "Partition Transforms".

Input: a cursor at `bucket(4, id)`, `days(ts)`, `dep`. Output: `TransformTerm`, with plural forms folded.
"""

from dml.sqlparse.cursor import Cursor
from dml.sqlparse.statements import Span, TransformTerm
from dml.sqlparse.tokens import Kind

__all__ = ["read_sort_terms", "read_transform"]

_NAMES = {
    "IDENTITY": "identity",
    "BUCKET": "bucket",
    "TRUNCATE": "truncate",
    "YEAR": "year",
    "YEARS": "year",
    "MONTH": "month",
    "MONTHS": "month",
    "DAY": "day",
    "DAYS": "day",
    "DATE": "day",
    "HOUR": "hour",
    "HOURS": "hour",
    "DATE_HOUR": "hour",
    "VOID": "void",
}
_WITH_NUMBER = frozenset({"bucket", "truncate"})


def read_transform(cursor: Cursor, *, named: bool = False) -> TransformTerm:
    """Reads one term.

    Args:
        cursor: Stands at the column or at the transform's name.
        named: Whether `AS name` may follow.

    Returns:
        The term.

    Raises:
        SqlError: The transform is not one of Iceberg's, or its arguments do not fit.
    """
    begin = cursor.index
    path = cursor.names("a column or a transform")
    transform, argument = "identity", None
    if cursor.at("("):
        transform = _transform_name(cursor, path, cursor.span_from(begin))
        path, argument = _arguments(cursor, transform)
    span = cursor.span_from(begin)
    name = cursor.name("a name") if named and cursor.accept("AS") else None
    return TransformTerm(transform=transform, column=path, argument=argument, name=name, span=span)


def read_sort_terms(cursor: Cursor) -> tuple[TransformTerm, ...]:
    """Reads `term [ASC | DESC] [NULLS FIRST | LAST], ...`, perhaps in parentheses."""
    close = cursor.open_bracket("the order") if cursor.at("(") else None
    terms = [_sort_term(cursor)]
    while cursor.accept(","):
        terms.append(_sort_term(cursor))
    if close is not None:
        if cursor.index != close:
            cursor.fail(expected="',' or ')'")
        cursor.index = close + 1
    return tuple(terms)


def _sort_term(cursor: Cursor) -> TransformTerm:
    term = read_transform(cursor)
    ascending = not cursor.accept("DESC")
    if ascending:
        cursor.accept("ASC")
    nulls_first = ascending
    if cursor.accept("NULLS"):
        nulls_first = cursor.accept("FIRST")
        if not nulls_first:
            cursor.expect("LAST")
    return TransformTerm(
        transform=term.transform,
        column=term.column,
        argument=term.argument,
        span=term.span,
        ascending=ascending,
        nulls_first=nulls_first,
    )


def _transform_name(cursor: Cursor, path: tuple[str, ...], span: Span) -> str:
    transform = _NAMES.get(path[0].upper()) if len(path) == 1 else None
    if transform is None:
        cursor.fail_at(
            span,
            f"There is no partition transform '{'.'.join(path)}'",
            expected="bucket, truncate, years, months, days, hours, identity or void",
        )
    return transform


def _arguments(cursor: Cursor, transform: str) -> tuple[tuple[str, ...], int | None]:
    close = cursor.open_bracket("the arguments")
    argument = _number(cursor)
    if argument is not None:
        cursor.expect(",")
    path = cursor.names("the name of a column")
    if argument is None and cursor.accept(","):
        argument = _number(cursor)
        if argument is None:
            cursor.fail(expected="a number")
    if cursor.index != close:
        cursor.fail(expected="')'")
    if (transform in _WITH_NUMBER) != (argument is not None):
        takes = "a number and a column" if transform in _WITH_NUMBER else "a column only"
        cursor.fail(f"The transform '{transform}' takes {takes}", hint=f"Write {_example(transform)}.")
    if argument is not None and argument <= 0:
        cursor.fail(f"The number of '{transform}' must be positive")
    cursor.index = close + 1
    return path, argument


def _number(cursor: Cursor) -> int | None:
    text = cursor.source.text(cursor.index)
    if cursor.source.tokens[cursor.index].kind is not Kind.NUMBER:
        return None
    if not text.isdecimal() or len(text) > 10:
        cursor.fail(expected="a whole number")
    cursor.index += 1
    return int(text)


def _example(transform: str) -> str:
    return f"{transform}(16, column)" if transform in _WITH_NUMBER else f"{transform}(column)"
