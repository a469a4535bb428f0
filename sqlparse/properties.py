"""`('key' = 'value', a.b = 1, ...)` in all the forms that Spark reads. Pure; driver.

Input: a cursor at the bracket. Output: pairs of strings, in order; keys and values as Spark would store them.
"""

from dml.sqlparse.cursor import Cursor
from dml.sqlparse.tokens import Kind, string_value

__all__ = ["read_keys", "read_properties"]


def read_properties(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """Reads a list of properties with their values.

    Raises:
        SqlError: A key, a value or a bracket is missing, or a key stands there twice.
    """
    close = cursor.open_bracket("the properties")
    properties: dict[str, str] = {}
    while True:
        begin = cursor.index
        key = read_key(cursor)
        if key in properties:
            cursor.fail_at(cursor.span_from(begin), f"The property '{key}' is given twice")
        if not cursor.accept("="):
            cursor.accept("==")
        properties[key] = _value(cursor, key)
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    return tuple(properties.items())


def read_keys(cursor: Cursor) -> tuple[str, ...]:
    """Reads a list of keys."""
    close = cursor.open_bracket("the keys")
    keys = [read_key(cursor)]
    while cursor.accept(","):
        keys.append(read_key(cursor))
    if cursor.index != close:
        cursor.fail(expected="',' or ')'", hint="Quote a key that is not made of plain names: 'a-b.c'.")
    cursor.index = close + 1
    return tuple(keys)


def read_key(cursor: Cursor) -> str:
    """Reads one key: a string or a dotted name."""
    if cursor.at_string():
        cursor.index += 1  # one literal only: a value may follow without `=`
        return string_value(cursor.source.text(cursor.index - 1))
    return ".".join(cursor.names("the key of a property"))


def _value(cursor: Cursor, key: str) -> str:
    if cursor.at_string():
        return cursor.string("a value")
    negative = "-" if cursor.at("-") and cursor.source.tokens[cursor.index + 1].kind is Kind.NUMBER else ""
    cursor.index += len(negative)
    token = cursor.source.tokens[cursor.index]
    if token.kind is not Kind.NUMBER and token.key not in {"TRUE", "FALSE"}:
        hint = "Quote a key that is not made of plain names: 'a-b.c'." if cursor.key() == "-" else None
        cursor.fail(expected=f"a value for '{key}': a string, a number, true or false", hint=hint)
    text = cursor.source.text(cursor.index)
    cursor.index += 1
    return negative + (text.lower() if token.kind is Kind.WORD else text)
